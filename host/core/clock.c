/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the reading and writing of time. Pure functions, any thread; the kernel's boot id is read once. Never consults the
 * time zone, and never sets a deadline by wall time.
 */
#include "core/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/err.h"
#include "core/secret.h"

#define BOOT_ID_LEN 36
#define YEAR_0_S INT64_C(-62167219200)
#define YEAR_9999_END_S INT64_C(253402300799)
#define DAY_S 86400
#define CENTURIES_4_DAYS 146097 /* the calendar repeats after 400 years */
#define YEARS_SHIFT 400		/* keeps the sums positive */
#define MARCH_SHIFT (CENTURIES_4_DAYS - 60) /* year 0 began 60 days before its 1st of March: it was a leap year */

int64_t clock_boot_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (int64_t)ts.tv_sec * CLOCK_NS_PER_S + ts.tv_nsec;
}

int64_t clock_wall_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / CLOCK_NS_PER_MS;
}

int64_t clock_after_ms(int64_t ms)
{
	int64_t ns;

	if (ms < 0 || __builtin_mul_overflow(ms, CLOCK_NS_PER_MS, &ns) ||
	    __builtin_add_overflow(ns, clock_boot_ns(), &ns))
		return INT64_MAX;
	return ns;
}

int64_t clock_left_ms(int64_t deadline_ns)
{
	if (deadline_ns == INT64_MAX)
		return INT64_MAX;

	int64_t now = clock_boot_ns();

	if (deadline_ns <= now)
		return 0;
	/* Rounded up: whoever waits this long must not wake before the deadline and find nothing to do. */
	return (deadline_ns - now - 1) / CLOCK_NS_PER_MS + 1;
}

int64_t clock_spread_ms(int64_t ms, uint64_t salt)
{
	int64_t more, sum;

	if (ms <= 0)
		return ms;
	more = (int64_t)((salt * UINT64_C(0x9e3779b97f4a7c15) >> 33) % ((uint64_t)ms / 4 + 1));
	return __builtin_add_overflow(ms, more, &sum) ? INT64_MAX : sum;
}

static char boot_id[BOOT_ID_LEN + 1];
static pthread_once_t boot_id_once = PTHREAD_ONCE_INIT;

static bool boot_id_read(void)
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, boot_id, BOOT_ID_LEN);

	if (fd >= 0)
		close(fd);
	return n == BOOT_ID_LEN;
}

/* Without /proc each start counts as another boot, which is the careful reading of an unknown past. */
static void boot_id_init(void)
{
	uint8_t r[16];

	if (boot_id_read())
		return;
	secret_random(r, sizeof(r));
	snprintf(boot_id, sizeof(boot_id), "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", r[0],
		 r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9], r[10], r[11], r[12], r[13], r[14], r[15]);
}

void clock_boot_id(char ret_id[37])
{
	pthread_once(&boot_id_once, boot_id_init);
	memcpy(ret_id, boot_id, sizeof(boot_id));
}

static void put_digits(char *at, int64_t value, int count)
{
	while (count-- > 0) {
		at[count] = (char)('0' + value % 10);
		value /= 10;
	}
}

/*
 * gmtime_r and timegm take the time zone's lock and look at its file; records hold six times each. Here years begin in
 * March, so that the leap day is the last one, and the days before a month are a line (months of 153 days in five).
 */
static void put_date(char *at, int64_t since_year_0_s)
{
	int64_t day = since_year_0_s / DAY_S + MARCH_SHIFT; /* since the March before year 0 */
	int64_t century = day / CENTURIES_4_DAYS;
	int64_t rest = day % CENTURIES_4_DAYS;
	int64_t year = (rest - rest / 1460 + rest / 36524 - rest / (CENTURIES_4_DAYS - 1)) / 365;
	int64_t of_year = rest - (365 * year + year / 4 - year / 100);
	int64_t month = (5 * of_year + 2) / 153;

	put_digits(at, year + 400 * century - YEARS_SHIFT + (month >= 10), 4);
	at[4] = '-';
	put_digits(at + 5, month < 10 ? month + 3 : month - 9, 2);
	at[7] = '-';
	put_digits(at + 8, of_year - (153 * month + 2) / 5 + 1, 2);
}

static void put_time(char *at, int64_t of_day_s, int64_t ms)
{
	at[0] = 'T';
	put_digits(at + 1, of_day_s / 3600, 2);
	at[3] = ':';
	put_digits(at + 4, of_day_s / 60 % 60, 2);
	at[6] = ':';
	put_digits(at + 7, of_day_s % 60, 2);
	at[9] = '.';
	put_digits(at + 10, ms, 3);
	memcpy(at + 13, "Z", 2);
}

void clock_format(int64_t unix_ms, char ret_text[32])
{
	int64_t ms = unix_ms % 1000;
	int64_t s = unix_ms / 1000;

	if (unix_ms == 0) {
		ret_text[0] = '\0';
		return;
	}
	if (ms < 0) {
		ms += 1000;
		s--;
	}
	/* RFC 3339 has four digits for the year; "never" is written as its last moment. */
	if (s > YEAR_9999_END_S) {
		s = YEAR_9999_END_S;
		ms = 999;
	} else if (s < YEAR_0_S) {
		s = YEAR_0_S;
		ms = 0;
	}

	put_date(ret_text, s - YEAR_0_S);
	put_time(ret_text + 10, (s - YEAR_0_S) % DAY_S, ms);
}

/* Reads exactly `count` digits and moves on; -1 when they are not there. */
static int digits(const char **at, int count)
{
	int value = 0;

	for (int i = 0; i < count; i++, (*at)++) {
		if (**at < '0' || **at > '9')
			return -1;
		value = value * 10 + (**at - '0');
	}
	return value;
}

static bool skip(const char **at, const char *any_of)
{
	if (!**at || !strchr(any_of, **at))
		return false;
	(*at)++;
	return true;
}

static int days_in_month(int year, int month)
{
	static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

	return month == 2 && leap ? 29 : days[month - 1];
}

static bool parse_date(const char **at, struct tm *tm)
{
	int year = digits(at, 4);
	int month = year >= 0 && skip(at, "-") ? digits(at, 2) : -1;
	int day = month >= 0 && skip(at, "-") ? digits(at, 2) : -1;

	if (month < 1 || month > 12 || day < 1 || day > days_in_month(year, month))
		return false;
	tm->tm_year = year - 1900;
	tm->tm_mon = month - 1;
	tm->tm_mday = day;
	return true;
}

static bool parse_time(const char **at, struct tm *tm)
{
	tm->tm_hour = digits(at, 2);
	tm->tm_min = tm->tm_hour >= 0 && skip(at, ":") ? digits(at, 2) : -1;
	tm->tm_sec = tm->tm_min >= 0 && skip(at, ":") ? digits(at, 2) : -1;
	return tm->tm_sec >= 0 && tm->tm_hour < 24 && tm->tm_min < 60 && tm->tm_sec < 60;
}

/* ".5" and ".123456789" alike; what is finer than a millisecond is cut. */
static bool parse_fraction(const char **at, int *ret_ms)
{
	int ms = 0;
	int count = 0;

	*ret_ms = 0;
	if (!skip(at, "."))
		return true;
	for (; **at >= '0' && **at <= '9'; (*at)++, count++) {
		if (count < 3)
			ms = ms * 10 + (**at - '0');
	}
	for (int i = count; i < 3; i++)
		ms *= 10;
	*ret_ms = ms;
	return count >= 1 && count <= 9;
}

static bool parse_offset(const char **at, int *ret_minutes)
{
	*ret_minutes = 0;
	if (skip(at, "Zz"))
		return true;

	int sign = **at == '-' ? -1 : 1;

	if (!skip(at, "+-"))
		return false;

	int hours = digits(at, 2);
	int minutes = hours >= 0 && skip(at, ":") ? digits(at, 2) : -1;

	*ret_minutes = sign * (hours * 60 + minutes);
	return minutes >= 0 && hours < 24 && minutes < 60;
}

/* The way back from put_date. */
static int64_t seconds_of(const struct tm *tm)
{
	int64_t month = (tm->tm_mon + 10) % 12; /* from March */
	int64_t year = tm->tm_year + 1900 + YEARS_SHIFT - (month >= 10);
	int64_t of_year = (153 * month + 2) / 5 + tm->tm_mday - 1;
	int64_t day = 365 * year + year / 4 - year / 100 + year / 400 + of_year - MARCH_SHIFT;

	return YEAR_0_S + day * DAY_S + tm->tm_hour * 3600 + tm->tm_min * 60 + tm->tm_sec;
}

int clock_parse(const char *text, int64_t *ret_unix_ms)
{
	struct tm tm = {0};
	int ms, offset_min;

	if (!text || !parse_date(&text, &tm) || !skip(&text, "Tt") || !parse_time(&text, &tm) ||
	    !parse_fraction(&text, &ms) || !parse_offset(&text, &offset_min) || *text)
		return ERR_INVALID_REQUEST;
	*ret_unix_ms = (seconds_of(&tm) - (int64_t)offset_min * 60) * 1000 + ms;
	return 0;
}

/* Largest first: the order in which a duration is written and must be given. */
static const struct unit {
	const char *name;
	int64_t ms;
} units[] = {{"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};
#define UNIT_COUNT (sizeof(units) / sizeof(units[0]))

static size_t unit_find(const char *ptr, size_t len)
{
	size_t i = 0;

	while (i < UNIT_COUNT && (strlen(units[i].name) != len || memcmp(units[i].name, ptr, len) != 0))
		i++;
	return i;
}

int clock_parse_duration(const char *text, int64_t *ret_ms)
{
	int64_t sum = 0;
	size_t next = 0; /* the largest unit that may still come */

	if (!text || !*text)
		return ERR_INVALID_REQUEST;
	if (text[0] == '0' && !text[1]) {
		*ret_ms = 0;
		return 0;
	}
	while (*text) {
		int64_t value = 0;
		size_t count = strspn(text, "0123456789");

		if (count == 0)
			return ERR_INVALID_REQUEST;
		for (; count; count--, text++) {
			if (__builtin_mul_overflow(value, 10, &value) ||
			    __builtin_add_overflow(value, *text - '0', &value))
				return ERR_INVALID_REQUEST;
		}

		size_t len = strcspn(text, "0123456789");
		size_t unit = unit_find(text, len);

		if (unit >= UNIT_COUNT || unit < next || __builtin_mul_overflow(value, units[unit].ms, &value) ||
		    __builtin_add_overflow(sum, value, &sum))
			return ERR_INVALID_REQUEST;
		text += len;
		next = unit + 1;
	}
	*ret_ms = sum;
	return 0;
}

void clock_format_duration(int64_t ms, char ret_text[32])
{
	size_t at = 0;

	snprintf(ret_text, 32, "%s", ms < 0 ? "never" : "0");
	for (size_t i = 0; ms > 0 && i < UNIT_COUNT; i++) {
		int64_t count = ms / units[i].ms;

		if (count) {
			int n = snprintf(ret_text + at, 32 - at, "%lld%s", (long long)count, units[i].name);

			at += (size_t)n;
		}
		ms %= units[i].ms;
	}
}
