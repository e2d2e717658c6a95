/* SPDX-License-Identifier: Apache-2.0 */
/* The guarded clock on a Redis whose wall clock jumps, while stores are open and while none is. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance.h"
#include "core/clock.h"
#include "core/log.h"
#include "redis_server.h"

#define SLACK_MS 1500

static struct redis_server server;

static struct store *open_good(void)
{
	struct store *store = NULL;
	struct err err = {0};

	if (redis_server_open(&server, "t", &store, &err) != 0)
		fail_msg("%s", err.msg);
	return store;
}

static int64_t now_of(struct store *store)
{
	struct err err = {0};
	int64_t ms = 0;

	assert_true(store_healthy(store, &err)); /* an exchange: a sample of Redis' clock */
	assert_int_equal(store_now(store, &ms, &err), 0);
	return ms;
}

struct mark {
	int64_t ms, boot_ns;
};

static struct mark mark_of(struct store *store)
{
	return (struct mark){now_of(store), clock_boot_ns()};
}

/* The store's time has gone on by what really passed. */
static void assert_steady(struct store *store, const struct mark *mark)
{
	int64_t ms = now_of(store), want = mark->ms + (clock_boot_ns() - mark->boot_ns) / CLOCK_NS_PER_MS;

	if (ms < want - SLACK_MS || ms > want + SLACK_MS)
		fail_msg("the clock moved by %lld ms more than time did", (long long)(ms - want));
}

static int64_t offset_ms(void)
{
	char *text = redis_server_ask(&server, "HGET t:store offset");
	int64_t ms = strtoll(text, NULL, 10);

	free(text);
	return ms;
}

static void test_jumps(void **state)
{
	static const char *const jumps[] = {"+3600", "+0", "-7200", "+86400", "+86410", "+2"};
	struct store *a, *b;
	struct mark mark;
	int64_t before;
	size_t i;

	(void)state;
	redis_server_start_faked(&server, BERTH_TEST_FAKECLOCK);
	a = open_good();
	b = open_good();
	mark = mark_of(a);
	assert_int_equal(store_hold_ms(a), 0);
	for (i = 0; i < sizeof(jumps) / sizeof(jumps[0]); i++) {
		redis_server_set_clock(&server, jumps[i]);
		conformance_put(i % 2 ? a : b, STORE_TASK, "k", "g", 1, "x");
		assert_steady(a, &mark);
		before = offset_ms();
		assert_steady(b, &mark);
		assert_int_equal(offset_ms(), before); /* once per jump */
		assert_true(labs(offset_ms() + strtol(jumps[i], NULL, 10) * 1000) < 2 * SLACK_MS);
		assert_true(store_hold_ms(a) > 0 && store_hold_ms(b) > 0);
	}
	store_close(b);
	store_close(a);
	redis_server_stop(&server);
}

/* Nobody was there to see it, but this machine's last mark tells. */
static void test_jump_while_closed(void **state)
{
	struct store *store;
	struct mark mark;

	(void)state;
	redis_server_start_faked(&server, BERTH_TEST_FAKECLOCK);
	store = open_good();
	mark = mark_of(store);
	store_close(store);
	redis_server_set_clock(&server, "+90000");
	store = open_good();
	assert_steady(store, &mark);
	assert_true(store_hold_ms(store) > 0);
	store_close(store);
	redis_server_set_clock(&server, "-90000");
	store = open_good();
	assert_steady(store, &mark);
	store_close(store);
	/* Another machine has no mark; it believes a clock that is ahead, never one that goes back. */
	redis_server_must(&server, "DEL t:boots", "1");
	redis_server_set_clock(&server, "-200000");
	store = open_good();
	assert_steady(store, &mark);
	store_close(store);
	redis_server_stop(&server);
}

static int quiet(void **state)
{
	(void)state;
	log_init(LOG_ERROR, LOG_LOGFMT);
	signal(SIGPIPE, SIG_IGN); /* as the daemon does */
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_jumps),
		cmocka_unit_test(test_jump_while_closed),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, quiet, NULL);
}
