/* SPDX-License-Identifier: Apache-2.0 */
/* Peers that cut, stall, flood and lie, in both modes: the code, the word, and whether the request may have been seen. */
#include <sys/resource.h>

#include "net_fixture.h"

static void answers_that_are_none(void **state)
{
	static const struct {
		const char *path, *reason;
		int32_t code; /* of a GET; a POST, which was sent, ends as `post` */
		int32_t post;
		uint32_t status;
	} cases[] = {
	    {"/reset", "cut", BERTH_UNAVAILABLE, BERTH_UNKNOWN, 0},
	    {"/cut?len=10&at=0", "cut", BERTH_UNAVAILABLE, BERTH_UNKNOWN, 0},
	    {"/cut?len=10&at=9", "cut", BERTH_UNAVAILABLE, BERTH_UNKNOWN, 0},
	    {"/cut?len=1000&at=500", "cut", BERTH_UNAVAILABLE, BERTH_UNKNOWN, 200},
	    {"/garbage", "bad_response", BERTH_UNAVAILABLE, BERTH_UNKNOWN, 0},
	    {"/old", "bad_response", BERTH_UNAVAILABLE, BERTH_UNKNOWN, 0},
	    {"/headers?lines=300", "headers_too_large", BERTH_INVALID, BERTH_INVALID, 0},
	    {"/headers?lines=100&width=1000", "headers_too_large", BERTH_INVALID, BERTH_INVALID, 0},
	    {"/headers?lines=1&width=99000", "headers_too_large", BERTH_INVALID, BERTH_INVALID, 0},
	    {"/headers?lines=1&width=3000000", "headers_too_large", BERTH_INVALID, BERTH_INVALID, 0},
	    {"/big?bytes=1000001", "response_too_large", BERTH_INVALID, BERTH_INVALID, 200},
	    {"/big?bytes=900000000&chunked", "response_too_large", BERTH_INVALID, BERTH_INVALID, 200},
	};
	struct ask ask;

	(void)state;
	BOTH_MODES(flags) {
		for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
			bool post = i % 2;

			ask_init(&ask, flags, post ? "POST" : "GET", "http://127.0.0.1:%u%s", peer.plain,
				 cases[i / 2].path);
			ask.request.response_max = 1000000;
			ask_run(&ask);
			expect_failure(&ask, post ? cases[i / 2].post : cases[i / 2].code, cases[i / 2].reason, 1);
			assert_int_equal(ask.response.status, cases[i / 2].status);
			assert_int_equal(ask.failure.retryable, ask.code == BERTH_UNAVAILABLE);
			assert_true(ask.body.len <= 1000000);
			EXPECT_IN(ask.failure.text, "http://127.0.0.1:");
			assert_null(strstr(ask.failure.text, "at="));
			assert_int_equal(strstr(ask.failure.text, "not known") != NULL, ask.code == BERTH_UNKNOWN);
			ask_fini(&ask);
		}
		/* Exactly what is allowed is fine. */
		ask_init(&ask, flags, "GET", "http://127.0.0.1:%u/big?bytes=1000000", peer.plain);
		ask.request.response_max = 1000000;
		assert_int_equal(ask_run(&ask), BERTH_OK);
		ask_fini(&ask);
	}
}

static void nobody_there(void **state)
{
	struct ask ask;

	(void)state;
	BOTH_MODES(flags) {
		ask_init(&ask, flags, "POST", "http://127.0.0.1:1/x");
		ask_run(&ask);
		expect_failure(&ask, BERTH_UNAVAILABLE, "connect", 0);
		ask_fini(&ask);
		/* A label of 64 bytes is refused by the resolver itself: no query leaves the machine. */
		ask_init(&ask, flags, "POST", "http://%064d.test/x", 0);
		ask_run(&ask);
		expect_failure(&ask, BERTH_UNAVAILABLE, "dns", 0);
		ask_fini(&ask);
		ask_init(&ask, flags, "POST", "http://localhost/x");
		ask.request.unix_socket = str("/nonexistent/sock");
		ask_run(&ask);
		expect_failure(&ask, BERTH_UNAVAILABLE, "connect", 0);
		ask_fini(&ask);
	}
}

/* A listener whose queue is full: connecting never ends. */
static void connect_limit(void **state)
{
	struct ask ask;

	(void)state;
	BOTH_MODES(flags) {
		/* The TLS handshake counts as connecting: the plain peer waits for a head that never comes. */
		ask_init(&ask, flags, "POST", "https://127.0.0.1:%u/x", peer.plain);
		ask.request.connect_timeout_ms = 200;
		ask_run(&ask);
		expect_failure(&ask, BERTH_UNAVAILABLE, "connect_timeout", 0);
		assert_in_range(ask.took_ms, 190, patience(5000));
		ask_fini(&ask);
		ask_init(&ask, flags, "POST", "https://127.0.0.1:%u/x", peer.plain);
		ask.caller.deadline_ns = clock_after_ms(200);
		ask_run(&ask);
		expect_failure(&ask, BERTH_TIMEOUT, "deadline", 0);
		ask_fini(&ask);
	}
}

static void limits_of_time(void **state)
{
	static const struct {
		const char *method, *path, *reason;
		int32_t code;
		int64_t deadline_ms, total_ms, idle_ms;
	} cases[] = {
	    {"GET", "/never", "deadline", BERTH_TIMEOUT, 300, 0, 0},
	    {"POST", "/never", "deadline", BERTH_UNKNOWN, 300, 0, 0},
	    {"GET", "/never", "total_timeout", BERTH_TIMEOUT, 60000, 300, 0},
	    {"GET", "/never", "idle_timeout", BERTH_UNAVAILABLE, 60000, 0, 300},
	    {"POST", "/never", "idle_timeout", BERTH_UNKNOWN, 60000, 0, 300},
	    {"GET", "/dribble", "deadline", BERTH_TIMEOUT, 1500, 0, 1200},
	    {"GET", "/dribble", "idle_timeout", BERTH_UNAVAILABLE, 60000, 0, 500},
	    {"GET", "/dribble-head", "deadline", BERTH_TIMEOUT, 1500, 0, 0},
	    {"GET", "/dribble-head", "idle_timeout", BERTH_UNAVAILABLE, 60000, 0, 1200}, /* no line is complete */
	    {"GET", "/never", "deadline", BERTH_TIMEOUT, 300, 60000, 60000},
	};
	struct ask ask;

	(void)state;
	BOTH_MODES(flags) {
		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
			int64_t least = cases[i].deadline_ms;

			if (cases[i].total_ms && cases[i].total_ms < least)
				least = cases[i].total_ms;
			if (cases[i].idle_ms && cases[i].idle_ms < least && !strcmp(cases[i].reason, "idle_timeout"))
				least = cases[i].idle_ms;
			ask_init(&ask, flags, cases[i].method, "http://127.0.0.1:%u%s", peer.plain, cases[i].path);
			ask.caller.deadline_ns = clock_after_ms(cases[i].deadline_ms);
			ask.request.total_timeout_ms = cases[i].total_ms;
			ask.request.idle_timeout_ms = cases[i].idle_ms;
			ask_run(&ask);
			expect_failure(&ask, cases[i].code, cases[i].reason, 1);
			assert_in_range(ask.took_ms, least - 10, least + patience(2000));
			ask_fini(&ask);
		}
		/* A deadline that is over sends nothing. */
		ask_init(&ask, flags, "POST", "http://127.0.0.1:%u/late", peer.plain);
		ask.caller.deadline_ns = clock_boot_ns() - 1;
		ask_run(&ask);
		expect_failure(&ask, BERTH_TIMEOUT, "deadline", 0);
		ask_fini(&ask);
	}
	assert_int_equal(seen("/late"), 0);
}

static int32_t endless(void *ctx, void *buf, size_t cap, size_t *ret_len)
{
	(void)ctx;
	memset(buf, 'e', cap);
	*ret_len = cap;
	return BERTH_OK;
}

/* A peer that stops reading is silence too. */
static void upload_stalls(void **state)
{
	struct ask ask;

	(void)state;
	BOTH_MODES(flags) {
		ask_init(&ask, flags, "PUT", "http://127.0.0.1:%u/no-read", peer.plain);
		ask.request.read = endless;
		ask.request.body_size = BERTH_SIZE_UNKNOWN;
		ask.request.idle_timeout_ms = 500;
		ask_run(&ask);
		expect_failure(&ask, BERTH_UNKNOWN, "idle_timeout", 1);
		ask_fini(&ask);
	}
	tell("/release?gate=no-read");
}

static void receiver_refuses(void **state)
{
	struct ask ask;

	(void)state;
	BOTH_MODES(flags) {
		ask_init(&ask, flags, "POST", "http://127.0.0.1:%u/big?bytes=50000000", peer.plain);
		ask.refuse_write = BERTH_STORAGE_FULL;
		ask_run(&ask);
		expect_failure(&ask, BERTH_STORAGE_FULL, "callback", 1);
		assert_int_equal(ask.response.status, 200);
		ask_fini(&ask);
		ask_init(&ask, flags, "POST", "http://127.0.0.1:%u/big?bytes=50000000", peer.plain);
		ask.refuse_head = BERTH_CONFLICT;
		ask_run(&ask);
		expect_failure(&ask, BERTH_CONFLICT, "callback", 1);
		assert_int_equal(ask.body.len, 0);
		ask_fini(&ask);
		/* Without callbacks the bytes go nowhere. */
		ask_init(&ask, flags, "GET", "http://127.0.0.1:%u/big?bytes=5000000", peer.plain);
		ask.request.write = NULL;
		ask.request.head = NULL;
		assert_int_equal(ask_run(&ask), BERTH_OK);
		ask_fini(&ask);
	}
}

static unsigned long wait_seen(const char *name, unsigned long least)
{
	char path[64];

	snprintf(path, sizeof(path), "/wait?of=%s&n=%lu", name, least);
	tell(path);
	return seen(name);
}

/* Leaves a connection in the pool that the peer treats as `path` says. */
static void spoil(uint32_t flags, const char *path)
{
	struct ask ask;

	assert_int_equal(get(&ask, flags, path), BERTH_OK);
	ask_fini(&ask);
}

static void reused_connections(void **state)
{
	struct ask ask;

	(void)state;
	BOTH_MODES(flags) {
		unsigned long ok = seen("/ok"), cut = seen("/cut"), ended;

		/* Read and never answered: a GET is sent once more, on a fresh connection. */
		spoil(flags, "/then-drop");
		assert_int_equal(get(&ask, flags, "/ok"), BERTH_OK);
		assert_string_equal(ask_text(&ask), "fine");
		ask_fini(&ask);
		assert_int_equal(seen("/ok") - ok, 2);
		/* A POST may have been acted upon: it is not sent again, by nobody. */
		spoil(flags, "/then-drop");
		ask_init(&ask, flags, "POST", "http://127.0.0.1:%u/ok", peer.plain);
		ask_run(&ask);
		expect_failure(&ask, BERTH_UNKNOWN, "cut", 1);
		ask_fini(&ask);
		assert_int_equal(seen("/ok") - ok, 3);
		ask_init(&ask, flags, "DELETE", "http://127.0.0.1:%u/ok", peer.plain);
		spoil(flags, "/then-drop");
		ask_run(&ask);
		expect_failure(&ask, BERTH_UNKNOWN, "cut", 1);
		ask_fini(&ask);
		assert_int_equal(seen("/ok") - ok, 4);
		/* Once more, not twice. */
		spoil(flags, "/then-drop");
		get(&ask, flags, "/cut?len=1&at=0");
		expect_failure(&ask, BERTH_UNAVAILABLE, "cut", 1);
		ask_fini(&ask);
		assert_int_equal(seen("/cut") - cut, 2);
		/* A fresh connection is no reused one. */
		ask_init(&ask, flags, "GET", "http://127.0.0.1:%u/cut?len=1&at=0", peer.plain);
		ask.caller.owner = "fresh";
		ask_run(&ask);
		expect_failure(&ask, BERTH_UNAVAILABLE, "cut", 1);
		ask_fini(&ask);
		assert_int_equal(seen("/cut") - cut, 3);
		/* Closed while idle: noticed before a byte is sent, so that a POST may go. */
		ended = seen("ended");
		spoil(flags, "/then-close");
		wait_seen("ended", ended + 1);
		ask_init(&ask, flags, "POST", "http://127.0.0.1:%u/ok", peer.plain);
		assert_int_equal(ask_run(&ask), BERTH_OK);
		ask_fini(&ask);
		assert_int_equal(seen("/ok") - ok, 5);
	}
}

static void *run_main(void *arg)
{
	ask_run(arg);
	return NULL;
}

/* Several idle connections, all of them dead: the second attempt takes none of them. */
static void many_reused(void **state)
{
	unsigned long held = seen("held"), ok = seen("/ok");
	struct ask asks[3], ask;
	pthread_t threads[3];

	(void)state;
	for (int i = 0; i < 3; i++) {
		ask_init(&asks[i], BERTH_HTTP_LONG, "GET", "http://127.0.0.1:%u/hold?gate=dead&drop=1", peer.plain);
		assert_int_equal(pthread_create(&threads[i], NULL, run_main, &asks[i]), 0);
	}
	wait_seen("held", held + 3);
	tell("/release?gate=dead");
	for (int i = 0; i < 3; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(asks[i].code, BERTH_OK);
		ask_fini(&asks[i]);
	}
	assert_int_equal(get(&ask, BERTH_HTTP_LONG, "/ok"), BERTH_OK);
	ask_fini(&ask);
	assert_int_equal(seen("/ok") - ok, 2);
}

static int by_value(const void *a, const void *b)
{
	const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* How long an exchange runs on after its cancel; the middle one of five. */
static int64_t cancel_takes(uint32_t flags, const char *method, const char *path, const char *counter)
{
	int64_t took[5];

	for (int i = 0; i < 5; i++) {
		unsigned long before = seen(counter);
		pthread_t thread;
		int64_t begin;
		struct ask ask;

		ask_init(&ask, flags, method, "http://127.0.0.1:%u%s", peer.plain, path);
		assert_int_equal(pthread_create(&thread, NULL, run_main, &ask), 0);
		wait_seen(counter, before + 1);
		begin = clock_boot_ns();
		ask_cancel(&ask);
		pthread_join(thread, NULL);
		took[i] = (clock_boot_ns() - begin) / CLOCK_NS_PER_MS;
		expect_failure(&ask, BERTH_CANCELLED, "cancelled", 1);
		ask_fini(&ask);
	}
	qsort(took, 5, sizeof(took[0]), by_value);
	return took[2];
}

static void cancel(void **state)
{
	struct ask ask;

	(void)state;
	BOTH_MODES(flags) {
		assert_in_range(cancel_takes(flags, "GET", "/never", "/never"), 0, patience(100));
		assert_in_range(cancel_takes(flags, "POST", "/never", "/never"), 0, patience(100));
		assert_in_range(cancel_takes(flags, "GET", "/dribble", "/dribble"), 0, patience(100));
		/* Before it began. */
		ask_init(&ask, flags, "POST", "http://127.0.0.1:%u/early-cancel", peer.plain);
		ask_cancel(&ask);
		ask_run(&ask);
		expect_failure(&ask, BERTH_CANCELLED, "cancelled", 0);
		ask_fini(&ask);
	}
	assert_int_equal(seen("/early-cancel"), 0);
}

static void cancel_while_connecting(void **state)
{
	(void)state;
	BOTH_MODES(flags) {
		unsigned long before = seen("tls_hello");
		pthread_t thread;
		int64_t begin;
		struct ask ask;

		/* Insecure, or it would still be reading the system's certificates. */
		ask_init(&ask, flags | BERTH_HTTP_TLS_INSECURE, "POST", "https://127.0.0.1:%u/x", peer.plain);
		assert_int_equal(pthread_create(&thread, NULL, run_main, &ask), 0);
		wait_seen("tls_hello", before + 1);
		begin = clock_boot_ns();
		ask_cancel(&ask);
		pthread_join(thread, NULL);
		assert_in_range((clock_boot_ns() - begin) / CLOCK_NS_PER_MS, 0, patience(100));
		expect_failure(&ask, BERTH_CANCELLED, "cancelled", 0);
		ask_fini(&ask);
	}
}

static void descriptors_run_out(void **state)
{
	const struct net_config config = {.loops = 2, .descriptors = 20 + 3 * 2};
	struct net_usage usage;
	struct err err;
	struct ask ask;

	(void)state;
	net_free(net);
	assert_int_equal(net_new(&config, &net, &err), 0);
	/* Room for two handles: a third peer takes the place of the one that was idle longest. */
	for (int i = 0; i < 5; i++) {
		ask_init(&ask, 0, "GET", "http://127.0.0.1:%u/ok", peer.plain);
		ask.caller.owner = (const char *const[]){"a", "b", "c", "d", "e"}[i];
		assert_int_equal(ask_run(&ask), BERTH_OK);
		ask_fini(&ask);
		net_usage(net, &usage);
		assert_true(usage.descriptors <= config.descriptors);
	}
	net_free(net);
	assert_int_equal(net_new(&(struct net_config){.descriptors = 22}, &net, &err), 0);
	get(&ask, 0, "/no-room");
	expect_failure(&ask, BERTH_UNAVAILABLE, "descriptors", 0);
	assert_true(ask.failure.retryable);
	ask_fini(&ask);
	assert_int_equal(get(&ask, BERTH_HTTP_LONG, "/ok"), BERTH_OK);
	ask_fini(&ask);
	net_free(net);
	assert_int_equal(net_new(&(struct net_config){.descriptors = 3}, &net, &err), 0);
	BOTH_MODES(flags) {
		get(&ask, flags, "/no-room");
		expect_failure(&ask, BERTH_UNAVAILABLE, "descriptors", 0);
		ask_fini(&ask);
	}
	net_usage(net, &usage);
	assert_int_equal(usage.descriptors, 0);
	net_free(net);
	assert_int_equal(net_setup(NULL), 0);
	assert_int_equal(seen("/no-room"), 0);
}

/* The limit of the process itself, which others may use up. */
static void process_limit(void **state)
{
	int taken[256], count = 0, fd;
	struct rlimit limit, low;
	struct ask ask;

	(void)state;
	spoil(BERTH_HTTP_LONG, "/ok"); /* loops run */
	getrlimit(RLIMIT_NOFILE, &limit);
	low = limit;
	low.rlim_cur = 128;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	while (count < 256 && (fd = dup(0)) >= 0)
		taken[count++] = fd;
	BOTH_MODES(flags) {
		/* Another address, or the idle connection would do. */
		ask_init(&ask, flags, "GET", "http://127.0.0.2:%u/no-room", peer.plain);
		ask.caller.owner = "other";
		ask_run(&ask);
		expect_failure(&ask, BERTH_UNAVAILABLE, "descriptors", 0);
		ask_fini(&ask);
	}
	while (count)
		close(taken[--count]);
	setrlimit(RLIMIT_NOFILE, &limit);
	spoil(0, "/ok");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    CASE(answers_that_are_none), CASE(nobody_there),       CASE(connect_limit),
	    CASE(limits_of_time),        CASE(upload_stalls),      CASE(receiver_refuses),
	    CASE(reused_connections),    CASE(cancel),             CASE(cancel_while_connecting),
	    CASE(descriptors_run_out),   CASE(process_limit),      CASE(many_reused),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
