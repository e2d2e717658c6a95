/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Growing texts, encodings, clocks and the plugin's own error. Pure but for the clocks and the heap; any thread.
 * Must never read past what it was given: most of it comes from the API server.
 */
#include "text.h"

#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool is_retryable(int32_t code)
{
	return code == BERTH_UNAVAILABLE || code == BERTH_RATE_LIMITED || code == BERTH_TIMEOUT ||
	       code == BERTH_CAPACITY || code == BERTH_QUOTA;
}

int32_t kerr_set(struct kerr *err, int32_t code, const char *reason, const char *format, ...)
{
	va_list args;

	err->code = code;
	err->told = false;
	err->retryable = is_retryable(code);
	err->retry_after_ms = 0;
	snprintf(err->reason, sizeof(err->reason), "%s", reason);
	va_start(args, format);
	vsnprintf(err->text, sizeof(err->text), format, args);
	va_end(args);
	return code;
}

/* ---- growing texts ---- */

static bool buf_room(struct buf *buf, size_t len)
{
	size_t cap = buf->cap ? buf->cap : 256;
	char *grown;

	if (buf->bad || len > buf->max || buf->len > buf->max - len) {
		buf->bad = true;
		return false;
	}
	while (cap < buf->len + len + 1)
		cap *= 2;
	if (cap == buf->cap)
		return true;
	grown = realloc(buf->ptr, cap);
	if (!grown) {
		buf->bad = true;
		return false;
	}
	buf->ptr = grown;
	buf->cap = cap;
	return true;
}

void buf_put(struct buf *buf, const void *ptr, size_t len)
{
	if (!buf_room(buf, len))
		return;
	if (len)
		memcpy(buf->ptr + buf->len, ptr, len);
	buf->len += len;
	buf->ptr[buf->len] = '\0';
}

void buf_add(struct buf *buf, const char *format, ...)
{
	va_list args, again;
	int len;

	va_start(args, format);
	va_copy(again, args);
	len = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (len >= 0 && buf_room(buf, (size_t)len)) {
		vsnprintf(buf->ptr + buf->len, (size_t)len + 1, format, again);
		buf->len += (size_t)len;
	}
	va_end(again);
}

void buf_percent(struct buf *buf, const char *text)
{
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("-._~", c))
			buf_put(buf, text, 1);
		else
			buf_add(buf, "%%%02X", c);
	}
}

void buf_wipe(struct buf *buf)
{
	if (buf->ptr)
		explicit_bzero(buf->ptr, buf->cap);
	free(buf->ptr);
	*buf = (struct buf){.max = buf->max};
}

struct berth_str str_of(const char *text)
{
	return (struct berth_str){.ptr = text ? text : "", .len = text ? strlen(text) : 0};
}

bool str_is(struct berth_str text, const char *word)
{
	return text.len == strlen(word) && (!text.len || !memcmp(text.ptr, word, text.len));
}

/* Length of the sequence at text, 0: none. */
static size_t sequence(const unsigned char *text, size_t left)
{
	size_t len = *text < 0x80		     ? 1
		     : *text >= 0xc2 && *text < 0xe0 ? 2
		     : (*text & 0xf0) == 0xe0	     ? 3
		     : *text >= 0xf0 && *text < 0xf5 ? 4
						     : 0;

	if (!len || len > left)
		return 0;
	for (size_t i = 1; i < len; i++)
		if ((text[i] & 0xc0) != 0x80)
			return 0;
	if ((*text == 0xe0 && text[1] < 0xa0) || (*text == 0xed && text[1] > 0x9f) ||
	    (*text == 0xf0 && text[1] < 0x90) || (*text == 0xf4 && text[1] > 0x8f))
		return 0;
	return len;
}

bool text_is_utf8(struct berth_str text)
{
	for (size_t at = 0; at < text.len;) {
		size_t len = sequence((const unsigned char *)text.ptr + at, text.len - at);

		if (!len)
			return false;
		at += len;
	}
	return true;
}

char *str_dup(struct berth_str text)
{
	char *copy;

	if (text.len && memchr(text.ptr, '\0', text.len))
		return NULL;
	copy = malloc(text.len + 1);
	if (!copy)
		return NULL;
	if (text.len)
		memcpy(copy, text.ptr, text.len);
	copy[text.len] = '\0';
	return copy;
}

/* ---- encodings ---- */

void text_base32(const void *ptr, size_t len, char *ret, size_t cap)
{
	static const char digits[] = "abcdefghijklmnopqrstuvwxyz234567";
	const unsigned char *bytes = ptr;
	uint32_t bits = 0;
	unsigned held = 0;
	size_t out = 0;

	for (size_t i = 0; i < len || held;) {
		if (held < 5 && i < len) {
			bits = (bits << 8) | bytes[i++];
			held += 8;
		} else if (held < 5) {
			bits <<= 5 - held;
			held = 5;
		}
		while (held >= 5) {
			held -= 5;
			if (out + 1 < cap)
				ret[out++] = digits[(bits >> held) & 31];
		}
	}
	if (cap)
		ret[out] = '\0';
}

bool text_sha256(const char *const *parts, size_t count, unsigned char ret[32])
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	unsigned len = 0;
	int ok = ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL);

	for (size_t i = 0; ok && i < count; i++) {
		uint64_t size = strlen(parts[i]);
		unsigned char prefix[8];

		for (unsigned b = 0; b < 8; b++)
			prefix[b] = (unsigned char)(size >> (8 * b));
		ok = EVP_DigestUpdate(ctx, prefix, sizeof(prefix)) && EVP_DigestUpdate(ctx, parts[i], size);
	}
	ok = ok && EVP_DigestFinal_ex(ctx, ret, &len) && len == 32;
	EVP_MD_CTX_free(ctx);
	return ok;
}

static size_t without_space(const char *text, unsigned char *ret)
{
	size_t len = 0;

	for (; *text; text++)
		if (!strchr(" \t\r\n", *text))
			ret[len++] = (unsigned char)*text;
	return len;
}

void *text_base64(const char *text, size_t *ret_len)
{
	size_t cap = strlen(text), len;
	unsigned char *in = calloc(1, cap + 1), *out = malloc(cap / 4 * 3 + 4);
	int got = -1;

	if (in && out) {
		len = without_space(text, in);
		got = len % 4 || len > INT32_MAX ? -1 : EVP_DecodeBlock(out, in, (int)len);
		for (size_t i = len; got > 0 && i > 0 && i > len - 2 && in[i - 1] == '='; i--)
			got--;
	}
	if (in)
		explicit_bzero(in, cap + 1);
	free(in);
	if (got < 0) {
		free(out);
		return NULL;
	}
	out[got] = '\0';
	*ret_len = (size_t)got;
	return out;
}

/* ---- time ---- */

static int64_t clock_of(clockid_t id, int64_t unit)
{
	struct timespec now;

	clock_gettime(id, &now);
	return (int64_t)now.tv_sec * (INT64_C(1000000000) / unit) + now.tv_nsec / unit;
}

int64_t text_now_ms(void)
{
	return clock_of(CLOCK_REALTIME, 1000000);
}

int64_t text_boot_ns(void)
{
	return clock_of(CLOCK_BOOTTIME, 1);
}

int64_t text_time_ms(const char *text)
{
	struct tm tm = {0};
	const char *rest = text ? strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) : NULL;
	int64_t ms = 0, unit = 100;

	if (!rest)
		return 0;
	if (*rest == '.')
		for (rest++; *rest >= '0' && *rest <= '9'; rest++, unit /= 10)
			ms += (*rest - '0') * unit;
	return *rest == 'Z' && !rest[1] ? (int64_t)timegm(&tm) * 1000 + ms : 0;
}

void text_time(int64_t ms, char ret[32])
{
	time_t seconds = (time_t)(ms / 1000);
	struct tm tm;

	gmtime_r(&seconds, &tm);
	strftime(ret, 32, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

/* ---- quantities ---- */

static const struct suffix {
	const char *word;
	double factor;
} suffixes[] = {
	{"", 1},
	{"m", 1e-3},
	{"k", 1e3},
	{"M", 1e6},
	{"G", 1e9},
	{"T", 1e12},
	{"P", 1e15},
	{"Ki", 1024.0},
	{"Mi", 1048576.0},
	{"Gi", 1073741824.0},
	{"Ti", 1099511627776.0},
	{"Pi", 1125899906842624.0},
};

bool text_quantity(const char *text, uint64_t *ret_milli)
{
	char *end = NULL;
	double number;

	if (!text || *text < '0' || *text > '9')
		return false;
	number = strtod(text, &end);
	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
		if (!strcmp(end, suffixes[i].word)) {
			number *= suffixes[i].factor * 1000;
			if (!(number < 9e18))
				return false;
			*ret_milli = (uint64_t)(number + 0.5);
			return true;
		}
	return false;
}
