/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the short way from stored text to a struct: what json_encode writes is read in one pass, without a tree. It takes
 * only texts of exactly that form: no spaces, keys of the table in the table's order (so none can come twice), strings
 * of plain ASCII without escapes, integers of up to 18 digits. Pure functions on the caller's arena, any thread. Must
 * never accept what the strict parser would refuse, nor read anything differently; whatever it is not sure of it leaves
 * to that one.
 */
#include "core/json_quick.h"

#include <string.h>

#include "core/clock.h"

#define DIGITS_MAX 18
#define TIME_MAX 40
#define ARRAY_FIRST 4

struct quick {
	struct arena *arena;
	const char *at, *end;
};

static bool read_object(struct quick *q, const struct json_field *fields, char *obj);

static bool take(struct quick *q, char c)
{
	if (q->at == q->end || *q->at != c)
		return false;
	q->at++;
	return true;
}

static bool take_word(struct quick *q, const char *word, size_t len)
{
	if ((size_t)(q->end - q->at) < len || memcmp(q->at, word, len) != 0)
		return false;
	q->at += len;
	return true;
}

/* The bytes between two quotes; they stay in the text. */
static bool take_string(struct quick *q, const char **ret, size_t *ret_len)
{
	const char *at;

	if (!take(q, '"'))
		return false;
	for (at = q->at; at < q->end && *at != '"'; at++) {
		unsigned char c = (unsigned char)*at;

		if (c < ' ' || c >= 0x7f || c == '\\')
			return false;
	}
	if (at == q->end)
		return false;
	*ret = q->at;
	*ret_len = (size_t)(at - q->at);
	q->at = at + 1;
	return true;
}

static bool read_string(struct quick *q, const struct json_field *field, const char **ret)
{
	const char *ptr;
	size_t len;

	if (!take_string(q, &ptr, &len) || (field->max > 0 && len > (uint64_t)field->max))
		return false;
	*ret = arena_strndup(q->arena, ptr, len);
	return *ret != NULL;
}

static bool read_integer(struct quick *q, int64_t *ret)
{
	bool minus = take(q, '-');
	const char *first = q->at;
	int64_t value = 0;

	while (q->at < q->end && *q->at >= '0' && *q->at <= '9' && q->at - first < DIGITS_MAX)
		value = value * 10 + (*q->at++ - '0');
	if (q->at == first || (q->at - first > 1 && *first == '0'))
		return false;
	*ret = minus ? -value : value;
	/* A fraction, an exponent or more digits are the strict parser's. */
	return q->at < q->end && (*q->at == ',' || *q->at == '}' || *q->at == ']');
}

static bool read_time(struct quick *q, int64_t *ret)
{
	char text[TIME_MAX];
	const char *ptr;
	size_t len;

	if (!take_string(q, &ptr, &len) || len >= sizeof(text))
		return false;
	memcpy(text, ptr, len);
	text[len] = '\0';
	return clock_parse(text, ret) == 0;
}

static bool in_range(const struct json_field *field, int64_t value)
{
	if (field->type == JSON_I32 && (value < INT32_MIN || value > INT32_MAX))
		return false;
	return field->max <= field->min || (value >= field->min && value <= field->max);
}

static bool read_number(struct quick *q, const struct json_field *field, char *at)
{
	int64_t value = 0;
	bool good = field->type == JSON_TIME ? read_time(q, &value) : read_integer(q, &value) && in_range(field, value);
	int32_t small = (int32_t)value;

	if (field->type == JSON_I32)
		memcpy(at, &small, sizeof(small));
	else
		memcpy(at, &value, sizeof(value));
	return good;
}

static bool read_bool(struct quick *q, char *at)
{
	bool value = take_word(q, "true", 4);

	memcpy(at, &value, sizeof(value));
	return value || take_word(q, "false", 5);
}

/* Room for one more item of `size` bytes, zeroed. */
static char *grow(struct quick *q, char **items, size_t count, size_t *cap, size_t size)
{
	if (count == *cap) {
		char *grown = arena_alloc(q->arena, 2 * *cap * size);

		if (!grown)
			return NULL;
		memcpy(grown, *items, count * size);
		*items = grown;
		*cap *= 2;
	}
	return memset(*items + count * size, 0, size);
}

static bool read_item(struct quick *q, const struct json_field *field, char *at)
{
	const char *str = NULL;

	if (field->type == JSON_ARR)
		return read_object(q, field->sub, at);
	if (!read_string(q, field, &str))
		return false;
	memcpy(at, &str, sizeof(str));
	return true;
}

static bool read_items(struct quick *q, const struct json_field *field, size_t size, char **items, size_t *ret_count)
{
	size_t cap = ARRAY_FIRST;

	if (take(q, ']'))
		return true;
	do {
		char *item = grow(q, items, *ret_count, &cap, size);

		if (!item || !read_item(q, field, item))
			return false;
		++*ret_count;
	} while (take(q, ','));
	return take(q, ']');
}

static bool read_array(struct quick *q, const struct json_field *field, char *obj)
{
	size_t size = field->type == JSON_ARR ? field->sub_size : sizeof(const char *);
	char *items = arena_alloc(q->arena, ARRAY_FIRST * size);
	size_t count = 0;

	if (!items || !take(q, '[') || !read_items(q, field, size, &items, &count))
		return false;
	memcpy(obj + field->off, &items, sizeof(items));
	memcpy(obj + field->count_off, &count, sizeof(count));
	return true;
}

static bool read_value(struct quick *q, const struct json_field *field, char *obj)
{
	char *at = obj + field->off;
	const char *str = NULL;

	switch (field->type) {
	case JSON_STR:
		if (!read_string(q, field, &str))
			return false;
		memcpy(at, &str, sizeof(str));
		return true;
	case JSON_I64:
	case JSON_I32:
	case JSON_TIME:
		return read_number(q, field, at);
	case JSON_BOOL:
		return read_bool(q, at);
	case JSON_OBJ:
		return read_object(q, field->sub, at);
	case JSON_ARR:
	case JSON_STRV:
		return read_array(q, field, obj);
	}
	return false;
}

/* The field of a key; fields that were passed over were left out, which those that are required must not be. */
static const struct json_field *find(const struct json_field *field, const char *key, size_t len)
{
	for (; field->name; field++) {
		if (strncmp(field->name, key, len) == 0 && field->name[len] == '\0')
			return field;
		if (field->flags & JSON_REQUIRED)
			return NULL;
	}
	return NULL;
}

static bool rest_may_be_absent(const struct json_field *field)
{
	while (field->name && !(field->flags & JSON_REQUIRED))
		field++;
	return !field->name;
}

static bool read_object(struct quick *q, const struct json_field *fields, char *obj)
{
	const char *key;
	size_t len;

	if (!take(q, '{'))
		return false;
	if (take(q, '}'))
		return rest_may_be_absent(fields);
	do {
		if (!take_string(q, &key, &len) || !take(q, ':'))
			return false;
		fields = find(fields, key, len);
		if (!fields)
			return false;
		if (!((fields->flags & JSON_NULLABLE) && take_word(q, "null", 4)) && !read_value(q, fields, obj))
			return false;
		fields++;
	} while (take(q, ','));
	return take(q, '}') && rest_may_be_absent(fields);
}

bool json_quick(struct arena *arena, const struct json_field *fields, const char *ptr, size_t len, void *ret_obj,
		size_t size)
{
	struct quick q = {.arena = arena, .at = ptr, .end = ptr + len};

	memset(ret_obj, 0, size);
	return read_object(&q, fields, ret_obj) && q.at == q.end;
}
