/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies and answers that stream, waits without a thread, clients that stall or hang up, stop. */
#include "api/stream.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "fixture.h"

static struct client c;
static struct answer a;
static char piece[65536];

#define GET(target) "GET " target " HTTP/1.1\r\nHost: x\r\n\r\n"
#define PUT_UP "PUT /up HTTP/1.1\r\nHost: x\r\n" AUTH_ALL

static void open_client(void)
{
	assert_true(client_open(&c, server_port(fx.server)));
}

static void expect(int status)
{
	assert_true(client_answer(&c, &a));
	if (a.status != status)
		fail_msg("%d instead of %d: %s", a.status, status, a.body);
}

/* ---- upload ---- */

static void check_sum(uint64_t total)
{
	unsigned long long got = 0;
	unsigned long long sum = 0;
	uint64_t expected = 0;

	for (uint64_t i = 0; i < total; i++)
		expected = expected * 31 + (unsigned char)pattern_byte(i);
	assert_int_equal(sscanf(a.body, "%llu %llu", &got, &sum), 2);
	assert_int_equal(got, total);
	assert_true(sum == expected);
}

static void test_uploads_keep_every_byte(void **state)
{
	static const size_t sizes[] = {0, 1, 65536, 3000000};

	(void)state;
	open_client();
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		assert_true(client_say(&c, PUT_UP "Content-Length: %zu\r\n\r\n", sizes[i]));
		for (size_t done = 0; done < sizes[i];) {
			size_t len = sizes[i] - done < sizeof(piece) ? sizes[i] - done : sizeof(piece);

			pattern(piece, done, len);
			assert_true(client_send(&c, piece, len));
			done += len;
		}
		expect(200);
		check_sum(sizes[i]);
		answer_free(&a);
	}
	client_close(&c);
}

static void test_chunked_upload(void **state)
{
	size_t total = 0;

	(void)state;
	open_client();
	assert_true(client_say(&c, PUT_UP "Transfer-Encoding: chunked\r\n\r\n"));
	for (size_t len = 1; len < 40000; len = len * 3 + 1) {
		pattern(piece, total, len);
		assert_true(client_say(&c, "%zx\r\n", len));
		assert_true(client_send(&c, piece, len));
		assert_true(client_say(&c, "\r\n"));
		total += len;
	}
	assert_true(client_say(&c, "0\r\n\r\n"));
	expect(200);
	check_sum(total);
	answer_free(&a);
	client_close(&c);
}

static bool all_read(void)
{
	return fx.read == 40;
}

static void test_one_byte_at_a_time(void **state)
{
	(void)state;
	open_client();
	assert_true(client_say(&c, PUT_UP "Content-Length: 40\r\n\r\n"));
	for (size_t i = 0; i < 40; i++) {
		pattern(piece, i, 1);
		assert_true(client_send(&c, piece, 1));
	}
	assert_true(fx_until(all_read));
	expect(200);
	check_sum(40);
	answer_free(&a);
	client_close(&c);
}

/* Sends until the peer takes no more for now; the number of bytes that went. */
static size_t push_until_full(void)
{
	size_t sent = 0;
	struct timeval short_patience = {.tv_usec = 300000};

	setsockopt(c.fd, SOL_SOCKET, SO_SNDTIMEO, &short_patience, sizeof(short_patience));
	for (;;) {
		pattern(piece, sent, sizeof(piece));

		ssize_t n = send(c.fd, piece, sizeof(piece), MSG_NOSIGNAL);

		if (n <= 0)
			return sent;
		sent += (size_t)n;
		if ((size_t)n < sizeof(piece))
			return sent;
	}
}

static void test_a_slow_reader_slows_the_client(void **state)
{
	const size_t total = 64 << 20;
	size_t sent;

	(void)state;
	FX_LOCKED(fx.paused = true);
	open_client();
	assert_true(client_say(&c, PUT_UP "Content-Length: %zu\r\n\r\n", total));
	sent = push_until_full();
	/* The window and the kernel's buffers, not the body. */
	assert_true(sent < 24 << 20);
	FX_LOCKED(fx.paused = false);

	struct timeval patience = {.tv_sec = CLIENT_PATIENCE_S};

	setsockopt(c.fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	while (sent < total) {
		size_t len = total - sent < sizeof(piece) ? total - sent : sizeof(piece);

		pattern(piece, sent, len);
		assert_true(client_send(&c, piece, len));
		sent += len;
	}
	expect(200);
	check_sum(total);
	answer_free(&a);
	client_close(&c);
}

static void test_reader_that_stops_early_answers_at_once(void **state)
{
	(void)state;
	open_client();
	assert_true(client_say(&c, "PUT /up?stop=1000 HTTP/1.1\r\nHost: x\r\n" AUTH_ALL
				   "Transfer-Encoding: chunked\r\n\r\n"));
	/* The client goes on until it hears; nobody ever reads the whole. */
	for (size_t i = 0; i < 64; i++) {
		if (!client_say(&c, "10000\r\n") || !client_send(&c, piece, sizeof(piece)) || !client_say(&c, "\r\n"))
			break;
	}
	expect(413);
	assert_non_null(strstr(a.body, "stopped after"));
	answer_free(&a);
	client_close(&c);
}

static bool up_ended(void)
{
	return fx.ups > 0;
}

static void test_client_that_goes_away_half_way(void **state)
{
	(void)state;
	open_client();
	assert_true(client_say(&c, PUT_UP "Content-Length: 1000000\r\n\r\n"));
	assert_true(client_send(&c, piece, 5000));
	client_close(&c);
	assert_true(fx_until(up_ended));
	assert_int_equal(fx.up_code, ERR_CANCELLED);
}

static void test_client_that_goes_away_while_the_window_is_full(void **state)
{
	(void)state;
	FX_LOCKED(fx.paused = true);
	open_client();
	assert_true(client_say(&c, PUT_UP "Content-Length: 100000000\r\n\r\n"));
	push_until_full();
	client_close(&c);
	FX_LOCKED(fx.paused = false);
	assert_true(fx_until(up_ended));
	assert_int_equal(fx.up_code, ERR_CANCELLED);
}

static void test_half_closing_client_gets_its_answer(void **state)
{
	(void)state;
	FX_LOCKED(fx.paused = true);
	open_client();
	pattern(piece, 0, 1000);
	assert_true(client_say(&c, PUT_UP "Content-Length: 1000\r\n\r\n"));
	assert_true(client_send(&c, piece, 1000));
	shutdown(c.fd, SHUT_WR);
	FX_LOCKED(fx.paused = false);
	expect(200);
	check_sum(1000);
	answer_free(&a);
	client_close(&c);
}

static int start_impatient(void **state)
{
	(void)state;
	return fx_start_with(1000, 64);
}

static void test_stalled_upload_frees_its_worker(void **state)
{
	(void)state;
	open_client();
	assert_true(client_say(&c, PUT_UP "Content-Length: 1000000\r\n\r\nabc"));
	assert_true(fx_until(up_ended));
	assert_true(fx.up_code != 0);
	while (!client_at_end(&c) && client_more(&c))
		;
	client_close(&c);
}

/* ---- download ---- */

static void check_pattern(uint64_t from, size_t len)
{
	assert_int_equal(a.len, len);
	for (size_t i = 0; i < len; i++) {
		if (a.body[i] != pattern_byte(from + i))
			fail_msg("byte %zu is wrong", i);
	}
}

static void test_downloads_keep_every_byte(void **state)
{
	static const size_t sizes[] = {0, 1, 100000, 5000000};
	char value[64];

	(void)state;
	open_client();
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		assert_true(client_say(&c, "GET /down?size=%zu HTTP/1.1\r\nHost: x\r\n\r\n", sizes[i]));
		expect(200);
		assert_true(a.complete);
		assert_int_equal(strtoul(answer_header(&a, "Content-Length", value, sizeof(value)), NULL, 10),
				 sizes[i]);
		check_pattern(0, sizes[i]);
		answer_free(&a);
	}
	client_close(&c);
}

static void test_download_that_fails_is_cut_short(void **state)
{
	(void)state;
	open_client();
	assert_true(client_say(&c, GET("/down?size=1000000&cut=300000")));
	expect(200);
	assert_false(a.complete);
	assert_true(a.len <= 300000);
	answer_free(&a);
	client_close(&c);
}

static bool down_ended(void)
{
	return fx.downs > 0;
}

static bool window_full(void)
{
	return fx.downed >= LIMIT_STREAM_WINDOW;
}

static void test_client_that_stops_reading_frees_the_worker(void **state)
{
	(void)state;
	open_client();
	assert_true(client_say(&c, GET("/down?size=500000000")));
	assert_true(fx_until(window_full));
	assert_true(fx_until(down_ended)); /* after the idle limit */
	assert_int_equal(fx.down_code, ERR_CANCELLED);
	client_close(&c);
}

static void test_client_that_goes_away_during_a_download(void **state)
{
	(void)state;
	open_client();
	assert_true(client_say(&c, GET("/down?size=500000000")));
	assert_true(fx_until(window_full));
	client_close(&c);
	assert_true(fx_until(down_ended));
	assert_int_equal(fx.down_code, ERR_CANCELLED);
}

/* ---- follow ---- */

static void give(uint64_t available, bool ended)
{
	atomic_store(&fx.available, available);
	atomic_store(&fx.ended, ended);
	watch_notify(fx.watch, "out:x");
}

/* Reads chunked bytes until `len` were seen. */
static void read_followed(size_t len)
{
	char line[64];

	while (a.len < len) {
		assert_true(read_line(&c, line, sizeof(line)));

		size_t chunk = strtoul(line, NULL, 16);

		assert_true(chunk > 0);
		assert_true(read_bytes(&a, &c, chunk));
		assert_true(read_line(&c, line, sizeof(line)));
	}
}

static void read_head_of(struct client *from)
{
	char line[256];

	memset(&a, 0, sizeof(a));
	do {
		assert_true(read_line(from, line, sizeof(line)));
		if (strncmp(line, "HTTP/1.1 ", 9) == 0)
			a.status = (int)strtol(line + 9, NULL, 10);
	} while (line[0]);
}

static void read_head(void)
{
	read_head_of(&c);
}

static void test_follow_gives_bytes_as_they_come(void **state)
{
	static const size_t steps[] = {1, 10, 5000, 400000, 400001, 2000000};
	unsigned pumps;

	(void)state;
	open_client();
	assert_true(client_say(&c, GET("/follow")));
	read_head();
	assert_int_equal(a.status, 200);
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		give(steps[i], false);
		read_followed(steps[i]);
		check_pattern(0, steps[i]);
	}
	pumps = atomic_load(&fx.pumps);
	give(steps[5], false); /* a notice without news costs one look */
	give(steps[5], true);
	assert_true(read_chunks(&a, &c));
	check_pattern(0, steps[5]);
	assert_true(atomic_load(&fx.pumps) - pumps < 20);
	answer_free(&a);
	/* The connection goes on. */
	assert_true(client_say(&c, GET("/inline")));
	expect(200);
	answer_free(&a);
	client_close(&c);
}

static bool no_request(void)
{
	struct server_stat stat;

	server_stat(fx.server, &stat);
	return stat.requests == 0;
}

static void wait_for_no_request(void)
{
	int64_t deadline = clock_after_ms(CLIENT_PATIENCE_S * 1000);

	/* The server has no notice for this: its own list is looked at. */
	while (!no_request() && clock_boot_ns() < deadline)
		sched_yield();
	assert_true(no_request());
}

static void test_follower_that_hangs_up_is_noticed(void **state)
{
	(void)state;
	open_client();
	assert_true(client_say(&c, GET("/follow")));
	read_head();
	give(10, false);
	read_followed(10);
	answer_free(&a);
	client_close(&c);
	wait_for_no_request(); /* although nothing more is ever written */
}

static void test_many_followers_hold_no_threads(void **state)
{
	static struct client many[40];

	(void)state;
	for (size_t i = 0; i < 40; i++) {
		assert_true(client_open(&many[i], server_port(fx.server)));
		assert_true(client_say(&many[i], GET("/follow")));
		read_head_of(&many[i]);
		assert_int_equal(a.status, 200);
	}
	assert_int_equal(fx_ask(&a, GET("/wait")), 200);
	answer_free(&a);
	give(100000, true);
	for (size_t i = 0; i < 40; i++) {
		a.len = 0;
		assert_true(read_chunks(&a, &many[i]));
		check_pattern(0, 100000);
		answer_free(&a);
		client_close(&many[i]);
	}
}

static void test_head_of_a_stream(void **state)
{
	(void)state;
	open_client();
	assert_true(client_say(&c, "HEAD /follow HTTP/1.1\r\nHost: x\r\n\r\n"));
	assert_true(client_answer_of(&c, &a, true));
	assert_int_equal(a.status, 200);
	answer_free(&a);
	client_close(&c);
	wait_for_no_request();
	assert_int_equal(atomic_load(&fx.pumps), 0);
}

/* ---- waits ---- */

static bool has_looked(void)
{
	return atomic_load(&fx.looks) > 0;
}

static unsigned wanted_looks;

static bool have_looked(void)
{
	return atomic_load(&fx.looks) >= wanted_looks;
}

static void test_wait_ends_with_the_change(void **state)
{
	(void)state;
	open_client();
	assert_true(client_say(&c, GET("/wait?wait=30s")));
	assert_true(fx_until(has_looked));
	watch_notify(fx.watch, "exec:x"); /* not yet */
	atomic_store(&fx.condition, true);
	watch_notify(fx.watch, "exec:x");
	expect(200);
	assert_string_equal(a.body, "changed");
	answer_free(&a);
	client_close(&c);
}

/* What bodies may take together would be used up by the fourth. */
static void test_who_waits_keeps_no_body(void **state)
{
	static struct client many[6];
	static char blanks[LIMIT_MIB];

	(void)state;
	memset(blanks, ' ', sizeof(blanks));
	for (size_t i = 0; i < 6; i++) {
		assert_true(client_open(&many[i], server_port(fx.server)));
		assert_true(client_say(&many[i], "POST /wait?wait=60s HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n",
				       64 * LIMIT_MIB));
		for (size_t sent = 0; sent < 64; sent++)
			assert_true(client_send(&many[i], blanks, sizeof(blanks)));
		wanted_looks = (unsigned)i + 1;
		assert_true(fx_until(have_looked));
	}
	atomic_store(&fx.condition, true);
	watch_notify(fx.watch, "exec:x");
	for (size_t i = 0; i < 6; i++) {
		assert_true(client_answer(&many[i], &a));
		assert_int_equal(a.status, 200);
		answer_free(&a);
		client_close(&many[i]);
	}
}

static void test_wait_ends_with_its_time(void **state)
{
	int64_t begun = clock_boot_ns();

	(void)state;
	assert_int_equal(fx_ask(&a, GET("/wait?wait=300ms")), 200);
	assert_string_equal(a.body, "same");
	assert_true(clock_boot_ns() - begun >= 300 * CLOCK_NS_PER_MS);
	answer_free(&a);
	assert_int_equal(fx_ask(&a, GET("/wait")), 200);
	answer_free(&a);
	assert_int_equal(fx_ask(&a, GET("/wait?wait=61s")), 400);
	answer_free(&a);
	assert_int_equal(fx_ask(&a, GET("/wait?wait=5")), 400);
	answer_free(&a);
}

static void test_many_waits_hold_no_threads(void **state)
{
	static struct client many[50];

	(void)state;
	for (size_t i = 0; i < 50; i++) {
		assert_true(client_open(&many[i], server_port(fx.server)));
		assert_true(client_say(&many[i], GET("/wait?wait=60s")));
		/* Two workers and their queue take them one after another. */
		lock_take(&fx.lock);
		while (atomic_load(&fx.looks) <= i)
			cond_wait_until(&fx.cond, &fx.lock, INT64_MAX);
		lock_drop(&fx.lock);
	}
	assert_int_equal(fx_ask(&a, GET("/down?size=3")), 200);
	answer_free(&a);
	atomic_store(&fx.condition, true);
	watch_notify(fx.watch, "exec:x");
	for (size_t i = 0; i < 50; i++) {
		assert_true(client_answer(&many[i], &a));
		assert_string_equal(a.body, "changed");
		answer_free(&a);
		client_close(&many[i]);
	}
}

static void test_waiter_that_hangs_up_is_dropped(void **state)
{
	(void)state;
	open_client();
	assert_true(client_say(&c, GET("/wait?wait=60s")));
	assert_true(fx_until(has_looked));
	client_close(&c);
	wait_for_no_request();
}

struct notifier {
	atomic_bool stop;
	pthread_t thread;
};

static void *notify_all_the_time(void *arg)
{
	struct notifier *notifier = arg;

	while (!atomic_load(&notifier->stop))
		watch_notify(fx.watch, "exec:x");
	return NULL;
}

/* The gate between wait, notice, deadline and hang-up: every request is answered exactly once, whoever comes first. */
static void test_waits_race_with_notices_and_hang_ups(void **state)
{
	struct notifier notifier = {0};

	(void)state;
	assert_int_equal(thread_start(&notifier.thread, "notify", notify_all_the_time, &notifier), 0);
	for (size_t i = 0; i < 200; i++) {
		open_client();
		assert_true(client_say(&c, "GET /wait?wait=%zums HTTP/1.1\r\nHost: x\r\n\r\n", i % 4));
		if (i % 3) {
			expect(200);
			answer_free(&a);
		}
		client_close(&c);
	}
	atomic_store(&notifier.stop, true);
	assert_true(thread_join_until(notifier.thread, INT64_MAX));
	wait_for_no_request();
}

/* ---- stop ---- */

static bool one_blocked(void)
{
	return fx.blocked == 1;
}

static void wait_for_pump(void)
{
	int64_t deadline = clock_after_ms(CLIENT_PATIENCE_S * 1000);

	while (!atomic_load(&fx.pumps) && clock_boot_ns() < deadline)
		sched_yield();
	assert_true(atomic_load(&fx.pumps) > 0);
}

static int leave_running(void **state)
{
	(void)state;
	return 0;
}

struct stopper {
	pthread_t thread;
	bool result;
};

static void *stop_server(void *arg)
{
	struct stopper *stopper = arg;

	stopper->result = fx_stop_within(10000);
	return NULL;
}

static void test_stop_answers_what_waits(void **state)
{
	static struct client waiter, follower, worker, idle;
	struct stopper stopper = {0};

	(void)state;
	assert_true(client_open(&waiter, server_port(fx.server)));
	assert_true(client_say(&waiter, GET("/wait?wait=60s")));
	assert_true(fx_until(has_looked));
	assert_true(client_open(&follower, server_port(fx.server)));
	assert_true(client_say(&follower, GET("/follow")));
	assert_true(client_open(&worker, server_port(fx.server)));
	assert_true(client_say(&worker, GET("/block")));
	assert_true(fx_until(one_blocked));
	assert_true(client_open(&idle, server_port(fx.server)));
	wait_for_pump(); /* which another thread may not have read yet */

	server_refuse(fx.server);
	assert_true(client_say(&idle, GET("/wait")));
	assert_true(client_answer(&idle, &a));
	assert_int_equal(a.status, 503);
	assert_non_null(strstr(a.body, "shutting_down"));
	answer_free(&a);
	assert_true(client_say(&idle, GET("/inline")));
	assert_true(client_answer(&idle, &a));
	assert_int_equal(a.status, 200);
	answer_free(&a);

	assert_int_equal(thread_start(&stopper.thread, "stop", stop_server, &stopper), 0);
	assert_true(client_answer(&waiter, &a));
	assert_int_equal(a.status, 200);
	assert_string_equal(a.body, "same");
	answer_free(&a);
	/* Cut, not ended: the follower knows that there is more. */
	if (client_answer(&follower, &a))
		assert_false(a.complete);
	answer_free(&a);
	FX_LOCKED(fx.open = true);
	assert_true(client_answer(&worker, &a));
	assert_int_equal(a.status, 204);
	answer_free(&a);
	assert_true(thread_join_until(stopper.thread, INT64_MAX));
	assert_true(stopper.result);
	assert_true(client_at_end(&idle));
	client_close(&waiter);
	client_close(&follower);
	client_close(&worker);
	client_close(&idle);
	fx_free();
}

static void test_stop_cuts_transfers_in_time(void **state)
{
	(void)state;
	open_client();
	assert_true(client_say(&c, GET("/down?size=500000000")));
	assert_true(fx_until(window_full));
	assert_true(fx_stop_within(1500));
	assert_int_equal(fx.down_code, ERR_CANCELLED);
	client_close(&c);
	fx_free();
}

static void test_stop_tells_of_a_stuck_worker(void **state)
{
	(void)state;
	open_client();
	assert_true(client_say(&c, GET("/block")));
	assert_true(fx_until(one_blocked));
	assert_false(fx_stop_within(300));
	/* Once it is free again the stop can be completed, here only. */
	FX_LOCKED(fx.open = true);
	expect(204);
	answer_free(&a);
	client_close(&c);
	assert_true(fx_stop_within(10000));
	fx_free();
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, fx_start, fx_stop)
#define IMPATIENT(name) cmocka_unit_test_setup_teardown(name, start_impatient, fx_stop)
#define STOPS(name) cmocka_unit_test_setup_teardown(name, fx_start, leave_running)
	const struct CMUnitTest tests[] = {
		T(test_uploads_keep_every_byte),
		T(test_chunked_upload),
		T(test_one_byte_at_a_time),
		T(test_a_slow_reader_slows_the_client),
		T(test_reader_that_stops_early_answers_at_once),
		T(test_client_that_goes_away_half_way),
		T(test_client_that_goes_away_while_the_window_is_full),
		T(test_half_closing_client_gets_its_answer),
		IMPATIENT(test_stalled_upload_frees_its_worker),
		T(test_downloads_keep_every_byte),
		T(test_download_that_fails_is_cut_short),
		IMPATIENT(test_client_that_stops_reading_frees_the_worker),
		T(test_client_that_goes_away_during_a_download),
		T(test_follow_gives_bytes_as_they_come),
		T(test_follower_that_hangs_up_is_noticed),
		T(test_many_followers_hold_no_threads),
		T(test_head_of_a_stream),
		T(test_wait_ends_with_the_change),
		T(test_who_waits_keeps_no_body),
		T(test_wait_ends_with_its_time),
		T(test_many_waits_hold_no_threads),
		T(test_waiter_that_hangs_up_is_dropped),
		T(test_waits_race_with_notices_and_hang_ups),
		STOPS(test_stop_answers_what_waits),
		STOPS(test_stop_cuts_transfers_in_time),
		STOPS(test_stop_tells_of_a_stuck_worker),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
