/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the growable byte buffer. One thread at a time per buffer. Never holds more than its maximum: what would pass it is
 * refused whole, the error sticks, and the caller sees it at the end.
 */
#include "core/buf.h"

#include <assert.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/err.h"

#define CAP_MIN 256

void buf_init(struct buf *buf, size_t max)
{
	memset(buf, 0, sizeof(*buf));
	buf->max = max < SIZE_MAX ? max : SIZE_MAX - 1; /* room for the NUL */
}

void buf_fini(struct buf *buf)
{
	size_t max = buf->max;

	free(buf->ptr);
	buf_init(buf, max);
}

void buf_clear(struct buf *buf)
{
	buf->len = 0;
	buf->error = 0;
	if (buf->ptr)
		buf->ptr[0] = '\0';
}

static size_t grown_cap(const struct buf *buf, size_t need)
{
	size_t most = buf->max + 1;
	size_t cap = buf->cap ? buf->cap : CAP_MIN;

	while (cap < need)
		cap = cap > most / 2 ? most : cap * 2;
	return cap > most ? most : cap;
}

int buf_reserve(struct buf *buf, size_t more)
{
	if (buf->error)
		return buf->error;
	if (more > buf->max - buf->len)
		return buf->error = ERR_PAYLOAD_TOO_LARGE;

	size_t need = buf->len + more + 1;

	if (need <= buf->cap)
		return 0;

	size_t cap = grown_cap(buf, need);
	char *ptr = realloc(buf->ptr, cap);

	if (!ptr)
		return buf->error = ERR_NOMEM;
	buf->ptr = ptr;
	buf->cap = cap;
	buf->ptr[buf->len] = '\0';
	return 0;
}

int buf_append(struct buf *buf, const void *ptr, size_t len)
{
	if (buf_reserve(buf, len))
		return buf->error;
	if (len)
		memcpy(buf->ptr + buf->len, ptr, len);
	buf->len += len;
	buf->ptr[buf->len] = '\0';
	return 0;
}

int buf_puts(struct buf *buf, const char *str)
{
	return buf_append(buf, str, strlen(str));
}

int buf_put_int(struct buf *buf, int64_t value)
{
	uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
	char text[24];
	char *at = text + sizeof(text);

	do {
		*--at = (char)('0' + left % 10);
		left /= 10;
	} while (left);
	if (value < 0)
		*--at = '-';
	return buf_append(buf, at, (size_t)(text + sizeof(text) - at));
}

int buf_printf(struct buf *buf, const char *fmt, ...)
{
	va_list args;

	if (buf_reserve(buf, 0))
		return buf->error;

	size_t room = buf->cap - buf->len;

	va_start(args, fmt);
	int n = vsnprintf(buf->ptr + buf->len, room, fmt, args);
	va_end(args);
	if (n >= 0 && (size_t)n >= room) {
		buf->ptr[buf->len] = '\0';
		if (buf_reserve(buf, (size_t)n))
			return buf->error;
		va_start(args, fmt);
		n = vsnprintf(buf->ptr + buf->len, (size_t)n + 1, fmt, args);
		va_end(args);
	}
	if (n < 0) {
		buf->ptr[buf->len] = '\0';
		return buf->error = ERR_NOMEM;
	}
	buf->len += (size_t)n;
	return 0;
}

char *buf_take(struct buf *buf)
{
	char *ptr = NULL;

	if (!buf->error && buf_reserve(buf, 0) == 0) {
		ptr = buf->ptr;
		buf->ptr = NULL;
	}
	buf_fini(buf);
	return ptr;
}
