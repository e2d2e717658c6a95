/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the search for the place of a duplicate key, when counting has shown that there is one. Enters from json_parse, any
 * thread. Works on texts that passed the scan and json-c only; costs time in proportion to the text times its logarithm.
 */
#include "core/json_scan.h"

#include <json-c/json_tokener.h>
#include <stdbool.h>
#include <string.h>

#include "core/json.h"
#include "core/map.h"

struct search {
	struct map *keys[JSON_DEPTH_MAX + 1]; /* by depth; NULL inside an array */
	unsigned depth;
	bool broken; /* out of memory: give up on the position */
};

/* Length of the literal at ptr, both quotes included. */
static size_t literal_length(const char *ptr)
{
	size_t n = 1;

	while (ptr[n] != '"')
		n += ptr[n] == '\\' ? 2 : 1;
	return n + 1;
}

/* Notes the key; true when its object has it already. Keys are compared as what they mean, not as they are spelled. */
static bool key_seen(struct search *s, const char *literal, size_t len)
{
	struct json_tokener *tok = json_tokener_new();
	struct json_object *key = tok ? json_tokener_parse_ex(tok, literal, (int)len) : NULL;
	struct map *keys = s->keys[s->depth];
	bool seen = false;

	if (!key) {
		s->broken = true;
	} else {
		seen = map_get(keys, json_object_get_string(key)) != NULL;
		s->broken = !seen && map_put(keys, json_object_get_string(key), keys) != 0;
	}
	json_object_put(key);
	if (tok)
		json_tokener_free(tok);
	return seen;
}

static void enter(struct search *s, bool object)
{
	s->depth++;
	s->keys[s->depth] = object ? map_new() : NULL;
	s->broken = object && !s->keys[s->depth];
}

static void leave(struct search *s)
{
	map_free(s->keys[s->depth]);
	s->keys[s->depth--] = NULL;
}

/* A string is a key when a colon follows it. */
static bool is_key(const char *ptr, size_t len, size_t pos)
{
	while (pos < len && strchr(" \t\r\n", ptr[pos]))
		pos++;
	return pos < len && ptr[pos] == ':';
}

size_t json_scan_duplicate(const char *ptr, size_t len)
{
	struct search s = {0};
	size_t pos = 0;
	bool found = false;

	while (pos < len && !found && !s.broken) {
		size_t n = ptr[pos] == '"' ? literal_length(ptr + pos) : 1;

		if (ptr[pos] == '{' || ptr[pos] == '[')
			enter(&s, ptr[pos] == '{');
		else if (ptr[pos] == '}' || ptr[pos] == ']')
			leave(&s);
		else if (ptr[pos] == '"' && is_key(ptr, len, pos + n))
			found = key_seen(&s, ptr + pos, n);
		if (!found)
			pos += n;
	}
	while (s.depth)
		leave(&s);
	return found ? pos : len;
}
