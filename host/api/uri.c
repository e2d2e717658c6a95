/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the way from a request target's bytes to strings: one decoder for path segments and query values. Pure; entered
 * from the loop threads. Must never let a NUL, a control byte or invalid UTF-8 through, nor shorten a value.
 */
#include "api/uri.h"

#include <string.h>
#include <strings.h>

#include "core/ident.h"

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* The byte at *pos, or -1 for a broken escape; *pos moves past it. */
static int next_byte(const char *ptr, size_t len, size_t *pos)
{
	size_t at = (*pos)++;

	if (ptr[at] != '%')
		return (unsigned char)ptr[at];
	if (len - at < 3)
		return -1;

	int high = hex_digit(ptr[at + 1]);
	int low = hex_digit(ptr[at + 2]);

	*pos = at + 3;
	return high < 0 || low < 0 ? -1 : high * 16 + low;
}

int uri_decode(struct arena *arena, const char *field, enum uri_part part, const char *ptr, size_t len,
	       const char **ret, struct err *err)
{
	char *out = arena_alloc(arena, len + 1);
	size_t used = 0;

	if (!out)
		return err_set(err, ERR_NOMEM, "out of memory");
	for (size_t pos = 0; pos < len;) {
		bool plain = ptr[pos] != '%';
		int byte = next_byte(ptr, len, &pos);

		if (byte < 0)
			return err_set(err, ERR_INVALID_REQUEST, "%s holds a broken percent escape", field);
		if (byte < 0x20 || byte == 0x7f)
			return err_set(err, ERR_INVALID_REQUEST, "%s holds a control byte", field);
		if (part == URI_PATH && !plain && byte == '/')
			return err_set(err, ERR_INVALID_REQUEST, "%s holds an encoded slash", field);
		out[used++] = (char)(part == URI_QUERY && plain && byte == '+' ? ' ' : byte);
	}
	if (!ident_utf8_valid(out, used))
		return err_set(err, ERR_INVALID_REQUEST, "%s is not valid UTF-8", field);
	*ret = out;
	return 0;
}

const char *uri_origin(const char *target)
{
	size_t scheme = strncasecmp(target, "http://", 7) == 0 ? 7 : strncasecmp(target, "https://", 8) == 0 ? 8 : 0;
	size_t authority = strcspn(target + scheme, "/?#");

	if (scheme == 0 || authority == 0)
		return target;
	target += scheme + authority;
	return *target ? target : "/";
}

bool uri_word_in(const char *list, const char *word, size_t len)
{
	while (list && *list) {
		size_t have = strcspn(list, " ");

		if (len && have == len && memcmp(list, word, len) == 0)
			return true;
		list += have;
		list += strspn(list, " ");
	}
	return false;
}

static int take_parameter(struct arena *arena, const char *ptr, size_t len, const char *allowed,
			  struct uri_query *query, struct err *err)
{
	const char *equals = memchr(ptr, '=', len);
	size_t name_len = equals ? (size_t)(equals - ptr) : len;
	const char *name = NULL;
	const char *value = "";

	if (uri_decode(arena, "a query parameter's name", URI_QUERY, ptr, name_len, &name, err) != 0)
		return err ? err->code : ERR_INVALID_REQUEST;
	if (!uri_word_in(allowed, name, strlen(name)))
		return err_set(err, ERR_INVALID_REQUEST, "unknown query parameter \"%.64s\"", name);
	if (uri_query_get(query, name))
		return err_set(err, ERR_INVALID_REQUEST, "query parameter \"%s\" is given twice", name);
	if (query->count == URI_QUERY_MAX)
		return err_set(err, ERR_INVALID_REQUEST, "more than %d query parameters", URI_QUERY_MAX);
	if (equals) {
		int r = uri_decode(arena, name, URI_QUERY, equals + 1, len - name_len - 1, &value, err);

		if (r != 0)
			return r;
	}
	query->items[query->count].name = name;
	query->items[query->count++].value = value;
	return 0;
}

int uri_query_parse(struct arena *arena, const char *text, const char *allowed, struct uri_query *ret, struct err *err)
{
	struct uri_query query = {0};

	while (text && *text) {
		size_t len = strcspn(text, "&");
		int r = take_parameter(arena, text, len, allowed, &query, err);

		if (r != 0)
			return r;
		text += len;
		if (*text == '&' && *++text == '\0')
			return err_set(err, ERR_INVALID_REQUEST, "the query string ends with \"&\"");
	}
	*ret = query;
	return 0;
}

const char *uri_query_get(const struct uri_query *query, const char *name)
{
	for (size_t i = 0; i < query->count; i++) {
		if (strcmp(query->items[i].name, name) == 0)
			return query->items[i].value;
	}
	return NULL;
}
