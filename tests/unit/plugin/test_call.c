/* SPDX-License-Identifier: Apache-2.0 */
/* One frame around every call: results, codes, violations, deadlines, cancel, bulkhead, stuck calls (G3). */
#include <stdatomic.h>

#include "registry_fixture.h"

static struct target *target;

static int setup(void **state)
{
	struct conf_target *conf;

	if (registry_setup(state))
		return -1;
	log_init(LOG_ERROR, LOG_LOGFMT);
	conf = add_target("rude", "one");
	add_gate(conf);
	add_setting(conf, "api_key", "env:ZOO_KEY");
	add_gate(add_target("serial", "two"));
	open_registry();
	target = fix.registry->targets[0];
	return 0;
}

static struct call *new_call(const struct call_sink *sink)
{
	return call_new(target, clock_after_ms(20000), sink);
}

static int inspect(const char *ref, const char *state_text, struct err *err)
{
	struct call *call = new_call(NULL);
	struct berth_session at = session(ref);
	int rc;

	memset(err, 0, sizeof(*err));
	at.state = str(state_text);
	rc = call_inspect(call, &at, err);
	call_free(call);
	return rc;
}

static int execute(const char *ref, const struct call_sink *sink, struct err *err)
{
	struct call *call = new_call(sink);
	struct berth_session at = session(ref);
	struct berth_command command = {.struct_size = sizeof(command)};
	int rc;

	memset(err, 0, sizeof(*err));
	rc = call_execute(call, &at, &command, err);
	call_free(call);
	return rc;
}

static void results(void **state)
{
	const struct berth_session_info *infos;
	const struct berth_file_info *files;
	struct berth_session at = session("short-struct");
	struct call *call = new_call(NULL);
	struct err err = {0};
	size_t count;

	(void)state;
	assert_int_equal(call_find(call, "w", "t", &err), 0);
	infos = call_sessions(call, &count);
	assert_int_equal(count, 1);
	assert_string_equal(infos[0].ref.ptr, "found");
	assert_string_equal(infos[0].task_id.ptr, "t");
	assert_int_equal(call_list(call, NULL, &err), 0);
	call_sessions(call, &count);
	assert_int_equal(count, 2);
	assert_string_equal(call_cursor(call), "page-2");
	assert_int_equal(call_list(call, call_cursor(call), &err), 0);
	assert_null(call_cursor(call));
	/* What lies past the struct's size is absent. */
	assert_int_equal(call_inspect(call, &at, &err), 0);
	infos = call_sessions(call, &count);
	assert_int_equal(infos[0].root.len, 0);
	assert_int_equal(infos[0].struct_size, sizeof(*infos));
	at = session("state-bytes");
	assert_int_equal(call_inspect(call, &at, &err), 0);
	infos = call_sessions(call, &count);
	assert_memory_equal(infos[0].state.ptr, "\0\xff\0", 3);
	at = session("any-bytes");
	assert_int_equal(call_file_list(call, &at, ".", 0, &err), 0);
	files = call_files(call, &count);
	assert_int_equal(count, 1);
	assert_memory_equal(files[0].path.ptr, "d/\xff\n", 4);
	assert_int_equal(call_file_stat(call, &at, "a/b", &err), 0);
	call_free(call);
}

static void provision(void **state)
{
	struct berth_spec spec = {.struct_size = sizeof(spec), .workspace_id = str("w"), .task_id = str("t")};
	struct call *call = new_call(NULL);
	struct err err = {0};
	size_t count;

	(void)state;
	assert_int_equal(call_provision(call, &spec, &err), 0);
	assert_string_equal(call_sessions(call, &count)[0].ref.ptr, "made");
	spec.pool_key = str("created-twice");
	assert_int_equal(call_provision(call, &spec, &err), ERR_INTERNAL);
	assert_string_equal(err.reason, "plugin_violation");
	spec.pool_key = str("not-created");
	assert_int_equal(call_provision(call, &spec, &err), ERR_INTERNAL);
	call_free(call);
}

static void g3_violations_of_inspect(void **state)
{
	static const struct {
		const char *ref, *part;
	} cases[] = {
	    {"long-ref", "a ref of 257 bytes, at most 256"},
	    {"huge-length", "at most 256"},
	    {"null-ref", "a ref of 5 bytes"},
	    {"empty-ref", "without ref"},
	    {"nul-ref", "not UTF-8 text"},
	    {"not-utf8", "not UTF-8 text"},
	    {"long-state", "a state of 4097"},
	    {"long-root", "a root of 1025"},
	    {"bad-phase", "phase 77"},
	    {"bad-isolation", "isolation 9"},
	    {"bad-time", "negative time"},
	    {"tiny-struct", "struct_size 4"},
	    {"huge-struct", "struct_size 4294967295"},
	    {"long-reason", "a reason of 32"},
	    {"bad-identity", "identity that is none"},
	    {"twice", "emitted twice"},
	    {"nothing", "emitted a session 0 times"},
	    {"null-info", "NULL for a session"},
	    {"unknown-code", "unknown code 4711"},
	    {"negative-code", "unknown code -1"},
	    {"not-started", "makes no sense here"},
	    {"not-cancelled", "was not cancelled"},
	    {"wrong-service", "does not have"},
	    {"long-fail", "no word of at most 31"},
	    {"bad-fail", "no word"},
	    {"thread", "outside its operation or thread"},
	};
	struct err err;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char *log;
		int rc;

		capture_begin();
		rc = inspect(cases[i].ref, "", &err);
		log = capture_end();
		if (rc != ERR_INTERNAL || strcmp(err.reason, "plugin_violation") || !strstr(err.msg, cases[i].part) ||
		    !strstr(log, "plugin=rude") || !strstr(log, cases[i].part))
			fail_msg("%s: rc %d, %s\n%s", cases[i].ref, rc, err.msg, log);
		free(log);
	}
	assert_int_equal(inspect("fine", "", &err), 0);
}

static void g3_violations_of_execute(void **state)
{
	static const struct {
		const char *ref, *part;
	} cases[] = {
	    {"two-endings", "emitted twice"},
	    {"no-ending", "emitted an ending 0 times"},
	    {"bad-kind", "kind 99"},
	    {"ending-and-code", "emitted an ending and returned code 10 (unavailable) instead of OK"},
	    {"bad-exit", "exit code 256"},
	    {"bad-stream", "to stream 7"},
	    {"data-stream", "does not have"},
	    {"null-bytes", "wrote 5 bytes"},
	    {"huge-write", "wrote 18446744073709551615 bytes"},
	    {"long-handle", "a handle of 1025"},
	    {"nul-handle", "a handle that is not UTF-8 text"},
	    {"bytes-handle", "a handle that is not UTF-8 text"},
	    {"bad-gap", "a gap of stream 1"},
	};
	struct err err;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		int rc = execute(cases[i].ref, NULL, &err);

		if (rc != ERR_INTERNAL || strcmp(err.reason, "plugin_violation") || !strstr(err.msg, cases[i].part))
			fail_msg("%s: rc %d, %s", cases[i].ref, rc, err.msg);
	}
}

static void g3_violations_elsewhere(void **state)
{
	struct berth_session at = session("");
	struct call *call = new_call(NULL);
	struct err err = {0};

	(void)state;
	assert_int_equal(call_find(call, "w", "of-another", &err), ERR_INTERNAL);
	EXPECT_ERR(err, "another identity");
	assert_int_equal(call_find(call, "w", "half", &err), ERR_INTERNAL);
	EXPECT_ERR(err, "identity that is none");
	/* Never read as "absent": that would make a second session. */
	assert_int_equal(call_find(call, "w", "not-found", &err), ERR_INTERNAL);
	EXPECT_ERR(err, "not_found, which makes no sense here");
	assert_int_equal(call_list(call, "100001", &err), ERR_INTERNAL);
	EXPECT_ERR(err, "more than 100000 results");
	assert_int_equal(call_list(call, "again", &err), ERR_INTERNAL);
	EXPECT_ERR(err, "plugin rude broke a rule in list: gave the cursor that it was given");
	static const char *const paths[] = {"/etc/passwd", "../x", "a/../b", "..", "bad-kind", "bad-mode"};
	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
		at = session(paths[i]);
		assert_int_equal(call_file_list(call, &at, ".", 0, &err), ERR_INTERNAL);
		assert_string_equal(err.reason, "plugin_violation");
	}
	call_free(call);
}

/* The one table from a plugin's codes to ours. */
static void codes(void **state)
{
	static const int expected[BERTH_CODE_MAX + 1] = {
	    [BERTH_OK] = ERR_INTERNAL, /* OK and nothing emitted */
	    [BERTH_INVALID] = ERR_PROVIDER,
	    [BERTH_NOT_FOUND] = ERR_NOT_FOUND,
	    [BERTH_NOT_STARTED] = ERR_INTERNAL,
	    [BERTH_CONFLICT] = ERR_INTERNAL,
	    [BERTH_CAPACITY] = ERR_CAPACITY,
	    [BERTH_QUOTA] = ERR_QUOTA,
	    [BERTH_RATE_LIMITED] = ERR_RATE_LIMITED,
	    [BERTH_UNAUTHENTICATED] = ERR_PROVIDER_AUTH,
	    [BERTH_FORBIDDEN] = ERR_PROVIDER_AUTH,
	    [BERTH_UNAVAILABLE] = ERR_PROVIDER_UNAVAILABLE,
	    [BERTH_TIMEOUT] = ERR_PROVIDER_TIMEOUT,
	    [BERTH_CANCELLED] = ERR_INTERNAL,
	    [BERTH_SESSION_LOST] = ERR_SESSION_GONE,
	    [BERTH_UNSUPPORTED] = ERR_UNSUPPORTED,
	    [BERTH_UNKNOWN] = ERR_OUTCOME_UNKNOWN,
	    [BERTH_STORAGE_FULL] = ERR_STORAGE_FULL,
	    [BERTH_INTERNAL] = ERR_INTERNAL,
	};
	struct err err;
	char text[8];

	(void)state;
	for (int32_t code = 0; code <= BERTH_CODE_MAX; code++) {
		snprintf(text, sizeof(text), "%d", code);
		assert_int_equal(inspect("code", text, &err), expected[code]);
		assert_true(err.reason[0]);
	}
	assert_int_equal(inspect("told", "", &err), ERR_CAPACITY);
	assert_string_equal(err.reason, "no_nodes");
	assert_true(err.retryable);
	assert_int_equal(err.retry_after_ms, 1500);
	EXPECT_ERR(err, "no nodes \xc3\xa9");
	assert_int_equal(inspect("told-otherwise", "", &err), ERR_QUOTA);
	assert_string_equal(err.reason, "quota");
	/* An empty request; the rest is in test_http.c. */
	assert_int_equal(inspect("http", "", &err), ERR_PROVIDER);
	assert_string_equal(err.reason, "request");
}

static void count_metric(const struct target_metric *metric, void *arg)
{
	struct target_metric *seen = arg;

	seen[metric->histogram] = *metric;
}

static void services(void **state)
{
	struct target_metric seen[2] = {0};
	struct berth_session at = session("services");
	struct err err = {0};
	struct call *call;

	(void)state;
	log_set_request("req-1");
	log_set_trace("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
	call = new_call(NULL);
	if (call_release(call, &at, &err))
		fail_msg("%s", err.msg);
	at = session("gone");
	assert_int_equal(call_release(call, &at, &err), 0);
	call_free(call);
	log_set_request(NULL);
	assert_int_equal(hostapi_allocated(), 0);
	assert_int_equal(target_changes(target), 1);
	target_metrics(target, count_metric, seen);
	assert_string_equal(seen[0].name, "calls");
	assert_int_equal(seen[0].count, 5);
	assert_int_equal(seen[1].count, 2);
	assert_true(seen[1].sum > 1000.01 && seen[1].sum < 1000.03);
	assert_int_equal(seen[1].buckets[1], 0);
	assert_int_equal(seen[1].buckets[2], 1);
	assert_int_equal(seen[1].buckets[TARGET_BUCKETS - 1], 1);
}

static void unsupported(void **state)
{
	const struct berth_execution execution = {.struct_size = sizeof(execution), .attempt = 1, .id = {"e", 1}};
	struct berth_session at = session("x");
	struct call *call = new_call(NULL);
	struct err err = {0};

	(void)state;
	assert_int_equal(call_renew(call, &at, 1, &err), ERR_UNSUPPORTED);
	assert_int_equal(call_forget(call, &at, &execution, &err), ERR_UNSUPPORTED);
	assert_int_equal(call_signal(call, &at, &execution, BERTH_SIGNAL_KILL, &err), ERR_UNSUPPORTED);
	assert_int_equal(call_mark(call, &at, &err), ERR_UNSUPPORTED);
	assert_int_equal(call_import(call, &at, ".", &err), ERR_UNSUPPORTED);
	assert_int_equal(call_assign(call, &at, "w", "t", &err), ERR_UNSUPPORTED);
	assert_int_equal(call_check(call, &err), ERR_UNSUPPORTED);
	assert_int_equal(call_file_read(call, &at, "../x", 0, 1, &err), ERR_INVALID_REQUEST);
	assert_int_equal(call_find(call, "a/b", "t", &err), ERR_INVALID_REQUEST);
	call_free(call);
}

struct seen {
	char text[64];
	size_t len, at;
	unsigned started, gaps, writes;
	int refuse;
};

static int take(void *arg, unsigned stream, const void *ptr, size_t len)
{
	struct seen *seen = arg;

	seen->writes++;
	seen->text[seen->len++] = (char)('0' + stream);
	memcpy(seen->text + seen->len, ptr, len);
	seen->len += len;
	return seen->refuse;
}

static int give(void *arg, void *buf, size_t cap, size_t *ret_len)
{
	static const char input[] = "input of eighteen!";
	struct seen *seen = arg;
	size_t left = strlen(input) - seen->at;

	*ret_len = left < cap ? left : cap;
	memcpy(buf, input + seen->at, *ret_len);
	seen->at += *ret_len;
	return 0;
}

static int take_handle(void *arg, const char *handle, size_t len)
{
	struct seen *seen = arg;

	seen->started += len == 6 && !memcmp(handle, "handle", 6);
	return 0;
}

static int take_gap(void *arg, unsigned stream, uint64_t from, uint64_t to)
{
	struct seen *seen = arg;

	seen->gaps += stream == BERTH_STREAM_STDOUT && from == 3 && to == 9;
	return 0;
}

static void streams(void **state)
{
	struct seen seen = {0};
	const struct call_sink sink = {
	    .write = take, .read = give, .started = take_handle, .gap = take_gap, .arg = &seen};
	struct berth_session at = session("full");
	struct berth_command command = {.struct_size = sizeof(command)};
	struct call *call = new_call(&sink);
	struct err err = {0};

	(void)state;
	assert_int_equal(call_execute(call, &at, &command, &err), 0);
	assert_string_equal(seen.text, "1out2err");
	assert_int_equal(seen.started, 1);
	assert_int_equal(seen.gaps, 1);
	assert_int_equal(call_ending(call)->kind, BERTH_ENDING_OOM);
	memset(&seen, 0, sizeof(seen));
	at = session("echo");
	assert_int_equal(call_execute(call, &at, &command, &err), 0);
	assert_string_equal(seen.text, "1input of1 eightee1n!");
	/* The receiver's word wins, and it is not asked again. */
	memset(&seen, 0, sizeof(seen));
	seen.refuse = ERR_STORAGE_FULL;
	at = session("deaf");
	assert_int_equal(call_execute(call, &at, &command, &err), ERR_STORAGE_FULL);
	assert_int_equal(seen.writes, 1);
	assert_null(call_ending(call));
	call_free(call);
}

struct runner {
	pthread_t thread;
	struct call *call;
	const char *ref;
	struct err err;
	int rc;
};

static void *run_main(void *arg)
{
	struct runner *runner = arg;
	struct berth_session at = session(runner->ref);
	struct berth_command command = {.struct_size = sizeof(command)};

	runner->rc = call_execute(runner->call, &at, &command, &runner->err);
	return NULL;
}

static void run(struct runner *runner, struct target *on, const char *ref, int64_t deadline_ns)
{
	memset(runner, 0, sizeof(*runner));
	runner->ref = ref;
	runner->call = call_new(on, deadline_ns, NULL);
	pthread_create(&runner->thread, NULL, run_main, runner);
}

static int join(struct runner *runner)
{
	pthread_join(runner->thread, NULL);
	call_free(runner->call);
	return runner->rc;
}

static void cancel(void **state)
{
	struct berth_session at = session("x");
	struct err err = {0};
	struct runner runner;
	struct call *call;

	(void)state;
	run(&runner, target, "cancel", clock_after_ms(20000));
	sem_wait(&fix.gate[0]);
	call_cancel(runner.call, BERTH_CANCEL_STOP);
	pthread_join(runner.thread, NULL);
	assert_int_equal(runner.rc, 0);
	assert_int_equal(call_ending(runner.call)->kind, BERTH_ENDING_CANCELLED);
	call_free(runner.call);
	run(&runner, target, "cancel", clock_after_ms(20000));
	sem_wait(&fix.gate[0]);
	call_cancel(runner.call, BERTH_CANCEL_DETACH);
	assert_int_equal(join(&runner), ERR_DETACHED);
	/* Before it began; STOP may be raised, never lowered. */
	call = new_call(NULL);
	call_cancel(call, BERTH_CANCEL_STOP);
	assert_int_equal(call_inspect(call, &at, &err), ERR_CANCELLED);
	call_cancel(call, BERTH_CANCEL_DETACH);
	call_cancel(call, BERTH_CANCEL_STOP);
	assert_int_equal(call_inspect(call, &at, &err), ERR_DETACHED);
	call_free(call);
}

static void deadline_passed(void **state)
{
	struct berth_session at = session("x");
	struct call *call = call_new(target, clock_boot_ns() - 1, NULL);
	struct err err = {0};

	(void)state;
	assert_int_equal(call_inspect(call, &at, &err), ERR_PROVIDER_TIMEOUT);
	assert_string_equal(err.reason, "deadline");
	call_free(call);
}

static void bulkhead(void **state)
{
	struct runner runners[8];
	struct err err;

	(void)state;
	for (size_t i = 0; i < 8; i++)
		run(&runners[i], target, "gate", clock_after_ms(30000));
	for (size_t i = 0; i < 8; i++)
		sem_wait(&fix.gate[0]);
	assert_int_equal(inspect("x", "", &err), ERR_QUEUE_FULL);
	assert_string_equal(err.reason, "target_busy");
	sem_post(&fix.gate[1]);
	wait_health(target, 0, 7);
	assert_int_equal(inspect("x", "", &err), 0);
	for (size_t i = 0; i < 7; i++)
		sem_post(&fix.gate[1]);
	for (size_t i = 0; i < 8; i++)
		assert_int_equal(join(&runners[i]), 0);
}

/* G3: sleeps for ever. The calls count as stuck, the target is degraded, another one serves; all of it ends when they
 * return. */
static void g3_stuck(void **state)
{
	struct target_health health;
	struct runner runners[2];
	struct target *other = fix.registry->targets[1];
	struct err err = {0};
	struct call *call;
	char *log;

	(void)state;
	capture_begin();
	run(&runners[0], target, "gate", clock_after_ms(50));
	sem_wait(&fix.gate[0]);
	health = wait_health(target, 1, 1);
	assert_false(health.degraded);
	run(&runners[1], target, "gate", clock_after_ms(50));
	sem_wait(&fix.gate[0]);
	health = wait_health(target, 2, 2);
	log = capture_end();
	assert_non_null(strstr(log, "stuck past its deadline"));
	assert_non_null(strstr(log, "plugin=rude"));
	free(log);
	assert_true(health.degraded);
	assert_non_null(strstr(health.why, "2 calls are stuck"));
	assert_non_null(strstr(health.why, "rude"));
	call = call_new(other, clock_after_ms(5000), NULL);
	assert_int_equal(call_find(call, "w", "t", &err), 0);
	call_free(call);
	target_health(other, &health);
	assert_false(health.degraded);
	sem_post(&fix.gate[1]);
	sem_post(&fix.gate[1]);
	health = wait_health(target, 0, 0);
	assert_false(health.degraded);
	assert_int_equal(join(&runners[0]), 0);
	assert_int_equal(join(&runners[1]), 0);
}

static int take_file(void *arg, const struct berth_file_info *info)
{
	(void)info;
	++*(unsigned *)arg;
	return 0;
}

/* The caller goes on a second after the deadline; the plugin comes back later, to arguments that are still there and a
 * sink that is not, and what it brings is dropped. The second caller frees its call only then. */
static void g3_apart(void **state)
{
	struct berth_session at = session("gate");
	unsigned files[2] = {0};
	struct call *calls[2];
	struct err err = {0};
	size_t count;

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		const struct call_sink sink = {.file = take_file, .arg = &files[i]};
		char path[] = "a/path/of/the/caller's", ref[] = "gate";

		at.ref = str(ref);
		calls[i] = call_new(target, clock_after_ms(50), &sink);
		call_set_apart(calls[i]);
		assert_int_equal(call_file_list(calls[i], &at, path, 0, &err), ERR_PROVIDER_TIMEOUT);
		assert_string_equal(err.reason, "provider_stuck");
		assert_true(call_given_up(calls[i]));
		assert_null(call_files(calls[i], &count));
		assert_int_equal(count, 0);
		memset(path, 'x', sizeof(path));
		memset(ref, 'x', sizeof(ref));
		sem_wait(&fix.gate[0]);
	}
	call_free(calls[0]);
	call_cancel(calls[1], BERTH_CANCEL_STOP);
	wait_health(target, 2, 2);
	sem_post(&fix.gate[1]);
	sem_post(&fix.gate[1]);
	wait_health(target, 0, 0);
	call_free(calls[1]);
	assert_int_equal(files[0] + files[1], 0);
}

static int take_byte(void *arg, unsigned stream, const void *ptr, size_t len)
{
	(void)stream;
	(void)ptr;
	atomic_fetch_add((_Atomic unsigned *)arg, (unsigned)len);
	return 0;
}

static void note_stuck(void *arg)
{
	(void)arg;
	sem_post(&fix.gate[0]);
}

/* Bytes that keep moving put nothing off: past the deadline none is taken, and a second later the call is stuck. */
static void g3_a_trickle_keeps_no_deadline_away(void **state)
{
	_Atomic unsigned taken = 0;
	const struct call_sink sink = {.write = take_byte, .stuck = note_stuck, .arg = &taken};
	struct runner runner = {.ref = "trickle", .call = call_new(target, clock_after_ms(300), &sink)};
	unsigned before;

	(void)state;
	pthread_create(&runner.thread, NULL, run_main, &runner);
	sem_wait(&fix.gate[0]);
	wait_health(target, 1, 1);
	before = atomic_load(&taken);
	sem_post(&fix.gate[1]);
	assert_int_equal(join(&runner), ERR_PROVIDER_TIMEOUT);
	assert_string_equal(runner.err.reason, "provider_stuck");
	assert_int_equal(atomic_load(&taken), before);
}

/* One that hears of it and comes back is late, not stuck. */
static void bytes_past_the_deadline_end_the_call(void **state)
{
	_Atomic unsigned taken = 0;
	const struct call_sink sink = {.write = take_byte, .arg = &taken};
	struct runner runner = {.ref = "late", .call = call_new(target, clock_after_ms(50), &sink)};

	(void)state;
	pthread_create(&runner.thread, NULL, run_main, &runner);
	assert_int_equal(join(&runner), ERR_PROVIDER_TIMEOUT);
	assert_string_equal(runner.err.reason, "deadline");
	assert_int_equal(atomic_load(&taken), 0);
}

/* Long before the deadline; a callback that takes its time is not the plugin's standstill. */
static void a_call_that_moves_nothing(void **state)
{
	const struct call_sink sink = {.file = take_file, .arg = &(unsigned){0}};
	struct berth_session at = session("gate");
	struct call *call = call_new(target, clock_after_ms(60000), &sink);
	int64_t begun = clock_boot_ns();
	struct err err = {0};

	(void)state;
	call_set_apart(call);
	call_set_patience(call, 50);
	assert_int_equal(call_file_list(call, &at, ".", 0, &err), ERR_PROVIDER_TIMEOUT);
	assert_string_equal(err.reason, "provider_stuck"); /* it hears no cancel */
	assert_true(clock_boot_ns() - begun < 30 * CLOCK_NS_PER_S);
	wait_health(target, 1, 1);
	sem_post(&fix.gate[1]);
	wait_health(target, 0, 0);
	call_free(call);
}

static int take_slowly(void *arg, const struct berth_file_info *info)
{
	struct timespec time = {.tv_nsec = 300 * CLOCK_NS_PER_MS};

	(void)arg;
	(void)info;
	nanosleep(&time, NULL);
	return 0;
}

static void a_slow_callback_is_no_standstill(void **state)
{
	const struct call_sink sink = {.file = take_slowly};
	struct berth_session at = session("any-bytes");
	struct call *call = call_new(target, clock_after_ms(60000), &sink);
	struct err err = {0};

	(void)state;
	call_set_apart(call);
	call_set_patience(call, 50);
	assert_int_equal(call_file_list(call, &at, ".", 0, &err), 0);
	call_free(call);
}

static void apart_in_time(void **state)
{
	struct berth_session at = session("any-bytes");
	struct call *call = call_new(target, clock_after_ms(20000), NULL);
	const struct berth_file_info *files;
	struct err err = {0};
	size_t count;

	(void)state;
	call_set_apart(call);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(call_file_list(call, &at, ".", 0, &err), 0);
		files = call_files(call, &count);
		assert_int_equal(count, 1);
		assert_memory_equal(files[0].path.ptr, "d/\xff\n", 4);
	}
	assert_int_equal(call_find(call, "w", "t", &err), 0);
	assert_string_equal(call_sessions(call, &count)[0].task_id.ptr, "t");
	assert_int_equal(call_find(call, "other", "t", &err), 0);
	assert_false(call_given_up(call));
	call_free(call);
}

/* While too many calls are stuck nothing new is begun there; what is there can be put away. */
static void g3_degraded_refuses(void **state)
{
	struct berth_spec spec = {.struct_size = sizeof(spec)};
	struct berth_session at = session("x");
	struct runner runners[2];
	struct err err = {0};
	struct call *call;

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		run(&runners[i], target, "gate", clock_after_ms(50));
		sem_wait(&fix.gate[0]);
	}
	wait_health(target, 2, 2);
	assert_true(target_is_stuck(target));
	assert_int_equal(execute("x", NULL, &err), ERR_PROVIDER_UNAVAILABLE);
	assert_string_equal(err.reason, "target_degraded");
	call = new_call(NULL);
	assert_int_equal(call_provision(call, &spec, &err), ERR_PROVIDER_UNAVAILABLE);
	assert_int_equal(call_release(call, &at, &err), 0);
	call_free(call);
	sem_post(&fix.gate[1]);
	wait_health(target, 1, 1);
	assert_false(target_is_stuck(target));
	assert_int_equal(execute("full", NULL, &err), 0);
	sem_post(&fix.gate[1]);
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(join(&runners[i]), 0);
}

static void serialised(void **state)
{
	struct target *serial = fix.registry->targets[1];
	struct runner first, second, third, fourth;

	(void)state;
	run(&first, serial, "gate", clock_after_ms(30000));
	sem_wait(&fix.gate[0]);
	run(&second, serial, "x", clock_after_ms(30000));
	run(&third, serial, "x", clock_after_ms(50));
	run(&fourth, serial, "x", clock_after_ms(30000));
	assert_int_equal(join(&third), ERR_PROVIDER_TIMEOUT);
	wait_health(serial, 0, 3);
	call_cancel(fourth.call, BERTH_CANCEL_STOP);
	assert_int_equal(join(&fourth), ERR_CANCELLED);
	sem_post(&fix.gate[1]);
	assert_int_equal(join(&first), 0);
	assert_int_equal(join(&second), 0);
}

#ifndef __OPTIMIZE__
static void g3_process_is_put_back(void **state)
{
	char before[256], after[256], *log;
	struct sigaction term;
	struct err err;

	(void)state;
	assert_non_null(getcwd(before, sizeof(before)));
	capture_begin();
	assert_int_equal(inspect("chdir", "", &err), 0);
	assert_int_equal(inspect("signals", "", &err), 0);
	log = capture_end();
	assert_non_null(strstr(log, "working directory"));
	assert_non_null(strstr(log, "signal dispositions"));
	assert_non_null(strstr(log, "plugin=rude"));
	free(log);
	assert_non_null(getcwd(after, sizeof(after)));
	assert_string_equal(before, after);
	sigaction(SIGTERM, NULL, &term);
	assert_true(term.sa_handler == SIG_DFL);
}
#endif

#undef CASE
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, registry_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(results),
		CASE(provision),
		CASE(g3_violations_of_inspect),
		CASE(g3_violations_of_execute),
		CASE(g3_violations_elsewhere),
		CASE(codes),
		CASE(services),
		CASE(unsupported),
		CASE(streams),
		CASE(cancel),
		CASE(deadline_passed),
		CASE(bulkhead),
		CASE(g3_stuck),
		CASE(g3_a_trickle_keeps_no_deadline_away),
		CASE(bytes_past_the_deadline_end_the_call),
		CASE(g3_apart),
		CASE(a_call_that_moves_nothing),
		CASE(a_slow_callback_is_no_standstill),
		CASE(apart_in_time),
		CASE(g3_degraded_refuses),
		CASE(serialised),
#ifndef __OPTIMIZE__
		CASE(g3_process_is_put_back),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
