/* SPDX-License-Identifier: Apache-2.0 */
/* Time: both ways of writing it, at their edges. */
#include "unit.h"

#include <unistd.h>

#include "core/clock.h"
#include "core/err.h"

static void check_format(int64_t ms, const char *want)
{
	char text[32];
	int64_t back = -1;

	clock_format(ms, text);
	assert_string_equal(text, want);
	if (*want) {
		assert_int_equal(clock_parse(text, &back), 0);
		assert_true(back == ms);
	}
}

static void test_format_and_back(void **state)
{
	char text[32];

	(void)state;
	check_format(0, "");
	check_format(1, "1970-01-01T00:00:00.001Z");
	check_format(-1, "1969-12-31T23:59:59.999Z");
	check_format(INT64_C(1795946400123), "2026-11-29T10:00:00.123Z");
	check_format(INT64_C(951782400000), "2000-02-29T00:00:00.000Z");
	check_format(INT64_C(253402300799999), "9999-12-31T23:59:59.999Z");
	clock_format(INT64_MAX, text);
	assert_string_equal(text, "9999-12-31T23:59:59.999Z");
	clock_format(INT64_MIN, text);
	assert_string_equal(text, "0000-01-01T00:00:00.000Z");
}

static void test_parse(void **state)
{
	static const struct {
		const char *text;
		int64_t ms;
	} good[] = {
		{"2026-11-29T10:00:00Z", INT64_C(1795946400000)},
		{"2026-11-29t10:00:00z", INT64_C(1795946400000)},
		{"2026-11-29T10:00:00.5Z", INT64_C(1795946400500)},
		{"2026-11-29T10:00:00.123456789Z", INT64_C(1795946400123)},
		{"2026-11-29T12:30:00+02:30", INT64_C(1795946400000)},
		{"2026-11-29T09:00:00-01:00", INT64_C(1795946400000)},
		{"1970-01-01T00:00:00Z", 0},
	};
	static const char *const bad[] = {
		"", "2026-11-29", "2026-11-29 10:00:00Z", "2026-11-29T10:00:00", "2026-13-01T00:00:00Z",
		"2026-02-29T00:00:00Z", "1900-02-29T00:00:00Z", "2026-11-31T00:00:00Z", "2026-00-01T00:00:00Z",
		"2026-01-00T00:00:00Z", "2026-11-29T24:00:00Z", "2026-11-29T10:60:00Z", "2026-11-29T10:00:60Z",
		"2026-11-29T10:00:00.Z", "2026-11-29T10:00:00.1234567890Z", "2026-11-29T10:00:00+0200",
		"2026-11-29T10:00:00+24:00", "2026-11-29T10:00:00Zx", "26-11-29T10:00:00Z", "+026-11-29T10:00:00Z",
		"2026-11-29T1:00:00Z", " 2026-11-29T10:00:00Z", "2026-11-29T10:00:00,5Z"};
	int64_t ms = 0;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(good); i++) {
		assert_int_equal(clock_parse(good[i].text, &ms), 0);
		assert_true(ms == good[i].ms);
	}
	ms = 77;
	for (size_t i = 0; i < COUNT_OF(bad); i++)
		assert_int_equal(clock_parse(bad[i], &ms), ERR_INVALID_REQUEST);
	assert_int_equal(clock_parse(NULL, &ms), ERR_INVALID_REQUEST);
	assert_int_equal(ms, 77);
}

static void test_durations(void **state)
{
	static const struct {
		const char *text;
		int64_t ms;
	} good[] = {{"0", 0},          {"0s", 0},       {"500ms", 500},        {"2s", 2000},    {"15m", 900000},
		    {"1h30m", 5400000}, {"1d", 86400000}, {"1d2h3m4s5ms", 93784005}, {"90m", 5400000}};
	static const char *const bad[] = {"",    "5",   "s",     "1",   "-1s",  "+1s", "1 s", "1.5h", "1x", "1sm", "30m1h",
					  "1m1m", "00",  "1s ",   "1S",  " 1s",  "99999999999999999999s",
					  "9223372036854775807s", "106751991167d200h", "1ms1s", "h1"};
	int64_t ms = 0;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(good); i++) {
		assert_int_equal(clock_parse_duration(good[i].text, &ms), 0);
		assert_true(ms == good[i].ms);
	}
	for (size_t i = 0; i < COUNT_OF(bad); i++)
		assert_int_equal(clock_parse_duration(bad[i], &ms), ERR_INVALID_REQUEST);
	assert_int_equal(clock_parse_duration(NULL, &ms), ERR_INVALID_REQUEST);
}

static void test_format_duration(void **state)
{
	static const struct {
		int64_t ms;
		const char *text;
	} rows[] = {{0, "0"},           {1, "1ms"},        {5400000, "1h30m"}, {93784005, "1d2h3m4s5ms"},
		    {-1, "never"}, {INT64_MAX, "106751991167d7h12m55s807ms"}};
	char text[32];

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		int64_t back = 0;

		clock_format_duration(rows[i].ms, text);
		assert_string_equal(text, rows[i].text);
		if (rows[i].ms >= 0) {
			assert_int_equal(clock_parse_duration(text, &back), 0);
			assert_true(back == rows[i].ms);
		}
	}
}

static void test_deadlines(void **state)
{
	int64_t before = clock_boot_ns();
	int64_t deadline = clock_after_ms(1000);

	(void)state;
	assert_true(deadline >= before + CLOCK_NS_PER_S);
	assert_true(clock_left_ms(deadline) <= 1000);
	assert_true(clock_after_ms(-1) == INT64_MAX);
	assert_true(clock_after_ms(INT64_MAX) == INT64_MAX);
	assert_true(clock_after_ms(INT64_MAX / CLOCK_NS_PER_MS) == INT64_MAX);
	assert_true(clock_left_ms(INT64_MAX) == INT64_MAX);
	assert_int_equal(clock_left_ms(before), 0);
	assert_int_equal(clock_left_ms(0), 0);
	assert_true(clock_left_ms(clock_boot_ns() + CLOCK_NS_PER_S) >= 1); /* never 0 before it has come */
	assert_true(clock_wall_ms() > INT64_C(1577836800000));
}

/* P2: never earlier than told, at most a quarter later, and those that were told it together come one after another. */
static void test_spread(void **state)
{
	static const int64_t told[] = {1000, 7000, 60000};
	unsigned char hit[20] = {0};
	size_t parts = 0;

	(void)state;
	for (size_t t = 0; t < sizeof(told) / sizeof(*told); t++) {
		for (uint64_t salt = 0; salt < 150; salt++)
			assert_in_range(clock_spread_ms(told[t], salt), told[t], told[t] + told[t] / 4);
	}
	for (uint64_t salt = 1000; salt < 1150; salt++)
		hit[(clock_spread_ms(1000, salt) - 1000) * 20 / 251] = 1;
	for (size_t i = 0; i < sizeof(hit); i++)
		parts += hit[i];
	assert_int_equal(parts, sizeof(hit)); /* 150 in 20 equal parts of the quarter: none is empty */
	assert_int_equal(clock_spread_ms(0, 5), 0);
	assert_int_equal(clock_spread_ms(3, 5), 3);
	assert_true(clock_spread_ms(INT64_MAX, 3) == INT64_MAX);
}

static void test_boot_id(void **state)
{
	char a[37], b[37];

	(void)state;
	clock_boot_id(a);
	clock_boot_id(b);
	assert_string_equal(a, b);
	assert_int_equal(strlen(a), 36);
	assert_int_equal(a[8], '-');
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_format_and_back), cmocka_unit_test(test_parse),
		cmocka_unit_test(test_durations),	cmocka_unit_test(test_format_duration),
		cmocka_unit_test(test_deadlines),	cmocka_unit_test(test_spread),
		cmocka_unit_test(test_boot_id),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
