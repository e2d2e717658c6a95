/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the table of error codes and the filling of struct err. Pure functions on the caller's memory, any thread; the one
 * shared thing is the table of lower-case names, built once. Never logs: whoever ends the error's way does that.
 */
#include "core/err.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NAME_SIZE 32

struct row {
	const char *name;
	const char *word;
	int http;
	int retryable;
};

static const struct row table[ERR_ORDINAL_COUNT] = {
	[ERR_ORDINAL_OK] = {"OK", "ok", 200, 0},
#define X(name, word, http, retry) [ERR_ORDINAL_##name] = {#name, word, http, retry},
	ERR_TABLE(X)
#undef X
};

static char names[ERR_ORDINAL_COUNT][NAME_SIZE];
static pthread_once_t names_once = PTHREAD_ONCE_INIT;

static void names_build(void)
{
	for (size_t i = 0; i < ERR_ORDINAL_COUNT; i++) {
		for (size_t k = 0; table[i].name[k] && k < NAME_SIZE - 1; k++) {
			char c = table[i].name[k];

			names[i][k] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
		}
	}
}

/* A number from outside the table is a defect of the caller; it must still be answered, as internal. */
static size_t ordinal(int code)
{
	if (code > 0 || code <= -(int)ERR_ORDINAL_COUNT)
		return ERR_ORDINAL_INTERNAL;
	return (size_t)-code;
}

/* A sentence that did not fit ends in "..." and never inside a UTF-8 sequence. */
static void mark_cut(char *text, size_t size)
{
	size_t len = size - 4;

	while (len && ((unsigned char)text[len] & 0xc0) == 0x80)
		len--;
	memcpy(text + len, "...", 4);
}

static void format(char *text, size_t size, const char *fmt, va_list args) __attribute__((format(printf, 3, 0)));
static void format(char *text, size_t size, const char *fmt, va_list args)
{
	int n = vsnprintf(text, size, fmt, args);

	if (n < 0)
		text[0] = '\0';
	else if ((size_t)n >= size)
		mark_cut(text, size);
}

#undef err_set
int err_set(struct err *err, int code, const char *fmt, ...)
{
	char text[sizeof(err->msg)]; /* the arguments may point into err */
	va_list args;

	if (!err)
		return code;
	va_start(args, fmt);
	format(text, sizeof(text), fmt, args);
	va_end(args);
	memset(err, 0, sizeof(*err));
	err->code = code;
	err->retryable = err_retryable(code);
	memcpy(err->msg, text, sizeof(text));
	return code;
}

int err_prefix(struct err *err, const char *fmt, ...)
{
	char what[sizeof(err->msg)];
	char text[2 * sizeof(err->msg) + 2];
	va_list args;

	if (!err)
		return ERR_INTERNAL;
	va_start(args, fmt);
	format(what, sizeof(what), fmt, args);
	va_end(args);
	size_t len = (size_t)snprintf(text, sizeof(text), "%s: %s", what, err->msg);

	if (len >= sizeof(err->msg))
		mark_cut(text, sizeof(err->msg));
	memcpy(err->msg, text, sizeof(err->msg));
	err->msg[sizeof(err->msg) - 1] = '\0';
	return err->code;
}

void err_clear(struct err *err)
{
	if (err)
		memset(err, 0, sizeof(*err));
}

void err_reason(struct err *err, const char *reason)
{
	if (err)
		snprintf(err->reason, sizeof(err->reason), "%s", reason ? reason : "");
}

const char *err_word(int code)
{
	return table[ordinal(code)].word;
}

const char *err_name(int code)
{
	pthread_once(&names_once, names_build);
	return names[ordinal(code)];
}

int err_http(int code)
{
	return table[ordinal(code)].http;
}

int err_retryable(int code)
{
	return table[ordinal(code)].retryable;
}

int err_from_name(const char *name)
{
	pthread_once(&names_once, names_build);
	for (size_t i = 0; name && i < ERR_ORDINAL_COUNT; i++) {
		if (strcmp(name, names[i]) == 0)
			return -(int)i;
	}
	return ERR_INTERNAL;
}
