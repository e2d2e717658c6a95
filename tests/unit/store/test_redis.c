/* SPDX-License-Identifier: Apache-2.0 */
/* The conformance cases on Redis: one server for all, a prefix for each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance.h"
#include "redis_server.h"

#define CASES_MAX 64

static struct redis_server server;

static int open_redis(void *arg, struct store **ret, struct err *err)
{
	return redis_server_open(&server, arg, ret, err);
}

static void run_case(void **state)
{
	const struct conformance_case *test = *state;
	struct conformance_env env = {.open = open_redis, .arg = (void *)(uintptr_t)test->name};

	test->run(&env);
}

static int setup(void **state)
{
	(void)state;
	redis_server_start(&server, NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	redis_server_stop(&server);
	return 0;
}

int main(void)
{
	struct CMUnitTest tests[CASES_MAX];
	size_t i;

	for (i = 0; i < conformance_count && i < CASES_MAX; i++)
		tests[i] = (struct CMUnitTest){.name = conformance_cases[i].name,
					       .test_func = run_case,
					       .initial_state = (void *)(uintptr_t)&conformance_cases[i]};
	return conformance_count > CASES_MAX ? 1 : _cmocka_run_group_tests("redis", tests, i, setup, teardown);
}
