/* SPDX-License-Identifier: Apache-2.0 */
/* The server over loopback: heads, routes, auth, errors, limits. Asserts run on this thread only. */
#include "api/server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "fixture.h"

static struct client c;
static struct answer a;

#define ASK(...) fx_ask(&a, __VA_ARGS__)
#define GET(target, more) "GET " target " HTTP/1.1\r\nHost: x\r\n" more "\r\n"

static void open_client(void)
{
	assert_true(client_open(&c, server_port(fx.server)));
}

static void check_says(const char *word)
{
	if (!a.body || !strstr(a.body, word))
		fail_msg("\"%s\" is not in: %s %s", word, a.head, a.body ? a.body : "");
	answer_free(&a);
}

static const char *header(const char *name)
{
	static char value[256];

	return answer_header(&a, name, value, sizeof(value));
}

/* ---- heads ---- */

static void test_malformed_heads_are_refused_and_closed(void **state)
{
	static const struct {
		const char *head;
		const char *word;
	} cases[] = {
		{"POST /echo HTTP/1.1\r\nHost: x\r\n" AUTH_ALL "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
		 "twice"},
		{"POST /echo HTTP/1.1\r\nHost: x\r\n" AUTH_ALL "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
		 "twice"},
		{"POST /echo HTTP/1.1\r\nHost: x\r\n" AUTH_ALL
		 "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		 "exclude"},
		{"GET /inline HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", "Host"},
		{"GET /inline HTTP/1.1\r\n\r\n", "Host is missing"},
		{"GET /inline HTTP/1.1\r\nHost: x\r\nContent-Length : 3\r\n\r\n", "name"},
		{"GET /inline HTTP/1.1\r\nHost: x\r\nX: a\001b\r\n\r\n", "control"},
		{"GET /inline HTTP/1.1\r\nHost: x\r\nX: a\177b\r\n\r\n", "control"},
		{"GET /inline HTTP/1.1\r\nHost: x\nX: y\r\n\r\n", "CRLF"},
		{"POST /echo HTTP/1.1\r\nHost: x\r\n" AUTH_ALL "Transfer-Encoding: gzip\r\n\r\n", "chunked"},
		{"GET /inline HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
		 "exclude"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		open_client();
		/* A second request in the same bytes must never be answered. */
		assert_true(client_say(&c, "%s" GET("/inline", ""), cases[i].head));
		if (!client_answer(&c, &a) || a.status != 400 || !strstr(a.body, cases[i].word))
			fail_msg("case %zu: %d %s", i, a.status, a.body ? a.body : "");
		assert_string_equal(header("Connection"), "close");
		check_says("\"error\":\"invalid_request\"");
		assert_true(client_at_end(&c));
		client_close(&c);
	}
}

static void test_nul_in_a_head_is_never_cut_short(void **state)
{
	static const struct {
		const char *ptr;
		size_t len;
	} heads[] = {
#define HEAD(text) {text, sizeof(text) - 1}
		HEAD("GET /inline\0x HTTP/1.1\r\nHost: x\r\n\r\n"),
		HEAD("GET /inline\0 HTTP/1.1\r\nHost: x\r\n\r\n"),
		HEAD("GET /inline HTTP/1.1\r\nX: a\0b\r\nHost: x\r\n\r\n"),
		HEAD("GET /inline HTTP/1.1\r\nHost: x\r\nX-Request-Id: a\0b\r\n\r\n"),
		HEAD("GET /inline HTTP/1.1\r\nHost: x\r\nX\0Y: a\r\n\r\n"),
	};

	(void)state;
	for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
		open_client();
		assert_true(client_send(&c, heads[i].ptr, heads[i].len));
		if (client_answer(&c, &a) && a.status != 400)
			fail_msg("head %zu: %d", i, a.status);
		answer_free(&a);
		client_close(&c);
	}
}

static void test_oversize_heads(void **state)
{
	char big[40000];

	(void)state;
	memset(big, 'a', sizeof(big));
	big[sizeof(big) - 1] = '\0';
	open_client();
	client_say(&c, "GET /inline HTTP/1.1\r\nHost: x\r\nX: ");
	client_send(&c, big, sizeof(big) - 1);
	client_send(&c, big, sizeof(big) - 1);
	client_say(&c, "\r\n\r\n");
	assert_true(client_answer(&c, &a));
	assert_int_equal(a.status, 431);
	answer_free(&a);
	client_close(&c);
	big[9000] = '\0';
	assert_int_equal(ASK("GET /%s HTTP/1.1\r\nHost: x\r\n\r\n", big), 414);
	check_says("8000");
}

static void test_http_1_0_without_host(void **state)
{
	(void)state;
	assert_int_equal(ASK("GET /inline HTTP/1.0\r\n\r\n"), 200);
	answer_free(&a);
}

static void test_pipelined_requests_are_answered_in_order(void **state)
{
	(void)state;
	open_client();
	assert_true(client_say(&c, GET("/items/one", AUTH_ALL) GET("/inline", "") GET("/items/two", AUTH_ALL)
					   GET("/nothing", "")));
	assert_true(client_answer(&c, &a));
	check_says("one|");
	assert_true(client_answer(&c, &a));
	check_says("inline");
	assert_true(client_answer(&c, &a));
	check_says("two|");
	assert_true(client_answer(&c, &a));
	assert_int_equal(a.status, 404);
	answer_free(&a);
	client_close(&c);
}

/* ---- ids ---- */

static void test_request_ids(void **state)
{
	(void)state;
	assert_int_equal(ASK(GET("/inline", "X-Request-Id: my.id-1_2\r\n")), 200);
	assert_string_equal(header("X-Request-Id"), "my.id-1_2");
	answer_free(&a);
	for (size_t i = 0; i < 3; i++) {
		static const char *const bad[] = {"a b", "", "a/b"};

		assert_int_equal(ASK("GET /nothing HTTP/1.1\r\nHost: x\r\nX-Request-Id: %s\r\n\r\n", bad[i]), 404);
		assert_memory_equal(header("X-Request-Id"), "req_", 4);
		answer_free(&a);
	}
}

/* ---- routes ---- */

static void test_routes_and_parameters(void **state)
{
	(void)state;
	assert_int_equal(ASK(GET("/items/a%%2Eb?q=x%%20y", AUTH_ALL)), 200);
	check_says("a.b|x y|all");
	assert_int_equal(ASK(GET("/items/", AUTH_ALL)), 404);
	check_says("not_found");
	assert_int_equal(ASK(GET("/items/a/b", AUTH_ALL)), 404);
	answer_free(&a);
	assert_int_equal(ASK("PUT /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"), 405);
	assert_string_equal(header("Allow"), "POST, DELETE, OPTIONS");
	check_says("method_not_allowed");
	assert_int_equal(ASK(GET("/items/a?q=1&q=2", AUTH_ALL)), 400);
	check_says("twice");
	assert_int_equal(ASK(GET("/items/a?z=1", AUTH_ALL)), 400);
	check_says("z");
}

static void test_odd_ids_are_400_by_name(void **state)
{
	static const char *const ids[] = {"a%00b", "a%ff", "a%2Fb", "a%", "a%0A"};

	(void)state;
	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		assert_int_equal(ASK("GET /items/%s HTTP/1.1\r\nHost: x\r\n" AUTH_ALL "\r\n", ids[i]), 400);
		check_says("id ");
	}
}

static void test_head_method(void **state)
{
	(void)state;
	open_client();
	assert_true(client_say(&c, "HEAD /inline HTTP/1.1\r\nHost: x\r\n\r\n"));
	assert_true(client_answer_of(&c, &a, true));
	assert_int_equal(a.status, 200);
	assert_string_equal(header("Content-Length"), "7");
	answer_free(&a);
	assert_true(client_say(&c, GET("/inline", "")));
	assert_true(client_answer(&c, &a));
	check_says("inline");
	client_close(&c);
}

/* ---- auth ---- */

static void test_auth_is_asked_before_anything_of_the_request(void **state)
{
	(void)state;
	assert_int_equal(ASK(GET("/items/a%%00?z=1", "")), 401);
	assert_string_equal(header("WWW-Authenticate"), "Bearer");
	check_says("unauthorized");
	assert_int_equal(ASK(GET("/items/a", "Authorization: Bearer " TOKEN_READ "\r\n")), 403);
	check_says("forbidden");
	assert_int_equal(ASK(GET("/items/a", AUTH_ALL AUTH_ALL)), 401);
	answer_free(&a);
	assert_int_equal(ASK(GET("/unset", AUTH_ALL)), 401);
	answer_free(&a);
	assert_int_equal(ASK(GET("/items/a", "Authorization: Bearer " TOKEN_NARROW "\r\n")), 200);
	check_says("a|-|narrow");
}

static void test_refused_before_the_body_is_read(void **state)
{
	(void)state;
	/* Small: dropped, and the connection goes on. */
	open_client();
	assert_true(
		client_say(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello" GET("/inline", "")));
	assert_true(client_answer(&c, &a));
	assert_int_equal(a.status, 401);
	answer_free(&a);
	assert_true(client_answer(&c, &a));
	check_says("inline");
	client_close(&c);
	/* Large: answered at once, although the body never comes. */
	open_client();
	assert_true(client_say(&c, "PUT /up HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\nhello"));
	assert_true(client_answer(&c, &a));
	assert_int_equal(a.status, 401);
	assert_string_equal(header("Connection"), "close");
	answer_free(&a);
	client_close(&c);
	/* The client waits for leave to send: it gets the final answer alone. */
	open_client();
	assert_true(client_say(
		&c, "PUT /up HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n"));
	assert_true(client_answer(&c, &a));
	assert_int_equal(a.status, 401);
	answer_free(&a);
	assert_true(client_at_end(&c));
	client_close(&c);
}

/* ---- bodies ---- */

static void test_bodies(void **state)
{
	(void)state;
	open_client();
	assert_true(client_say(&c, "POST /echo HTTP/1.1\r\nHost: x\r\n" AUTH_ALL "Content-Length: 5\r\n\r\nhel"));
	assert_true(client_say(&c, "lo"));
	assert_true(client_answer(&c, &a));
	assert_string_equal(a.body, "hello");
	answer_free(&a);
	assert_true(client_say(&c, "POST /echo HTTP/1.1\r\nHost: x\r\n" AUTH_ALL "Transfer-Encoding: chunked\r\n\r\n"));
	assert_true(client_say(&c, "1\r\na\r\n3;x=y\r\nbcd\r\n"));
	assert_true(client_say(&c, "0\r\nTrailer: z\r\n\r\n"));
	assert_true(client_answer(&c, &a));
	assert_string_equal(a.body, "abcd");
	answer_free(&a);
	assert_true(client_say(&c, "POST /echo HTTP/1.1\r\nHost: x\r\n" AUTH_ALL "Content-Length: 0\r\n\r\n"));
	assert_true(client_answer(&c, &a));
	assert_int_equal(a.status, 200);
	assert_string_equal(a.body, "");
	answer_free(&a);
	client_close(&c);
}

static void test_bodies_over_the_limit(void **state)
{
	char piece[8193];

	(void)state;
	assert_int_equal(ASK("POST /echo HTTP/1.1\r\nHost: x\r\n" AUTH_ALL "Content-Length: 100001\r\n\r\n"), 413);
	check_says("100000");
	/* Chunked: found when the limit is passed, not at the end. */
	open_client();
	assert_true(client_say(&c, "POST /echo HTTP/1.1\r\nHost: x\r\n" AUTH_ALL "Transfer-Encoding: chunked\r\n\r\n"));
	memset(piece, 'a', sizeof(piece));
	for (int i = 0; i < 13; i++) {
		client_say(&c, "2000\r\n");
		client_send(&c, piece, 8192);
		client_say(&c, "\r\n");
	}
	assert_true(client_answer(&c, &a));
	assert_int_equal(a.status, 413);
	answer_free(&a);
	client_close(&c);
}

static void test_bodies_where_none_belongs(void **state)
{
	(void)state;
	open_client();
	assert_true(
		client_say(&c, "DELETE /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc" GET("/inline", "")));
	assert_true(client_answer(&c, &a));
	assert_int_equal(a.status, 400);
	check_says("no body");
	assert_true(client_answer(&c, &a));
	check_says("inline");
	client_close(&c);
	assert_int_equal(
		ASK("GET /inline HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"), 400);
	answer_free(&a);
}

/* ---- errors ---- */

static void test_errors_say_no_internals(void **state)
{
	static const struct {
		const char *code;
		int status;
		const char *word;
	} cases[] = {
		{"internal", 500, "\"error\":\"internal\",\"message\":\"internal error\""},
		{"nomem", 500, "\"error\":\"internal\",\"message\":\"internal error\""},
		{"corrupt", 500, "\"error\":\"internal\",\"message\":\"internal error\""},
		{"provider", 502, "\"error\":\"provider_error\""},
		{"provider_auth", 502, "\"error\":\"provider_auth\""},
		{"capacity", 503, "\"error\":\"capacity_exhausted\""},
		{"store", 503, "\"error\":\"store_unavailable\""},
		{"session_gone", 410, "\"error\":\"session_gone\""},
		{"cancelled", 503, "\"error\":\"shutting_down\""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(
			ASK("GET /fail?code=%s HTTP/1.1\r\nHost: x\r\nX-Request-Id: r%zu\r\n\r\n", cases[i].code, i),
			cases[i].status);
		assert_null(strstr(a.body, "secret words"));
		if (cases[i].status == 500)
			assert_non_null(strstr(a.body, "\"request_id\":\"r"));
		if (cases[i].status == 503)
			assert_non_null(header("Retry-After"));
		check_says(cases[i].word);
	}
	assert_int_equal(ASK(GET("/fail?code=rate_limited&retry=1", "")), 429);
	assert_string_equal(header("Retry-After"), "2");
	assert_non_null(strstr(a.body, "\"retry_after_ms\":1500"));
	check_says("\"reason\":\"why\"");
	assert_int_equal(ASK(GET("/fail?code=conflict", "")), 409);
	check_says("secret words");
}

/* ---- load ---- */

static bool two_blocked(void)
{
	return fx.blocked == 2;
}

/* Answers that have come, to any of the clients. */
static void wait_answers(const struct client *clients, size_t count, unsigned want)
{
	struct timespec pause = {.tv_nsec = CLOCK_NS_PER_MS};
	int64_t deadline = clock_after_ms(CLIENT_PATIENCE_S * 1000);
	unsigned have = 0;

	while (have < want) {
		char byte;

		assert_true(clock_boot_ns() < deadline);
		nanosleep(&pause, NULL);
		have = 0;
		for (size_t i = 0; i < count; i++)
			have += recv(clients[i].fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
	}
}

static void test_full_queue_is_told(void **state)
{
	static struct client many[16];
	int accepted = 0;
	int refused = 0;

	(void)state;
	/* Two workers, eight places in the queue: of sixteen six are refused at once, and the loop still answers. */
	for (size_t i = 0; i < 2; i++) {
		assert_true(client_open(&many[i], server_port(fx.server)));
		assert_true(client_say(&many[i], GET("/block", "")));
	}
	assert_true(fx_until(two_blocked));
	for (size_t i = 2; i < 16; i++) {
		assert_true(client_open(&many[i], server_port(fx.server)));
		assert_true(client_say(&many[i], GET("/block", "")));
	}
	wait_answers(many, 16, 6);
	assert_int_equal(ASK(GET("/inline", "")), 200);
	answer_free(&a);
	assert_int_equal(ASK(GET("/block", "")), 503);
	assert_non_null(header("Retry-After"));
	check_says("queue_full");
	FX_LOCKED(fx.open = true);
	for (size_t i = 0; i < 16; i++) {
		assert_true(client_answer(&many[i], &a));
		accepted += a.status == 204;
		refused += a.status == 503;
		answer_free(&a);
		client_close(&many[i]);
	}
	assert_int_equal(accepted, 10);
	assert_int_equal(refused, 6);
}

static unsigned sent;

static bool all_wait(void)
{
	return atomic_load(&fx.looks) >= sent;
}

/* Those that wait for something are in use, so that none of them makes room. */
static void test_too_many_connections_are_told(void **state)
{
	static struct client many[70];
	int refused = 0;

	(void)state;
	for (size_t i = 0; i < 70; i++) {
		assert_true(client_open(&many[i], server_port(fx.server)));
		assert_true(client_say(&many[i], GET("/wait?wait=60s", "")));
		sent = (unsigned)i + 1;
		if (i < 64) {
			assert_true(fx_until(all_wait)); /* two workers take them one after the other */
			continue;
		}
		assert_true(client_answer(&many[i], &a));
		assert_int_equal(a.status, 503);
		assert_non_null(header("Retry-After"));
		check_says("queue_full");
		refused += a.status == 503;
		answer_free(&a);
	}
	assert_int_equal(refused, 6);
	assert_int_equal(ASK(GET("/inline", "")), 200); /* the open health route goes on */
	answer_free(&a);
	atomic_store(&fx.condition, true);
	watch_notify(fx.watch, "exec:x");
	for (size_t i = 0; i < 70; i++) {
		if (i < 64) {
			assert_true(client_answer(&many[i], &a));
			assert_int_equal(a.status, 200);
			answer_free(&a);
		}
		client_close(&many[i]);
	}
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, fx_start, fx_stop)
	const struct CMUnitTest tests[] = {
		T(test_malformed_heads_are_refused_and_closed),
		T(test_nul_in_a_head_is_never_cut_short),
		T(test_oversize_heads),
		T(test_http_1_0_without_host),
		T(test_pipelined_requests_are_answered_in_order),
		T(test_request_ids),
		T(test_routes_and_parameters),
		T(test_odd_ids_are_400_by_name),
		T(test_head_method),
		T(test_auth_is_asked_before_anything_of_the_request),
		T(test_refused_before_the_body_is_read),
		T(test_bodies),
		T(test_bodies_over_the_limit),
		T(test_bodies_where_none_belongs),
		T(test_errors_say_no_internals),
		T(test_full_queue_is_told),
		T(test_too_many_connections_are_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
