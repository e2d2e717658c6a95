/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How often a target is listed for what its plugin hints (host.h: changed). The clock, the hints and the jobs are the
 * test's: it looks as the GC does, and counts what would be listed.
 */
#include "session/warm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/clock.h"
#include "plugin/target.h"
#include "session/session_private.h"

#define S CLOCK_NS_PER_S
#define STEP (S / 10) /* other work wakes the GC so often */
#define MOST 10000

static struct {
	struct conf conf;
	struct conf_target conf_target;
	struct target target;
	struct target *targets[1];
	struct registry registry;
	struct warm_pool pool;
	struct sessions s;
	int64_t now_ns;
	uint64_t hints;
	bool runs; /* a sweep does, so that no other is started */
	int64_t listed_ns[MOST];
	size_t count;
} t;

int64_t __wrap_clock_boot_ns(void);
int64_t __wrap_clock_after_ms(int64_t ms);
uint64_t __wrap_target_changes(const struct target *target);
int __wrap_job_start_background(struct sessions *s, enum job_kind kind, struct target *target, const char *name,
				bool *ret_started, struct err *err);

int64_t __wrap_clock_boot_ns(void)
{
	return t.now_ns;
}

int64_t __wrap_clock_after_ms(int64_t ms)
{
	return t.now_ns + ms * CLOCK_NS_PER_MS;
}

uint64_t __wrap_target_changes(const struct target *target)
{
	(void)target;
	return t.hints;
}

int __wrap_job_start_background(struct sessions *s, enum job_kind kind, struct target *target, const char *name,
				bool *ret_started, struct err *err)
{
	(void)s, (void)target, (void)name, (void)err;
	assert_int_equal(kind, JOB_SWEEP);
	assert_true(t.count < MOST);
	*ret_started = !t.runs;
	if (*ret_started)
		t.listed_ns[t.count++] = t.now_ns;
	return 0;
}

/* The first round has been. */
static int setup(void **state)
{
	static char name[] = "one";

	(void)state;
	memset(&t, 0, sizeof(t));
	t.now_ns = 1000 * S;
	t.conf.gc_interval_ms = 86400000;
	t.conf_target = (struct conf_target){.name = name, .warm = 5};
	t.target = (struct target){.conf = &t.conf_target, .plugin = (const struct plugin *)name};
	t.targets[0] = &t.target;
	t.registry = (struct registry){.targets = t.targets, .target_count = 1};
	t.s.config = (struct sessions_config){.conf = &t.conf, .registry = &t.registry};
	t.s.pools = &t.pool;
	warm_sweep(&t.s);
	assert_int_equal(t.count, 1);
	t.count = 0;
	return 0;
}

static void pass(int64_t time_ns, bool hinting)
{
	for (int64_t end = t.now_ns + time_ns; t.now_ns < end; t.now_ns += STEP) {
		t.hints += hinting;
		warm_sweep(&t.s);
	}
}

/* By the thread of the GC, which nothing else wakes. */
static void is_listed_soon(void)
{
	int64_t end = t.now_ns + 5 * S;

	for (size_t before = t.count; t.count == before;) {
		t.now_ns = warm_look_ns(&t.s);
		assert_true(t.now_ns <= end);
		warm_sweep(&t.s);
	}
}

static void one_hint_is_heard_within_seconds(void **state)
{
	(void)state;
	t.hints++;
	is_listed_soon();
	/* And once. */
	pass(3600 * S, false);
	assert_int_equal(t.count, 1);
	t.hints++;
	is_listed_soon();
}

static void a_target_that_hints_without_end_is_listed_each_minute(void **state)
{
	(void)state;
	pass(3600 * S, true);
	assert_in_range(t.count, 59, 65);
	for (size_t i = 1; i < t.count; i++) {
		int64_t gap_ns = t.listed_ns[i] - t.listed_ns[i - 1];

		assert_in_range(gap_ns, i < 5 ? 5 * S : 60 * S, 60 * S + STEP);
		assert_true(i == 1 || gap_ns >= t.listed_ns[i - 1] - t.listed_ns[i - 2] - STEP);
	}
}

static void a_hint_that_comes_too_soon_is_heard_later(void **state)
{
	size_t count;

	(void)state;
	pass(600 * S, true);
	count = t.count;
	t.hints++;
	pass(60 * S + STEP, false);
	assert_in_range(t.count, count + 1, count + 1);
	/* It was quiet for a gap: new again. */
	pass(120 * S, false);
	t.hints++;
	pass(STEP, false);
	t.hints++;
	pass(5 * S + STEP, false);
	assert_int_equal(t.count, count + 3);
}

static void a_hint_is_heard_after_the_sweep_that_runs(void **state)
{
	(void)state;
	t.runs = true;
	t.hints++;
	pass(300 * S, false);
	assert_int_equal(t.count, 0);
	t.runs = false;
	is_listed_soon();
	pass(300 * S, false);
	assert_int_equal(t.count, 1);
}

static void hints_do_not_add_to_rounds_without_a_pool(void **state)
{
	(void)state;
	t.conf_target.warm = 0;
	pass(3600 * S, true);
	assert_int_equal(t.count, 0);
	assert_true(warm_look_ns(&t.s) == INT64_MAX);
}

static void a_sweep_for_a_hint_puts_off_the_round(void **state)
{
	(void)state;
	t.conf.gc_interval_ms = 30000;
	t.pool.sweep_ns = 0;
	pass(3600 * S, true);
	/* One serves as both. */
	assert_in_range(t.count, 3600 / 30, 3600 / 30 + 10);
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(one_hint_is_heard_within_seconds),
		TEST(a_target_that_hints_without_end_is_listed_each_minute),
		TEST(a_hint_that_comes_too_soon_is_heard_later),
		TEST(a_hint_is_heard_after_the_sweep_that_runs),
		TEST(hints_do_not_add_to_rounds_without_a_pool),
		TEST(a_sweep_for_a_hint_puts_off_the_round),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
