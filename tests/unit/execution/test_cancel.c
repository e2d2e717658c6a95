/* SPDX-License-Identifier: Apache-2.0 */
/* Cancel in every state and at random instants, teardown, and faults of the provider while a command runs. */
#include "setup.h"

#include <pthread.h>
#include <stdio.h>

#include "core/secret.h"
#include "session/session.h"

static struct host host;

static bool cancel(const char *id)
{
	struct err err = {0};
	bool done = false;

	if (execution_cancel(host.e, id, "user", &done, &err))
		fprintf(stderr, "cancel: %s\n", err.msg);
	return done;
}

static void expect_cancelled(const char *id)
{
	host_finish(&host, id);
	host_expect(&host, id, "status", "cancelled");
	host_expect(&host, id, "reason", "user");
	host_expect(&host, id, "ending.kind", "cancelled");
	host_check_history(&host, id);
}

struct file {
	const char *task, *path;
};

static bool file_exists(void *arg)
{
	const struct file *file = arg;
	char id[IDENT_ID_MAX + 1], body[128], *code;
	bool there;

	snprintf(body, sizeof(body), "test -e %s", file->path);
	host_run(&host, file->task, body, id);
	code = host_get(&host, id, "result.exit_code");
	there = strcmp(code, "0") == 0;
	free(code);
	return there;
}

static void wait_file(const char *task, const char *path)
{
	host_wait(&host, file_exists, &(struct file){task, path});
}

/* Q7: the tree is gone, though it ignores TERM and left its session. */
static void a_running_command_is_stopped(void **state)
{
	char id[IDENT_ID_MAX + 1], other[IDENT_ID_MAX + 1];

	(void)state;
	host_run(&host, "t", "true", id);
	host_start(&host, "t",
		   "trap '' TERM; setsid sh -c 'trap \"\" TERM; touch started; while :; do echo x >> late; sleep 0.02; "
		   "done' & "
		   "wait; sleep 1000",
		   id);
	wait_file("t", "started");
	assert_false(cancel(id));
	expect_cancelled(id);
	assert_true(cancel(id)); /* terminal: unchanged */
	host_run(&host, "t", "a=$(wc -c < late); sleep 0.2; test $a -eq $(wc -c < late) && echo gone", other);
	host_expect_output(&host, other, 1, "gone\n");
	assert_int_equal(host_sessions(&host), 1);
}

static void a_waiting_command_is_cancelled_at_once(void **state)
{
	char running[IDENT_ID_MAX + 1], behind[IDENT_ID_MAX + 1], id[IDENT_ID_MAX + 1];

	(void)state;
	host_run(&host, "t", "true", id);
	host_start(&host, "t", "sleep 1000", running);
	host_until(&host, running, "running");
	host_start(&host, "t", "touch never", behind);
	host_expect(&host, behind, "status", "queued");
	assert_true(cancel(behind));
	expect_cancelled(behind);
	cancel(running);
	expect_cancelled(running);
	host_run(&host, "t", "ls", id);
	host_expect_output(&host, id, 1, "");
}

static int up_one_at_a_time(void **state)
{
	host_setup_made(state);
	host.conf.task_concurrency = 1;
	host_up(&host);
	return 0;
}

static int up_slow_start(void **state)
{
	host_setup_made(state);
	host.settings[4] = (struct conf_pair){
		.key = (char *)(uintptr_t) "ready_delay", .value = (char *)(uintptr_t) "700ms", .where = host.dir};
	host.target.setting_count = 5;
	host_up(&host);
	return 0;
}

static void a_command_that_waits_for_its_session_is_cancelled(void **state)
{
	char id[IDENT_ID_MAX + 1], next[IDENT_ID_MAX + 1];

	(void)state;
	host_start(&host, "t", "touch never", id);
	host_until(&host, id, "claimed");
	cancel(id);
	expect_cancelled(id);
	host_run(&host, "t", "ls", next);
	host_expect_output(&host, next, 1, "");
	assert_int_equal(host_sessions(&host), 1);
}

/* O1 at this level: they share one session, and each runs. */
static void many_first_commands_share_one_session(void **state)
{
	char ids[64][IDENT_ID_MAX + 1];

	(void)state;
	for (unsigned i = 0; i < 64; i++)
		host_start(&host, "t", "echo x >> ran", ids[i]);
	for (unsigned i = 0; i < 64; i++) {
		host_finish(&host, ids[i]);
		host_expect(&host, ids[i], "result.exit_code", "0");
		host_check_history(&host, ids[i]);
	}
	host_run(&host, "t", "wc -l < ran", ids[0]);
	host_expect_output(&host, ids[0], 1, "64\n");
	assert_int_equal(host_counter(&host, "created"), 1);
}

/* Q6 */
#define ROUNDS 120
#define THREADS 6

static unsigned random_below(unsigned limit)
{
	uint32_t value;

	secret_random(&value, sizeof(value));
	return value % limit;
}

struct canceller {
	unsigned number;
	char ids[ROUNDS / THREADS][IDENT_ID_MAX + 1];
	bool failed;
};

static bool never(void *arg)
{
	(void)arg;
	return false;
}

static void *canceller_main(void *arg)
{
	struct canceller *c = arg;
	char task[16];

	snprintf(task, sizeof(task), "t%u", c->number % 3);
	for (unsigned i = 0; i < ROUNDS / THREADS; i++) {
		struct execution_create in = host_request(task, "sleep 0.05; echo done");
		bool done;

		c->failed |= host_create(&host, &in, c->ids[i]) != 0;
		/* The instant is the point of the test; nothing ever notifies this key. */
		watch_block(host.watch, "test:nothing", never, NULL,
			    clock_boot_ns() + random_below(80000) * INT64_C(1000));
		c->failed |= execution_cancel(host.e, c->ids[i], "user", &done, NULL) != 0;
	}
	return NULL;
}

static void cancels_at_random_instants_are_legal(void **state)
{
	static struct canceller cancellers[THREADS];
	pthread_t threads[THREADS];
	char id[IDENT_ID_MAX + 1];

	(void)state;
	host_run(&host, "t0", "true", id);
	for (unsigned i = 0; i < THREADS; i++) {
		cancellers[i] = (struct canceller){.number = i};
		pthread_create(&threads[i], NULL, canceller_main, &cancellers[i]);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < ROUNDS; i++) {
		const struct canceller *c = &cancellers[i % THREADS];
		const char *one = c->ids[i / THREADS];
		char *status, *revision;

		assert_false(c->failed);
		host_finish(&host, one);
		status = host_get(&host, one, "status");
		revision = host_get(&host, one, "revision");
		if (strcmp(status, "completed") != 0)
			host_expect(&host, one, "status", "cancelled");
		host_check_history(&host, one);
		assert_true(cancel(one));
		host_expect(&host, one, "revision", revision);
		host_expect(&host, one, "status", status);
		free(status);
		free(revision);
	}
	assert_int_equal(host_stream(&host, STREAM_REQUESTS), 0);
}

/* ---- teardown ---- */

static void teardown(const char *task, bool force)
{
	struct ident ident = host_request(task, "x").ident;
	bool gone = false;

	assert_int_equal(session_teardown(host.sessions, &ident, force, clock_after_ms(WAIT_MS), &gone, NULL), 0);
	assert_true(gone);
}

static void a_forced_teardown_cancels_everything(void **state)
{
	char running[IDENT_ID_MAX + 1], behind[IDENT_ID_MAX + 1], id[IDENT_ID_MAX + 1];

	(void)state;
	host_run(&host, "t", "true", id);
	host_start(&host, "t", "sleep 1000", running);
	host_until(&host, running, "running");
	host_start(&host, "t", "true", behind);
	teardown("t", true);
	host_finish(&host, running);
	host_expect(&host, running, "status", "cancelled");
	host_expect(&host, running, "reason", "task_deleted");
	host_finish(&host, behind);
	host_expect(&host, behind, "status", "cancelled");
	host_expect(&host, behind, "reason", "task_deleted");
	host_check_history(&host, running);
	host_check_history(&host, behind);
	assert_int_equal(host_sessions(&host), 0);
	host_expect_output(&host, id, 1, ""); /* U7 */
	host_run(&host, "t", "true", id);		      /* the next incarnation */
	host_expect(&host, id, "result.exit_code", "0");
}

static void a_plain_teardown_waits_for_what_runs(void **state)
{
	char running[IDENT_ID_MAX + 1], behind[IDENT_ID_MAX + 1], id[IDENT_ID_MAX + 1];

	(void)state;
	host_run(&host, "t", "true", id);
	host_start(&host, "t", "sleep 0.3; exit 5", running);
	host_until(&host, running, "running");
	host_start(&host, "t", "true", behind);
	teardown("t", false);
	host_finish(&host, running);
	host_expect(&host, running, "result.exit_code", "5");
	host_expect(&host, behind, "reason", "task_deleted");
	assert_int_equal(host_sessions(&host), 0);
}

/* ---- the provider's faults ---- */

/* U1: a cut stream is asked for again, from the byte it was cut at. */
static void a_cut_stream_is_continued(void **state)
{
	static const unsigned cuts[] = {0, 1, 5, 9, 10};
	char id[IDENT_ID_MAX + 1], rule[64];

	(void)state;
	host_run(&host, "t", "true", id);
	for (unsigned i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
		snprintf(rule, sizeof(rule), "execute nth=1 cut=%u\n", cuts[i]);
		host_faults(&host, rule);
		host_run(&host, "t", "printf 0123456789; echo x >> ran", id);
		host_expect(&host, id, "result.exit_code", "0");
		host_expect_output(&host, id, 1, "0123456789");
	}
	host_faults(&host, "execute cut=5\nreattach code=UNKNOWN\n");
	host_run(&host, "t", "printf 0123456789; echo x >> ran", id);
	host_expect(&host, id, "status", "failed");
	host_expect(&host, id, "ending.kind", "unknown");
	host_expect(&host, id, "result.exit_code", "");
	host_faults(&host, "");
}

/* O8: refused because the executor does not listen yet. */
static void a_deaf_executor_is_waited_for(void **state)
{
	char id[IDENT_ID_MAX + 1];

	(void)state;
	host_faults(&host, "await_ready ready_early=400ms\n");
	host_run(&host, "t", "echo hi", id);
	host_expect(&host, id, "result.exit_code", "0");
	host_expect_output(&host, id, 1, "hi\n");
	host_expect(&host, id, "attempt", "1");
}

/* L8, P1, C8 */
static void a_vanished_session_ends_its_command_only(void **state)
{
	char id[IDENT_ID_MAX + 1], next[IDENT_ID_MAX + 1], *first, *second;

	(void)state;
	host_run(&host, "t", "true", id);
	first = host_get(&host, id, "incarnation");
	host_faults(&host, "execute nth=1 vanish\n");
	host_run(&host, "t", "true", id);
	host_expect(&host, id, "status", "failed");
	host_expect(&host, id, "reason", "session_lost");
	host_expect(&host, id, "ending.kind", "session_lost");
	host_faults(&host, "");
	host_run(&host, "t", "echo again", next);
	second = host_get(&host, next, "incarnation");
	host_expect_output(&host, next, 1, "again\n");
	assert_string_not_equal(first, second);
	free(first);
	free(second);
}

static void unproven_quiescence_is_never_reused(void **state)
{
	char id[IDENT_ID_MAX + 1], *first, *second;

	(void)state;
	host_run(&host, "t", "true", id);
	first = host_get(&host, id, "incarnation");
	host_faults(&host, "execute nth=1 quiescent=no\n");
	host_run(&host, "t", "true", id);
	host_expect(&host, id, "status", "completed");
	host_faults(&host, "");
	host_run(&host, "t", "true", id);
	second = host_get(&host, id, "incarnation");
	assert_string_not_equal(first, second);
	assert_int_equal(host_counter(&host, "send_signal"), 1);
	free(first);
	free(second);
}

static void gaps_are_told(void **state)
{
	char id[IDENT_ID_MAX + 1], *lost;

	(void)state;
	host_faults(&host, "execute nth=1 gap=0-5\n");
	host_run(&host, "t", "printf 0123456789", id);
	host_expect_output(&host, id, 1, "56789");
	lost = host_get(&host, id, "output_lost");
	if (!strstr(lost, "\"stream\": \"stdout\", \"from\": 0, \"to\": 5"))
		host_expect(&host, id, "output_lost", "bytes 0 to 5 of stdout");
	free(lost);
}

static void a_provisioning_failure_gives_its_reason(void **state)
{
	char id[IDENT_ID_MAX + 1];

	(void)state;
	host_faults(&host, "await_ready code=INVALID reason=image_pull\n");
	host_run(&host, "t", "true", id);
	host_expect(&host, id, "status", "failed");
	host_expect(&host, id, "reason", "image_pull");
	host_expect(&host, id, "result", "");
}

#define TEST(name) cmocka_unit_test_prestate_setup_teardown(name, host_setup, host_teardown, &host)
#define TEST_OWN(name, setup) cmocka_unit_test_prestate_setup_teardown(name, setup, host_teardown, &host)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_running_command_is_stopped),
		TEST_OWN(a_waiting_command_is_cancelled_at_once, up_one_at_a_time),
		TEST_OWN(a_command_that_waits_for_its_session_is_cancelled, up_slow_start),
		TEST(many_first_commands_share_one_session),
		TEST(cancels_at_random_instants_are_legal),
		TEST_OWN(a_forced_teardown_cancels_everything, up_one_at_a_time),
		TEST_OWN(a_plain_teardown_waits_for_what_runs, up_one_at_a_time),
		TEST(a_cut_stream_is_continued),
		TEST(a_deaf_executor_is_waited_for),
		TEST(a_vanished_session_ends_its_command_only),
		TEST(unproven_quiescence_is_never_reused),
		TEST(gaps_are_told),
		TEST(a_provisioning_failure_gives_its_reason),
	};

	cmocka_set_test_filter(getenv("TEST_FILTER"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
