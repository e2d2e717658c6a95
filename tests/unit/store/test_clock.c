/* SPDX-License-Identifier: Apache-2.0 */
/* The guarded clock under every reading a bad day can bring: jumps of the wall clock, reboots, readings that go
 * back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "store/clock.h"

#define HOUR INT64_C(3600000)
#define MS INT64_C(1000000)
#define WALL INT64_C(1790000000000)
#define BOOT_A "aaaaaaaa-0000-4000-8000-000000000001"
#define BOOT_B "bbbbbbbb-0000-4000-8000-000000000002"

static struct store_clock started(void)
{
	struct store_clock clock = {0};

	assert_false(store_clock_start(&clock, WALL, 1000 * MS, BOOT_A));
	return clock;
}

static void test_new(void **state)
{
	struct store_clock clock = started();

	(void)state;
	assert_int_equal(clock.offset_ms, 0);
	assert_string_equal(clock.boot_id, BOOT_A);
	assert_int_equal(store_clock_now(&clock, 1000 * MS), WALL);
	assert_int_equal(store_clock_now(&clock, 1500 * MS + 999999), WALL + 500);
}

/* T5: the wall clock jumps an hour either way; store time does not notice. */
static void test_jump(void **state)
{
	static const int64_t jumps[] = {HOUR, -HOUR, 2001, -2001};
	struct store_clock clock = started();
	int64_t wall = WALL, boot = 1000 * MS, before;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(jumps) / sizeof(jumps[0]); i++) {
		boot += 5000 * MS;
		wall += 5000 + jumps[i];
		before = clock.offset_ms;
		assert_true(store_clock_judge(&clock, wall, boot));
		assert_int_equal(clock.offset_ms, before - jumps[i]);
		assert_int_equal(store_clock_now(&clock, boot), WALL + 5000 * (int64_t)(i + 1));
		/* Once per jump. */
		assert_false(store_clock_judge(&clock, wall + 10, boot + 10 * MS));
	}
}

static void test_drift(void **state)
{
	struct store_clock clock = started();

	(void)state;
	assert_false(store_clock_judge(&clock, WALL + 2000, 1000 * MS));
	assert_false(store_clock_judge(&clock, WALL - 2000, 1000 * MS));
	assert_int_equal(clock.offset_ms, 0);
	/* Small steps add up to a jump that is absorbed then. */
	assert_true(store_clock_judge(&clock, WALL + 2500, 1000 * MS));
	assert_int_equal(clock.offset_ms, -2500);
}

/* A restart within one boot: exact, whatever the wall clock says. */
static void test_same_boot(void **state)
{
	struct store_clock clock = started();

	(void)state;
	store_clock_mark(&clock, 2000 * MS);
	assert_false(store_clock_start(&clock, WALL - 5 * HOUR, 10000 * MS, BOOT_A));
	assert_int_equal(store_clock_now(&clock, 10000 * MS), WALL + 9000);
	assert_true(store_clock_judge(&clock, WALL - 5 * HOUR, 10000 * MS));
	assert_int_equal(clock.offset_ms, 5 * HOUR + 9000);
}

static void test_other_boot(void **state)
{
	struct store_clock clock = started();

	(void)state;
	/* A night off: the wall clock counts. */
	assert_true(store_clock_start(&clock, WALL + 8 * HOUR, 5 * MS, BOOT_B));
	assert_int_equal(store_clock_now(&clock, 5 * MS), WALL + 8 * HOUR);
	assert_string_equal(clock.boot_id, BOOT_B);
	/* A dead clock battery: time stands still, it never goes back. */
	assert_true(store_clock_start(&clock, 1000, 3 * MS, BOOT_A));
	assert_int_equal(store_clock_now(&clock, 3 * MS), WALL + 8 * HOUR);
	assert_int_equal(store_clock_now(&clock, 4 * MS), WALL + 8 * HOUR + 1);
}

/* The offset of a jump that was absorbed lives on over a reboot: the same wrong wall clock is not believed then
 * either. */
static void test_offset_over_boot(void **state)
{
	struct store_clock clock = started();

	(void)state;
	assert_true(store_clock_judge(&clock, WALL + HOUR, 1000 * MS));
	assert_true(store_clock_start(&clock, WALL + HOUR + 60000, 5 * MS, BOOT_B));
	assert_int_equal(store_clock_now(&clock, 5 * MS), WALL + 60000);
	assert_false(store_clock_judge(&clock, WALL + HOUR + 60000, 5 * MS));
}

/* The same boot id with an earlier BOOTTIME (a time namespace) is not the same clock. */
static void test_boottime_back(void **state)
{
	struct store_clock clock = started();

	(void)state;
	assert_true(store_clock_start(&clock, WALL + 7000, 10 * MS, BOOT_A));
	assert_int_equal(store_clock_now(&clock, 10 * MS), WALL + 7000);
	assert_int_equal(store_clock_now(&clock, 1 * MS), WALL + 7000);
}

/* Marks move by whole milliseconds: the rest is not lost. */
static void test_marks_lose_nothing(void **state)
{
	struct store_clock clock = started();
	int64_t boot = 1000 * MS;
	int i;

	(void)state;
	for (i = 0; i < 1000; i++) {
		boot += 1 * MS + 999999;
		store_clock_mark(&clock, boot);
		store_clock_mark(&clock, boot - 500 * MS);
	}
	assert_int_equal(store_clock_now(&clock, boot), WALL + (boot - 1000 * MS) / MS);
	assert_true(boot - clock.boot_ns < MS);
}

static void test_damaged(void **state)
{
	struct store_clock clock = {.time_ms = WALL, .boot_ns = 5, .offset_ms = INT64_MAX, .boot_id = BOOT_A};

	(void)state;
	assert_true(store_clock_start(&clock, WALL + 1, 7, BOOT_B));
	assert_int_equal(store_clock_now(&clock, 7), WALL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_new),		  cmocka_unit_test(test_jump),
		cmocka_unit_test(test_drift),		  cmocka_unit_test(test_same_boot),
		cmocka_unit_test(test_other_boot),	  cmocka_unit_test(test_offset_over_boot),
		cmocka_unit_test(test_boottime_back),	  cmocka_unit_test(test_marks_lose_nothing),
		cmocka_unit_test(test_damaged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
