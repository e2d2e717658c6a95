/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the writing of JSON string literals. Pure functions on the caller's buffer, any thread. Whatever the bytes are, the
 * result is valid JSON, valid UTF-8, on one line, and free of characters that drive a terminal.
 */
#include "core/json.h"

#include <string.h>

#include "core/utf8.h"

/* The letter after the backslash for a byte that has a short escape, else 0. */
static char short_escape(unsigned char c)
{
	static const char from[] = "\"\\\b\f\n\r\t";
	static const char to[] = "\"\\bfnrt";
	const char *at = c ? strchr(from, c) : NULL;

	return at ? to[at - from] : 0;
}

static void put_escape(struct buf *buf, unsigned code)
{
	char letter = code < 0x80 ? short_escape((unsigned char)code) : 0;

	if (letter)
		buf_append(buf, (char[]){'\\', letter}, 2);
	else
		buf_printf(buf, "\\u%04x", code);
}

/* ASCII that goes out as it is. */
static inline bool is_plain(unsigned char c)
{
	return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

/* How many bytes at ptr go out as they are: 0 when they need an escape or a replacement. */
static size_t plain_length(const char *ptr, size_t len)
{
	unsigned char c = (unsigned char)ptr[0];

	if (c < 0x80)
		return is_plain(c);
	if (c == 0xc2 && len > 1 && (unsigned char)ptr[1] < 0xa0)
		return 0; /* C1 control, or broken */
	return utf8_length(ptr, len);
}

/* Writes the replacement for what stands at ptr; returns the bytes it stood for. */
static size_t put_special(struct buf *buf, const char *ptr, size_t len)
{
	size_t n = utf8_length(ptr, len);

	if (n == 0) {
		buf_puts(buf, "\xef\xbf\xbd");
		return 1;
	}
	put_escape(buf, (unsigned char)ptr[n - 1]); /* a C1 control's code is its second byte */
	return n;
}

void json_put_string(struct buf *buf, const char *ptr, size_t len)
{
	size_t start = 0;
	size_t pos = 0;

	buf_puts(buf, "\"");
	while (pos < len && !buf->error) {
		if (is_plain((unsigned char)ptr[pos])) {
			pos++;
			continue;
		}

		size_t n = plain_length(ptr + pos, len - pos);

		if (n) {
			pos += n;
			continue;
		}
		buf_append(buf, ptr + start, pos - start);
		pos += put_special(buf, ptr + pos, len - pos);
		start = pos;
	}
	if (!buf->error)
		buf_append(buf, ptr + start, len - start);
	buf_puts(buf, "\"");
}
