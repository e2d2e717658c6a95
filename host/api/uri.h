/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Percent-decoding and query strings, strict: what is odd is refused, naming the field, never repaired. Pure functions.
 */
#ifndef API_URI_H
#define API_URI_H

#include <stdbool.h>
#include <stddef.h>

#include "core/arena.h"
#include "core/err.h"

#define URI_QUERY_MAX 16 /* parameters of one request */

enum uri_part { URI_PATH, URI_QUERY };

/* Decodes one path segment or one query value into the arena. Refused, naming `field`: broken escapes, control bytes
 * (NUL included), invalid UTF-8, and in a path segment an encoded slash. In a query '+' is a space. */
int uri_decode(struct arena *arena, const char *field, enum uri_part part, const char *ptr, size_t len,
	       const char **ret, struct err *err);

/* The path and query of a target in absolute form ("http://host/path?query"); any other target is returned as it is. */
const char *uri_origin(const char *target);

struct uri_query {
	size_t count;
	struct {
		const char *name;
		const char *value;
	} items[URI_QUERY_MAX];
};

/* `text` is what follows '?' (NULL or "" = nothing); `allowed` the accepted names, separated by spaces. Unknown,
 * repeated and nameless parameters are refused by name. A parameter without '=' has the value "". */
int uri_query_parse(struct arena *arena, const char *text, const char *allowed, struct uri_query *ret, struct err *err);
const char *uri_query_get(const struct uri_query *query, const char *name); /* NULL when absent */
/* Is `word` one of the space-separated words of `list`? */
bool uri_word_in(const char *list, const char *word, size_t len);

#endif
