/* SPDX-License-Identifier: Apache-2.0 */
/* The strict parser: everything that json-c would let through is refused, with the place; nothing else is. */
#include "unit.h"

#include "core/json.h"

static void check_good(const char *ptr, size_t len)
{
	struct json_object *json = NULL;
	struct err err = {0};
	int r = json_parse(ptr, len, &json, &err);

	if (r)
		print_error("refused: %.*s: %s\n", (int)len, ptr, err.msg);
	assert_int_equal(r, 0);
	json_object_put(json);
}

static void check_bad(const char *ptr, size_t len, const char *why)
{
	struct json_object *json = NULL;
	struct err err = {0};
	int r = json_parse(ptr, len, &json, &err);

	if (r == 0 || (why && !strstr(err.msg, why)))
		print_error("text: %.*s\n said: %s\n want: %s\n", (int)len, ptr, err.msg, why ? why : "(any)");
	assert_int_equal(r, ERR_INVALID_REQUEST);
	assert_null(json);
	assert_memory_equal(err.msg, "invalid JSON at line ", 21);
	assert_true(!why || strstr(err.msg, why));
}

static void test_good(void **state)
{
	static const char *const texts[] = {
		"{}", "[]", "null", "true", "false", "0", "-0", "12", "-12.5e-3", "1E5", "\"\"", " {} \r\n\t",
		"{\"a\":{\"a\":1},\"b\":[{\"a\":1},{\"a\":2}]}", "\"\\u0001\\n\\/\\\"\\\\\"", "\"\\ud83d\\ude00\"",
		"\"\xf0\x9f\x98\x80\x7f\"", "9223372036854775807", "-9223372036854775808", "[1,2.0,\"x\",null]",
		"{\"\":1}", "{\"a\":1,\"A\":2}", "{\"'\":\"'\"}", "\"// not a comment\"", "1e300", "1e-999",
		"{\"a:b\":\"c:d,{}[]\"}"};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(texts); i++)
		check_good(texts[i], strlen(texts[i]));
	check_good("12345", 3); /* only `len` bytes count */
	check_good("{}x", 2);
}

static void test_bad(void **state)
{
	static const struct {
		const char *text;
		const char *why;
	} rows[] = {
		{"", "empty"}, {" \n ", "empty"}, {"{'a':1}", "unexpected character"}, {"['a']", "unexpected character"},
		{"NaN", "unexpected character"}, {"[Infinity]", "unexpected character"}, {"-Infinity", "invalid number"},
		{"[nan]", "unexpected character"}, {"\"a\nb\"", "raw control"}, {"\"\x01\"", "raw control"},
		{"\x0b{}", "raw control"}, {"\"\\u0000\"", "NUL"}, {"{\"\\u0000\":1}", "NUL"}, {"\"\\ud800\"", "lone surrogate"},
		{"\"\\udc00\"", "lone surrogate"}, {"\"\\ud800\\ud800\"", "lone surrogate"}, {"\"\\ud800x\"", "lone surrogate"},
		{"\"\\ud83d\\u0041\"", "lone surrogate"}, {"\"\\u12\"", "hex"}, {"\"\\u12g4\"", "hex"}, {"\"\\x41\"", "escape"},
		{"\"\\", "escape"}, {"\"\\'\"", "escape"}, {"\"\xff\"", "UTF-8"}, {"\"\xc0\xaf\"", "UTF-8"},
		{"\"\xed\xa0\x80\"", "UTF-8"}, {"\"\xf4\x90\x80\x80\"", "UTF-8"}, {"\"abc", "not closed"},
		{"9223372036854775808", "64 bits"}, {"-9223372036854775809", "64 bits"}, {"[18446744073709551615]", "64 bits"},
		{"1e999", "range"}, {"01", "invalid number"}, {"-", "invalid number"}, {"1.", "invalid number"},
		{"1e", "invalid number"}, {"+1", "unexpected"}, {".5", "unexpected"}, {"1-2", "invalid number"},
		{"--1", "invalid number"}, {"{} {}", NULL}, {"{}x", NULL}, {"[1]]", NULL}, {"12 13", NULL}, {"nullx", NULL},
		{"truefalse", NULL}, {"{", "unexpected end"}, {"[1", "unexpected end"}, {"{\"a\"", "unexpected end"}, {"{\"a\":1,}", NULL},
		{"[1,]", NULL}, {"[,1]", NULL}, {"{\"a\" 1}", NULL}, {"{1:2}", NULL}, {"[1}", NULL}, {"/*x*/{}", "unexpected"},
		{"{}//x", "unexpected"}, {"TRUE", "unexpected"}, {"True", "unexpected"}, {"tru", NULL}, {"]", "unexpected"},
		{"\xef\xbb\xbf{}", "unexpected"}, {"[1 2]", NULL}, {"{\"a\":}", NULL}, {"{\"a\"::1}", NULL}, {":", NULL},
		{"{:}", NULL}, {"{\"a\":1:2}", NULL}};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++)
		check_bad(rows[i].text, strlen(rows[i].text), rows[i].why);
	check_bad("{}\0", 3, "NUL");
	check_bad("\"a\0b\"", 5, "NUL");
	check_bad("1\0", 2, "NUL");
}

static void test_duplicates(void **state)
{
	static const char *const texts[] = {
		"{\"a\":1,\"a\":2}", "{\"a\":1,\"b\":2,\"a\":1}", "{\"x\":{\"a\":1,\"a\":2}}", "[{\"a\":1},{\"a\":1,\"a\":1}]",
		"{\"a\":1,\"\\u0061\":2}", "{\"\\/\":1,\"/\":2}", "{\"\xc3\xa4\":1,\"\\u00e4\":2}", "{\"\":1,\"\":2}",
		"{\"\xf0\x9f\x98\x80\":1,\"\\ud83d\\ude00\":2}", "{\"a\":{\"b\":1,\"c\":2},\"a\":3}",
		"[[[[[[{\"k\":[],\"k\" :[]}]]]]]]", "{\"a\":null,\"a\":null}"};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(texts); i++)
		check_bad(texts[i], strlen(texts[i]), "duplicate key");
	check_bad("{\n \"\xc3\xa4\":1, \"b\":\"\\\"\",\n  \"b\" :2}", 30, "line 3, column 3: duplicate key");
}

static void test_depth(void **state)
{
	char text[2 * (JSON_DEPTH_MAX + 1)];

	(void)state;
	memset(text, '[', JSON_DEPTH_MAX);
	memset(text + JSON_DEPTH_MAX, ']', JSON_DEPTH_MAX);
	check_good(text, 2 * JSON_DEPTH_MAX);
	memset(text, '[', JSON_DEPTH_MAX + 1);
	memset(text + JSON_DEPTH_MAX + 1, ']', JSON_DEPTH_MAX + 1);
	check_bad(text, sizeof(text), "too deep");
	memset(text, '[', sizeof(text));
	check_bad(text, sizeof(text), "too deep");
}

static void test_the_deepest_text_holds_values(void **state)
{
	char text[200] = "";
	size_t at = 0;

	(void)state;
	for (int i = 0; i < JSON_DEPTH_MAX; i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "{\"a\":");
	at += (size_t)snprintf(text + at, sizeof(text) - at, "\"x\"");
	for (int i = 0; i < JSON_DEPTH_MAX; i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "}");
	check_good(text, at);
}

static void test_place(void **state)
{
	(void)state;
	check_bad("{\n  \"a\": 'x'\n}", 15, "line 2, column 8: unexpected character");
	check_bad("{\"\xc3\xa4\": ?}", 9, "line 1, column 7");
	check_bad("{\"a\":1}\n{", 9, "line 2, column 1");
}

static void test_every_cut_of_a_text_is_refused(void **state)
{
	static const char text[] = "{\"a\":[1,-2.5e3,true,null,\"\\ud83d\\ude00\xc3\xa4\"],\"b\":{\"c\":false}}";

	(void)state;
	check_good(text, sizeof(text) - 1);
	for (size_t len = 0; len < sizeof(text) - 1; len++)
		check_bad(text, len, NULL);
}

/* Half a megabyte of distinct keys, then one again: time must not grow with the square. */
static void test_many_keys(void **state)
{
	struct buf buf;

	(void)state;
	buf_init(&buf, SIZE_MAX);
	buf_puts(&buf, "{");
	for (int i = 0; i < 40000; i++)
		buf_printf(&buf, "\"k%d\":0,", i);
	buf_puts(&buf, "\"z\":0}");
	check_good(buf.ptr, buf.len);
	buf.len--;
	buf_puts(&buf, ",\"k0\":1}");
	check_bad(buf.ptr, buf.len, "duplicate key");
	buf_fini(&buf);
}

static void test_values(void **state)
{
	struct json_object *json = NULL;
	struct json_object *value = NULL;

	(void)state;
	assert_int_equal(json_parse("{\"n\":-9223372036854775808,\"s\":\"\\u00e4\"}", 39, &json, NULL), 0);
	json_object_object_get_ex(json, "n", &value);
	assert_true(json_object_get_int64(value) == INT64_MIN);
	json_object_object_get_ex(json, "s", &value);
	assert_string_equal(json_object_get_string(value), "\xc3\xa4");
	json_object_put(json);
	assert_int_equal(json_parse_shown("\"a\\u0000b\"", 10, &json, NULL), 0);
	assert_int_equal(json_object_get_string_len(json), 3);
	json_object_put(json);
	assert_int_equal(json_parse(" 42 ", 4, &json, NULL), 0);
	assert_int_equal(json_object_get_int64(json), 42);
	json_object_put(json);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),	   cmocka_unit_test(test_bad),
		cmocka_unit_test(test_duplicates), cmocka_unit_test(test_depth),
		cmocka_unit_test(test_place),	   cmocka_unit_test(test_every_cut_of_a_text_is_refused),
		cmocka_unit_test(test_many_keys),  cmocka_unit_test(test_values),
		cmocka_unit_test(test_the_deepest_text_holds_values),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
