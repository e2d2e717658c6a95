/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts whose clocks disagree about Redis': one or two that are wrong, a Redis that jumps, in any order of exchanges.
 * Each store is a host; its CLOCK_BOOTTIME is the real one and a shift of the thread that calls it (the program is
 * linked with --wrap=clock_boot_ns). One host alone cannot be told from a Redis that jumped, so each case has two or
 * more.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance.h"
#include "core/clock.h"
#include "core/log.h"
#include "cutproxy.h"
#include "redis_server.h"

#define HOSTS_MAX 4
#define HOLD_MS 400
#define SLACK_MS 1500
#define CLOSE_MS 200
#define WAIT_MS 30000
#define ROUNDS 40 /* exchanges of each thread */

int64_t __real_clock_boot_ns(void);
int64_t __wrap_clock_boot_ns(void);

static _Thread_local int64_t shift_ns;

int64_t __wrap_clock_boot_ns(void)
{
	return __real_clock_boot_ns() + shift_ns;
}

static struct redis_server server;

struct host {
	struct store *store;
	int64_t shift_ms;
	int64_t last_ms; /* its time when it was asked last */
};

struct fleet {
	struct host hosts[HOSTS_MAX];
	size_t count;
	unsigned dice;
	char prefix[16];
	int64_t start_ms, start_ns; /* the store's time at a moment of the real clock */
};

static unsigned roll(struct fleet *fleet, unsigned of)
{
	fleet->dice = fleet->dice * 1664525u + 1013904223u;
	return (fleet->dice >> 8) % of;
}

static int64_t field(const struct fleet *fleet, const char *name)
{
	char command[64], *text;
	int64_t value;

	snprintf(command, sizeof(command), "HGET %s:store %s", fleet->prefix, name);
	text = redis_server_ask(&server, command);
	value = strtoll(text, NULL, 10);
	free(text);
	return value;
}

static void open_host(const struct fleet *fleet, struct host *host, const char *url)
{
	char requests[32], events[32], dead[32];
	struct store_redis_config config = {.url = url,
					    .deployment = "test",
					    .host_id = "h",
					    .prefix = fleet->prefix,
					    .request_stream = requests,
					    .event_stream = events,
					    .dead_stream = dead,
					    .hold_ms = HOLD_MS};
	struct err err = {0};

	snprintf(requests, sizeof(requests), "%s.requests", fleet->prefix);
	snprintf(events, sizeof(events), "%s.events", fleet->prefix);
	snprintf(dead, sizeof(dead), "%s.dead", fleet->prefix);
	shift_ns = host->shift_ms * CLOCK_NS_PER_MS;
	if (store_open_redis(&config, &host->store, &err) != 0)
		fail_msg("%s", err.msg);
	shift_ns = 0;
}

/* Its time after an exchange, which is a sample of Redis' clock; it never goes back. */
static int64_t exchange(struct host *host)
{
	struct err err = {0};
	int64_t ms = 0;

	shift_ns = host->shift_ms * CLOCK_NS_PER_MS;
	assert_true(store_healthy(host->store, &err));
	assert_int_equal(store_now(host->store, &ms, &err), 0);
	shift_ns = 0;
	if (ms < host->last_ms)
		fail_msg("the time of a host went back by %lld ms", (long long)(host->last_ms - ms));
	host->last_ms = ms;
	return ms;
}

static int64_t hold_of(struct host *host)
{
	int64_t ms;

	shift_ns = host->shift_ms * CLOCK_NS_PER_MS;
	ms = store_hold_ms(host->store);
	shift_ns = 0;
	return ms;
}

static void fleet_open(struct fleet *fleet, size_t count)
{
	static unsigned number;
	size_t i;

	*fleet = (struct fleet){.count = count, .dice = ++number};
	snprintf(fleet->prefix, sizeof(fleet->prefix), "t%u", number);
	for (i = 0; i < count; i++)
		open_host(fleet, &fleet->hosts[i], server.url);
	fleet->start_ms = exchange(&fleet->hosts[0]);
	fleet->start_ns = clock_boot_ns();
}

static void fleet_close(struct fleet *fleet)
{
	size_t i;

	for (i = 0; i < fleet->count; i++)
		store_close(fleet->hosts[i].store);
}

/* What a host's time should be. */
static int64_t right_ms(const struct fleet *fleet)
{
	return fleet->start_ms + (clock_boot_ns() - fleet->start_ns) / CLOCK_NS_PER_MS;
}

static void assert_right(const struct fleet *fleet, struct host *host)
{
	int64_t off = exchange(host) - right_ms(fleet);

	if (labs(off) > SLACK_MS)
		fail_msg("%s: a host's time is wrong by %lld ms", fleet->prefix, (long long)off);
}

/* Exchanges in an order of the dice, then every host often enough to have heard the last word. */
static void talk(struct fleet *fleet)
{
	size_t i, j;

	for (i = 0; i < 3 * fleet->count; i++)
		exchange(&fleet->hosts[roll(fleet, (unsigned)fleet->count)]);
	for (j = 0; j < 3; j++)
		for (i = 0; i < fleet->count; i++)
			exchange(&fleet->hosts[i]);
}

/* Nobody moves the clock any more. */
static void assert_agreed(struct fleet *fleet)
{
	int64_t moves = field(fleet, "moves");

	talk(fleet);
	assert_int_equal(field(fleet, "moves"), moves);
}

/* The clock is where it was; who was not wrong never saw another one, and holds nothing back. */
static void assert_settled(struct fleet *fleet, int64_t moves_most)
{
	struct host *host;

	assert_int_equal(field(fleet, "offset"), 0);
	assert_true(field(fleet, "moves") <= moves_most);
	assert_agreed(fleet);
	for (host = fleet->hosts; host < fleet->hosts + fleet->count; host++) {
		if (host->shift_ms == 0)
			assert_int_equal(hold_of(host), 0);
		/* One that was ahead stands still until the others are there, and takes nobody for dead so long. */
		if (host->shift_ms > 0)
			assert_true(hold_of(host) + CLOSE_MS >= host->last_ms - right_ms(fleet));
		else
			assert_right(fleet, host);
	}
}

static const int64_t shifts[] = {-3000, 3000, -3600000, 7200000};
#define SHIFT_COUNT (sizeof(shifts) / sizeof(shifts[0]))

static void test_one_wrong(void **state)
{
	struct fleet fleet;
	size_t count, i;
	unsigned seed;

	(void)state;
	for (count = 2; count <= HOSTS_MAX; count++)
		for (i = 0; i < SHIFT_COUNT; i++)
			for (seed = 0; seed < 6; seed++) {
				fleet_open(&fleet, count);
				fleet.hosts[seed % count].shift_ms = shifts[i];
				talk(&fleet);
				assert_settled(&fleet, 2);
				fleet_close(&fleet);
			}
}

/* By different amounts, at the same time; one that is right is enough. */
static void test_two_wrong(void **state)
{
	struct fleet fleet;
	size_t count, i, j;
	unsigned seed;

	(void)state;
	for (count = 3; count <= HOSTS_MAX; count++)
		for (i = 0; i < SHIFT_COUNT; i++)
			for (j = 0; j < SHIFT_COUNT; j++)
				for (seed = 0; seed < 3; seed++) {
					if (i == j)
						continue;
					fleet_open(&fleet, count);
					fleet.hosts[seed % count].shift_ms = shifts[i];
					fleet.hosts[(seed + 1) % count].shift_ms = shifts[j];
					talk(&fleet);
					assert_settled(&fleet, 3);
					fleet_close(&fleet);
				}
}

/* Two faults at once may leave the clock with the wrong one of them, but everybody with the same. */
static void test_jump_and_wrong(void **state)
{
	static const char *const jumps[] = {"+3600", "-7200", "+10", "-10"};
	struct fleet fleet;
	struct host *host;
	int64_t moves;
	unsigned seed;

	(void)state;
	for (seed = 0; seed < 48; seed++) {
		redis_server_set_clock(&server, "+0");
		fleet_open(&fleet, 2 + seed % 3);
		redis_server_set_clock(&server, jumps[seed % 4]);
		fleet.hosts[seed / 12].shift_ms = seed / 12 < fleet.count ? shifts[seed % SHIFT_COUNT] : 0;
		talk(&fleet);
		moves = field(&fleet, "moves");
		assert_true(moves >= 1 && moves <= (int64_t)fleet.count);
		assert_agreed(&fleet);
		for (host = fleet.hosts; host < fleet.hosts + fleet.count; host++)
			assert_true(hold_of(host) > 0 || field(&fleet, "quiet") < right_ms(&fleet) + HOLD_MS);
		fleet_close(&fleet);
	}
	redis_server_set_clock(&server, "+0");
}

/* ---- at once ---- */

struct talker {
	pthread_t thread;
	struct host *host;
};

static void *talker_main(void *arg)
{
	struct talker *talker = arg;
	struct err err = {0};
	int64_t ms, last_ms = 0;
	int i;

	shift_ns = talker->host->shift_ms * CLOCK_NS_PER_MS;
	for (i = 0; i < ROUNDS; i++) {
		assert_true(store_healthy(talker->host->store, &err));
		assert_int_equal(store_now(talker->host->store, &ms, &err), 0);
		assert_true(ms >= last_ms);
		last_ms = ms;
	}
	return NULL;
}

/* Two threads of each host. */
static void talk_at_once(struct fleet *fleet)
{
	struct talker talkers[2 * HOSTS_MAX];
	size_t i;

	for (i = 0; i < 2 * fleet->count; i++) {
		talkers[i].host = &fleet->hosts[i / 2];
		assert_int_equal(pthread_create(&talkers[i].thread, NULL, talker_main, &talkers[i]), 0);
	}
	for (i = 0; i < 2 * fleet->count; i++)
		pthread_join(talkers[i].thread, NULL);
}

static void test_at_once(void **state)
{
	struct fleet fleet;
	unsigned seed;
	size_t i;

	(void)state;
	for (seed = 0; seed < 12; seed++) {
		fleet_open(&fleet, 2 + seed % 3);
		fleet.hosts[roll(&fleet, (unsigned)fleet.count)].shift_ms = shifts[seed % SHIFT_COUNT];
		talk_at_once(&fleet);
		talk(&fleet);
		assert_settled(&fleet, 2);
		fleet_close(&fleet);
	}
	for (seed = 0; seed < 12; seed++) {
		redis_server_set_clock(&server, "+0");
		fleet_open(&fleet, 2 + seed % 3);
		redis_server_set_clock(&server, seed % 2 != 0 ? "+3600" : "-7200");
		talk_at_once(&fleet);
		assert_int_equal(field(&fleet, "moves"), 1); /* everybody saw the jump, one made up for it */
		for (i = 0; i < fleet.count; i++)
			assert_right(&fleet, &fleet.hosts[i]);
		assert_agreed(&fleet);
		fleet_close(&fleet);
	}
	redis_server_set_clock(&server, "+0");
}

/* ---- what went before ---- */

/* Of a dispute that was settled, the next one knows nothing. */
static void test_jump_after(void **state)
{
	struct fleet fleet;

	(void)state;
	fleet_open(&fleet, 2);
	fleet.hosts[1].shift_ms = -5000;
	talk(&fleet);
	assert_settled(&fleet, 2);
	redis_server_set_clock(&server, "+3600");
	talk(&fleet);
	assert_int_equal(field(&fleet, "moves"), 3);
	assert_right(&fleet, &fleet.hosts[0]);
	assert_right(&fleet, &fleet.hosts[1]);
	assert_true(hold_of(&fleet.hosts[0]) > 0 || field(&fleet, "quiet") < right_ms(&fleet));
	fleet_close(&fleet);
	redis_server_set_clock(&server, "+0");
}

/* Another Redis with another clock, a moment after a dispute was settled. */
static void test_another_redis(void **state)
{
	static const char *const clocks[] = {"+3600", "-3600", "+20", "-20"};
	struct fleet fleet;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(clocks) / sizeof(clocks[0]); i++) {
		fleet_open(&fleet, 2);
		redis_server_must(&server, "CONFIG SET appendfsync always", "OK"); /* from here on it loses nothing */
		fleet.hosts[1].shift_ms = -5000;
		talk(&fleet);
		redis_server_kill(&server);
		redis_server_set_clock(&server, clocks[i]);
		redis_server_again(&server);
		talk(&fleet);
		assert_right(&fleet, &fleet.hosts[0]);
		assert_right(&fleet, &fleet.hosts[1]);
		assert_agreed(&fleet);
		fleet_close(&fleet);
		redis_server_set_clock(&server, "+0");
	}
}

/* It slept while Redis jumped, and its clock with it: it is not asked what it makes of a jump of long ago. */
static void test_slept(void **state)
{
	struct fleet fleet;
	char command[64];

	(void)state;
	fleet_open(&fleet, 2);
	redis_server_set_clock(&server, "+3600");
	exchange(&fleet.hosts[0]);
	assert_int_equal(field(&fleet, "moves"), 1);
	snprintf(command, sizeof(command), "HINCRBY %s:store since -100000", fleet.prefix);
	free(redis_server_ask(&server, command));
	fleet.hosts[1].shift_ms = -20000;
	talk(&fleet);
	assert_right(&fleet, &fleet.hosts[0]);
	assert_right(&fleet, &fleet.hosts[1]);
	assert_int_equal(field(&fleet, "moves"), 3);
	assert_agreed(&fleet);
	fleet_close(&fleet);
	redis_server_set_clock(&server, "+0");
}

/* What a wrong clock left behind is no witness for it when its host starts again. */
static void test_wrong_mark(void **state)
{
	static const int64_t wrong[] = {-60000, 60000};
	struct fleet fleet;
	size_t i;

	(void)state;
	for (i = 0; i < 2; i++) {
		fleet_open(&fleet, 3);
		fleet.hosts[0].shift_ms = wrong[i];
		shift_ns = wrong[i] * CLOCK_NS_PER_MS;
		store_close(fleet.hosts[0].store);
		shift_ns = 0;
		fleet.hosts[0] = (struct host){.shift_ms = wrong[i]};
		open_host(&fleet, &fleet.hosts[0], server.url);
		talk(&fleet);
		assert_settled(&fleet, 4);
		fleet_close(&fleet);
	}
}

/* A host that starts in the middle of a dispute, by its machine's mark or by the clock as it was just moved. */
static void test_start_amid(void **state)
{
	static const int64_t wrong[] = {-60000, 60000};
	struct fleet fleet;
	char command[32];
	size_t i;

	(void)state;
	for (i = 0; i < 4; i++) {
		fleet_open(&fleet, 3);
		shift_ns = wrong[i % 2] * CLOCK_NS_PER_MS;
		store_close(fleet.hosts[0].store); /* its last word moves the clock */
		shift_ns = 0;
		assert_int_equal(field(&fleet, "moves"), 1);
		snprintf(command, sizeof(command), "DEL %s:boots", fleet.prefix);
		if (i / 2 == 1)
			redis_server_must(&server, command, "1");
		fleet.hosts[0] = (struct host){0};
		open_host(&fleet, &fleet.hosts[0], server.url);
		talk(&fleet);
		assert_int_equal(field(&fleet, "offset"), 0);
		assert_int_equal(field(&fleet, "moves"), 2);
		assert_agreed(&fleet);
		assert_int_equal(hold_of(&fleet.hosts[1]), 0);
		assert_right(&fleet, &fleet.hosts[1]);
		if (wrong[i % 2] < 0)
			assert_right(&fleet, &fleet.hosts[0]);
		else
			assert_true(hold_of(&fleet.hosts[0]) + CLOSE_MS >= fleet.hosts[0].last_ms - right_ms(&fleet));
		fleet_close(&fleet);
	}
}

/* What nobody reclaims for a while is reclaimed again, though a host is wrong again and again. */
static void test_hold_ends(void **state)
{
	struct fleet fleet;
	int64_t until;
	unsigned seed;

	(void)state;
	fleet_open(&fleet, 3);
	for (seed = 0; seed < 20; seed++) {
		fleet.hosts[2].shift_ms -= 2500;
		talk(&fleet);
		assert_int_equal(hold_of(&fleet.hosts[0]), 0);
		assert_int_equal(hold_of(&fleet.hosts[1]), 0);
		assert_true(hold_of(&fleet.hosts[2]) > 0);
	}
	until = clock_after_ms(WAIT_MS);
	while (hold_of(&fleet.hosts[2]) > 0) {
		assert_true(clock_boot_ns() < until);
		exchange(&fleet.hosts[2]);
		redis_server_breathe();
	}
	fleet_close(&fleet);
}

/* ---- an answer that is long on its way ---- */

static void test_late_start(void **state)
{
	struct cutproxy *proxy = cutproxy_start(&server);
	struct fleet fleet;
	char command[64];

	(void)state;
	fleet_open(&fleet, 2);
	store_close(fleet.hosts[1].store);
	fleet.hosts[1] = (struct host){0};
	/* A machine that was never here: it has no mark. */
	snprintf(command, sizeof(command), "DEL %s:boots", fleet.prefix);
	redis_server_must(&server, command, "1");
	cutproxy_late(proxy, "EVALSHA", 3000);
	open_host(&fleet, &fleet.hosts[1], cutproxy_url(proxy));
	assert_int_equal(cutproxy_cuts(proxy), 1);
	talk(&fleet);
	assert_settled(&fleet, 0);
	fleet_close(&fleet);
	cutproxy_stop(proxy);
}

static int start(void **state)
{
	(void)state;
	log_init(LOG_ERROR, LOG_LOGFMT);
	signal(SIGPIPE, SIG_IGN); /* as the daemon does */
	redis_server_start_faked(&server, BERTH_TEST_FAKECLOCK);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	redis_server_stop(&server);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_wrong),      cmocka_unit_test(test_two_wrong),
		cmocka_unit_test(test_jump_and_wrong), cmocka_unit_test(test_at_once),
		cmocka_unit_test(test_jump_after),     cmocka_unit_test(test_another_redis),
		cmocka_unit_test(test_slept),	       cmocka_unit_test(test_wrong_mark),
		cmocka_unit_test(test_start_amid),     cmocka_unit_test(test_hold_ends),
		cmocka_unit_test(test_late_start),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, start, stop);
}
