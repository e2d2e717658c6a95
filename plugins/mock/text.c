/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small parsers, checks and clocks of the mock provider. No state; any thread may enter. Nothing here may fail in
 * another way than by its result, and nothing repairs what it is given.
 */
#include "text.h"

#include <time.h>

static int64_t clock_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

int64_t text_now_ms(void)
{
	return clock_ns(CLOCK_REALTIME) / 1000000;
}

int64_t text_boot_ns(void)
{
	return clock_ns(CLOCK_BOOTTIME);
}

/* Reads leading digits; *ret_end is what follows. */
static bool digits(const char *text, uint64_t *ret, const char **ret_end)
{
	uint64_t value = 0;
	const char *p = text;

	for (; *p >= '0' && *p <= '9'; p++) {
		if (value > (UINT64_MAX - 9) / 10)
			return false;
		value = value * 10 + (uint64_t)(*p - '0');
	}
	*ret = value;
	*ret_end = p;
	return p != text;
}

bool text_number(const char *text, uint64_t *ret)
{
	const char *end;
	uint64_t value;

	if (!digits(text, &value, &end) || *end)
		return false;
	*ret = value;
	return true;
}

struct unit {
	const char *name;
	uint64_t factor;
};

static bool with_unit(const char *text, const struct unit *units, uint64_t max, uint64_t *ret)
{
	const char *end;
	uint64_t value;

	if (!digits(text, &value, &end))
		return false;
	for (; units->name; units++) {
		if (strcmp(units->name, end))
			continue;
		if (value > max / units->factor)
			return false;
		*ret = value * units->factor;
		return true;
	}
	return false;
}

bool text_duration(const char *text, int64_t *ret_ms)
{
	static const struct unit units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {NULL, 0}};
	uint64_t value = 0;

	/* INT64_MAX / 10^6, so that every duration also fits as nanoseconds. */
	if (strcmp(text, "0") && !with_unit(text, units, UINT64_C(9000000000000), &value))
		return false;
	*ret_ms = (int64_t)value;
	return true;
}

bool text_size(const char *text, uint64_t *ret)
{
	static const struct unit units[] = {{"", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {NULL, 0}};

	return with_unit(text, units, UINT64_MAX - 1, ret);
}

bool text_copy(char *dst, size_t cap, struct berth_str src)
{
	if (src.len >= cap)
		return false;
	for (size_t i = 0; i < src.len; i++)
		if ((unsigned char)src.ptr[i] < 0x20 || src.ptr[i] == 0x7f)
			return false;
	if (src.len)
		memcpy(dst, src.ptr, src.len);
	dst[src.len] = '\0';
	return true;
}

static bool is_alnum(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool text_ident(struct berth_str part)
{
	if (part.len < 1 || part.len > 128 || !is_alnum(part.ptr[0]))
		return false;
	for (size_t i = 1; i < part.len; i++)
		if (!is_alnum(part.ptr[i]) && part.ptr[i] != '.' && part.ptr[i] != '_' && part.ptr[i] != '-')
			return false;
	return true;
}

bool text_word(const char *text)
{
	size_t len = strlen(text);

	return len >= 1 && len <= BERTH_REASON_MAX && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_") == len;
}
