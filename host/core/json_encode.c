/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the way from structs to JSON text by field tables. Pure functions on the caller's memory, any thread. Never shows a
 * hidden field when asked for the public form.
 */
#include "core/json.h"

#include <string.h>

#include "core/clock.h"

static const void *field_at(const struct json_field *field, const void *obj)
{
	return (const char *)obj + field->off;
}

static size_t count_at(const struct json_field *field, const void *obj)
{
	size_t count;

	memcpy(&count, (const char *)obj + field->count_off, sizeof(count));
	return count;
}

/* Arrays of structs hang on pointers of many types; memcpy reads one whatever its type. */
static const void *pointer_at(const struct json_field *field, const void *obj)
{
	const void *ptr;

	memcpy(&ptr, field_at(field, obj), sizeof(ptr));
	return ptr;
}

static int64_t integer_at(const struct json_field *field, const void *obj)
{
	int32_t small;
	int64_t big;

	if (field->type == JSON_BOOL)
		return *(const bool *)field_at(field, obj);
	if (field->type == JSON_I32) {
		memcpy(&small, field_at(field, obj), sizeof(small));
		return small;
	}
	memcpy(&big, field_at(field, obj), sizeof(big));
	return big;
}

static bool is_empty(const struct json_field *field, const void *obj)
{
	const char *str;

	switch (field->type) {
	case JSON_STR:
		str = pointer_at(field, obj);
		return !str || !*str;
	case JSON_I64:
	case JSON_I32:
	case JSON_BOOL:
	case JSON_TIME:
		return integer_at(field, obj) == 0;
	case JSON_ARR:
	case JSON_STRV:
		return count_at(field, obj) == 0;
	case JSON_OBJ:
		for (const struct json_field *sub = field->sub; sub->name; sub++) {
			if (!is_empty(sub, field_at(field, obj)))
				return false;
		}
		return true;
	}
	return true;
}

static bool is_absent(const struct json_field *field, const void *obj)
{
	if (field->type == JSON_STR && !pointer_at(field, obj))
		return true;
	if (field->type == JSON_TIME && integer_at(field, obj) == 0)
		return true;
	return (field->flags & JSON_OMIT) && is_empty(field, obj);
}

static void put_text(struct buf *buf, const char *text)
{
	if (text)
		json_put_string(buf, text, strlen(text));
	else
		buf_puts(buf, "null");
}

static void put_array(struct buf *buf, const struct json_field *field, const void *obj, unsigned flags)
{
	const char *items = pointer_at(field, obj);
	size_t count = count_at(field, obj);

	buf_puts(buf, "[");
	for (size_t i = 0; i < count; i++) {
		if (i)
			buf_puts(buf, ",");
		if (field->type == JSON_ARR)
			json_encode(buf, field->sub, items + i * field->sub_size, flags);
		else
			put_text(buf, ((const char *const *)(const void *)items)[i]);
	}
	buf_puts(buf, "]");
}

static void put_time(struct buf *buf, int64_t unix_ms)
{
	char text[32];

	clock_format(unix_ms, text);
	put_text(buf, text);
}

static void put_value(struct buf *buf, const struct json_field *field, const void *obj, unsigned flags)
{
	switch (field->type) {
	case JSON_STR:
		put_text(buf, pointer_at(field, obj));
		break;
	case JSON_I64:
	case JSON_I32:
		buf_put_int(buf, integer_at(field, obj));
		break;
	case JSON_BOOL:
		buf_puts(buf, integer_at(field, obj) ? "true" : "false");
		break;
	case JSON_TIME:
		put_time(buf, integer_at(field, obj));
		break;
	case JSON_OBJ:
		json_encode(buf, field->sub, field_at(field, obj), flags);
		break;
	case JSON_ARR:
	case JSON_STRV:
		put_array(buf, field, obj, flags);
		break;
	}
}

int json_encode(struct buf *buf, const struct json_field *fields, const void *obj, unsigned flags)
{
	const char *before = "{";

	for (const struct json_field *field = fields; field->name; field++) {
		bool absent = is_absent(field, obj);

		if ((flags & JSON_PUBLIC) && (field->flags & JSON_HIDDEN))
			continue;
		if (absent && !(field->flags & JSON_NULLABLE))
			continue;
		buf_puts(buf, before);
		before = ",";
		json_put_string(buf, field->name, strlen(field->name));
		buf_puts(buf, ":");
		if (absent)
			buf_puts(buf, "null");
		else
			put_value(buf, field, obj, flags);
	}
	return buf_puts(buf, *before == '{' ? "{}" : "}");
}
