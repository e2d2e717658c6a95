/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the reading and making of traceparent values. Any thread; no state. Must never refuse a request for a bad one: a
 * trace is a help, and what is malformed starts a new trace.
 */
#include "core/trace.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/secret.h"

#define HEX "0123456789abcdef"
#define ID_LEN 32
#define SPAN_LEN 16
#define ID_AT 3
#define SPAN_AT (ID_AT + ID_LEN + 1)
#define FLAGS_AT (SPAN_AT + SPAN_LEN + 1)

/* Lower-case hex digits that are not all zero. */
static bool is_id(const char *text, size_t len)
{
	return strspn(text, HEX) >= len && strspn(text, "0") < len;
}

static bool is_good(const char *text)
{
	if (!text || strlen(text) != TRACE_MAX || strncmp(text, "00-", ID_AT) != 0)
		return false;
	return is_id(text + ID_AT, ID_LEN) && text[SPAN_AT - 1] == '-' && is_id(text + SPAN_AT, SPAN_LEN) &&
	       text[FLAGS_AT - 1] == '-' && strspn(text + FLAGS_AT, HEX) == 2;
}

static void put_random(char *at, size_t digits)
{
	uint8_t bytes[ID_LEN / 2];

	do {
		secret_random(bytes, digits / 2);
		for (size_t i = 0; i < digits; i++)
			at[i] = HEX[(bytes[i / 2] >> (i % 2 ? 0 : 4)) & 15];
	} while (strspn(at, "0") >= digits);
}

void trace_make(const char *given, char ret[TRACE_MAX + 1])
{
	bool good = is_good(given);

	memcpy(ret, good ? given : "00-00000000000000000000000000000000-0000000000000000-01", TRACE_MAX + 1);
	if (!good)
		put_random(ret + ID_AT, ID_LEN);
	put_random(ret + SPAN_AT, SPAN_LEN);
}
