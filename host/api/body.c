/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the reading of JSON bodies and the frame of lists. Entered from workers. Never accepts what json_parse refuses;
 * it only says more about the place.
 */
#include "api/body.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define NAME_MAX_SHOWN 64

/* Offset of a line and column (in characters) as json_parse counts them. */
static size_t offset_of(const char *ptr, size_t len, size_t line, size_t column)
{
	size_t at_line = 1;
	size_t at_column = 1;
	size_t pos = 0;

	while (pos < len && (at_line < line || (at_line == line && at_column < column))) {
		if (ptr[pos] == '\n') {
			at_line++;
			at_column = 1;
		} else {
			at_column += ((unsigned char)ptr[pos] & 0xc0) != 0x80;
		}
		pos++;
	}
	return pos;
}

/* The last `"name" :` that ends before pos; an escaped quote in a value may fool it, so it serves messages only. */
static bool name_before(const char *ptr, size_t pos, const char **ret_name, size_t *ret_len)
{
	while (pos > 0) {
		pos--;
		if (ptr[pos] != ':')
			continue;

		size_t end = pos;

		while (end > 0 && strchr(" \t\r\n", ptr[end - 1]) && ptr[end - 1])
			end--;
		if (end == 0 || ptr[end - 1] != '"')
			continue;

		size_t start = end - 1;

		while (start > 0 && ptr[start - 1] != '"')
			start--;
		if (start == 0)
			return false;
		*ret_name = ptr + start;
		*ret_len = end - 1 - start;
		return *ret_len > 0 && *ret_len <= NAME_MAX_SHOWN;
	}
	return false;
}

static void name_field(const char *ptr, size_t len, struct err *err)
{
	size_t line = 0;
	size_t column = 0;
	const char *name;
	size_t name_len;
	char text[sizeof(err->msg)];

	if (sscanf(err->msg, "invalid JSON at line %zu, column %zu", &line, &column) != 2)
		return;
	if (!name_before(ptr, offset_of(ptr, len, line, column), &name, &name_len))
		return;
	for (size_t i = 0; i < name_len; i++) {
		if (name[i] < 0x20 || name[i] == 0x7f || name[i] == '\\')
			return; /* also bytes past ASCII: char is signed here, and either way the name is not one of
				   ours */
	}
	memcpy(text, err->msg, sizeof(text));
	snprintf(err->msg, sizeof(err->msg), "%.*s, in \"%.*s\"", (int)(sizeof(text) - NAME_MAX_SHOWN - 16), text,
		 (int)name_len, name);
}

int body_parse(const char *ptr, size_t len, struct json_object **ret, struct err *err)
{
	struct err local = {0};
	int r = json_parse(ptr ? ptr : "", len, ret, &local);

	if (r != 0) {
		name_field(ptr ? ptr : "", len, &local);
		if (err)
			*err = local;
	}
	return r;
}

int body_decode(struct arena *arena, const struct json_field *fields, const char *ptr, size_t len, void *ret_obj,
		size_t size, struct err *err)
{
	struct json_object *json = NULL;
	int r = body_parse(ptr, len, &json, err);

	if (r == 0)
		r = json_decode(arena, fields, json, "", JSON_STRICT_KEYS, ret_obj, size, err);
	json_object_put(json);
	return r;
}

void body_put_list(struct buf *out, const struct buf *items, size_t count, const char *next)
{
	bool framed = items->len && items->ptr[0] == '[';

	buf_puts(out, framed ? "{\"items\":" : "{\"items\":[");
	buf_append(out, items->len ? items->ptr : "", items->len);
	buf_printf(out, "%s,\"total\":%zu,\"next_cursor\":", framed ? "" : "]", count);
	if (next)
		json_put_string(out, next, strlen(next));
	else
		buf_puts(out, "null");
	buf_puts(out, "}\n");
	if (items->error && !out->error)
		out->error = items->error;
}
