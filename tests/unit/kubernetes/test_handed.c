/* SPDX-License-Identifier: Apache-2.0 */
/* Answers to claims: given out once, to the pod's own uid, and not when they are old. */
#include "kube_test.h"

#include "handed.h"

static struct json_object *pod(int number)
{
	struct json_object *made = json_object_new_object();

	json_object_object_add(made, "number", json_object_new_int(number));
	return made;
}

static void is(struct json_object *found, int number)
{
	struct json_object *value;

	assert_non_null(found);
	assert_true(json_object_object_get_ex(found, "number", &value));
	assert_int_equal(json_object_get_int(value), number);
	json_object_put(found);
}

static void test_once_and_by_uid(void **state)
{
	struct handed handed;

	(void)state;
	handed_init(&handed);
	assert_null(handed_take(&handed, "a"));
	handed_put(&handed, "a", pod(1));
	handed_put(&handed, "b", pod(2));
	assert_null(handed_take(&handed, "c"));
	is(handed_take(&handed, "b"), 2);
	assert_null(handed_take(&handed, "b"));
	is(handed_take(&handed, "a"), 1);
	handed_put(&handed, "left", pod(3));
	handed_fini(&handed);
}

static void test_an_old_one_is_not_believed(void **state)
{
	struct handed handed;

	(void)state;
	handed_init(&handed);
	handed_put(&handed, "a", pod(1));
	handed.pods[0].until_ns = 0;
	assert_null(handed_take(&handed, "a"));
	assert_null(handed.pods[0].pod);
	handed_fini(&handed);
}

static void test_later_ones_take_the_places(void **state)
{
	struct handed handed;
	char uid[16];

	(void)state;
	handed_init(&handed);
	for (int i = 0; i <= HANDED_MAX; i++) {
		snprintf(uid, sizeof(uid), "%d", i);
		handed_put(&handed, uid, pod(i));
	}
	assert_null(handed_take(&handed, "0"));
	is(handed_take(&handed, "1"), 1);
	is(handed_take(&handed, uid), HANDED_MAX);
	handed_fini(&handed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_once_and_by_uid),
		cmocka_unit_test(test_an_old_one_is_not_believed),
		cmocka_unit_test(test_later_ones_take_the_places),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
