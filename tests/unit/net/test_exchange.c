/* SPDX-License-Identifier: Apache-2.0 */
/* What a well-behaved exchange does: heads, bodies, methods, waits that the peer asks for, ways to the peer; and what is refused. */
#include "net_fixture.h"

static void answers(void **state)
{
	struct ask ask;

	(void)state;
	BOTH_MODES(flags) {
		assert_int_equal(get(&ask, flags, "/ok"), BERTH_OK);
		assert_int_equal(ask.response.status, 200);
		assert_int_equal(ask.response.sent, 1);
		assert_int_equal(ask.response.retry_after_ms, 0);
		assert_int_equal(ask.heads, 1);
		assert_string_equal(ask_text(&ask), "fine");
		assert_string_equal(ask.head, "Content-Length: 4\nX-Word: one\nX-Empty: \nx-word: two\n");
		ask_fini(&ask);
		/* Any status is an answer, and so is a redirect, which is not followed. */
		assert_int_equal(get(&ask, flags, "/status?n=503&Retry-After=7"), BERTH_OK);
		assert_int_equal(ask.response.status, 503);
		assert_int_equal(ask.response.retry_after_ms, 7000);
		ask_fini(&ask);
		assert_int_equal(get(&ask, flags, "/redirect?to=/followed"), BERTH_OK);
		assert_int_equal(ask.response.status, 302);
		EXPECT_IN(ask.head, "Location: /followed\n");
		ask_fini(&ask);
		assert_int_equal(get(&ask, flags, "/early"), BERTH_OK);
		assert_int_equal(ask.heads, 1);
		EXPECT_IN(ask.head, "X-Word: final\n");
		assert_null(strstr(ask.head, "early"));
		ask_fini(&ask);
		assert_int_equal(get(&ask, flags, "/big?bytes=300000&chunked"), BERTH_OK);
		assert_int_equal(ask.body.len, 300000);
		assert_null(strstr(ask.head, "Trailer: late"));
		ask_fini(&ask);
	}
	assert_int_equal(seen("/followed"), 0);
}

static void retry_after(void **state)
{
	static const struct {
		const char *query;
		int64_t least, most;
	} cases[] = {
	    {"Retry-After=0", 0, 0},
	    {"Retry-After=120", 120000, 120000},
	    {"Retry-After=99999999999999999999999", 86400000, 86400000},
	    {"Retry-After=-5", 0, 0},
	    {"Retry-After=soon", 0, 0},
	    {"Retry-After=", 0, 0},
	    {"Retry-After=Fri,%2001%20Jan%202100%2000:00:00%20GMT", 86400000, 86400000},
	    {"Retry-After=Fri,%2001%20Jan%201999%2000:00:00%20GMT", 0, 0},
	    /* The peer's own clock counts. */
	    {"Date=Fri,%2001%20Jan%201999%2000:00:00%20GMT&Retry-After=Fri,%2001%20Jan%201999%2000:01:30%20GMT", 90000,
	     90000},
	};
	struct ask ask;
	char path[256];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(path, sizeof(path), "/status?n=429&%s", cases[i].query);
		assert_int_equal(get(&ask, 0, path), BERTH_OK);
		assert_int_equal(ask.response.status, 429);
		assert_in_range(ask.response.retry_after_ms, cases[i].least, cases[i].most);
		ask_fini(&ask);
	}
}

static void headers(void **state)
{
	const struct berth_pair open[] = {{str("X-Open"), str("  yes ")}, {str("X-None"), str("")}};
	const struct berth_pair secret[] = {{str("Authorization"), str("Bearer s3cret-of-the-target")}};
	struct ask ask;

	(void)state;
	BOTH_MODES(flags) {
		ask_init(&ask, flags, "POST", "http://127.0.0.1:%u/echo/a%%2fb/../c?q=%%20", peer.plain);
		ask.request.headers = open;
		ask.request.header_count = 2;
		ask.request.secret_headers = secret;
		ask.request.secret_header_count = 1;
		ask.request.body = str("body\r\nbytes");
		assert_int_equal(ask_run(&ask), BERTH_OK);
		EXPECT_IN(ask_text(&ask), "POST /echo/a%2fb/../c?q=%20 HTTP/1.1\r\n");
		EXPECT_IN(ask_text(&ask), "X-Open: yes ");
		EXPECT_IN(ask_text(&ask), "X-None:");
		EXPECT_IN(ask_text(&ask), "Authorization: Bearer s3cret-of-the-target\r\n");
		EXPECT_IN(ask_text(&ask), "User-Agent: berth/");
		EXPECT_IN(ask_text(&ask), "\r\n\r\nbody\r\nbytes");
		assert_null(strstr(ask_text(&ask), "Expect"));
		assert_null(strstr(ask_text(&ask), "Content-Type"));
		ask_fini(&ask);
	}
}

static void methods(void **state)
{
	static const struct {
		const char *method, *body, *part;
	} cases[] = {
	    {"POST", "", "Content-Length: 0"},   {"PUT", "", "Content-Length: 0"},  {"DELETE", "", "DELETE /echo"},
	    {"DELETE", "x", "Content-Length: 1"}, {"PATCH", "{}", "Content-Length: 2"}, {"GET", "", "GET /echo"},
	    {"QUERY", "q", "Content-Length: 1"},
	};
	struct ask ask;

	(void)state;
	BOTH_MODES(flags) {
		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
			ask_init(&ask, flags, cases[i].method, "http://127.0.0.1:%u/echo", peer.plain);
			ask.request.body = str(cases[i].body);
			assert_int_equal(ask_run(&ask), BERTH_OK);
			EXPECT_IN(ask_text(&ask), cases[i].part);
			assert_ptr_equal(strstr(ask_text(&ask), cases[i].method), ask_text(&ask));
			if (!strcmp(cases[i].method, "GET"))
				assert_null(strstr(ask_text(&ask), "Content-Length"));
			ask_fini(&ask);
		}
		/* A handle that did one keeps nothing of it for the next. */
		ask_init(&ask, flags, "HEAD", "http://127.0.0.1:%u/status?n=204", peer.plain);
		assert_int_equal(ask_run(&ask), BERTH_OK);
		assert_int_equal(ask.response.status, 204);
		assert_int_equal(ask.body.len, 0);
		ask_fini(&ask);
	}
}

/* A body made on the way: `left` bytes in pieces of all sizes. */
struct maker {
	struct ask ask;
	size_t left, next;
	int32_t refuse;
};

static int32_t make_body(void *ctx, void *buf, size_t cap, size_t *ret_len)
{
	struct maker *maker = ctx;
	size_t len = maker->next % 70000 + 1;

	if (!pthread_equal(maker->ask.thread, pthread_self()))
		return BERTH_INTERNAL;
	if (maker->refuse)
		return maker->refuse;
	maker->next = maker->next * 7 + 13;
	len = len < cap ? len : cap;
	len = len < maker->left ? len : maker->left;
	memset(buf, 'm', len);
	maker->left -= len;
	*ret_len = len;
	return BERTH_OK;
}

static void init_maker(struct maker *maker, uint32_t flags, size_t left, uint64_t size)
{
	ask_init(&maker->ask, flags, "PUT", "http://127.0.0.1:%u/sink", peer.plain);
	maker->left = left;
	maker->next = 1;
	maker->refuse = 0;
	maker->ask.request.read = make_body;
	maker->ask.request.body_size = size;
	maker->ask.request.ctx = maker; /* ask is its first member */
}

static void bodies(void **state)
{
	const size_t large = 3 * 1024 * 1024 + 1;
	char *memory = malloc(large);
	struct maker maker;
	struct ask ask;

	(void)state;
	memset(memory, 'm', large);
	BOTH_MODES(flags) {
		init_maker(&maker, flags, large, large);
		assert_int_equal(ask_run(&maker.ask), BERTH_OK);
		EXPECT_IN(ask_text(&maker.ask), "3145729 ");
		ask_fini(&maker.ask);
		init_maker(&maker, flags, large, BERTH_SIZE_UNKNOWN);
		assert_int_equal(ask_run(&maker.ask), BERTH_OK);
		EXPECT_IN(ask_text(&maker.ask), "3145729 ");
		ask_fini(&maker.ask);
		init_maker(&maker, flags, 0, 0);
		assert_int_equal(ask_run(&maker.ask), BERTH_OK);
		EXPECT_IN(ask_text(&maker.ask), "0 ");
		ask_fini(&maker.ask);
		init_maker(&maker, flags, 10, 11);
		ask_run(&maker.ask);
		expect_failure(&maker.ask, BERTH_INVALID, "body_short", 1);
		ask_fini(&maker.ask);
		init_maker(&maker, flags, 11, 10);
		ask_run(&maker.ask);
		expect_failure(&maker.ask, BERTH_INVALID, "body_long", 1);
		ask_fini(&maker.ask);
		init_maker(&maker, flags, 100, 100);
		maker.refuse = BERTH_QUOTA;
		ask_run(&maker.ask);
		expect_failure(&maker.ask, BERTH_QUOTA, "callback", 1);
		ask_fini(&maker.ask);
		ask_init(&ask, flags, "POST", "http://127.0.0.1:%u/sink", peer.plain);
		ask.request.body = (struct berth_str){memory, large};
		assert_int_equal(ask_run(&ask), BERTH_OK);
		EXPECT_IN(ask_text(&ask), "3145729 ");
		ask_fini(&ask);
	}
	free(memory);
}

static void ways(void **state)
{
	const struct berth_pair secret[] = {{str("Authorization"), str("Bearer only-for-the-peer")}};
	struct ask ask;
	char text[128], *told;

	(void)state;
	BOTH_MODES(flags) {
		ask_init(&ask, flags, "GET", "http://localhost/ok");
		snprintf(text, sizeof(text), "%s/peer.sock", peer.dir);
		ask.request.unix_socket = str(text);
		assert_int_equal(ask_run(&ask), BERTH_OK);
		assert_string_equal(ask_text(&ask), "fine");
		ask_fini(&ask);
		/* A proxy for plain HTTP gets the whole URL. */
		ask_init(&ask, flags, "GET", "http://localhost:1/ok");
		snprintf(text, sizeof(text), "http://127.0.0.1:%u", peer.plain);
		ask.request.proxy = str(text);
		ask.request.secret_headers = secret;
		ask.request.secret_header_count = 1;
		assert_int_equal(ask_run(&ask), BERTH_OK);
		ask_fini(&ask);
		ask_init(&ask, flags, "POST", "http://127.0.0.1:%u/ok", peer.plain);
		ask.request.proxy = str("http://127.0.0.1:1");
		ask_run(&ask);
		expect_failure(&ask, BERTH_UNAVAILABLE, "connect", 0);
		ask_fini(&ask);
	}
	assert_int_equal(seen("absolute"), 2);
	told = stats();
	assert_null(strstr(told, "only-for-the-peer"));
	free(told);
}

static void refusals(void **state)
{
	static const struct {
		const char *method, *url, *name, *value, *part;
	} cases[] = {
	    {"GET", "", "A", "b", "URL"},
	    {"GET", "http://", "A", "b", "URL"},
	    {"GET", "ftp://127.0.0.1/", "A", "b", "neither http"},
	    {"GET", "file:///etc/passwd", "A", "b", "URL"},
	    {"GET", "http://127.0.0.1/a b", "A", "b", "URL"},
	    {"GET", "http://127.0.0.1/a\r\nX: y", "A", "b", "URL"},
	    {"GET", "http://me:hidden@127.0.0.1/", "A", "b", "credential"},
	    {"GET /", "http://127.0.0.1/", "A", "b", "method"},
	    {"", "http://127.0.0.1/", "A", "b", "method"},
	    {"CONNECT", "http://127.0.0.1/", "A", "b", "method"},
	    {"GET", "http://127.0.0.1/", "A B", "b", "name"},
	    {"GET", "http://127.0.0.1/", "", "b", "name"},
	    {"GET", "http://127.0.0.1/", "A", "b\r\nC: hidden", "value"},
	    {"GET", "http://127.0.0.1/", "A", "b\nhidden", "value"},
	    {"GET", "http://127.0.0.1/", "content-length", "5", "sets itself"},
	    {"GET", "http://127.0.0.1/", "Transfer-Encoding", "chunked", "sets itself"},
	};
	struct berth_pair pair;
	struct ask ask;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		ask_init(&ask, 0, cases[i].method, "%s", cases[i].url);
		pair = (struct berth_pair){str(cases[i].name), str(cases[i].value)};
		ask.request.secret_headers = &pair;
		ask.request.secret_header_count = 1;
		ask_run(&ask);
		expect_failure(&ask, BERTH_INVALID, "request", 0);
		EXPECT_IN(ask.failure.text, cases[i].part);
		assert_null(strstr(ask.failure.text, "hidden"));
		ask_fini(&ask);
	}
	ask_init(&ask, 0, "GET", "http://127.0.0.1/");
	ask.request.total_timeout_ms = -1;
	ask_run(&ask);
	expect_failure(&ask, BERTH_INVALID, "request", 0);
	ask.request.total_timeout_ms = 0;
	ask.request.flags = 1u << 31;
	ask_run(&ask);
	expect_failure(&ask, BERTH_INVALID, "request", 0);
	ask.request.flags = 0;
	ask.caller.deadline_ns = INT64_MAX;
	ask_run(&ask);
	expect_failure(&ask, BERTH_INVALID, "request", 0);
	ask_fini(&ask);
}

static void connections(void **state)
{
	struct net_usage usage;
	unsigned long before;
	struct ask ask;

	(void)state;
	before = seen("connections");
	BOTH_MODES(flags) {
		for (int i = 0; i < 20; i++) {
			assert_int_equal(get(&ask, flags, "/ok"), BERTH_OK);
			ask_fini(&ask);
		}
	}
	assert_int_equal(seen("connections") - before, 2); /* one of the pool, one of the loop */
	/* Another owner has its own. */
	ask_init(&ask, 0, "GET", "http://127.0.0.1:%u/ok", peer.plain);
	ask.caller.owner = "two";
	assert_int_equal(ask_run(&ask), BERTH_OK);
	ask_fini(&ask);
	assert_int_equal(seen("connections") - before, 3);
	net_usage(net, &usage);
	assert_int_equal(usage.idle, 3); /* control, one, two */
	assert_int_equal(usage.long_running, 0);
	/* Idle ones are closed in time by themselves. */
	for (int64_t end = clock_after_ms(patience(30000)); usage.idle && clock_boot_ns() < end; net_usage(net, &usage))
		tick();
	assert_int_equal(usage.idle, 0);
}

/* While one peer answers, another is asked that nobody knows. */
static int32_t ask_another(void *ctx, uint32_t status, const struct berth_pair *headers, size_t count)
{
	static unsigned number;
	struct ask other;
	char owner[32];
	int32_t code;

	snprintf(owner, sizeof(owner), "peer %u", number++);
	ask_init(&other, 0, "GET", "http://127.0.0.1:%u/ok", peer.plain);
	other.caller.owner = owner;
	code = ask_run(&other);
	ask_fini(&other);
	return code ? code : take_head(ctx, status, headers, count);
}

/* More peers than the pool keeps: the one that is asked all the time keeps its connection. */
static void many_peers(void **state)
{
	unsigned long before;
	struct ask ask;

	(void)state;
	before = seen("connections");
	for (int i = 0; i < 300; i++) {
		ask_init(&ask, 0, "GET", "http://127.0.0.1:%u/ok", peer.plain);
		ask.caller.owner = "busy";
		ask.request.head = ask_another;
		assert_int_equal(ask_run(&ask), BERTH_OK);
		ask_fini(&ask);
	}
	/* The last one is what this asks on: it had been idle for longest. */
	assert_int_equal(seen("connections") - before, 1 + 300 + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    CASE(answers), CASE(retry_after), CASE(headers),  CASE(methods),
	    CASE(bodies),  CASE(ways),        CASE(refusals), CASE(connections),
	    CASE(many_peers),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
