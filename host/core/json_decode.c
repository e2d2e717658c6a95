/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the way from JSON trees to structs by field tables. The caller's thread and arena. Never converts between types and
 * never guesses: a value of another type, out of its range, or missing where required is refused by its full name.
 */
#include "core/json.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/json_quick.h"

#define WHERE_SIZE 160

struct decode {
	struct arena *arena;
	unsigned flags;
	struct err *err;
};

static int decode_object(const struct decode *d, const struct json_field *fields, struct json_object *json,
			 const char *where, void *ret_obj, size_t size);

static int refuse(const struct decode *d, const char *where, const struct json_field *field, const char *what)
{
	return err_set(d->err, ERR_INVALID_REQUEST, "%s%s: %s", where, field->name, what);
}

static int no_memory(const struct decode *d, const char *where, const struct json_field *field)
{
	return err_set(d->err, ERR_NOMEM, "%s%s: no memory is left for it", where, field->name);
}

static int decode_string(const struct decode *d, const struct json_field *field, struct json_object *json,
			 const char *where, const char **ret)
{
	if (!json_object_is_type(json, json_type_string))
		return refuse(d, where, field, "must be a string");

	const char *ptr = json_object_get_string(json);
	size_t len = (size_t)json_object_get_string_len(json);

	if (memchr(ptr, '\0', len))
		return refuse(d, where, field, "holds a NUL character");
	if (field->max > 0 && len > (uint64_t)field->max)
		return err_set(d->err, ERR_INVALID_REQUEST, "%s%s: is longer than %lld bytes", where, field->name,
			       (long long)field->max);
	*ret = arena_strndup(d->arena, ptr, len);
	return *ret ? 0 : no_memory(d, where, field);
}

static int decode_integer(const struct decode *d, const struct json_field *field, struct json_object *json,
			  const char *where, int64_t *ret)
{
	int64_t min = field->type == JSON_I32 ? INT32_MIN : INT64_MIN;
	int64_t max = field->type == JSON_I32 ? INT32_MAX : INT64_MAX;

	if (!json_object_is_type(json, json_type_int))
		return refuse(d, where, field, "must be an integer");
	if (field->max > field->min) {
		min = field->min > min ? field->min : min;
		max = field->max < max ? field->max : max;
	}

	int64_t value = json_object_get_int64(json);

	if (value < min || value > max)
		return err_set(d->err, ERR_INVALID_REQUEST, "%s%s: must be between %lld and %lld", where, field->name,
			       (long long)min, (long long)max);
	*ret = value;
	return 0;
}

static int decode_time(const struct decode *d, const struct json_field *field, struct json_object *json,
		       const char *where, int64_t *ret)
{
	if (json_object_is_type(json, json_type_string) && clock_parse(json_object_get_string(json), ret) == 0)
		return 0;
	return refuse(d, where, field, "must be an RFC 3339 time");
}

static int decode_strings(const struct decode *d, const struct json_field *field, struct json_object *json,
			  const char *where, const char ***ret)
{
	size_t count = json_object_array_length(json);
	const char **list = arena_alloc(d->arena, count * sizeof(*list));

	if (!list)
		return no_memory(d, where, field);
	for (size_t i = 0; i < count; i++) {
		int r = decode_string(d, field, json_object_array_get_idx(json, i), where, &list[i]);

		if (r)
			return r;
	}
	*ret = list;
	return 0;
}

static int decode_structs(const struct decode *d, const struct json_field *field, struct json_object *json,
			  const char *where, char **ret)
{
	size_t count = json_object_array_length(json);
	char item_where[WHERE_SIZE];
	char *list = arena_alloc(d->arena, count * field->sub_size);

	if (!list)
		return no_memory(d, where, field);
	for (size_t i = 0; i < count; i++) {
		snprintf(item_where, sizeof(item_where), "%s%s[%zu].", where, field->name, i);

		int r = decode_object(d, field->sub, json_object_array_get_idx(json, i), item_where,
				      list + i * field->sub_size, field->sub_size);

		if (r)
			return r;
	}
	*ret = list;
	return 0;
}

static int decode_array(const struct decode *d, const struct json_field *field, struct json_object *json,
			const char *where, void *at, char *obj)
{
	const char **strings = NULL;
	char *structs = NULL;
	size_t count;
	int r;

	if (!json_object_is_type(json, json_type_array))
		return refuse(d, where, field, "must be an array");
	count = json_object_array_length(json);
	if (field->type == JSON_STRV) {
		r = decode_strings(d, field, json, where, &strings);
		memcpy(at, &strings, sizeof(strings));
	} else {
		r = decode_structs(d, field, json, where, &structs);
		memcpy(at, &structs, sizeof(structs));
	}
	if (r == 0)
		memcpy(obj + field->count_off, &count, sizeof(count));
	return r;
}

static int decode_nested(const struct decode *d, const struct json_field *field, struct json_object *json,
			 const char *where, void *at)
{
	char sub_where[WHERE_SIZE];

	if (!json_object_is_type(json, json_type_object))
		return refuse(d, where, field, "must be an object");
	snprintf(sub_where, sizeof(sub_where), "%s%s.", where, field->name);
	return decode_object(d, field->sub, json, sub_where, at, field->sub_size);
}

static int decode_number(const struct decode *d, const struct json_field *field, struct json_object *json,
			 const char *where, void *at)
{
	int64_t value = 0;
	int r = field->type == JSON_TIME ? decode_time(d, field, json, where, &value)
					 : decode_integer(d, field, json, where, &value);
	int32_t small = (int32_t)value;

	if (field->type == JSON_I32)
		memcpy(at, &small, sizeof(small));
	else
		memcpy(at, &value, sizeof(value));
	return r;
}

static int decode_field(const struct decode *d, const struct json_field *field, struct json_object *json,
			const char *where, char *obj)
{
	void *at = obj + field->off;
	const char *str = NULL;
	int r = 0;

	if (!json && (field->flags & JSON_NULLABLE))
		return 0;
	switch (field->type) {
	case JSON_STR:
		r = decode_string(d, field, json, where, &str);
		memcpy(at, &str, sizeof(str));
		break;
	case JSON_I64:
	case JSON_I32:
	case JSON_TIME:
		r = decode_number(d, field, json, where, at);
		break;
	case JSON_BOOL:
		if (!json_object_is_type(json, json_type_boolean))
			return refuse(d, where, field, "must be true or false");
		*(bool *)at = json_object_get_boolean(json);
		break;
	case JSON_OBJ:
		r = decode_nested(d, field, json, where, at);
		break;
	case JSON_ARR:
	case JSON_STRV:
		r = decode_array(d, field, json, where, at, obj);
		break;
	}
	return r;
}

static int refuse_unknown_keys(const struct decode *d, const struct json_field *fields, struct json_object *json,
			       const char *where)
{
	json_object_object_foreach(json, key, value) {
		const struct json_field *field = fields;

		(void)value;
		while (field->name && strcmp(field->name, key) != 0)
			field++;
		if (!field->name)
			return err_set(d->err, ERR_INVALID_REQUEST, "%s%.64s: unknown key", where, key);
	}
	return 0;
}

static int decode_object(const struct decode *d, const struct json_field *fields, struct json_object *json,
			 const char *where, void *ret_obj, size_t size)
{
	int r = 0;

	memset(ret_obj, 0, size);
	if (!json_object_is_type(json, json_type_object))
		return err_set(d->err, ERR_INVALID_REQUEST, "%.*s: must be an object",
			       *where ? (int)strlen(where) - 1 : INT_MAX, *where ? where : "the document");
	if (d->flags & JSON_STRICT_KEYS)
		r = refuse_unknown_keys(d, fields, json, where);
	for (const struct json_field *field = fields; r == 0 && field->name; field++) {
		struct json_object *value = NULL;

		if (json_object_object_get_ex(json, field->name, &value))
			r = decode_field(d, field, value, where, ret_obj);
		else if (field->flags & JSON_REQUIRED)
			r = refuse(d, where, field, "is missing");
	}
	return r;
}

int json_decode(struct arena *arena, const struct json_field *fields, struct json_object *json, const char *where,
		unsigned flags, void *ret_obj, size_t size, struct err *err)
{
	struct decode d = {.arena = arena, .flags = flags, .err = err};

	return decode_object(&d, fields, json, where ? where : "", ret_obj, size);
}

int json_decode_text(struct arena *arena, const struct json_field *fields, const char *ptr, size_t len, void *ret_obj,
		     size_t size, struct err *err)
{
	struct json_object *json = NULL;
	struct err local;
	struct err *e = err ? err : &local;
	int r;

	if (json_quick(arena, fields, ptr, len, ret_obj, size))
		return 0;
	r = json_parse(ptr, len, &json, e);
	if (r == 0)
		r = json_decode(arena, fields, json, "", 0, ret_obj, size, e);
	json_object_put(json);
	if (r == 0 || r == ERR_NOMEM)
		return r;
	return err_set(e, ERR_CORRUPT, "stored text: %s", e->msg);
}
