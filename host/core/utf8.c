/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns what counts as UTF-8, for paths, JSON and logs alike. Pure functions, any thread. json-c's own check lets overlong
 * forms and surrogates through, so it is not enough. Never repairs: callers decide to refuse or to replace.
 */
#include "core/utf8.h"

/* Which second bytes may follow which first byte. */
struct lead {
	unsigned char first, last;
	unsigned char len;
	unsigned char second_min, second_max;
};

static const struct lead leads[] = {
	{0xc2, 0xdf, 2, 0x80, 0xbf}, {0xe0, 0xe0, 3, 0xa0, 0xbf}, {0xe1, 0xec, 3, 0x80, 0xbf},
	{0xed, 0xed, 3, 0x80, 0x9f}, {0xee, 0xef, 3, 0x80, 0xbf}, {0xf0, 0xf0, 4, 0x90, 0xbf},
	{0xf1, 0xf3, 4, 0x80, 0xbf}, {0xf4, 0xf4, 4, 0x80, 0x8f},
};

static size_t sequence_length(const struct lead *lead, const unsigned char *ptr, size_t len)
{
	if (len < lead->len || ptr[1] < lead->second_min || ptr[1] > lead->second_max)
		return 0;
	for (size_t i = 2; i < lead->len; i++) {
		if ((ptr[i] & 0xc0) != 0x80)
			return 0;
	}
	return lead->len;
}

size_t utf8_length(const char *ptr, size_t len)
{
	const unsigned char *p = (const unsigned char *)ptr;

	if (p[0] < 0x80)
		return 1;
	for (size_t i = 0; i < sizeof(leads) / sizeof(leads[0]); i++) {
		if (p[0] >= leads[i].first && p[0] <= leads[i].last)
			return sequence_length(&leads[i], p, len);
	}
	return 0;
}

size_t utf8_valid_prefix(const char *ptr, size_t len)
{
	size_t pos = 0;

	while (pos < len) {
		size_t n = utf8_length(ptr + pos, len - pos);

		if (n == 0)
			return pos;
		pos += n;
	}
	return len;
}
