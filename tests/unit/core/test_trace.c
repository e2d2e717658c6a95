/* SPDX-License-Identifier: Apache-2.0 */
/* host/core/trace.c: what is taken over, and what begins a trace of its own. */
#include "core/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "core/log.h"

#define ID "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN "00f067aa0ba902b7"

static void assert_shape(const char *text)
{
	assert_int_equal(strlen(text), TRACE_MAX);
	assert_int_equal(strncmp(text, "00-", 3), 0);
	assert_int_equal(strspn(text + 3, "0123456789abcdef"), 32);
	assert_int_equal(strspn(text + 36, "0123456789abcdef"), 16);
	assert_int_equal(text[35], '-');
	assert_int_equal(text[52], '-');
}

static void test_taken_over(void **state)
{
	char made[TRACE_MAX + 1];

	(void)state;
	trace_make("00-" ID "-" SPAN "-00", made);
	assert_shape(made);
	assert_int_equal(strncmp(made + 3, ID, 32), 0);
	assert_int_not_equal(strncmp(made + 36, SPAN, 16), 0);
	assert_string_equal(made + 53, "00");
}

static void test_begun(void **state)
{
	static const char *const bad[] = {
		NULL, "", "00-", "00-" ID "-" SPAN, "00-" ID "-" SPAN "-0", "00-" ID "-" SPAN "-000",
		"ff-" ID "-" SPAN "-01", "00-" ID "_" SPAN "-01", "00-" ID "-" SPAN "-0G",
		"00-00000000000000000000000000000000-" SPAN "-01", "00-" ID "-0000000000000000-01",
		"00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01",
	};
	char made[TRACE_MAX + 1];
	char other[TRACE_MAX + 1];

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		trace_make(bad[i], made);
		trace_make(bad[i], other);
		assert_shape(made);
		assert_int_not_equal(strncmp(made + 3, ID, 32), 0);
		assert_int_not_equal(strncmp(made + 3, other + 3, 32), 0);
		assert_string_equal(made + 53, "01");
	}
}

static void test_of_the_thread(void **state)
{
	(void)state;
	log_set_trace("00-" ID "-" SPAN "-01");
	assert_string_equal(log_trace(), "00-" ID "-" SPAN "-01");
	log_set_request("r");
	assert_int_equal(strlen(log_trace()), TRACE_MAX);
	log_set_request(NULL);
	assert_string_equal(log_trace(), "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_taken_over),
		cmocka_unit_test(test_begun),
		cmocka_unit_test(test_of_the_thread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
