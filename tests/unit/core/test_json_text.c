/* SPDX-License-Identifier: Apache-2.0 */
/* String literals for any bytes, and base64 with one spelling per value. */
#include "unit.h"

#include "core/json.h"

static void check_put(const char *ptr, size_t len, const char *want)
{
	struct json_object *json = NULL;
	struct buf buf;

	buf_init(&buf, 1000);
	json_put_string(&buf, ptr, len);
	assert_string_equal(buf.ptr, want);
	assert_int_equal(json_parse(buf.ptr, buf.len, &json, NULL), 0);
	json_object_put(json);
	buf_fini(&buf);
}

static void test_put_string(void **state)
{
	(void)state;
	check_put("", 0, "\"\"");
	check_put("abc", 3, "\"abc\"");
	check_put("a\"b\\c/", 6, "\"a\\\"b\\\\c/\"");
	check_put("\b\f\n\r\t\x01\x7f", 7, "\"\\b\\f\\n\\r\\t\\u0001\\u007f\"");
	check_put("\xc3\xa4\xf0\x9f\x98\x80", 6, "\"\xc3\xa4\xf0\x9f\x98\x80\"");
	check_put("\xff\xfe\xc3\x28", 4, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd(\"");
	check_put("\xed\xa0\x80", 3, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
	check_put("\xc2\x9b", 2, "\"\\u009b\"");
	check_put("\xc2\xa0", 2, "\"\xc2\xa0\"");
	check_put("\xc2", 1, "\"\xef\xbf\xbd\"");
}

static void test_put_nul_reads_as_an_escape(void **state)
{
	struct buf buf;

	(void)state;
	buf_init(&buf, 100);
	json_put_string(&buf, "a\0b", 3);
	assert_string_equal(buf.ptr, "\"a\\u0000b\"");
	buf_fini(&buf);
}

static void test_put_every_pair_of_bytes(void **state)
{
	struct json_object *json = NULL;
	struct buf buf;

	(void)state;
	buf_init(&buf, 1000);
	for (unsigned a = 1; a < 256; a++) {
		for (unsigned b = 1; b < 256; b++) {
			buf_clear(&buf);
			json_put_string(&buf, (char[]){(char)a, (char)b}, 2);
			assert_int_equal(json_parse(buf.ptr, buf.len, &json, NULL), 0);
			if (a < 0x80 && b < 0x80)
				assert_memory_equal(json_object_get_string(json), ((char[]){(char)a, (char)b, 0}), 3);
			json_object_put(json);
		}
	}
	buf_fini(&buf);
}

static void test_base64_vectors(void **state)
{
	static const char *const rows[][2] = {{"", ""},         {"f", "Zg=="},         {"fo", "Zm8="},
					      {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="},
					      {"foobar", "Zm9vYmFy"}};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct buf buf;
		char *back = NULL;
		size_t len = 0;

		buf_init(&buf, 100);
		assert_int_equal(json_base64_encode(&buf, rows[i][0], strlen(rows[i][0])), 0);
		assert_string_equal(buf.ptr, rows[i][1]);
		assert_int_equal(json_base64_decode(buf.ptr, buf.len, &back, &len, NULL), 0);
		assert_int_equal(len, strlen(rows[i][0]));
		assert_string_equal(back, rows[i][0]);
		free(back);
		buf_fini(&buf);
	}
}

static void test_base64_is_strict(void **state)
{
	static const char *const bad[] = {"Z",      "Zg",    "Zg=",    "Zh==",  "Zm9=",    "Zg==Zg==", " Zg==",   "Zg==\n",
					  "Zm9v\n", "Zm-_",  "====",   "Z===",  "Zg=a",    "Zm 9v",    "=Zg=",    "Zm9vY===",
					  "Zm9\xc3", "\"Zg==", "....", "Zg%3D"};
	char *out = NULL;
	size_t len = 0;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(bad); i++) {
		struct err err = {0};

		if (json_base64_decode(bad[i], strlen(bad[i]), &out, &len, &err) != ERR_INVALID_REQUEST)
			print_error("taken: %s\n", bad[i]);
		assert_int_equal(err.code, ERR_INVALID_REQUEST);
	}
	assert_int_equal(json_base64_decode("Zg=\0", 4, &out, &len, NULL), ERR_INVALID_REQUEST);
	assert_null(out);
}

static void test_base64_all_bytes_at_every_length(void **state)
{
	static unsigned char bytes[200000];
	static const size_t lengths[] = {1, 2, 3, 255, 256, 257, 49151, 49152, 49153, 200000};

	(void)state;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)(i * 7 + i / 256);
	for (size_t i = 0; i < COUNT_OF(lengths); i++) {
		struct buf buf;
		char *back = NULL;
		size_t len = 0;

		buf_init(&buf, (lengths[i] + 2) / 3 * 4); /* exactly */
		assert_int_equal(json_base64_encode(&buf, bytes, lengths[i]), 0);
		assert_int_equal(json_base64_decode(buf.ptr, buf.len, &back, &len, NULL), 0);
		assert_int_equal(len, lengths[i]);
		assert_memory_equal(back, bytes, len);
		free(back);
		buf_fini(&buf);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_put_string),	cmocka_unit_test(test_put_nul_reads_as_an_escape),
		cmocka_unit_test(test_put_every_pair_of_bytes), cmocka_unit_test(test_base64_vectors),
		cmocka_unit_test(test_base64_is_strict), cmocka_unit_test(test_base64_all_bytes_at_every_length),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
