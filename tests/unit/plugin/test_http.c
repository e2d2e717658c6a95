/* SPDX-License-Identifier: Apache-2.0 */
/* host->http as a plugin meets it: cancel and detach, deadlines, secrets, misuse, structs of another size. The exchanges
 * themselves are tested in tests/unit/net. */
#include "../../peers/peer.h"
#include "core/buf.h"
#include "registry_fixture.h"

#define SECRET "zoo-secret-zoo-secret-zoo-secret"

static struct peer peer;
static struct target *target;

static int group_setup(void **state)
{
	(void)state;
	signal(SIGPIPE, SIG_IGN);
	return peer_start(&peer, 0);
}

static int group_teardown(void **state)
{
	(void)state;
	return peer_stop(&peer);
}

static int setup(void **state)
{
	if (registry_setup(state))
		return -1;
	add_setting(add_target("http", "one"), "api_key", "env:ZOO_KEY");
	open_registry();
	target = fix.registry->targets[0];
	return 0;
}

static int teardown(void **state)
{
	unsetenv("ZOO_KEY");
	return registry_teardown(state);
}

struct run {
	char script[256];
	struct buf out;
	struct call *call;
	struct err err;
	int rc;
	uint32_t kind;
	int32_t exit_code;
};

static int take_output(void *arg, unsigned stream, const void *ptr, size_t len)
{
	struct run *run = arg;

	assert_int_equal(stream, BERTH_STREAM_STDOUT);
	return buf_append(&run->out, ptr, len) ? ERR_NOMEM : 0;
}

static void run_init(struct run *run, int64_t limit_ms, const char *fmt, const char *path)
{
	const struct call_sink sink = {.write = take_output, .arg = run};
	char url[128];

	memset(run, 0, sizeof(*run));
	buf_init(&run->out, 1 << 20);
	snprintf(url, sizeof(url), "http://127.0.0.1:%u%s", peer.plain, path);
	snprintf(run->script, sizeof(run->script), "%s %s", fmt, url);
	run->call = call_new(target, clock_after_ms(limit_ms), &sink);
}

static void *run_main(void *arg)
{
	struct run *run = arg;
	struct berth_session at = session("s");
	struct berth_command command = {.struct_size = sizeof(command), .script = str(run->script)};
	const struct berth_ending *ending;

	run->rc = call_execute(run->call, &at, &command, &run->err);
	ending = call_ending(run->call);
	if (!run->rc) {
		run->kind = ending->kind;
		run->exit_code = ending->exit_code;
	}
	return NULL;
}

static void run_fini(struct run *run)
{
	call_free(run->call);
	buf_fini(&run->out);
}

static int execute(struct run *run, int64_t limit_ms, const char *fmt, const char *path)
{
	run_init(run, limit_ms, fmt, path);
	run_main(run);
	return run->rc;
}

/* Waits until the peer saw `count` requests of that path. */
static void wait_peer(const char *path, unsigned count)
{
	char query[128];
	struct run run;

	snprintf(query, sizeof(query), "/wait?of=%s&n=%u", path, count);
	assert_int_equal(execute(&run, 60000, "GET", query), 0);
	assert_int_equal(run.exit_code, 0);
	run_fini(&run);
}

static const char *const modes[] = {"plain", "long"};

static void answers(void **state)
{
	struct run run;
	char script[64];

	(void)state;
	for (int i = 0; i < 2; i++) {
		snprintf(script, sizeof(script), "%s GET", modes[i]);
		assert_int_equal(execute(&run, 20000, script, "/echo"), 0);
		assert_int_equal(run.exit_code, 0);
		assert_non_null(strstr(run.out.ptr, "Authorization: Bearer " SECRET));
		run_fini(&run);
		snprintf(script, sizeof(script), "%s POST", modes[i]);
		assert_int_equal(execute(&run, 20000, script, "/status?n=404"), 0);
		assert_int_equal(run.exit_code, 204);
		run_fini(&run);
	}
}

/* Failures explain themselves, and neither they nor the log hold the secret, path or query. */
static void failures(void **state)
{
	static const struct {
		const char *path, *reason;
		int get, post;
	} cases[] = {
	    {"/reset?token=hidden-word", "cut", ERR_PROVIDER_UNAVAILABLE, ERR_OUTCOME_UNKNOWN},
	    {"/garbage?token=hidden-word", "bad_response", ERR_PROVIDER_UNAVAILABLE, ERR_OUTCOME_UNKNOWN},
	    {"/headers?lines=400&token=hidden-word", "headers_too_large", ERR_PROVIDER, ERR_PROVIDER},
	};
	struct run run;
	char script[64], *text;

	(void)state;
	log_init(LOG_DEBUG, LOG_LOGFMT);
	capture_begin();
	for (size_t i = 0; i < 4 * sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(script, sizeof(script), "%s %s", modes[i % 2], i / 2 % 2 ? "POST" : "GET");
		execute(&run, 20000, script, cases[i / 4].path);
		assert_int_equal(run.rc, i / 2 % 2 ? cases[i / 4].post : cases[i / 4].get);
		assert_string_equal(run.err.reason, cases[i / 4].reason);
		EXPECT_ERR(run.err, "http://127.0.0.1:");
		assert_null(strstr(run.err.msg, "hidden-word"));
		run_fini(&run);
	}
	text = capture_end();
	assert_non_null(strstr(text, "an exchange failed"));
	assert_null(strstr(text, "hidden-word"));
	assert_null(strstr(text, SECRET));
	free(text);
	log_init(LOG_INFO, LOG_LOGFMT);
}

static void deadline(void **state)
{
	struct run run;

	(void)state;
	for (int i = 0; i < 2; i++) {
		execute(&run, 300, i ? "long GET" : "GET", "/never");
		assert_int_equal(run.rc, ERR_PROVIDER_TIMEOUT);
		assert_string_equal(run.err.reason, "deadline");
		run_fini(&run);
	}
}

/* The exchange ends at once; the one by which the plugin stops the command goes through. */
static void cancel(void **state)
{
	static unsigned waits;
	struct run run;
	pthread_t thread;

	(void)state;
	for (int i = 0; i < 2; i++) {
		int64_t begin;

		run_init(&run, 60000, i ? "long GET" : "GET", "/dribble");
		assert_int_equal(pthread_create(&thread, NULL, run_main, &run), 0);
		wait_peer("/dribble", ++waits);
		begin = clock_boot_ns();
		call_cancel(run.call, BERTH_CANCEL_STOP);
		pthread_join(thread, NULL);
		assert_true(clock_boot_ns() - begin < 1500 * CLOCK_NS_PER_MS);
		assert_int_equal(run.rc, 0);
		assert_int_equal(run.kind, BERTH_ENDING_CANCELLED);
		assert_non_null(strstr(run.out.ptr, "fine")); /* the answer to the stop */
		run_fini(&run);
	}
}

/* Likewise, and what follows has a second, whatever the call's deadline. */
static void detach(void **state)
{
	static unsigned waits;
	struct run run;
	pthread_t thread;

	(void)state;
	for (int i = 0; i < 2; i++) {
		int64_t begin, took;

		run_init(&run, 60000, i ? "long POST" : "POST", "/hold?gate=never");
		assert_int_equal(pthread_create(&thread, NULL, run_main, &run), 0);
		wait_peer("held", ++waits);
		begin = clock_boot_ns();
		call_cancel(run.call, BERTH_CANCEL_DETACH);
		pthread_join(thread, NULL);
		took = (clock_boot_ns() - begin) / CLOCK_NS_PER_MS;
		assert_in_range(took, 900, 3000);
		assert_int_equal(run.rc, ERR_DETACHED);
		run_fini(&run);
	}
}

static void structs(void **state)
{
	struct run run;

	(void)state;
	assert_int_equal(execute(&run, 20000, "old GET", "/ok"), 0);
	assert_int_equal(run.exit_code, 0);
	run_fini(&run);
	assert_int_equal(execute(&run, 20000, "tiny GET", "/ok"), ERR_PROVIDER);
	assert_string_equal(run.err.reason, "request");
	run_fini(&run);
}

static int inspect(const char *ref, const char *path, struct err *err)
{
	struct call *call = call_new(target, clock_after_ms(20000), NULL);
	struct berth_session at = session(ref);
	char url[128];
	int rc;

	memset(err, 0, sizeof(*err));
	snprintf(url, sizeof(url), "http://127.0.0.1:%u%s", peer.plain, path);
	at.state = str(url);
	rc = call_inspect(call, &at, err);
	call_free(call);
	return rc;
}

static void threads(void **state)
{
	struct err err;

	(void)state;
	assert_int_equal(inspect("own", "/ok", &err), 0);
	assert_int_equal(inspect("own", "/reset", &err), ERR_PROVIDER_UNAVAILABLE);
	assert_string_equal(err.reason, "from_thread");
	assert_int_equal(inspect("stolen", "/ok", &err), ERR_INTERNAL);
	assert_string_equal(err.reason, "plugin_violation");
}

static void not_in_open(void **state)
{
	(void)state;
	add_setting(add_target("http", "one"), "open_url", "x");
	refuse_registry("used HTTP in open");
}

#define HTTP_CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    HTTP_CASE(answers), HTTP_CASE(failures), HTTP_CASE(deadline), HTTP_CASE(cancel),
	    HTTP_CASE(detach),  HTTP_CASE(structs),  HTTP_CASE(threads),  CASE(not_in_open),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
