/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the reading of environment files. Pure functions, any thread. Never evaluates, unquotes or repairs anything, and
 * never puts a value into an error.
 */
#include "execution/env.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "core/limits.h"

static int refuse(struct err *err, size_t number, const char *what)
{
	err_set(err, ERR_INVALID_REQUEST, "env_ref: pair %zu %s", number, what);
	err_reason(err, "env_ref");
	return ERR_INVALID_REQUEST;
}

static bool name_valid(const char *ptr, size_t len)
{
	if (len == 0 || !(isalpha((unsigned char)ptr[0]) || ptr[0] == '_'))
		return false;
	for (size_t i = 1; i < len; i++) {
		if (!(isalnum((unsigned char)ptr[i]) || ptr[i] == '_'))
			return false;
	}
	return true;
}

static int parse_pair(const char *ptr, size_t len, size_t number, struct berth_pair *ret, struct err *err)
{
	const char *equals = memchr(ptr, '=', len);

	if (!equals)
		return refuse(err, number, "has no '='");
	if (!name_valid(ptr, (size_t)(equals - ptr)))
		return refuse(err, number, "has a name that is not [A-Za-z_][A-Za-z0-9_]*");
	ret->name = (struct berth_str){ptr, (size_t)(equals - ptr)};
	ret->value = (struct berth_str){equals + 1, len - ret->name.len - 1};
	return 0;
}

static size_t count_pairs(const char *text, size_t len)
{
	size_t count = 0;

	for (const char *at = text, *end = text + len; at < end; count++) {
		const char *nul = memchr(at, '\0', (size_t)(end - at));

		at = nul ? nul + 1 : end;
	}
	return count;
}

int env_parse(struct arena *arena, const char *text, size_t len, struct berth_pair **ret, size_t *ret_count,
	      struct err *err)
{
	size_t count = count_pairs(text, len);
	struct berth_pair *pairs;
	size_t at = 0;

	if (len > LIMIT_ENV_BYTES || count > LIMIT_ENV_PAIRS) {
		err_set(err, ERR_INVALID_REQUEST, "env_ref: more than %zu bytes or %d pairs", LIMIT_ENV_BYTES,
			LIMIT_ENV_PAIRS);
		err_reason(err, "env_ref");
		return ERR_INVALID_REQUEST;
	}
	pairs = arena_alloc(arena, (count + 1) * sizeof(*pairs));
	if (!pairs)
		return err_set(err, ERR_NOMEM, "env_ref: no memory is left for its pairs");
	for (size_t i = 0; i < count; i++) {
		const char *nul = memchr(text + at, '\0', len - at);
		size_t size = nul ? (size_t)(nul - (text + at)) : len - at;
		int r = parse_pair(text + at, size, i + 1, &pairs[i], err);

		if (r)
			return r;
		at += size + 1;
	}
	*ret = pairs;
	*ret_count = count;
	return 0;
}
