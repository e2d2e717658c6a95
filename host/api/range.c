/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the reading of the Range header (RFC 9110, 14.2). Pure. What it does not understand it ignores, as the RFC asks,
 * so that the answer is the whole and never another part.
 */
#include "api/range.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

/* Digits at *text; false when there are none or the number is too large. */
static bool take_number(const char **text, uint64_t *ret)
{
	uint64_t number = 0;
	const char *c = *text;

	for (; *c >= '0' && *c <= '9'; c++) {
		if (__builtin_mul_overflow(number, 10, &number) ||
		    __builtin_add_overflow(number, (uint64_t)(*c - '0'), &number))
			return false;
	}
	if (c == *text)
		return false;
	*text = c;
	*ret = number;
	return true;
}

static enum range_kind suffix(const char *text, uint64_t size, struct range *ret)
{
	uint64_t count;

	if (!take_number(&text, &count) || *text)
		return RANGE_NONE;
	if (count == 0 || size == 0)
		return RANGE_UNSATISFIABLE;
	ret->from = count < size ? size - count : 0;
	ret->until = size;
	return RANGE_PART;
}

enum range_kind range_parse(const char *header, uint64_t size, struct range *ret)
{
	uint64_t first;
	uint64_t last = UINT64_MAX;

	if (!header || strncasecmp(header, "bytes=", 6) != 0)
		return RANGE_NONE;
	header += 6;
	if (*header == '-')
		return suffix(header + 1, size, ret);
	if (!take_number(&header, &first) || *header++ != '-')
		return RANGE_NONE;
	if (*header && (!take_number(&header, &last) || *header))
		return RANGE_NONE;
	if (last < first)
		return RANGE_NONE;
	if (first >= size)
		return RANGE_UNSATISFIABLE;
	ret->from = first;
	ret->until = last < size ? last + 1 : size;
	return RANGE_PART;
}
