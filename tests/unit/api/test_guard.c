/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that are slow in every part of an exchange, and those that only look so. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "fixture.h"
#include "obs/metrics.h"

#define LIMIT_MS 600
#define STEP_MS 50

enum { HEAD, BODY, ANSWER, IDLE, FULL };

static struct client c;
static struct answer a;
static uint64_t before[5];

static int start(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 5; i++)
		before[i] = metric_value(METRIC_HTTP_CUT, i, 0);
	return fx_start_with(LIMIT_MS, 64);
}

static void check_cut(unsigned limit, unsigned count)
{
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(metric_value(METRIC_HTTP_CUT, i, 0) - before[i], i == limit ? count : 0);
}

/* What a slow client does between two bytes. */
static void pace(void)
{
	struct timespec time = {.tv_nsec = STEP_MS * CLOCK_NS_PER_MS};

	nanosleep(&time, NULL);
}

/* Sends one byte after the other, until the server has something to say or has ended the connection. */
static void dribble(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		char byte;

		if (send(c.fd, text + i, 1, MSG_NOSIGNAL) != 1 || recv(c.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0)
			return;
		pace();
	}
	fail_msg("nobody minded %zu slow bytes", len);
}

static bool at_end(void)
{
	char byte;
	ssize_t n;

	do
		n = recv(c.fd, &byte, 1, 0);
	while (n > 0);
	return n == 0 || errno == ECONNRESET;
}

static const char long_head[] = "GET /inline HTTP/1.1\r\nHost: x\r\nX-Long: "
				"0123456789012345678901234567890123456789012345678901234567890123456789";

static void open_client(void)
{
	assert_true(client_open(&c, server_port(fx.server)));
}

/* ---- heads ---- */

static void test_a_slow_head_is_cut(void **state)
{
	int64_t begun = clock_boot_ns();

	(void)state;
	open_client();
	dribble(long_head, sizeof(long_head) - 1);
	assert_true(at_end());
	assert_true(clock_boot_ns() - begun >= LIMIT_MS * CLOCK_NS_PER_MS);
	check_cut(HEAD, 1);
	client_close(&c);
}

static void test_a_client_that_says_nothing_is_cut(void **state)
{
	(void)state;
	open_client();
	assert_true(at_end());
	check_cut(HEAD, 1);
	client_close(&c);
}

static void test_a_slow_head_after_an_answer_is_cut(void **state)
{
	int64_t begun;

	(void)state;
	open_client();
	assert_true(client_say(&c, "GET /inline HTTP/1.1\r\nHost: x\r\n\r\n"));
	assert_true(client_answer(&c, &a));
	assert_int_equal(a.status, 200);
	answer_free(&a);
	begun = clock_boot_ns();
	dribble(long_head, sizeof(long_head) - 1);
	assert_true(at_end());
	/* By the limit of a head, not by that of an idle connection. */
	assert_true(clock_boot_ns() - begun < 2 * LIMIT_MS * CLOCK_NS_PER_MS);
	check_cut(HEAD, 1);
	client_close(&c);
}

static void test_an_idle_connection_is_closed(void **state)
{
	int64_t begun;

	(void)state;
	open_client();
	assert_true(client_say(&c, "GET /inline HTTP/1.1\r\nHost: x\r\n\r\n"));
	assert_true(client_answer(&c, &a));
	answer_free(&a);
	begun = clock_boot_ns();
	assert_true(at_end());
	assert_true(clock_boot_ns() - begun >= 2 * LIMIT_MS * CLOCK_NS_PER_MS - CLOCK_NS_PER_MS);
	check_cut(IDLE, 1);
	client_close(&c);
}

/* ---- bodies ---- */

static void refused_as_slow(const char *head)
{
	static char body[200];

	memset(body, 'b', sizeof(body));
	open_client();
	assert_true(client_send(&c, head, strlen(head)));
	dribble(body, sizeof(body));
	assert_true(client_answer(&c, &a));
	assert_int_equal(a.status, 408);
	assert_non_null(strstr(a.body, "request_timeout"));
	answer_free(&a);
	client_close(&c);
}

static void test_a_slow_body_is_refused(void **state)
{
	(void)state;
	refused_as_slow("POST /echo HTTP/1.1\r\nHost: x\r\n" AUTH_ALL "Content-Length: 5000\r\n\r\n");
}

static bool up_ended(void)
{
	return fx.ups > 0;
}

static void test_a_slow_upload_is_refused(void **state)
{
	(void)state;
	refused_as_slow("PUT /up HTTP/1.1\r\nHost: x\r\n" AUTH_ALL "Content-Length: 5000\r\n\r\n");
	assert_true(fx_until(up_ended));
	assert_int_equal(fx.up_code, ERR_REQUEST_TIMEOUT);
}

static void test_a_silent_body_is_cut(void **state)
{
	(void)state;
	open_client();
	assert_true(client_say(&c, "PUT /up HTTP/1.1\r\nHost: x\r\n" AUTH_ALL "Content-Length: 5000\r\n\r\nabc"));
	assert_true(at_end());
	assert_true(fx_until(up_ended));
	check_cut(BODY, 1);
	client_close(&c);
}

static void test_a_slow_refused_body_has_its_answer_early(void **state)
{
	static char body[200];

	(void)state;
	memset(body, 'b', sizeof(body));
	open_client();
	assert_true(client_say(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n"));
	dribble(body, sizeof(body));
	assert_true(client_answer(&c, &a));
	assert_int_equal(a.status, 401);
	answer_free(&a);
	client_close(&c);
}

/* 2000 bytes a second are enough, for much longer than the window. */
static void test_a_body_at_the_least_rate_goes_on(void **state)
{
	static char piece[2 * STEP_MS];
	unsigned pieces = 3 * LIMIT_MS / STEP_MS;

	(void)state;
	open_client();
	assert_true(client_say(&c, "PUT /up HTTP/1.1\r\nHost: x\r\n" AUTH_ALL "Content-Length: %zu\r\n\r\n",
			       pieces * sizeof(piece)));
	for (unsigned i = 0; i < pieces; i++) {
		assert_true(client_send(&c, piece, sizeof(piece)));
		pace();
	}
	assert_true(client_answer(&c, &a));
	assert_int_equal(a.status, 200);
	answer_free(&a);
	client_close(&c);
}

/* A body that waits for us is not the client's fault. */
static void test_a_body_that_we_do_not_read_goes_on(void **state)
{
	static char body[1000000];
	int64_t until = clock_after_ms(3 * LIMIT_MS);

	(void)state;
	fx.paused = true;
	open_client();
	assert_true(
		client_say(&c, "PUT /up HTTP/1.1\r\nHost: x\r\n" AUTH_ALL "Content-Length: %zu\r\n\r\n", sizeof(body)));
	assert_true(client_send(&c, body, sizeof(body) / 2));
	while (clock_boot_ns() < until)
		pace();
	FX_LOCKED(fx.paused = false);
	assert_true(client_send(&c, body, sizeof(body) / 2));
	assert_true(client_answer(&c, &a));
	assert_int_equal(a.status, 200);
	check_cut(BODY, 0);
	answer_free(&a);
	client_close(&c);
}

/* ---- answers ---- */

static bool down_ended(void)
{
	return fx.downs > 0;
}

static void test_a_reader_that_takes_nothing_is_cut(void **state)
{
	(void)state;
	open_client();
	assert_true(client_say(&c, "GET /down?size=500000000 HTTP/1.1\r\nHost: x\r\n\r\n"));
	assert_true(fx_until(down_ended));
	assert_int_equal(fx.down_code, ERR_CANCELLED);
	check_cut(ANSWER, 1);
	client_close(&c);
}

static bool has_ended(void)
{
	bool ended;

	lock_take(&fx.lock);
	ended = down_ended();
	lock_drop(&fx.lock);
	return ended;
}

static void test_a_reader_of_single_bytes_is_cut(void **state)
{
	char byte;

	(void)state;
	open_client();
	assert_true(client_say(&c, "GET /down?size=500000000 HTTP/1.1\r\nHost: x\r\n\r\n"));
	while (!has_ended()) {
		(void)!recv(c.fd, &byte, 1, MSG_DONTWAIT);
		pace();
	}
	assert_int_equal(fx.down_code, ERR_CANCELLED);
	check_cut(ANSWER, 1);
	client_close(&c);
}

/* Megabytes a second through full buffers, for several windows. */
static void test_a_steady_reader_gets_all(void **state)
{
	static char piece[500000];
	size_t size = 40 * sizeof(piece), have = 0;
	ssize_t n = 1;

	(void)state;
	open_client();
	assert_true(client_say(&c, "GET /down?size=%zu HTTP/1.1\r\nHost: x\r\n\r\n", size));
	for (unsigned i = 0; have < size && n > 0; i++) {
		n = recv(c.fd, piece, sizeof(piece), 0);
		have += n > 0 ? (size_t)n : 0;
		if (i % 4 == 0)
			pace();
	}
	assert_true(have >= size);
	client_close(&c);
}

static void test_a_follower_of_few_bytes_is_not_slow(void **state)
{
	int64_t until = clock_after_ms(4 * LIMIT_MS);
	uint64_t given = 0;

	(void)state;
	open_client();
	assert_true(client_say(&c, "GET /follow HTTP/1.1\r\nHost: x\r\n\r\n"));
	while (clock_boot_ns() < until) {
		atomic_store(&fx.available, ++given);
		watch_notify(fx.watch, "out:x");
		pace();
	}
	atomic_store(&fx.ended, true);
	watch_notify(fx.watch, "out:x");
	assert_true(client_answer(&c, &a));
	assert_int_equal(a.len, given);
	assert_true(a.complete);
	answer_free(&a);
	client_close(&c);
}

static void test_a_follower_that_takes_nothing_is_cut(void **state)
{
	int64_t deadline = clock_after_ms(CLIENT_PATIENCE_S * 1000);
	struct server_stat stat = {.requests = 1};

	(void)state;
	open_client();
	assert_true(client_say(&c, "GET /follow HTTP/1.1\r\nHost: x\r\n\r\n"));
	assert_true(client_more(&c));
	atomic_store(&fx.available, 100000000);
	watch_notify(fx.watch, "out:x");
	while (stat.requests && clock_boot_ns() < deadline) {
		pace();
		server_stat(fx.server, &stat);
	}
	assert_int_equal(stat.requests, 0);
	check_cut(ANSWER, 1);
	client_close(&c);
}

static void test_a_long_wait_is_no_slowness(void **state)
{
	(void)state;
	open_client();
	assert_true(client_say(&c, "GET /wait?wait=%ums HTTP/1.1\r\nHost: x\r\n\r\n", 4 * LIMIT_MS));
	assert_true(client_answer(&c, &a));
	assert_int_equal(a.status, 200);
	check_cut(HEAD, 0);
	answer_free(&a);
	client_close(&c);
}

/* ---- too many ---- */

static int start_patient(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 5; i++)
		before[i] = metric_value(METRIC_HTTP_CUT, i, 0);
	return fx_start_with(30000, 64);
}

static void test_unfinished_heads_make_room(void **state)
{
	static int many[160];
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons((uint16_t)server_port(fx.server)),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	(void)state;
	/* More than libmicrohttpd accepts at once; those past it wait in the kernel, and so does ours. */
	for (size_t i = 0; i < 160; i++) {
		many[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(connect(many[i], (struct sockaddr *)&to, sizeof(to)), 0);
		assert_int_equal(send(many[i], "GET", 3, MSG_NOSIGNAL), 3);
	}
	assert_int_equal(fx_ask(&a, "GET /items/x HTTP/1.1\r\nHost: x\r\n" AUTH_ALL "\r\n"), 200);
	answer_free(&a);
	assert_true(metric_value(METRIC_HTTP_CUT, FULL, 0) > before[FULL]);
	for (size_t i = 0; i < 160; i++)
		close(many[i]);
}

static void test_idle_connections_make_room(void **state)
{
	static struct client many[100];

	(void)state;
	for (size_t i = 0; i < 100; i++) {
		assert_true(client_open(&many[i], server_port(fx.server)));
		assert_true(client_say(&many[i], "GET /items/x HTTP/1.1\r\nHost: x\r\n" AUTH_ALL "\r\n"));
		assert_true(client_answer(&many[i], &a));
		assert_int_equal(a.status, 200);
		answer_free(&a);
	}
	check_cut(FULL, 36);
	for (size_t i = 0; i < 100; i++)
		client_close(&many[i]);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, start, fx_stop)
#define T_PATIENT(name) cmocka_unit_test_setup_teardown(name, start_patient, fx_stop)
	const struct CMUnitTest tests[] = {
		T(test_a_slow_head_is_cut),
		T(test_a_client_that_says_nothing_is_cut),
		T(test_a_slow_head_after_an_answer_is_cut),
		T(test_an_idle_connection_is_closed),
		T(test_a_slow_body_is_refused),
		T(test_a_slow_upload_is_refused),
		T(test_a_silent_body_is_cut),
		T(test_a_slow_refused_body_has_its_answer_early),
		T(test_a_body_at_the_least_rate_goes_on),
		T(test_a_body_that_we_do_not_read_goes_on),
		T(test_a_reader_that_takes_nothing_is_cut),
		T(test_a_reader_of_single_bytes_is_cut),
		T(test_a_steady_reader_gets_all),
		T(test_a_follower_of_few_bytes_is_not_slow),
		T(test_a_follower_that_takes_nothing_is_cut),
		T(test_a_long_wait_is_no_slowness),
		T_PATIENT(test_unfinished_heads_make_room),
		T_PATIENT(test_idle_connections_make_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
