/* SPDX-License-Identifier: Apache-2.0 */
/* Many at once, much at once, and nothing left behind. */
#include "net_fixture.h"

#define MANY 500
/* Four loops with their own four descriptors, sixteen idle connections and a second shelf each; some pooled handles. */
#define LOOPS_MOST (4 * (4 + 16 + 2 + 4))
#define POOLED_MOST (4 * 3)

static void *run_main(void *arg)
{
	ask_run(arg);
	return NULL;
}

static void many_long(void **state)
{
	struct ask *asks = calloc(MANY, sizeof(*asks));
	pthread_t *threads = calloc(MANY, sizeof(*threads));
	unsigned before, during;
	struct net_usage usage;

	(void)state;
	tell("/ok");
	before = open_descriptors();
	for (size_t i = 0; i < MANY; i++) {
		ask_init(&asks[i], BERTH_HTTP_LONG, "POST", "http://127.0.0.1:%u/hold?gate=many", peer.plain);
		assert_int_equal(thread_start(&threads[i], "many", run_main, &asks[i]), 0);
	}
	tell("/wait?of=held&n=500");
	during = open_descriptors();
	net_usage(net, &usage);
	assert_int_equal(usage.long_running, MANY);
	/* One for each, and what is reserved: how many shelves the loops have depends on how evenly they were chosen. */
	assert_in_range(during - before, MANY, usage.descriptors);
	assert_in_range(usage.descriptors, MANY, MANY + LOOPS_MOST + POOLED_MOST);
	tell("/release?gate=many");
	for (size_t i = 0; i < MANY; i++) {
		pthread_join(threads[i], NULL);
		if (asks[i].code)
			fail_msg("%zu: %s", i, asks[i].failure.text);
		assert_string_equal(ask_text(&asks[i]), "held");
		ask_fini(&asks[i]);
	}
	net_usage(net, &usage);
	assert_int_equal(usage.long_running, 0);
	assert_true(open_descriptors() <= before + usage.descriptors);
	assert_true(usage.descriptors <= LOOPS_MOST + POOLED_MOST);
	/* Quiet loops close what is left to them. */
	for (int64_t end = clock_after_ms(patience(30000)); open_descriptors() > before + 4 * 4 && clock_boot_ns() < end;)
		tick();
	assert_true(open_descriptors() <= before + 4 * 4);
	free(asks);
	free(threads);
}

static long resident_kib(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	long pages = 0;

	assert_non_null(file);
	assert_int_equal(fscanf(file, "%*d %ld", &pages), 1);
	fclose(file);
	return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

struct slow {
	struct ask ask;
	uint64_t taken;
	long before, most;
	unsigned long held_at;
	bool wrong;
};

/* Stops at the first byte until the peer cannot send any more, asking it through a nested exchange. */
static unsigned long wait_until_held(void)
{
	unsigned long last = 0, now = seen("big_sent");
	int64_t since = clock_boot_ns();

	while (clock_boot_ns() - since < 300 * CLOCK_NS_PER_MS) {
		last = now;
		now = seen("big_sent");
		if (now != last)
			since = clock_boot_ns();
		tick();
	}
	return now;
}

static int32_t take_slowly(void *ctx, const void *ptr, size_t len)
{
	struct slow *slow = ctx;
	const char *bytes = ptr;
	long now;

	if (!slow->taken)
		slow->held_at = wait_until_held();
	for (size_t i = 0; i < len; i += 4099)
		slow->wrong = slow->wrong || bytes[i] != "0123456789abcdef"[(slow->taken + i) % 16];
	if (slow->taken / 8000000 != (slow->taken + len) / 8000000) {
		now = resident_kib();
		slow->most = now > slow->most ? now : slow->most;
	}
	slow->taken += len;
	return BERTH_OK;
}

static void back_pressure(void **state)
{
	const uint64_t size = 200000000;

	(void)state;
	BOTH_MODES(flags) {
		unsigned long sent = seen("big_sent");
		struct slow slow = {.before = resident_kib()};

		ask_init(&slow.ask, flags, "GET", "http://127.0.0.1:%u/big?bytes=200000000", peer.plain);
		slow.ask.request.write = take_slowly;
		slow.ask.request.ctx = &slow;
		slow.ask.request.response_max = size;
		/* The caller's own slowness is no silence of the peer. */
		slow.ask.request.idle_timeout_ms = patience(250);
		if (ask_run(&slow.ask))
			fail_msg("%s", slow.ask.failure.text);
		assert_int_equal(slow.taken, size);
		assert_false(slow.wrong);
		assert_in_range(slow.held_at - sent, 1, 32000000); /* what the sockets take */
		assert_true(slow.most - slow.before < 16 * 1024);
		ask_fini(&slow.ask);
	}
}

/* All kinds from many threads: for the thread sanitizer, and for what is left behind. */
static void *mixed_main(void *arg)
{
	static const char *const paths[] = {"/ok", "/reset", "/then-drop", "/cut?len=9&at=60", "/big?bytes=300000",
					    "/garbage", "/then-close", "/never"};
	unsigned number = (unsigned)(uintptr_t)arg;
	struct ask ask;

	for (unsigned i = 0; i < 24; i++) {
		unsigned kind = (number + i) % 8;

		ask_init(&ask, (i / 2) % 2 ? BERTH_HTTP_LONG : 0, i % 3 ? "GET" : "POST", "http://127.0.0.1:%u%s",
			 peer.plain, paths[kind]);
		if (kind == 7)
			ask.caller.deadline_ns = clock_after_ms(20);
		ask_run(&ask);
		ask_fini(&ask);
	}
	return NULL;
}

static void cancel_storm_main(struct ask *asks, pthread_t *threads, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		ask_init(&asks[i], i % 2 ? BERTH_HTTP_LONG : 0, "GET", "http://127.0.0.1:%u%s", peer.plain,
			 i % 4 < 2 ? "/never" : "/big?bytes=60000000");
		assert_int_equal(thread_start(&threads[i], "storm", run_main, &asks[i]), 0);
	}
	for (size_t i = 0; i < count; i++) {
		ask_cancel(&asks[i]);
		ask_cancel(&asks[i]);
	}
	for (size_t i = 0; i < count; i++) {
		pthread_join(threads[i], NULL);
		assert_true(asks[i].code == BERTH_CANCELLED || asks[i].code == BERTH_OK);
		ask_fini(&asks[i]);
	}
}

static void mixed(void **state)
{
	unsigned before = open_descriptors();
	struct ask asks[32];
	pthread_t threads[32];
	struct net_usage usage;

	(void)state;
	for (size_t i = 0; i < 16; i++)
		assert_int_equal(thread_start(&threads[i], "mixed", mixed_main, (void *)i), 0);
	for (size_t i = 0; i < 16; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 3; i++)
		cancel_storm_main(asks, threads, 32);
	net_usage(net, &usage);
	assert_int_equal(usage.long_running, 0);
	net_free(net);
	assert_int_equal(open_descriptors(), before);
	assert_int_equal(net_setup(NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {CASE(many_long), CASE(back_pressure), CASE(mixed)};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
