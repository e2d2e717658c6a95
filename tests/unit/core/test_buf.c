/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers: the maximum is exact, errors stick, taking hands over. */
#include "unit.h"

#include "core/buf.h"
#include "core/err.h"

static void test_append_up_to_the_maximum_and_not_a_byte_more(void **state)
{
	struct buf buf;

	(void)state;
	buf_init(&buf, 100);
	for (int i = 0; i < 100; i++)
		assert_int_equal(buf_append(&buf, "x", 1), 0);
	assert_int_equal(buf.len, 100);
	assert_int_equal(buf.ptr[100], '\0');
	assert_int_equal(buf_append(&buf, "", 0), 0);
	assert_int_equal(buf_append(&buf, "y", 1), ERR_PAYLOAD_TOO_LARGE);
	assert_int_equal(buf.len, 100);
	assert_int_equal(buf_append(&buf, "", 0), ERR_PAYLOAD_TOO_LARGE);
	assert_null(buf_take(&buf));
	assert_int_equal(buf.error, 0);
	assert_int_equal(buf_puts(&buf, "again"), 0);
	buf_fini(&buf);
}

static void test_printf_grows_and_is_refused_whole(void **state)
{
	char big[300];
	struct buf buf;

	(void)state;
	memset(big, 'b', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	buf_init(&buf, 400);
	assert_int_equal(buf_printf(&buf, "%d-%s", 42, big), 0);
	assert_int_equal(buf.len, 302);
	assert_int_equal(buf_printf(&buf, "%s", big), ERR_PAYLOAD_TOO_LARGE);
	assert_int_equal(buf.len, 302);
	assert_int_equal(strlen(buf.ptr), 302);
	buf_clear(&buf);
	assert_int_equal(buf.error, 0);
	assert_string_equal(buf.ptr, "");
	assert_int_equal(buf_printf(&buf, "%s", ""), 0);
	buf_fini(&buf);
}

static void test_take(void **state)
{
	struct buf buf;

	(void)state;
	buf_init(&buf, SIZE_MAX);
	char *empty = buf_take(&buf);

	assert_string_equal(empty, "");
	free(empty);
	buf_append(&buf, "a\0b", 3);
	char *text = buf_take(&buf);

	assert_memory_equal(text, "a\0b", 4);
	assert_null(buf.ptr);
	assert_int_equal(buf.len, 0);
	free(text);
	buf_fini(&buf);
}

static void test_a_huge_reserve_does_not_overflow(void **state)
{
	struct buf buf;

	(void)state;
	buf_init(&buf, 1000);
	buf_puts(&buf, "abc");
	assert_int_equal(buf_reserve(&buf, SIZE_MAX - 1), ERR_PAYLOAD_TOO_LARGE);
	buf_fini(&buf);
}

static void test_integers(void **state)
{
	static const int64_t values[] = {0, 7, -7, 10, 1234567890123, INT64_MAX, INT64_MIN};
	struct buf buf;
	char want[32];

	(void)state;
	buf_init(&buf, 100);
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		snprintf(want, sizeof(want), "%lld", (long long)values[i]);
		buf_clear(&buf);
		assert_int_equal(buf_put_int(&buf, values[i]), 0);
		assert_string_equal(buf.ptr, want);
	}
	buf_fini(&buf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_append_up_to_the_maximum_and_not_a_byte_more),
		cmocka_unit_test(test_printf_grows_and_is_refused_whole),
		cmocka_unit_test(test_take),
		cmocka_unit_test(test_integers),
		cmocka_unit_test(test_a_huge_reserve_does_not_overflow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
