/* SPDX-License-Identifier: Apache-2.0 */
/* Names and paths: what is taken, what is refused, and that the error names the field. */
#include "unit.h"

#include "core/ident.h"

static void test_parts(void **state)
{
	static const char *const good[] = {"a", "0", "Z9", "a.b_c-d", "a..", "7-"};
	static const char *const bad[] = {"", ".", "-a", "_a", "a/b", "a b", "a\n", "\xc3\xa4", "a\\", "a%2f", "a:b"};
	char longest[IDENT_PART_MAX + 2];

	(void)state;
	for (size_t i = 0; i < COUNT_OF(good); i++)
		assert_true(ident_part_valid(good[i], strlen(good[i])));
	for (size_t i = 0; i < COUNT_OF(bad); i++)
		assert_false(ident_part_valid(bad[i], strlen(bad[i])));
	assert_false(ident_part_valid("a\0b", 3));
	assert_false(ident_part_valid(NULL, 0));
	memset(longest, 'x', sizeof(longest));
	assert_true(ident_part_valid(longest, IDENT_PART_MAX));
	assert_false(ident_part_valid(longest, IDENT_PART_MAX + 1));
}

static void test_make_names_the_wrong_field(void **state)
{
	char longer[IDENT_PART_MAX + 2] = "";
	struct ident ident = {0};
	struct err err = {0};

	(void)state;
	assert_int_equal(ident_make(&ident, "ws", "t-1", &err), 0);
	assert_int_equal(ident_make(&ident, "../x", "t", &err), ERR_INVALID_REQUEST);
	assert_non_null(strstr(err.msg, "workspace_id"));
	assert_int_equal(ident_make(&ident, "w", "a/b", &err), ERR_INVALID_REQUEST);
	assert_non_null(strstr(err.msg, "task_id"));
	assert_int_equal(ident_make(&ident, "w", NULL, &err), ERR_INVALID_REQUEST);
	assert_string_equal(err.msg, "task_id: is missing");
	memset(longer, 'y', sizeof(longer) - 1);
	assert_int_equal(ident_make(&ident, longer, "t", NULL), ERR_INVALID_REQUEST);
	assert_string_equal(ident.workspace, "ws"); /* untouched by failures */
}

static void test_key_and_equal(void **state)
{
	char key[IDENT_KEY_MAX + 1];
	struct ident a, b, c;

	(void)state;
	ident_make(&a, "w", "t", NULL);
	ident_make(&b, "w", "t", NULL);
	ident_make(&c, "w", "u", NULL);
	ident_key(&a, key);
	assert_string_equal(key, "w/t");
	assert_true(ident_equal(&a, &b));
	assert_false(ident_equal(&a, &c));
}

static void test_random_ids(void **state)
{
	char a[IDENT_ID_MAX + 1], b[IDENT_ID_MAX + 1];

	(void)state;
	ident_random(a, "sexec_", 24);
	ident_random(b, "sexec_", 24);
	assert_int_equal(strlen(a), 30);
	assert_string_not_equal(a, b);
	assert_true(ident_is_random(a, "sexec_", 24));
	assert_false(ident_is_random(a, "evt_", 24));
	assert_false(ident_is_random(a, "sexec_", 23));
	assert_false(ident_is_random("sexec_", "sexec_", 24));
	assert_false(ident_is_random("sexec_0123456789abcdef0123456G", "sexec_", 24));
	assert_false(ident_is_random("sexec_0123456789ABCDEF01234567", "sexec_", 24));
	assert_false(ident_is_random(NULL, "", 32));
	ident_random(a, "", 32);
	assert_true(ident_is_random(a, "", 32));
}

static void check_path(const char *path, bool good)
{
	struct err err = {0};
	int r = ident_path_check("path", path, strlen(path), false, &err);

	if (good != (r == 0))
		print_error("path \"%s\": %d %s\n", path, r, err.msg);
	assert_int_equal(r, good ? 0 : ERR_INVALID_REQUEST);
	if (!good)
		assert_memory_equal(err.msg, "path: ", 6);
}

static void test_paths(void **state)
{
	static const char *const good[] = {"a",     "a/b",      "-rf",          ".hidden",  "a/.b/c", "...",
					   "..a",   "a..",      "%2e%2e%2f",    "C:x",      " ",      "a b",
					   "x/\xe2\x82\xac", "~root", "\xc3\xa4"};
	static const char *const bad[] = {"",       ".",         "..",        "../x",      "a/../../b", "a/..",   "a/./b",
					  "./a",    "/",         "/a",        "//etc",     "a//b",      "a/",     "\\..\\",
					  "C:\\x",  "a\nb",      "a\x7f",     "\x01",      "\xff\xfe",  "\xc0\xaf",
					  "\xed\xa0\x80", "a/\xc3"};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(good); i++)
		check_path(good[i], true);
	for (size_t i = 0; i < COUNT_OF(bad); i++)
		check_path(bad[i], false);
}

static void test_path_lengths(void **state)
{
	char path[IDENT_PATH_MAX + 2];

	(void)state;
	memset(path, 'a', sizeof(path));
	assert_int_equal(ident_path_check("p", path, 255, false, NULL), 0);
	assert_int_equal(ident_path_check("p", path, 256, false, NULL), ERR_INVALID_REQUEST);
	for (size_t i = 255; i < sizeof(path); i += 256)
		path[i] = '/';
	path[IDENT_PATH_MAX - 1] = 'a';
	path[IDENT_PATH_MAX - 2] = '/';
	assert_int_equal(ident_path_check("p", path, IDENT_PATH_MAX, false, NULL), 0);
	path[IDENT_PATH_MAX] = 'a';
	assert_int_equal(ident_path_check("p", path, IDENT_PATH_MAX + 1, false, NULL), ERR_INVALID_REQUEST);
	assert_int_equal(ident_path_check("p", "a\0b", 3, false, NULL), ERR_INVALID_REQUEST);
	assert_int_equal(ident_path_check("p", NULL, 0, true, NULL), ERR_INVALID_REQUEST);
}

static void test_dot(void **state)
{
	(void)state;
	assert_int_equal(ident_path_check("cwd", ".", 1, true, NULL), 0);
	assert_int_equal(ident_path_check("cwd", "./a", 3, true, NULL), ERR_INVALID_REQUEST);
	assert_int_equal(ident_path_check("cwd", "..", 2, true, NULL), ERR_INVALID_REQUEST);
}

static void test_utf8(void **state)
{
	static const char *const good[] = {"", "a", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
					   "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"};
	static const char *const bad[] = {"\x80",         "\xbf",         "\xc1\x81",         "\xc2",
					  "\xe0\x9f\xbf", "\xed\xa0\x80", "\xed\xbf\xbf",     "\xe2\x82",
					  "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff",
					  "\xe2\x82\x41", "a\xc3" "a", "\xf0\x90\x80"};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(good); i++)
		assert_true(ident_utf8_valid(good[i], strlen(good[i])));
	for (size_t i = 0; i < COUNT_OF(bad); i++)
		assert_false(ident_utf8_valid(bad[i], strlen(bad[i])));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parts),	   cmocka_unit_test(test_make_names_the_wrong_field),
		cmocka_unit_test(test_key_and_equal), cmocka_unit_test(test_random_ids),
		cmocka_unit_test(test_paths),	   cmocka_unit_test(test_path_lengths),
		cmocka_unit_test(test_dot),	   cmocka_unit_test(test_utf8),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
