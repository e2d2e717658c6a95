/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: the table is whole, sentences survive their way up, long ones are visibly cut. */
#include "unit.h"

#include "core/err.h"

static void test_set_fills_from_the_table(void **state)
{
	struct err err;

	(void)state;
	memset(&err, 0xff, sizeof(err));
	assert_int_equal(err_set(&err, ERR_CAPACITY, "no room for %d", 7), ERR_CAPACITY);
	assert_int_equal(err.code, ERR_CAPACITY);
	assert_int_equal(err.retryable, 1);
	assert_int_equal(err.retry_after_ms, 0);
	assert_string_equal(err.reason, "");
	assert_string_equal(err.msg, "no room for 7");
	assert_int_equal(err_set(NULL, ERR_CONFLICT, "x"), ERR_CONFLICT);
}

static void test_set_may_use_its_own_text(void **state)
{
	struct err err;

	(void)state;
	err_set(&err, ERR_IO, "inner");
	err_set(&err, ERR_CORRUPT, "outer: %s", err.msg);
	assert_string_equal(err.msg, "outer: inner");
}

static void test_prefix(void **state)
{
	struct err err;

	(void)state;
	err_set(&err, ERR_PROVIDER, "said no");
	assert_int_equal(err_prefix(&err, "target %s", "a"), ERR_PROVIDER);
	assert_string_equal(err.msg, "target a: said no");
	assert_int_equal(err_prefix(NULL, "x"), ERR_INTERNAL);
}

static void test_long_text_is_cut_visibly_between_characters(void **state)
{
	char text[600] = "";
	struct err err;

	(void)state;
	for (int i = 0; i < 150; i++)
		strncat(text, "\xc3\xa4", sizeof(text) - strlen(text) - 1);
	err_set(&err, ERR_IO, "%s", text);
	assert_int_equal(strlen(err.msg), 255);
	assert_string_equal(err.msg + 252, "...");
	assert_int_equal((unsigned char)err.msg[251], 0xa4);
	err_set(&err, ERR_IO, "x%s", text);
	assert_string_equal(err.msg + strlen(err.msg) - 3, "...");
	assert_int_equal((unsigned char)err.msg[strlen(err.msg) - 4], 0xa4);
	err_prefix(&err, "%s", text);
	assert_true(strlen(err.msg) < sizeof(err.msg));
	assert_string_equal(err.msg + strlen(err.msg) - 3, "...");
}

static void test_reason_and_clear(void **state)
{
	struct err err;

	(void)state;
	err_set(&err, ERR_PROVIDER, "x");
	err_reason(&err, "image_missing");
	assert_string_equal(err.reason, "image_missing");
	err_reason(&err, "a word that is far longer than the field for it");
	assert_int_equal(strlen(err.reason), sizeof(err.reason) - 1);
	err_clear(&err);
	assert_int_equal(err.code, 0);
	assert_string_equal(err.msg, "");
}

static void test_every_name_reads_back(void **state)
{
	(void)state;
#define X(name, word, http, retry)                                         \
	assert_int_equal(err_from_name(err_name(ERR_##name)), ERR_##name); \
	assert_string_equal(err_word(ERR_##name), word);                   \
	assert_int_equal(err_http(ERR_##name), http);                      \
	assert_int_equal(err_retryable(ERR_##name), retry);                \
	assert_true(ERR_##name < 0);
	ERR_TABLE(X)
#undef X
	assert_string_equal(err_name(ERR_SESSION_GONE), "session_gone");
	assert_string_equal(err_name(ERR_OK), "ok");
	assert_int_equal(err_from_name("ok"), ERR_OK);
}

static void test_unknown_codes_are_internal(void **state)
{
	(void)state;
	assert_string_equal(err_word(1), "internal");
	assert_string_equal(err_word(-10000), "internal");
	assert_int_equal(err_http(-(int)ERR_ORDINAL_COUNT), 500);
	assert_int_equal(err_from_name("no such name"), ERR_INTERNAL);
	assert_int_equal(err_from_name(""), ERR_INTERNAL);
	assert_int_equal(err_from_name(NULL), ERR_INTERNAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_set_fills_from_the_table),
		cmocka_unit_test(test_set_may_use_its_own_text),
		cmocka_unit_test(test_prefix),
		cmocka_unit_test(test_long_text_is_cut_visibly_between_characters),
		cmocka_unit_test(test_reason_and_clear),
		cmocka_unit_test(test_every_name_reads_back),
		cmocka_unit_test(test_unknown_codes_are_internal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
