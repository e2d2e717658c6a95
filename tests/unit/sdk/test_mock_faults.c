/* SPDX-License-Identifier: Apache-2.0 */
/* The mock provider's fault file: its grammar, when rules fire, and what each effect does to a call. */
#include "mock_host.h"

static void test_grammar(void **state)
{
	static const struct {
		const char *text;
		const char *error; /* NULL: fine */
	} cases[] = {
	    {"", NULL},
	    {"# a comment\n\n  \t\nprovision nth=1 code=CAPACITY # why not\n", NULL},
	    {"* task=* delay=10ms\n", NULL},
	    {"execute task=w/t from=2 count=3 cut=10 gap=1-2 flood=1KiB", NULL},
	    {"provision clamp=1h late=5s vanish code=RATE_LIMITED reason=busy retry_after=5s retryable=1\n", NULL},
	    {"await_ready ready_early=2s isolation=gvisor garbage\n", NULL},
	    {"execute quiescent=no ending=oom garbage=twice\n", NULL},
	    {"release hang\nrelease stall\nrelease stall=1s\n", NULL},
	    {"list hang\nfly hang\n", "line 2: \"fly\" is no operation"},
	    {"list\n", "line 1: the rule says when, but not what"},
	    {"list nth=0 hang\n", "line 1: \"nth\""},
	    {"list nth=x hang\n", "line 1: \"nth\""},
	    {"list delay=5\n", "line 1: \"delay\""},
	    {"list delay\n", "line 1: \"delay\""},
	    {"list hang=1\n", "line 1: \"hang\""},
	    {"list code=BROKEN\n", "line 1: \"code\""},
	    {"list reason=x hang\n", "line 1: \"reason\" needs \"code\""},
	    {"list code=OK reason=Capital\n", "line 1: \"reason\""},
	    {"list cut=1\n", "line 1: \"cut\" means nothing for this operation"},
	    {"list vanish\n", "line 1: \"vanish\" means nothing"},
	    {"execute gap=5-5\n", "line 1: \"gap\""},
	    {"execute task=w delay=1s\n", "line 1: \"task\""},
	    {"execute task=../x delay=1s\n", "line 1: \"task\""},
	    {"execute delay=1s sometimes\n", "line 1: \"sometimes\" is no word"},
	};
	struct rig rig;

	(void)state;
	rig_start(&rig, NULL);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct berth_call *call = call_make();
		int32_t rc;

		rig_faults(&rig, cases[i].text);
		mock_log[0] = '\0';
		call->deadline_ns = INT64_MAX;
		rc = rig.ops->check(rig.inst, call);
		if (!cases[i].error) {
			assert_int_equal(rc, BERTH_OK);
			assert_string_equal(mock_log, "");
		} else {
			assert_int_equal(rc, BERTH_INVALID);
			assert_string_equal(call->reason, "fault_file");
			if (!strstr(call->text, cases[i].error))
				fail_msg("%s: %s", cases[i].text, call->text);
			assert_non_null(strstr(mock_log, cases[i].error));
		}
		call_drop(call);
	}
	rig_stop(&rig);
}

/* A file that is not understood does nothing at all, and is logged once. */
static void test_no_half_faults(void **state)
{
	struct rig rig;

	(void)state;
	rig_start(&rig, NULL);
	rig_faults(&rig, "find code=UNAVAILABLE\nfind bogus\n");
	mock_log[0] = '\0';
	assert_int_equal(count_found(&rig, "w", "t"), 0);
	assert_int_equal(count_found(&rig, "w", "t"), 0);
	assert_non_null(strstr(mock_log, "line 2"));
	assert_null(strstr(strstr(mock_log, "line 2") + 1, "line 2"));
	rig_stop(&rig);
}

/* Which of ten calls a rule hits. */
static void test_when(void **state)
{
	static const struct {
		const char *when, *hits;
	} cases[] = {
	    {"", "xxxxxxxxxx"},
	    {"nth=3", "..x......."},
	    {"every=4", "...x...x.."},
	    {"from=8", ".......xxx"},
	    {"count=2", "xx........"},
	    {"from=3 count=2", "..xx......"},
	    {"every=3 count=2", "..x..x...."},
	    {"task=w/t", "x.x.x.x.x."},
	    {"task=w/t nth=2", "..x......."},
	    {"task=w/tt", ".........."},
	};
	struct rig rig;

	(void)state;
	rig_start(&rig, NULL);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[128], hits[11] = "";

		snprintf(text, sizeof(text), "find %s code=UNAVAILABLE\n", cases[i].when);
		rig_faults(&rig, text);
		for (int k = 0; k < 10; k++) {
			struct berth_call *call = call_make();

			hits[k] = do_find(&rig, call, "w", k % 2 ? "other" : "t") ? 'x' : '.';
			call_drop(call);
		}
		assert_string_equal(hits, cases[i].hits);
	}
	rig_stop(&rig);
}

static void test_code(void **state)
{
	struct berth_call *call = call_make();
	struct rig rig;

	(void)state;
	rig_start(&rig, NULL);
	rig_faults(&rig, "provision code=RATE_LIMITED reason=slow_down retry_after=5s\n");
	assert_int_equal(do_provision(&rig, call, "w", "t", 0), BERTH_RATE_LIMITED);
	assert_string_equal(call->reason, "slow_down");
	assert_int_equal(call->retry_after_ms, 5000);
	assert_int_equal(call->retryable, 1);
	rig_faults(&rig, "provision code=CAPACITY retryable=0\n");
	assert_int_equal(do_provision(&rig, call, "w", "t", 0), BERTH_CAPACITY);
	assert_int_equal(call->retryable, 0);
	assert_int_equal(rig_counter(&rig, "created"), 0);
	assert_int_equal(rig_counter(&rig, "faults"), 2);
	rig_shell(&rig, "rm faults");
	assert_int_equal(do_provision(&rig, call, "w", "t", 0), BERTH_OK);
	rig_stop(&rig);
	call_drop(call);
}

static void *stop_when_called(void *arg)
{
	struct rig *rig = arg;
	struct berth_call *call = rig->inst;

	call_stop(call, BERTH_CANCEL_STOP);
	return NULL;
}

static void test_hang(void **state)
{
	struct berth_call *call = call_make();
	struct rig rig, other;
	pthread_t thread;

	(void)state;
	rig_start(&rig, NULL);
	rig_faults(&rig, "find hang\n");
	call->deadline_ns = mock_now_ns() + 50000000;
	assert_int_equal(do_find(&rig, call, "w", "t"), BERTH_TIMEOUT);
	assert_true(mock_now_ns() >= call->deadline_ns);
	call->deadline_ns = mock_now_ns() + INT64_C(60000000000);
	other.inst = call;
	assert_int_equal(pthread_create(&thread, NULL, stop_when_called, &other), 0);
	assert_int_equal(do_find(&rig, call, "w", "t"), BERTH_CANCELLED);
	pthread_join(thread, NULL);
	rig_stop(&rig);
	call_drop(call);
}

/* Deaf to deadline and cancel for as long as the rule says. */
static void test_delay_and_stall(void **state)
{
	struct berth_call *call = call_make();
	int64_t begin;
	struct rig rig;

	(void)state;
	rig_start(&rig, NULL);
	rig_faults(&rig, "find delay=120ms\n");
	begin = mock_now_ns();
	assert_int_equal(do_find(&rig, call, "w", "t"), BERTH_OK);
	assert_true(mock_now_ns() - begin >= 120000000);
	rig_faults(&rig, "find stall=150ms\n");
	call_stop(call, BERTH_CANCEL_STOP);
	begin = mock_now_ns();
	call->deadline_ns = begin + 1000000;
	assert_int_equal(do_find(&rig, call, "w", "t"), BERTH_CANCELLED);
	assert_true(mock_now_ns() - begin >= 150000000);
	rig_stop(&rig);
	call_drop(call);
}

static void test_lost_create(void **state)
{
	struct berth_call *call = call_make();
	struct rig rig;

	(void)state;
	rig_start(&rig, NULL);
	rig_faults(&rig, "provision nth=1 lost_reply\nprovision nth=2 lost_reply late=250ms\n");
	assert_int_equal(do_provision(&rig, call, "w", "t", 0), BERTH_UNKNOWN);
	assert_int_equal(call->created_count, 0);
	assert_int_equal(count_found(&rig, "w", "t"), 1);
	assert_int_equal(do_provision(&rig, call, "w", "t2", 0), BERTH_UNKNOWN);
	assert_int_equal(count_found(&rig, "w", "t2"), 0);
	while (!count_found(&rig, "w", "t2"))
		assert_true(mock_now_ns() < call->deadline_ns);
	assert_int_equal(rig_counter(&rig, "created"), 2);
	rig_stop(&rig);
	call_drop(call);
}

static void test_lost_release(void **state)
{
	struct rig rig;
	char ref[64];

	(void)state;
	rig_start(&rig, NULL);
	make_session(&rig, "w", "t", ref);
	rig_faults(&rig, "release nth=1 lost_reply\nrelease nth=2 code=UNAVAILABLE\n");
	assert_int_equal(code_of(&rig, ref, rig.ops->release), BERTH_UNKNOWN);
	assert_int_equal(count_found(&rig, "w", "t"), 0);
	make_session(&rig, "w", "t", ref);
	assert_int_equal(code_of(&rig, ref, rig.ops->release), BERTH_UNAVAILABLE);
	assert_int_equal(count_found(&rig, "w", "t"), 1);
	rig_stop(&rig);
}

/* U1: cut at any byte, the last one and none included; what is missing is had by asking again. */
static void test_cut(void **state)
{
	struct rig rig;
	char ref[64];

	(void)state;
	rig_start(&rig, NULL);
	make_session(&rig, "w", "t", ref);
	for (int at = 0; at <= 7; at++) {
		struct berth_call *call = call_make(), *again = call_make();
		char text[64], id[16], whole[16];

		snprintf(text, sizeof(text), "execute cut=%d\n", at);
		snprintf(id, sizeof(id), "e%d", at);
		rig_faults(&rig, text);
		if (at <= 6) {
			assert_int_equal(do_execute(&rig, call, ref, id, "printf abcdef; exit 5"), BERTH_UNKNOWN);
			assert_int_equal(call->ending_count, 0);
			assert_int_equal(call->out[BERTH_STREAM_STDOUT].len, at);
		} else {
			assert_int_equal(do_execute(&rig, call, ref, id, "printf abcdef; exit 5"), BERTH_OK);
		}
		assert_int_equal(do_reattach(&rig, again, ref, id, call->out[BERTH_STREAM_STDOUT].len), BERTH_OK);
		snprintf(whole, sizeof(whole), "%s%s", at ? call->out[BERTH_STREAM_STDOUT].ptr : "",
			 at < 6 ? again->out[BERTH_STREAM_STDOUT].ptr : "");
		assert_string_equal(whole, "abcdef");
		assert_int_equal(again->ending.exit_code, 5);
		call_drop(call);
		call_drop(again);
	}
	rig_stop(&rig);
}

/* The command whose stream is cut goes on. */
static void test_cut_does_not_kill(void **state)
{
	struct berth_call *call = call_make();
	struct rig rig;
	char ref[64];

	(void)state;
	rig_start(&rig, NULL);
	make_session(&rig, "w", "t", ref);
	rig_faults(&rig, "execute cut=1\n");
	assert_int_equal(do_execute(&rig, call, ref, "e", "mkfifo wait; printf ab; read x <wait; printf c"),
			 BERTH_UNKNOWN);
	rig_shell(&rig, "echo >sessions/%s/work/wait", ref);
	assert_int_equal(do_reattach(&rig, call, ref, "e", 1), BERTH_OK);
	assert_string_equal(call->out[BERTH_STREAM_STDOUT].ptr, "abc");
	rig_stop(&rig);
	call_drop(call);
}

static void test_cut_file(void **state)
{
	struct berth_call *call = call_make();
	struct berth_session session;
	struct berth_str path = S("f");
	struct rig rig;
	char ref[64];

	(void)state;
	rig_start(&rig, NULL);
	make_session(&rig, "w", "t", ref);
	session = session_of(ref);
	rig_shell(&rig, "printf 0123456789 >sessions/%s/work/f", ref);
	rig_faults(&rig, "file_read cut=4\n");
	assert_int_equal(rig.ops->file_read(rig.inst, call, &session, &path, 0, BERTH_SIZE_UNKNOWN), BERTH_UNAVAILABLE);
	assert_string_equal(call->out[BERTH_STREAM_DATA].ptr, "0123");
	rig_stop(&rig);
	call_drop(call);
}

static void test_lost_execute(void **state)
{
	struct berth_call *call = call_make();
	struct rig rig;
	char ref[64];

	(void)state;
	rig_start(&rig, NULL);
	make_session(&rig, "w", "t", ref);
	rig_faults(&rig, "execute lost_reply\n");
	assert_int_equal(do_execute(&rig, call, ref, "e", "echo ran; touch ran"), BERTH_UNKNOWN);
	assert_int_equal(call->ending_count, 0);
	assert_int_equal(call->out[BERTH_STREAM_STDOUT].len, 0);
	rig_shell(&rig, "test -e sessions/%s/work/ran", ref);
	assert_int_equal(do_reattach(&rig, call, ref, "e", 0), BERTH_OK);
	assert_string_equal(call->out[BERTH_STREAM_STDOUT].ptr, "ran\n");
	rig_stop(&rig);
	call_drop(call);
}

/* O8 */
static void test_ready_early(void **state)
{
	static const struct rig_option slow[] = {{"ready_delay", NULL, 3600000}, {NULL, NULL, 0}};
	struct berth_call *call = call_make();
	unsigned refused = 0;
	char ref[64], id[16];
	struct rig rig;
	int32_t rc;

	(void)state;
	rig_start(&rig, slow);
	make_session(&rig, "w", "t", ref);
	rig_faults(&rig, "await_ready ready_early=200ms\n");
	assert_int_equal(do_simple(&rig, call, ref, rig.ops->await_ready), BERTH_OK);
	assert_int_equal(call->sessions[0].phase, BERTH_PHASE_READY);
	do {
		snprintf(id, sizeof(id), "e%u", refused);
		rc = do_execute(&rig, call, ref, id, "true");
		if (rc) {
			assert_int_equal(rc, BERTH_UNAVAILABLE);
			assert_string_equal(call->reason, "executor_not_listening");
			refused++;
		}
		snprintf(id, sizeof(id), "e%u", refused);
	} while (rc && mock_now_ns() < call->deadline_ns);
	assert_int_equal(rc, BERTH_OK);
	assert_true(refused > 0);
	rig_stop(&rig);
	call_drop(call);
}

/* L8, P1 */
static void test_vanish(void **state)
{
	struct berth_call *call = call_make();
	struct rig rig;
	char ref[64];

	(void)state;
	rig_start(&rig, NULL);
	make_session(&rig, "w", "t", ref);
	rig_faults(&rig, "execute vanish\nprovision vanish\n");
	assert_int_equal(do_execute(&rig, call, ref, "e", "true"), BERTH_SESSION_LOST);
	assert_string_equal(call->reason, "deleted");
	assert_int_equal(code_of(&rig, ref, rig.ops->inspect), BERTH_NOT_FOUND);
	assert_int_equal(count_found(&rig, "w", "t"), 0);
	assert_int_equal(do_provision(&rig, call, "w", "t", 0), BERTH_OK);
	assert_int_equal(call->created_count, 1);
	assert_int_equal(count_found(&rig, "w", "t"), 0);
	assert_int_equal(rig_counter(&rig, "removed"), 2);
	rig_stop(&rig);
	call_drop(call);
}

static void test_clamp(void **state)
{
	struct berth_call *call = call_make();
	int64_t now = (int64_t)time(NULL) * 1000;
	struct berth_session session;
	struct rig rig;

	(void)state;
	rig_start(&rig, NULL);
	rig_faults(&rig, "provision clamp=10m\nrenew clamp=20m\n");
	assert_int_equal(do_provision(&rig, call, "w", "t", now + 7200000), BERTH_OK);
	assert_in_range(call->sessions[0].expires_ms, now + 600000, now + 660000);
	session = session_of(call->sessions[0].ref);
	assert_int_equal(rig.ops->renew(rig.inst, call, &session, now + 7200000), BERTH_OK);
	assert_in_range(call->expiry_ms, now + 1200000, now + 1260000);
	rig_stop(&rig);
	call_drop(call);
}

static void test_output_shapes(void **state)
{
	struct berth_call *call = call_make();
	struct rig rig;
	char ref[64];

	(void)state;
	rig_start(&rig, NULL);
	make_session(&rig, "w", "t", ref);
	rig_faults(&rig, "execute flood=1000 quiescent=no\n");
	assert_int_equal(do_execute(&rig, call, ref, "e1", "printf abc"), BERTH_OK);
	assert_int_equal(call->out[BERTH_STREAM_STDOUT].len, 1003);
	assert_memory_equal(call->out[BERTH_STREAM_STDOUT].ptr, "abcflood", 8);
	assert_int_equal(call->ending.quiescent, BERTH_QUIESCENT_NO);
	call->out[BERTH_STREAM_STDOUT].len = 0;
	rig_faults(&rig, "execute gap=2-5 ending=oom\n");
	assert_int_equal(do_execute(&rig, call, ref, "e2", "printf 0123456789"), BERTH_OK);
	assert_string_equal(call->out[BERTH_STREAM_STDOUT].ptr, "0156789");
	assert_int_equal(call->gap[0], 2);
	assert_int_equal(call->gap[1], 5);
	assert_int_equal(call->gap_count, 1);
	assert_int_equal(call->ending.kind, BERTH_ENDING_OOM);
	/* A gap that the output ends in reports only what there was. */
	call->out[BERTH_STREAM_STDOUT].len = 0;
	rig_faults(&rig, "execute gap=2-500\n");
	assert_int_equal(do_execute(&rig, call, ref, "e3", "printf 0123"), BERTH_OK);
	assert_string_equal(call->out[BERTH_STREAM_STDOUT].ptr, "01");
	assert_int_equal(call->gap[1], 4);
	assert_int_equal(call->gap_count, 2);
	rig_stop(&rig);
	call_drop(call);
}

static void test_isolation(void **state)
{
	struct berth_call *call = call_make();
	struct rig rig;

	(void)state;
	rig_load(&rig);
	rig_faults(&rig, "open isolation=microvm\nprovision nth=2 isolation=gvisor\n");
	assert_int_equal(rig_open(&rig, call, NULL), BERTH_OK);
	assert_int_equal(rig.info.isolation, BERTH_ISOLATION_MICROVM);
	assert_int_equal(do_provision(&rig, call, "w", "t", 0), BERTH_OK);
	assert_int_equal(call->sessions[0].isolation, BERTH_ISOLATION_NONE);
	assert_int_equal(do_provision(&rig, call, "w", "t", 0), BERTH_OK);
	assert_int_equal(call->sessions[1].isolation, BERTH_ISOLATION_GVISOR);
	rig_stop(&rig);
	call_drop(call);
}

static void test_open_refused(void **state)
{
	struct berth_call *call = call_make();
	struct rig rig;

	(void)state;
	rig_load(&rig);
	rig_faults(&rig, "open nth=1 code=UNAUTHENTICATED\n");
	assert_int_equal(rig_open(&rig, call, NULL), BERTH_UNAUTHENTICATED);
	rig.inst = NULL;
	rig_stop(&rig);
	call_drop(call);
}

static void test_garbage(void **state)
{
	struct rig rig;
	char ref[64];

	(void)state;
	rig_start(&rig, NULL);
	make_session(&rig, "w", "t", ref);
	for (int round = 0; round < 5; round++) {
		static const char *const words[] = {"ref", "nul", "kind", "twice", "code"};
		struct berth_call *call = call_make();
		char text[128];
		int32_t rc;

		snprintf(text, sizeof(text), "inspect garbage=%s\nexecute garbage=%s\n", words[round], words[round]);
		rig_faults(&rig, text);
		rc = do_simple(&rig, call, ref, rig.ops->inspect);
		assert_int_equal(rc, round == 4 ? 99 : BERTH_OK);
		assert_int_equal(call->session_count, round == 3 ? 2 : 1);
		assert_true((call->sessions[0].ref_len > BERTH_REF_MAX) == (round == 0));
		assert_true((call->sessions[0].ref_len != strlen(call->sessions[0].ref)) == (round == 1));
		assert_true((call->sessions[0].phase == 99) == (round == 2));
		snprintf(text, sizeof(text), "e%d", round);
		do_execute(&rig, call, ref, text, "true");
		assert_int_equal(call->ending_count, round == 3 ? 2 : 1);
		assert_true((call->ending.kind == 99) == (round == 2));
		call_drop(call);
	}
	rig_stop(&rig);
}

/* "*" meets every operation that the effect means something for, and no other. */
static void test_star(void **state)
{
	struct berth_call *call = call_make();
	struct rig rig;
	char ref[64];

	(void)state;
	rig_start(&rig, NULL);
	make_session(&rig, "w", "t", ref);
	rig_faults(&rig, "* nth=1 cut=1\n");
	assert_int_equal(count_found(&rig, "w", "t"), 1); /* not counted: nothing to cut */
	assert_int_equal(do_execute(&rig, call, ref, "e", "echo abc"), BERTH_UNKNOWN);
	rig_faults(&rig, "* task=w/t code=UNAVAILABLE\n");
	assert_int_equal(count_found(&rig, "w", "other"), 0);
	assert_int_equal(do_find(&rig, call, "w", "t"), BERTH_UNAVAILABLE);
	assert_int_equal(code_of(&rig, ref, rig.ops->inspect), BERTH_UNAVAILABLE);
	assert_int_equal(code_of(&rig, ref, rig.ops->release), BERTH_UNAVAILABLE);
	rig_stop(&rig);
	call_drop(call);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_grammar),     cmocka_unit_test(test_no_half_faults),
	    cmocka_unit_test(test_when),        cmocka_unit_test(test_code),
	    cmocka_unit_test(test_hang),        cmocka_unit_test(test_delay_and_stall),
	    cmocka_unit_test(test_lost_create), cmocka_unit_test(test_lost_release),
	    cmocka_unit_test(test_cut),         cmocka_unit_test(test_cut_does_not_kill),
	    cmocka_unit_test(test_cut_file),    cmocka_unit_test(test_lost_execute),
	    cmocka_unit_test(test_ready_early), cmocka_unit_test(test_vanish),
	    cmocka_unit_test(test_clamp),       cmocka_unit_test(test_output_shapes),
	    cmocka_unit_test(test_isolation),   cmocka_unit_test(test_open_refused),
	    cmocka_unit_test(test_garbage),     cmocka_unit_test(test_star),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
