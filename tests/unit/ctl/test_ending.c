/* SPDX-License-Identifier: Apache-2.0 */
/* What a record says of outputs that are not whole, in words, for each reason and each stream that was asked for. */
#include "unit.h"

#include "core/json.h"

static void check(const char *text, bool of_stdout, bool of_stderr, const char *expected)
{
	struct json_object *json = NULL;
	struct err err = {0};
	struct buf out;

	assert_int_equal(json_parse(text, strlen(text), &json, &err), 0);
	buf_init(&out, 10000);
	buf_puts(&out, "");
	ctl_missing_text(&out, json, of_stdout, of_stderr);
	assert_string_equal(out.ptr, expected);
	buf_fini(&out);
	json_object_put(json);
}

static void test_whole_output_is_not_spoken_of(void **state)
{
	(void)state;
	check("{\"status\":\"queued\"}", true, true, "");
	check("{\"result\":{\"stdout_bytes\":3,\"stdout_truncated\":false,\"stderr_truncated\":false}}", true, true, "");
}

static void test_cut_output(void **state)
{
	static const char record[] = "{\"result\":{\"stdout_bytes\":1024,\"stderr_bytes\":7,\"stdout_truncated\":true,\"stderr_truncated\":true,"
				     "\"stdout_dropped\":976,\"truncated_reason\":\"limit\"}}";

	(void)state;
	check(record, true, false, "berthctl: stdout was cut at 1024 bytes, which is its limit; 976 bytes were dropped\n");
	check(record, false, true, "berthctl: stderr was cut at 7 bytes, which is its limit\n");
	check("{\"result\":{\"stdout_bytes\":1,\"stdout_truncated\":true,\"stdout_dropped\":2,\"truncated_reason\":\"spool_full\"}}", true, true,
	      "berthctl: stdout was cut at 1 bytes, as berthd's room for outputs was used up; 2 bytes were dropped\n");
	check("{\"result\":{\"stdout_bytes\":1,\"stdout_truncated\":true,\"truncated_reason\":\"of_a_later_version\"}}", true, true,
	      "berthctl: stdout was cut at 1 bytes\n");
}

static void test_lost_output(void **state)
{
	static const char record[] = "{\"output_lost\":[{\"stream\":\"stdout\",\"from\":10,\"to\":15},{\"stream\":\"stderr\",\"from\":4}]}";

	(void)state;
	check(record, true, true,
	      "berthctl: stdout lacks 5 bytes after its first 10: they were lost with a daemon or a sandbox\n"
	      "berthctl: stderr lacks what came after its first 4 bytes: they were lost with a daemon or a sandbox\n");
	check(record, false, false, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole_output_is_not_spoken_of),
		cmocka_unit_test(test_cut_output),
		cmocka_unit_test(test_lost_output),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
