/* SPDX-License-Identifier: Apache-2.0 */
/* The conformance cases on SQLite, each in a folder of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance.h"
#include "tempdir.h"

#define CASES_MAX 64

static int open_sqlite(void *arg, struct store **ret, struct err *err)
{
	struct tempdir *dir = arg;
	char path[TEMPDIR_PATH];

	tempdir_path(dir, "berth.db", path);
	return store_open_sqlite(&(struct store_config){.path = path, .deployment = "test", .host_id = "host-1"}, ret,
				 err);
}

static void run_case(void **state)
{
	const struct conformance_case *test = *state;
	struct conformance_env env = {.open = open_sqlite, .snapshots = true};
	struct tempdir dir;

	tempdir_make(&dir);
	env.arg = &dir;
	test->run(&env);
	tempdir_remove(&dir);
}

int main(void)
{
	struct CMUnitTest tests[CASES_MAX];
	size_t i;

	for (i = 0; i < conformance_count && i < CASES_MAX; i++)
		tests[i] = (struct CMUnitTest){.name = conformance_cases[i].name,
					       .test_func = run_case,
					       .initial_state = (void *)(uintptr_t)&conformance_cases[i]};
	return conformance_count > CASES_MAX ? 1 : _cmocka_run_group_tests("sqlite", tests, i, NULL, NULL);
}
