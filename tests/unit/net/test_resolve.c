/* SPDX-License-Identifier: Apache-2.0 */
/* A name server that does not answer: neither a cancel nor a limit waits for it. Its place takes a getaddrinfo of our own. */
#include <dlfcn.h>
#include <netdb.h>

#include "net_fixture.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static unsigned entered, left;
static bool gate_open;

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **ret)
{
	static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
	void *symbol;

	pthread_mutex_lock(&mutex);
	if (node && !strcmp(node, "slow.test")) {
		entered++;
		pthread_cond_broadcast(&cond);
		while (!gate_open)
			pthread_cond_wait(&cond, &mutex);
		left++;
		pthread_cond_broadcast(&cond);
		pthread_mutex_unlock(&mutex);
		return EAI_NONAME;
	}
	symbol = real ? NULL : dlsym(RTLD_NEXT, "getaddrinfo");
	if (!real)
		memcpy(&real, &symbol, sizeof(real));
	pthread_mutex_unlock(&mutex);
	return real(node, service, hints, ret);
}

static void wait_for(const unsigned *counter, unsigned value)
{
	pthread_mutex_lock(&mutex);
	while (*counter < value)
		pthread_cond_wait(&cond, &mutex);
	pthread_mutex_unlock(&mutex);
}

static void let_resolvers_go(void)
{
	pthread_mutex_lock(&mutex);
	gate_open = true;
	pthread_cond_broadcast(&cond);
	pthread_mutex_unlock(&mutex);
	wait_for(&left, entered);
	gate_open = false;
}

static void *run_main(void *arg)
{
	ask_run(arg);
	return NULL;
}

static void cancel(void **state)
{
	(void)state;
	BOTH_MODES(flags) {
		unsigned before = entered;
		pthread_t thread;
		int64_t begin;
		struct ask ask;

		ask_init(&ask, flags, "POST", "http://slow.test/x");
		assert_int_equal(pthread_create(&thread, NULL, run_main, &ask), 0);
		wait_for(&entered, before + 1);
		begin = clock_boot_ns();
		ask_cancel(&ask);
		pthread_join(thread, NULL);
		assert_in_range((clock_boot_ns() - begin) / CLOCK_NS_PER_MS, 0, patience(500));
		expect_failure(&ask, BERTH_CANCELLED, "cancelled", 0);
		ask_fini(&ask);
	}
	let_resolvers_go();
}

static void limits(void **state)
{
	struct ask ask;

	(void)state;
	BOTH_MODES(flags) {
		ask_init(&ask, flags, "POST", "http://slow.test/x");
		ask.request.connect_timeout_ms = 200;
		ask_run(&ask);
		expect_failure(&ask, BERTH_UNAVAILABLE, "connect_timeout", 0);
		assert_in_range(ask.took_ms, 190, patience(2000));
		ask_fini(&ask);
		ask_init(&ask, flags, "POST", "http://slow.test/x");
		ask.caller.deadline_ns = clock_after_ms(200);
		ask_run(&ask);
		expect_failure(&ask, BERTH_TIMEOUT, "deadline", 0);
		assert_in_range(ask.took_ms, 190, patience(2000));
		ask_fini(&ask);
		/* Others go on meanwhile. */
		assert_int_equal(get(&ask, flags, "/ok"), BERTH_OK);
		ask_fini(&ask);
	}
	let_resolvers_go();
}

int main(void)
{
	const struct CMUnitTest tests[] = {CASE(cancel), CASE(limits)};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
