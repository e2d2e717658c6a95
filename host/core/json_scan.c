/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the pre-scan of JSON texts: quotes, control characters, escapes, UTF-8, numbers, depth. Pure functions, any thread.
 * Never builds values and never judges the grammar between tokens: json-c does both.
 */
#include "core/json_scan.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/utf8.h"

#define NUMBER_MAX 128 /* characters */

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The code unit of the "\uXXXX" at pos, or -1. */
static int unit_at(const struct json_scan *s, size_t pos)
{
	int value = 0;

	if (s->len - pos < 6 || s->ptr[pos] != '\\' || s->ptr[pos + 1] != 'u')
		return -1;
	for (size_t i = 2; i < 6; i++) {
		int hex = hex_value(s->ptr[pos + i]);

		if (hex < 0)
			return -1;
		value = value * 16 + hex;
	}
	return value;
}

static const char *scan_unicode(struct json_scan *s)
{
	int unit = unit_at(s, s->pos);

	if (unit < 0)
		return "\\u needs four hex digits";
	if (unit == 0 && !s->nul_ok)
		return "NUL character";
	if (unit >= 0xdc00 && unit <= 0xdfff)
		return "lone surrogate";
	if (unit >= 0xd800 && unit <= 0xdbff) {
		int low = unit_at(s, s->pos + 6);

		if (low < 0xdc00 || low > 0xdfff)
			return "lone surrogate";
		s->pos += 6;
	}
	s->pos += 6;
	return NULL;
}

static const char *scan_escape(struct json_scan *s)
{
	char c = s->pos + 1 < s->len ? s->ptr[s->pos + 1] : '\0';

	if (c == 'u')
		return scan_unicode(s);
	if (!c || !strchr("\"\\/bfnrt", c))
		return "unknown escape";
	s->pos += 2;
	return NULL;
}

static const char *scan_string(struct json_scan *s)
{
	const char *fault = NULL;

	s->pos++;
	while (!fault && s->pos < s->len) {
		unsigned char c = (unsigned char)s->ptr[s->pos];
		size_t n = 1;

		if (c == '"') {
			s->pos++;
			return NULL;
		}
		if (c == '\\') {
			fault = scan_escape(s);
			continue;
		}
		if (c < 0x20)
			return c ? "raw control character" : "NUL character";
		if (c >= 0x80)
			n = utf8_length(s->ptr + s->pos, s->len - s->pos);
		if (n == 0)
			return "invalid UTF-8";
		s->pos += n;
	}
	return fault ? fault : "string is not closed";
}

static size_t count_digits(const char *text)
{
	return strspn(text, "0123456789");
}

/* -? int frac? exp? over the whole text; tells whether it is an integer. */
static bool number_valid(const char *text, bool *ret_integer)
{
	size_t n;

	text += *text == '-';
	n = count_digits(text);
	if (n == 0 || (n > 1 && text[0] == '0'))
		return false;
	text += n;
	*ret_integer = !*text;
	if (*text == '.') {
		n = count_digits(++text);
		if (n == 0)
			return false;
		text += n;
	}
	if (*text == 'e' || *text == 'E') {
		text += text[1] == '+' || text[1] == '-' ? 2 : 1;
		n = count_digits(text);
		if (n == 0)
			return false;
		text += n;
	}
	return !*text;
}

static const char *scan_number(struct json_scan *s)
{
	char text[NUMBER_MAX + 1];
	size_t n = 0;
	bool integer = false;

	while (s->pos + n < s->len && strchr("0123456789+-.eE", s->ptr[s->pos + n]) && s->ptr[s->pos + n]) {
		if (n == NUMBER_MAX)
			return "number is too long";
		text[n] = s->ptr[s->pos + n];
		n++;
	}
	text[n] = '\0';
	if (!number_valid(text, &integer))
		return "invalid number";
	errno = 0;
	if (integer)
		(void)strtoll(text, NULL, 10);
	if (errno == ERANGE)
		return "integer does not fit in 64 bits";
	if (!integer && !isfinite(strtod(text, NULL)))
		return "number is out of range";
	s->pos += n;
	return NULL;
}

static const char *scan_word(struct json_scan *s)
{
	static const char *const words[] = {"true", "false", "null"};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		size_t n = strlen(words[i]);

		if (s->len - s->pos >= n && memcmp(s->ptr + s->pos, words[i], n) == 0) {
			s->pos += n;
			return NULL;
		}
	}
	return "unexpected character";
}

static const char *scan_token(struct json_scan *s)
{
	char c = s->ptr[s->pos];

	if (c == '"')
		return scan_string(s);
	if (c == '-' || (c >= '0' && c <= '9'))
		return scan_number(s);
	if (c >= 'a' && c <= 'z')
		return scan_word(s);
	if (!c)
		return "NUL character";
	if (!strchr(" \t\r\n,:{}[]", c))
		return (unsigned char)c < 0x20 ? "raw control character" : "unexpected character";
	if ((c == '{' || c == '[') && ++s->depth > JSON_DEPTH_MAX)
		return "nested too deep";
	if ((c == '}' || c == ']') && s->depth-- == 0)
		return "unexpected character";
	s->members += c == ':';
	s->pos++;
	return NULL;
}

const char *json_scan(struct json_scan *scan)
{
	const char *fault = NULL;

	while (!fault && scan->pos < scan->len)
		fault = scan_token(scan);
	return fault;
}
