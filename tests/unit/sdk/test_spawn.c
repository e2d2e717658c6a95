/* SPDX-License-Identifier: Apache-2.0 */
/* Running a program for what it prints: its words, its end, its limits, and that it ends with all it started. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <berth/spawn.h>
#include <berth/types.h>
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int64_t after_ms(int64_t ms)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec + ms * 1000000;
}

static int32_t run(const char *script, int64_t ms, char *buf, size_t cap, size_t *ret_len, int32_t *ret_status)
{
	char shell[] = "sh", flag[] = "-c", name[] = "NAME=value", *text = strdup(script);
	char *argv[] = {shell, flag, text, NULL}, *env[] = {name, NULL};
	int32_t rc = berth_spawn_read(argv, env, after_ms(ms), buf, cap, ret_len, ret_status);

	free(text);
	return rc;
}

static void test_words_and_status(void **state)
{
	char buf[64];
	int32_t status;
	size_t len;

	(void)state;
	assert_int_equal(run("printf \"$NAME\"; echo no >&2; cat; exit 3", 10000, buf, sizeof(buf), &len, &status),
			 BERTH_OK);
	assert_int_equal(len, 5);
	assert_memory_equal(buf, "value", 5);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
	assert_int_equal(run("exec >&-; sleep 0.1; exit 4", 10000, buf, sizeof(buf), &len, &status), BERTH_OK);
	assert_int_equal(WEXITSTATUS(status), 4);
}

static void test_limits(void **state)
{
	char buf[16], *none[] = {strdup("/does/not/exist"), NULL};
	int32_t status;
	size_t len;

	(void)state;
	assert_int_equal(run("printf 0123456789abcdef", 10000, buf, sizeof(buf), &len, &status), BERTH_OK);
	assert_int_equal(len, 16);
	assert_int_equal(run("yes", 10000, buf, sizeof(buf), &len, &status), BERTH_INVALID);
	assert_int_equal(berth_spawn_read(none, none + 1, after_ms(1000), buf, sizeof(buf), &len, &status),
			 BERTH_NOT_FOUND);
	free(none[0]);
}

static void test_the_deadline_ends_all(void **state)
{
	char buf[32] = "";
	int32_t status;
	size_t len;
	pid_t child;

	(void)state;
	assert_int_equal(run("trap '' TERM; sleep 60 & echo $!; wait", 300, buf, sizeof(buf) - 1, &len, &status),
			 BERTH_TIMEOUT);
	child = (pid_t)strtol(buf, NULL, 10);
	assert_true(child > 1);
	for (int i = 0; i < 500 && !kill(child, 0); i++)
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	assert_true(kill(child, 0) && errno == ESRCH);
	assert_int_equal(run("exec >&-; sleep 60", 300, buf, sizeof(buf), &len, &status), BERTH_TIMEOUT);
}

/* Whoever sees BERTH_TIMEOUT and looks at the clock finds the deadline passed: a caller tells by it whose limit it was. */
static void test_no_timeout_before_the_deadline(void **state)
{
	char name[] = "sleep", seconds[] = "60", *argv[] = {name, seconds, NULL}, buf[8];
	int32_t status;
	size_t len;

	(void)state;
	for (int i = 0; i < 50; i++) {
		int64_t deadline_ns = after_ms(15);

		assert_int_equal(
			berth_spawn_read(argv, argv + 2, deadline_ns, buf, sizeof(buf), &len, &status),
			BERTH_TIMEOUT);
		assert_true(after_ms(0) >= deadline_ns);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words_and_status),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_the_deadline_ends_all),
		cmocka_unit_test(test_no_timeout_before_the_deadline),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
