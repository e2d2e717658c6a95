/* SPDX-License-Identifier: Apache-2.0 */
/* Field tables: what is left out, what comes back, and how refusals name the field. */
#include "unit.h"

#include "core/json.h"
#include "core/json_quick.h"

struct inner {
	const char *name;
	int32_t count;
};

struct outer {
	const char *id;
	const char *note;
	int64_t big;
	int32_t small;
	bool flag;
	int64_t at;
	struct inner inner;
	struct inner *list;
	size_t list_count;
	const char **words;
	size_t word_count;
	const char *hidden;
	int64_t ended_at;
};

static const struct json_field inner_fields[] = {
	{.name = "name", .type = JSON_STR, .flags = JSON_REQUIRED, .off = offsetof(struct inner, name), .max = 8},
	{.name = "count", .type = JSON_I32, .flags = JSON_OMIT, .off = offsetof(struct inner, count), .max = 100},
	{0}};

#define AT(member) .off = offsetof(struct outer, member)
static const struct json_field outer_fields[] = {
	{.name = "id", .type = JSON_STR, .flags = JSON_REQUIRED, AT(id)},
	{.name = "note", .type = JSON_STR, .flags = JSON_OMIT, AT(note)},
	{.name = "big", .type = JSON_I64, AT(big)},
	{.name = "small", .type = JSON_I32, .flags = JSON_OMIT, AT(small), .min = -5, .max = 5},
	{.name = "flag", .type = JSON_BOOL, AT(flag)},
	{.name = "at", .type = JSON_TIME, AT(at)},
	{.name = "inner", .type = JSON_OBJ, .flags = JSON_OMIT, AT(inner), .sub = inner_fields,
	 .sub_size = sizeof(struct inner)},
	{.name = "list", .type = JSON_ARR, .flags = JSON_OMIT, AT(list), .count_off = offsetof(struct outer, list_count),
	 .sub = inner_fields, .sub_size = sizeof(struct inner)},
	{.name = "words", .type = JSON_STRV, AT(words), .count_off = offsetof(struct outer, word_count), .max = 10},
	{.name = "hidden", .type = JSON_STR, .flags = JSON_HIDDEN, AT(hidden)},
	{.name = "ended_at", .type = JSON_TIME, .flags = JSON_NULLABLE, AT(ended_at)},
	{0}};

static void check_encode(const struct outer *obj, unsigned flags, const char *want)
{
	struct buf buf;

	buf_init(&buf, 10000);
	assert_int_equal(json_encode(&buf, outer_fields, obj, flags), 0);
	assert_string_equal(buf.ptr, want);
	buf_fini(&buf);
}

static void test_encode_leaves_out_what_it_should(void **state)
{
	struct outer obj = {.id = "x"};

	(void)state;
	check_encode(&obj, 0, "{\"id\":\"x\",\"big\":0,\"flag\":false,\"words\":[],\"ended_at\":null}");
	obj.note = "";
	obj.hidden = "h";
	check_encode(&obj, 0, "{\"id\":\"x\",\"big\":0,\"flag\":false,\"words\":[],\"hidden\":\"h\",\"ended_at\":null}");
	check_encode(&obj, JSON_PUBLIC, "{\"id\":\"x\",\"big\":0,\"flag\":false,\"words\":[],\"ended_at\":null}");
}

static const char full_text[] =
	"{\"id\":\"x\",\"note\":\"n\\\"\\n\",\"big\":-9223372036854775808,\"small\":-5,\"flag\":true,"
	"\"at\":\"2026-11-29T10:00:00.123Z\",\"inner\":{\"name\":\"i\",\"count\":3},"
	"\"list\":[{\"name\":\"a\"},{\"name\":\"b\",\"count\":1}],\"words\":[\"u\",\"v\"],\"hidden\":\"h\","
	"\"ended_at\":null}";

static void test_round_trip(void **state)
{
	struct arena *arena = arena_new(10000);
	struct err err = {0};
	struct outer obj;

	(void)state;
	memset(&obj, 0xff, sizeof(obj));
	assert_int_equal(json_decode_text(arena, outer_fields, full_text, strlen(full_text), &obj, sizeof(obj), &err), 0);
	assert_string_equal(obj.id, "x");
	assert_true(obj.big == INT64_MIN);
	assert_int_equal(obj.small, -5);
	assert_true(obj.at == INT64_C(1795946400123));
	assert_string_equal(obj.inner.name, "i");
	assert_int_equal(obj.list_count, 2);
	assert_int_equal(obj.list[1].count, 1);
	assert_int_equal(obj.list[0].count, 0);
	assert_string_equal(obj.words[1], "v");
	assert_int_equal(obj.ended_at, 0);
	check_encode(&obj, 0, full_text);
	arena_free(arena);
}

static int decode(const char *text, unsigned flags, struct err *err)
{
	struct arena *arena = arena_new(10000);
	struct json_object *json = NULL;
	struct outer obj;

	assert_int_equal(json_parse(text, strlen(text), &json, err), 0);

	int r = json_decode(arena, outer_fields, json, "body.", flags, &obj, sizeof(obj), err);

	json_object_put(json);
	arena_free(arena);
	return r;
}

static void test_refusals_name_the_field(void **state)
{
	static const struct {
		const char *text;
		const char *msg;
	} rows[] = {
		{"{}", "body.id: is missing"},
		{"{\"id\":5}", "body.id: must be a string"},
		{"{\"id\":null}", "body.id: must be a string"},
		{"{\"id\":\"x\",\"big\":\"5\"}", "body.big: must be an integer"},
		{"{\"id\":\"x\",\"big\":5.0}", "body.big: must be an integer"},
		{"{\"id\":\"x\",\"small\":6}", "body.small: must be between -5 and 5"},
		{"{\"id\":\"x\",\"flag\":1}", "body.flag: must be true or false"},
		{"{\"id\":\"x\",\"at\":\"yesterday\"}", "body.at: must be an RFC 3339 time"},
		{"{\"id\":\"x\",\"at\":0}", "body.at: must be an RFC 3339 time"},
		{"{\"id\":\"x\",\"inner\":[]}", "body.inner: must be an object"},
		{"{\"id\":\"x\",\"inner\":{}}", "body.inner.name: is missing"},
		{"{\"id\":\"x\",\"inner\":{\"name\":\"123456789\"}}", "body.inner.name: is longer than 8 bytes"},
		{"{\"id\":\"x\",\"list\":{}}", "body.list: must be an array"},
		{"{\"id\":\"x\",\"list\":[{\"name\":\"a\"},{\"name\":\"b\",\"count\":101}]}",
		 "body.list[1].count: must be between 0 and 100"},
		{"{\"id\":\"x\",\"list\":[7]}", "body.list[0]: must be an object"},
		{"{\"id\":\"x\",\"words\":[\"a\",1]}", "body.words: must be a string"},
		{"{\"id\":\"x\",\"words\":[\"12345678901\"]}", "body.words: is longer than 10 bytes"},
		{"{\"id\":\"x\",\"more\":1}", "body.more: unknown key"},
		{"{\"id\":\"x\",\"inner\":{\"name\":\"a\",\"x\":null}}", "body.inner.x: unknown key"},
		{"[]", "body: must be an object"},
		{"null", "body: must be an object"},
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct err err = {0};

		assert_int_equal(decode(rows[i].text, JSON_STRICT_KEYS, &err), ERR_INVALID_REQUEST);
		assert_string_equal(err.msg, rows[i].msg);
	}
}

static void test_unknown_keys_pass_when_not_strict(void **state)
{
	(void)state;
	assert_int_equal(decode("{\"id\":\"x\",\"more\":1,\"ended_at\":null}", 0, NULL), 0);
	assert_int_equal(decode("{\"id\":\"\"}", JSON_STRICT_KEYS, NULL), 0);
}

static void test_integer_limits(void **state)
{
	static const struct json_field fields[] = {{.name = "n", .type = JSON_I32, .off = 0}, {0}};
	struct arena *arena = arena_new(1000);
	int32_t n = 0;

	(void)state;
	assert_int_equal(json_decode_text(arena, fields, "{\"n\":2147483647}", 16, &n, sizeof(n), NULL), 0);
	assert_int_equal(n, INT32_MAX);
	assert_int_equal(json_decode_text(arena, fields, "{\"n\":2147483648}", 16, &n, sizeof(n), NULL), ERR_CORRUPT);
	arena_free(arena);
}

static void test_stored_text_is_corrupt_or_out_of_memory(void **state)
{
	struct arena *arena = arena_new(10000);
	struct arena *tiny = arena_new(8);
	struct err err = {0};
	struct outer obj;

	(void)state;
	assert_int_equal(json_decode_text(arena, outer_fields, "{\"id\"", 5, &obj, sizeof(obj), &err), ERR_CORRUPT);
	assert_memory_equal(err.msg, "stored text: invalid JSON", 25);
	assert_int_equal(json_decode_text(arena, outer_fields, "{}", 2, &obj, sizeof(obj), &err), ERR_CORRUPT);
	assert_int_equal(json_decode_text(tiny, outer_fields, full_text, strlen(full_text), &obj, sizeof(obj), &err),
			 ERR_NOMEM);
	arena_free(tiny);
	arena_free(arena);
}

static void test_a_full_buffer_is_told(void **state)
{
	struct outer obj = {.id = "0123456789012345678901234567890123456789"};
	struct buf buf;

	(void)state;
	buf_init(&buf, 20);
	assert_int_equal(json_encode(&buf, outer_fields, &obj, 0), ERR_PAYLOAD_TOO_LARGE);
	buf_fini(&buf);
}

static const char stored_text[] =
	"{\"id\":\"x\",\"note\":\"n/a\",\"big\":-922337203685477580,\"small\":-5,\"flag\":true,"
	"\"at\":\"2026-11-29T10:00:00.123Z\",\"inner\":{\"name\":\"i\",\"count\":3},"
	"\"list\":[{\"name\":\"a\"},{\"name\":\"b\",\"count\":1},{\"name\":\"c\"},{\"name\":\"d\"},{\"name\":\"e\"}],"
	"\"words\":[\"u\",\"v\"],\"hidden\":\"h\",\"ended_at\":null}";

static void encode_outer(const struct outer *obj, struct buf *ret)
{
	buf_clear(ret);
	assert_int_equal(json_encode(ret, outer_fields, obj, 0), 0);
}

/* What the short way takes, the strict one must take too, and read alike. */
static bool quick_agrees(struct arena *arena, const char *text, size_t len, struct buf bufs[2])
{
	struct json_object *json = NULL;
	struct outer quick, strict;
	struct err err = {0};

	arena_reset(arena);
	if (!json_quick(arena, outer_fields, text, len, &quick, sizeof(quick)))
		return false;
	assert_int_equal(json_parse(text, len, &json, &err), 0);
	assert_int_equal(json_decode(arena, outer_fields, json, "", 0, &strict, sizeof(strict), &err), 0);
	json_object_put(json);
	encode_outer(&quick, &bufs[0]);
	encode_outer(&strict, &bufs[1]);
	assert_string_equal(bufs[0].ptr, bufs[1].ptr);
	return true;
}

static void test_the_short_way_reads_like_the_strict_one(void **state)
{
	struct arena *arena = arena_new(100000);
	size_t len = sizeof(stored_text) - 1, taken = 0;
	char text[sizeof(stored_text) + 1];
	struct buf bufs[2];

	(void)state;
	buf_init(&bufs[0], 10000);
	buf_init(&bufs[1], 10000);
	assert_true(quick_agrees(arena, stored_text, len, bufs));
	assert_string_equal(bufs[0].ptr, stored_text);
	for (size_t at = 0; at < len; at++) {
		for (int c = 0; c < 256; c++) { /* every byte replaced by, and preceded by, every other one */
			memcpy(text, stored_text, len);
			text[at] = (char)c;
			taken += quick_agrees(arena, text, len, bufs);
			memcpy(text, stored_text, at);
			memcpy(text + at + 1, stored_text + at, len - at);
			taken += quick_agrees(arena, text, len + 1, bufs);
		}
		memcpy(text, stored_text, at);
		memcpy(text + at, stored_text + at + 1, len - at - 1);
		(void)quick_agrees(arena, text, len - 1, bufs);
		assert_false(quick_agrees(arena, stored_text, at, bufs));
	}
	assert_true(taken > 1000); /* the letters of the strings, the digits of the numbers */
	buf_fini(&bufs[0]);
	buf_fini(&bufs[1]);
	arena_free(arena);
}

static void test_the_short_way_leaves_what_it_does_not_know(void **state)
{
	static const char *const texts[] = {
		"",
		"{}",
		"{\"big\":1}",
		"{\"id\":\"x\",\"id\":\"x\"}",
		"{\"big\":1,\"id\":\"x\"}",
		"{\"id\":\"x\",\"odd\":1}",
		"{\"id\":\"x\",\"big\":1.0}",
		"{\"id\":\"x\",\"big\":1e1}",
		"{\"id\":\"x\",\"big\":9223372036854775808}",
		"{\"id\":\"x\",\"small\":6}",
		"{\"id\":\"\\u0000\"}",
		"{\"id\":\"\xc3\xa4\"}",
		"{\"id\":\"x\"}\n",
		"{\"id\":\"x\"}}",
		"{\"id\":null}",
	};
	struct arena *arena = arena_new(10000);
	struct outer obj;

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_false(json_quick(arena, outer_fields, texts[i], strlen(texts[i]), &obj, sizeof(obj)));
	arena_free(arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_encode_leaves_out_what_it_should),
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_refusals_name_the_field),
		cmocka_unit_test(test_unknown_keys_pass_when_not_strict),
		cmocka_unit_test(test_integer_limits),
		cmocka_unit_test(test_stored_text_is_corrupt_or_out_of_memory),
		cmocka_unit_test(test_a_full_buffer_is_told),
		cmocka_unit_test(test_the_short_way_reads_like_the_strict_one),
		cmocka_unit_test(test_the_short_way_leaves_what_it_does_not_know),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
