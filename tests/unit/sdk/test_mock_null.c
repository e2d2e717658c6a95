/* SPDX-License-Identifier: Apache-2.0 */
/* The mock provider's runtime "null": commands that only pretend, and what it admits it cannot do. */
#include "mock_host.h"

#include <sys/wait.h>

static const struct rig_option null_runtime[] = {{"runtime", "null", 0}, {NULL, NULL, 0}};

static void test_honest(void **state)
{
	const struct berth_execution execution = {.struct_size = sizeof(execution), .attempt = 1, .id = S("e")};
	struct berth_str path = S("a");
	struct berth_call *call = call_make();
	struct berth_session session;
	struct rig rig;
	char ref[64];

	(void)state;
	mock_log[0] = '\0';
	rig_start(&rig, null_runtime);
	assert_non_null(strstr(mock_log, "runs nothing"));
	assert_int_equal(rig.info.capabilities & ~rig.provider->capabilities, 0);
	assert_int_equal(
	    rig.info.capabilities & (BERTH_CAP_REATTACH | BERTH_CAP_SIGNAL | BERTH_CAP_BULK | BERTH_CAP_CHANGES), 0);
	assert_int_equal(rig.ops->check(rig.inst, call), BERTH_OK);
	make_session(&rig, "w", "t", ref);
	session = session_of(ref);
	assert_int_equal(rig.ops->file_stat(rig.inst, call, &session, &path), BERTH_UNSUPPORTED);
	assert_int_equal(rig.ops->mark(rig.inst, call, &session), BERTH_UNSUPPORTED);
	assert_int_equal(rig.ops->forget(rig.inst, call, &session, &execution), BERTH_UNSUPPORTED);
	assert_int_equal(do_reattach(&rig, call, ref, "e", 0), BERTH_UNSUPPORTED);
	rig_shell(&rig, "test \"$(ls sessions/%s)\" = session && test ! -e calls.log", ref);
	rig_stop(&rig);
	call_drop(call);
}

static void test_shapes(void **state)
{
	static const struct {
		const char *script;
		size_t out, err;
		int32_t exit;
		int32_t rc;
	} cases[] = {
	    {"anything", 100, 0, 0, BERTH_OK},
	    {"#null", 100, 0, 0, BERTH_OK},
	    {"#null out=0 err=7 exit=3", 0, 7, 3, BERTH_OK},
	    {"#null out=100KiB ms=20\nwhatever", 102400, 0, 0, BERTH_OK},
	    {"#null out=2MiB", 1 << 20, 0, 0, BERTH_OK},
	    {"#null exit=256", 0, 0, 0, BERTH_INVALID},
	    {"#null outs=1", 0, 0, 0, BERTH_INVALID},
	};
	struct rig rig;
	char ref[64];

	(void)state;
	rig_start(&rig, null_runtime);
	make_session(&rig, "w", "t", ref);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct berth_call *call = call_make();

		assert_int_equal(do_execute(&rig, call, ref, "e", cases[i].script), cases[i].rc);
		assert_int_equal(call->ending_count, cases[i].rc == BERTH_OK);
		assert_int_equal(call->out[BERTH_STREAM_STDOUT].len, cases[i].out);
		assert_int_equal(call->out[BERTH_STREAM_STDERR].len, cases[i].err);
		assert_int_equal(call->ending.exit_code, cases[i].exit);
		if (cases[i].out == 1 << 20)
			assert_int_equal(call->ending.stdout_dropped, 1 << 20);
		if (cases[i].out)
			assert_null(memchr(call->out[BERTH_STREAM_STDOUT].ptr, '\0', cases[i].out));
		call_drop(call);
	}
	rig_stop(&rig);
}

static void test_cancel(void **state)
{
	struct background running;
	struct rig rig;
	char ref[64];

	(void)state;
	rig_start(&rig, null_runtime);
	make_session(&rig, "w", "t", ref);
	background_start(&running, &rig, ref, "e", "#null ms=1000000");
	background_await(&running, 100);
	call_stop(running.call, BERTH_CANCEL_STOP);
	assert_int_equal(background_join(&running), BERTH_OK);
	assert_int_equal(running.call->ending.kind, BERTH_ENDING_CANCELLED);
	call_drop(running.call);
	background_start(&running, &rig, ref, "e", "#null ms=1000000");
	background_await(&running, 100);
	call_stop(running.call, BERTH_CANCEL_DETACH);
	assert_int_equal(background_join(&running), BERTH_CANCELLED);
	assert_int_equal(running.call->ending_count, 0);
	call_drop(running.call);
	rig_stop(&rig);
}

static void test_timeout(void **state)
{
	struct berth_call *call = call_make();
	struct berth_session session;
	struct berth_command command = {.struct_size = sizeof(command),
					.attempt = 1,
					.execution_id = S("e"),
					.script = S("#null ms=60000"),
					.cwd = S("."),
					.timeout_ms = 30,
					.stdout_max = 10};
	struct rig rig;
	char ref[64];

	(void)state;
	rig_start(&rig, null_runtime);
	make_session(&rig, "w", "t", ref);
	session = session_of(ref);
	assert_int_equal(rig.ops->execute(rig.inst, call, &session, &command), BERTH_OK);
	assert_int_equal(call->ending.kind, BERTH_ENDING_TIMEOUT);
	assert_true(call->ending.duration_ms >= 30);
	rig_stop(&rig);
	call_drop(call);
}

/* What this process removes is gone at once, what another one does soon. */
static void test_gone(void **state)
{
	struct berth_call *call = call_make();
	struct rig rig;
	char ref[64];

	(void)state;
	rig_start(&rig, null_runtime);
	make_session(&rig, "w", "t", ref);
	assert_int_equal(do_execute(&rig, call, ref, "e", ""), BERTH_OK);
	assert_int_equal(code_of(&rig, ref, rig.ops->release), BERTH_OK);
	assert_int_equal(do_execute(&rig, call, ref, "e", ""), BERTH_SESSION_LOST);
	make_session(&rig, "w", "t", ref);
	assert_int_equal(do_execute(&rig, call, ref, "e", ""), BERTH_OK);
	rig_shell(&rig, "rm -r sessions/%s", ref);
	while (!do_execute(&rig, call, ref, "e", ""))
		assert_true(mock_now_ns() < call->deadline_ns);
	assert_string_equal(call->reason, "deleted");
	rig_stop(&rig);
	call_drop(call);
}

static void test_faults_are_seen(void **state)
{
	struct berth_call *call = call_make();
	struct rig rig;
	char ref[64];

	(void)state;
	rig_start(&rig, null_runtime);
	make_session(&rig, "w", "t", ref);
	assert_int_equal(do_execute(&rig, call, ref, "e", ""), BERTH_OK);
	rig_faults(&rig, "execute code=UNAVAILABLE\n");
	while (!do_execute(&rig, call, ref, "e", ""))
		assert_true(mock_now_ns() < call->deadline_ns);
	rig_faults(&rig, "execute cut=5\n");
	while (do_execute(&rig, call, ref, "e", "") == BERTH_UNAVAILABLE)
		assert_true(mock_now_ns() < call->deadline_ns);
	assert_int_equal(do_execute(&rig, call, ref, "e", ""), BERTH_UNKNOWN);
	rig_stop(&rig);
	call_drop(call);
}

struct load {
	struct rig *rig;
	const char *ref;
	unsigned bad;
};

#define LOAD_CALLS 2000

static void *load_main(void *arg)
{
	struct load *load = arg;
	struct berth_call *call = call_make();

	for (int i = 0; i < LOAD_CALLS; i++) {
		call->out[BERTH_STREAM_STDOUT].len = 0;
		load->bad += do_execute(load->rig, call, load->ref, "e", "") != BERTH_OK;
	}
	call_drop(call);
	return NULL;
}

/* Threads and processes count into one file, and no call is missed. */
static void test_counters(void **state)
{
	struct load loads[4];
	pthread_t threads[4];
	struct rig rig;
	char ref[64];
	int status;
	pid_t pid;

	(void)state;
	rig_start(&rig, null_runtime);
	make_session(&rig, "w", "t", ref);
	pid = fork();
	if (!pid) {
		struct load load = {&rig, ref, 0};

		load_main(&load);
		_exit(load.bad ? 1 : 0);
	}
	for (size_t i = 0; i < 4; i++) {
		loads[i] = (struct load){&rig, ref, 0};
		assert_int_equal(pthread_create(&threads[i], NULL, load_main, &loads[i]), 0);
	}
	for (size_t i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(loads[i].bad, 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(rig_counter(&rig, "execute"), 5 * LOAD_CALLS);
	assert_int_equal(rig_counter(&rig, "started"), 5 * LOAD_CALLS);
	rig_stop(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_honest),   cmocka_unit_test(test_shapes), cmocka_unit_test(test_cancel),
	    cmocka_unit_test(test_timeout),  cmocka_unit_test(test_gone),   cmocka_unit_test(test_faults_are_seen),
	    cmocka_unit_test(test_counters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
