/* SPDX-License-Identifier: Apache-2.0 */
/* The first few long exchanges run in the calling thread, on the handles of short ones; the others on a loop. */
#include "net_fixture.h"

static int direct_setup(void **state)
{
	struct err err;

	(void)state;
	return net_new(&(struct net_config){.loops = 2, .direct = 2}, &net, &err);
}

static void *run_main(void *arg)
{
	ask_run(arg);
	return NULL;
}

static unsigned on_loops(void)
{
	struct net_usage usage;

	net_usage(net, &usage);
	return usage.long_running;
}

static void hold(struct ask *ask, pthread_t *thread, const char *gate)
{
	ask_init(ask, BERTH_HTTP_LONG, "POST", "http://127.0.0.1:%u/hold?gate=%s", peer.plain, gate);
	assert_int_equal(thread_start(thread, "hold", run_main, ask), 0);
}

static void finish(struct ask *ask, pthread_t thread)
{
	pthread_join(thread, NULL);
	assert_int_equal(ask->code, BERTH_OK);
	assert_string_equal(ask_text(ask), "held");
	ask_fini(ask);
}

static void the_first_few(void **state)
{
	struct ask asks[4];
	pthread_t threads[4];

	(void)state;
	hold(&asks[0], &threads[0], "a");
	hold(&asks[1], &threads[1], "a");
	tell("/wait?of=held&n=2");
	assert_int_equal(on_loops(), 0);
	hold(&asks[2], &threads[2], "b");
	tell("/wait?of=held&n=3");
	assert_int_equal(on_loops(), 1);
	/* Those that are over make room, whatever runs on loops. */
	tell("/release?gate=a");
	finish(&asks[0], threads[0]);
	finish(&asks[1], threads[1]);
	hold(&asks[3], &threads[3], "b");
	tell("/wait?of=held&n=4");
	assert_int_equal(on_loops(), 1);
	tell("/release?gate=b");
	finish(&asks[2], threads[2]);
	finish(&asks[3], threads[3]);
	assert_int_equal(on_loops(), 0);
}

/* Silence does not end it, a cancel does. */
static void a_cancel(void **state)
{
	unsigned long before = seen("/never");
	pthread_t thread;
	struct ask ask;
	int64_t begin;

	(void)state;
	ask_init(&ask, BERTH_HTTP_LONG, "POST", "http://127.0.0.1:%u/never", peer.plain);
	assert_int_equal(thread_start(&thread, "never", run_main, &ask), 0);
	while (seen("/never") == before)
		tick();
	assert_int_equal(on_loops(), 0);
	begin = clock_boot_ns();
	ask_cancel(&ask);
	pthread_join(thread, NULL);
	assert_in_range((clock_boot_ns() - begin) / CLOCK_NS_PER_MS, 0, patience(1000));
	expect_failure(&ask, BERTH_CANCELLED, "cancelled", 1);
	ask_fini(&ask);
}

/* A short exchange and a long one use the same connection. */
static void one_connection(void **state)
{
	unsigned long before;
	struct ask ask;

	(void)state;
	assert_int_equal(get(&ask, 0, "/ok"), BERTH_OK);
	ask_fini(&ask);
	before = seen("connections");
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(get(&ask, i % 2 ? 0 : BERTH_HTTP_LONG, "/ok"), BERTH_OK);
		ask_fini(&ask);
	}
	assert_int_equal(seen("connections"), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_first_few, direct_setup, net_teardown),
		cmocka_unit_test_setup_teardown(a_cancel, direct_setup, net_teardown),
		cmocka_unit_test_setup_teardown(one_connection, direct_setup, net_teardown),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
