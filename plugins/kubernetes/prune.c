/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes out of an API server's answer what nobody here reads, before it becomes a tree: who set which field is about
 * half of a pod, and all of it nested. Pure; any thread. It must never change what a parser makes of the rest: a text
 * that does not end where it should is left to the parser.
 */
#include "prune.h"

#include <stdbool.h>
#include <string.h>

#define KEY "\"managedFields\":"
#define KEY_LEN (sizeof(KEY) - 1)

/* Behind the string that begins at `at`. */
static size_t skip_string(const char *text, size_t at, size_t len)
{
	for (at++; at < len && text[at] != '"'; at++)
		if (text[at] == '\\')
			at++;
	return at < len ? at + 1 : len;
}

/* Where the value ends that begins at `at`: at the comma or bracket behind it; len: nowhere. */
static size_t skip_value(const char *text, size_t at, size_t len)
{
	size_t depth = 0;

	while (at < len) {
		char c = text[at];

		if (c == '"') {
			at = skip_string(text, at, len);
			continue;
		}
		if (!depth && (c == ',' || c == '}' || c == ']'))
			return at;
		depth += c == '{' || c == '[';
		depth -= c == '}' || c == ']';
		at++;
	}
	return len;
}

/* Within a string a quote has a backslash before it, so that the first one here begins a key, or ends one that only
 * looks like it. */
static bool is_key(const char *text, size_t at)
{
	return at == 0 || text[at - 1] != '\\';
}

static size_t append(char *text, size_t to, size_t from, size_t until)
{
	memmove(text + to, text + from, until - from);
	return to + until - from;
}

size_t prune_json(char *text, size_t len)
{
	size_t from = 0, to = 0, look = 0;
	char *found;

	while (len - look > KEY_LEN && (found = memmem(text + look, len - look, KEY, KEY_LEN)) != NULL) {
		size_t at = (size_t)(found - text), end;

		look = at + KEY_LEN;
		if (!is_key(text, at))
			continue;
		end = skip_value(text, look, len);
		if (end == len)
			break;
		if (end == look)
			continue;
		to = append(text, to, from, look);
		text[to++] = '0';
		from = look = end;
	}
	return append(text, to, from, len);
}
