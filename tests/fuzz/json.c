/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: core's JSON. The strict parser, the codec through a field table, the string writer, base64. */
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "fuzz.h"

struct inner {
	const char *word;
	int64_t number;
};

struct outer {
	const char *text;
	int64_t wide, time;
	int32_t narrow;
	bool flag;
	struct inner one;
	struct inner *many;
	size_t many_count;
	const char **words;
	size_t word_count;
};

static const struct json_field inner_fields[] = {
	{"word", JSON_STR, 0, offsetof(struct inner, word), .max = 40},
	{"number", JSON_I64, JSON_REQUIRED, offsetof(struct inner, number), .min = -5, .max = 500},
	{0},
};

static const struct json_field outer_fields[] = {
	{"text", JSON_STR, JSON_OMIT, offsetof(struct outer, text)},
	{"wide", JSON_I64, 0, offsetof(struct outer, wide)},
	{"time", JSON_TIME, JSON_NULLABLE, offsetof(struct outer, time)},
	{"narrow", JSON_I32, 0, offsetof(struct outer, narrow)},
	{"flag", JSON_BOOL, JSON_OMIT, offsetof(struct outer, flag)},
	{"one", JSON_OBJ, 0, offsetof(struct outer, one), 0, inner_fields, sizeof(struct inner)},
	{"many", JSON_ARR, JSON_OMIT, offsetof(struct outer, many), offsetof(struct outer, many_count), inner_fields,
	 sizeof(struct inner)},
	{"words", JSON_STRV, JSON_OMIT, offsetof(struct outer, words), offsetof(struct outer, word_count)},
	{0},
};

static void decode(const char *text, size_t len)
{
	struct arena *arena = arena_new(1 << 22);
	struct outer obj, again;
	struct buf first, second;

	buf_init(&first, 1 << 22);
	buf_init(&second, 1 << 22);
	if (json_decode_text(arena, outer_fields, text, len, &obj, sizeof(obj), NULL) == 0 &&
	    json_encode(&first, outer_fields, &obj, 0) == 0 && obj.one.number >= -5 && obj.one.number <= 500) {
		if (obj.text)
			FUZZ_PLANTED(obj.text, strlen(obj.text));
		/* An absent object reads as zeros and is written as such, which its required field then allows. */
		FUZZ_CHECK(json_decode_text(arena, outer_fields, first.ptr, first.len, &again, sizeof(again), NULL) ==
			   0);
		FUZZ_CHECK(json_encode(&second, outer_fields, &again, 0) == 0);
		FUZZ_CHECK(first.len == second.len && memcmp(first.ptr, second.ptr, first.len) == 0);
	}
	buf_fini(&first);
	buf_fini(&second);
	arena_free(arena);
}

/* What was let through can be written and read again, and is the same. */
static void parse(const char *text, size_t len)
{
	struct json_object *json = NULL, *again = NULL;
	struct err err = {0};
	const char *written;

	if (json_parse(text, len, &json, &err) != 0) {
		FUZZ_CHECK(err.code < 0 && err.msg[0] && !json);
		return;
	}
	written = json_object_to_json_string_ext(json, JSON_C_TO_STRING_PLAIN);
	FUZZ_CHECK(json_parse(written, strlen(written), &again, &err) == 0);
	FUZZ_CHECK(json_object_equal(json, again));
	json_object_put(json);
	json_object_put(again);
}

static void write_string(const char *text, size_t len)
{
	struct json_object *json = NULL;
	struct buf buf;

	buf_init(&buf, 1 << 22);
	json_put_string(&buf, text, len);
	if (!memchr(text, '\0', len)) {
		FUZZ_CHECK(json_parse(buf.ptr, buf.len, &json, NULL) == 0);
		FUZZ_CHECK(json_object_is_type(json, json_type_string));
	}
	json_object_put(json);
	buf_fini(&buf);
}

static void base64(const char *text, size_t len)
{
	struct buf buf;
	char *bytes = NULL;
	size_t size = 0;

	buf_init(&buf, 1 << 22);
	if (json_base64_decode(text, len, &bytes, &size, NULL) == 0) {
		FUZZ_CHECK(json_base64_encode(&buf, bytes, size) == 0);
		FUZZ_CHECK(buf.len == len && memcmp(buf.len ? buf.ptr : "", text, len) == 0);
	}
	free(bytes);
	bytes = NULL;
	buf_clear(&buf);
	FUZZ_CHECK(json_base64_encode(&buf, text, len) == 0);
	FUZZ_CHECK(json_base64_decode(buf.len ? buf.ptr : "", buf.len, &bytes, &size, NULL) == 0);
	FUZZ_CHECK(size == len && memcmp(bytes, text, len) == 0);
	free(bytes);
	buf_fini(&buf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_copy(data, size);

	parse(text, size);
	decode(text, size);
	write_string(text, size);
	base64(text, size);
	free(text);
	return 0;
}
