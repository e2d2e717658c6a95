/* SPDX-License-Identifier: Apache-2.0 */
/* What executors are to forget: only of those that take lists, once, at most as many as a request takes. */
#include "kube_test.h"

#include "kube.h"
#include "owed.h"
#include "session.h"

static struct owed *owed;
static struct kube kube;

static int setup(void **state)
{
	struct kerr err = {0};

	(void)state;
	return owed_start(&kube, &owed, &err);
}

static int teardown(void **state)
{
	(void)state;
	owed_stop(owed);
	return 0;
}

static struct session session(const char *uid)
{
	struct session made = {.pod = "p"};

	snprintf(made.uid, sizeof(made.uid), "%s", uid);
	return made;
}

/* Frees the list. */
static unsigned length(struct owed_command *list)
{
	unsigned count = 0;

	for (const struct owed_command *at = list; at; at = at->next)
		count++;
	owed_list_free(list);
	return count;
}

static void test_only_whom_it_is_known_of(void **state)
{
	const struct session a = session("a"), b = session("b");

	(void)state;
	assert_false(owed_add(owed, &a, "e1", 1));
	owed_can(owed, &a);
	assert_false(owed_add(owed, &b, "e1", 1));
	assert_true(owed_add(owed, &a, "e1", 1));
	assert_null(owed_take(owed, &b));
	assert_int_equal(length(owed_take(owed, &a)), 1);
}

static void test_taken_once(void **state)
{
	const struct session a = session("a");
	struct owed_command *list;

	(void)state;
	owed_can(owed, &a);
	assert_true(owed_add(owed, &a, "e1", 1));
	assert_true(owed_add(owed, &a, "e2", 7));
	owed_can(owed, &a); /* the next answer changes nothing */
	assert_true(owed_has(owed, &a, "e1"));
	assert_false(owed_has(owed, &a, "e"));
	list = owed_take(owed, &a);
	assert_string_equal(list->id, "e2");
	assert_int_equal(list->attempt, 7);
	assert_string_equal(list->next->id, "e1");
	assert_false(owed_has(owed, &a, "e1"));
	assert_null(owed_take(owed, &a));
	/* The request that carried them was lost. */
	owed_again(owed, &a, list);
	assert_true(owed_add(owed, &a, "e3", 1));
	assert_int_equal(length(owed_take(owed, &a)), 3);
	owed_again(owed, &a, NULL);
	assert_null(owed_take(owed, &a));
}

static void test_no_more_than_a_request_takes(void **state)
{
	const struct session a = session("a");
	struct owed_command *list;
	char id[16];

	(void)state;
	owed_can(owed, &a);
	for (unsigned i = 0; i < OWED_MOST; i++) {
		snprintf(id, sizeof(id), "e%u", i);
		assert_true(owed_add(owed, &a, id, 1));
	}
	assert_false(owed_add(owed, &a, "more", 1));
	list = owed_take(owed, &a);
	assert_true(owed_add(owed, &a, "later", 1));
	owed_again(owed, &a, list);
	assert_true(owed_has(owed, &a, "later"));
	assert_int_equal(length(owed_take(owed, &a)), OWED_MOST);
}

/* Which ones is not known: all of them are asked for again, for a while. */
static void test_what_was_passed_over(void **state)
{
	const struct session a = session("a");
	struct owed_command *list;

	(void)state;
	owed_can(owed, &a);
	assert_true(owed_add(owed, &a, "e1", 1));
	assert_true(owed_add(owed, &a, "e2", 1));
	assert_true(owed_passed(owed, &a, owed_take(owed, &a)));
	assert_true(owed_add(owed, &a, "e3", 1));
	list = owed_take(owed, &a);
	assert_string_equal(list->id, "e3");
	assert_int_equal(list->passed_ns, 0);
	assert_true(list->next->passed_ns > 0);
	list->next->passed_ns -= OWED_NS;
	assert_false(owed_passed(owed, &a, list));
	assert_int_equal(length(owed_take(owed, &a)), 2);
}

static void test_a_session_that_ends(void **state)
{
	const struct session a = session("a"), b = session("b");

	(void)state;
	owed_can(owed, &a);
	owed_can(owed, &b);
	assert_true(owed_add(owed, &a, "e1", 1));
	assert_true(owed_add(owed, &b, "e1", 1));
	owed_drop(owed, &a);
	owed_drop(owed, &a);
	assert_null(owed_take(owed, &a));
	assert_false(owed_add(owed, &a, "e2", 1));
	assert_int_equal(length(owed_take(owed, &b)), 1);
	/* What is left goes with the service. */
	assert_true(owed_add(owed, &b, "e2", 1));
}

static void test_many_sessions(void **state)
{
	unsigned known = 0;

	(void)state;
	for (unsigned i = 0; i < 5000; i++) {
		struct session s;
		char uid[32];

		snprintf(uid, sizeof(uid), "uid-%u", i);
		s = session(uid);
		owed_can(owed, &s);
		known += owed_add(owed, &s, "e", 1);
		if (i % 2)
			owed_drop(owed, &s);
	}
	assert_int_equal(known, 5000);
	for (unsigned i = 0; i < 5000; i += 2) {
		struct session s;
		char uid[32];

		snprintf(uid, sizeof(uid), "uid-%u", i);
		s = session(uid);
		assert_int_equal(length(owed_take(owed, &s)), 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_only_whom_it_is_known_of, setup, teardown),
		cmocka_unit_test_setup_teardown(test_taken_once, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_more_than_a_request_takes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_was_passed_over, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_session_that_ends, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_sessions, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
