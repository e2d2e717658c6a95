/* SPDX-License-Identifier: Apache-2.0 */
/* Tables: whole without a limit, within it with one, whatever characters there are; and the words for values. */
#include "unit.h"

#include <locale.h>

#include "core/json.h"

#define NOW INT64_C(1800000000000)

static const struct ctl_column columns[] = {
	{"ID", "id", false, CTL_PLAIN},
	{"NAME", "name", true, CTL_PLAIN},
	{"LIST", "list", true, CTL_LIST},
	{0},
};

static struct json_object *parse(const char *text)
{
	struct json_object *json = NULL;
	struct err err = {0};

	assert_int_equal(json_parse(text, strlen(text), &json, &err), 0);
	return json;
}

static char *render(const char *text, size_t room, bool wide)
{
	struct json_object *json = parse(text);
	struct buf out;

	buf_init(&out, 100000);
	ctl_table_text(&out, json, columns, room, wide, NOW);
	json_object_put(json);
	assert_int_equal(out.error, 0);
	return buf_take(&out);
}

static void check(const char *json, size_t room, bool wide, const char *expected)
{
	char *text = render(json, room, wide);

	assert_string_equal(text, expected);
	free(text);
}

static void test_whole(void **state)
{
	(void)state;
	check("[{\"id\":1,\"name\":\"a long name of some words\",\"list\":[\"x\",\"y\"]},{\"id\":22,\"name\":\"b\"}]", SIZE_MAX, true,
	      "ID  NAME                       LIST\n1   a long name of some words  x y\n22  b\n");
}

static void test_cut(void **state)
{
	(void)state;
	check("[{\"id\":1,\"name\":\"a long name of some words\"}]", 20, true, "ID  NAME        LIST\n1   a long na…\n");
	check("[{\"id\":1,\"name\":\"a long name of some words\"}]", 20, false, "ID  NAME        LIST\n1   a long na~\n");
}

static void test_empty_and_absent(void **state)
{
	(void)state;
	check("[]", SIZE_MAX, true, "ID  NAME  LIST\n");
	check("[{}]", SIZE_MAX, true, "ID  NAME  LIST\n\n");
}

static void test_control_bytes_do_not_reach_the_terminal(void **state)
{
	(void)state;
	check("[{\"id\":\"\\u001b[31m\",\"name\":\"a\\nb\\u007f\",\"list\":[\"\\t\"]}]", SIZE_MAX, true,
	      "ID     NAME  LIST\n?[31m  a?b?  ?\n");
}

/* Columns of the screen, not bytes: an umlaut takes one, a wide character two, a combining mark none. */
static void test_width_of_characters(void **state)
{
	char *text;

	(void)state;
	if (!setlocale(LC_CTYPE, "C.UTF-8"))
		skip();
	check("[{\"id\":\"äöü\",\"name\":\"n\"},{\"id\":\"abc\",\"name\":\"n\"}]", SIZE_MAX, true, "ID   NAME  LIST\näöü  n\nabc  n\n");
	check("[{\"id\":\"日本\",\"name\":\"n\"},{\"id\":\"abcd\",\"name\":\"n\"}]", SIZE_MAX, true,
	      "ID    NAME  LIST\n日本  n\nabcd  n\n");
	text = render("[{\"id\":1,\"name\":\"日本日本日本日本日本\"}]", 18, true);
	assert_non_null(strstr(text, "1   日本日…"));
	free(text);
}

static void test_any_room_is_kept(void **state)
{
	static const char json[] = "[{\"id\":\"an-id-that-may-not-be-cut\",\"name\":\"a long name of some words\",\"list\":[\"one\",\"two\",\"three\"]}]";

	(void)state;
	for (size_t room = 12; room < 90; room++) {
		char *text = render(json, room, false);

		for (const char *line = text; *line; line = strchr(line, '\n') + 1)
			assert_true((size_t)(strchr(line, '\n') - line) <= room);
		if (room >= 48) /* what may not be cut is not, while others can give */
			assert_non_null(strstr(text, "an-id-that-may-not-be-cut"));
		free(text);
	}
}

static void value(const char *json, enum ctl_form form, const char *expected)
{
	const struct ctl_column column = {"", "v", false, form};
	struct json_object *item = parse(json);
	struct buf out;

	buf_init(&out, 1000);
	buf_puts(&out, "");
	ctl_value(&out, item, &column, NOW);
	assert_string_equal(out.ptr, expected);
	buf_fini(&out);
	json_object_put(item);
}

static void test_values(void **state)
{
	(void)state; /* NOW is 2027-01-15T08:00:00Z */
	value("{\"v\":\"2027-01-15T07:59:15.500Z\"}", CTL_AGE, "44s");
	value("{\"v\":\"2027-01-15T07:00:00.000Z\"}", CTL_AGE, "1h");
	value("{\"v\":\"2027-01-11T05:59:00.000Z\"}", CTL_AGE, "4d2h");
	value("{\"v\":\"2027-01-15T08:00:09.000Z\"}", CTL_AGE, "0s");
	value("{\"v\":\"2027-01-15T08:15:30.000Z\"}", CTL_UNTIL, "15m30s");
	value("{\"v\":\"2027-01-15T07:59:59.000Z\"}", CTL_UNTIL, "due");
	value("{\"v\":\"soon\"}", CTL_AGE, "soon");
	value("{}", CTL_AGE, "");
	value("{\"v\":0}", CTL_MS, "0.00s");
	value("{\"v\":9999}", CTL_MS, "9.99s");
	value("{\"v\":75000}", CTL_MS, "1m15s");
	value("{}", CTL_MS, "");
	value("{\"v\":1023}", CTL_BYTES, "1023 B");
	value("{\"v\":1536}", CTL_BYTES, "1.5 KiB");
	value("{\"v\":5368709120}", CTL_BYTES, "5.0 GiB");
	value("{\"v\":[\"a\",\"b\"]}", CTL_LIST, "a b");
	value("{\"v\":\"a\"}", CTL_LIST, "");
}

static void test_seconds(void **state)
{
	static const struct {
		const char *text;
		int64_t seconds;
	} cases[] = {{"90s", 90}, {"10m", 600}, {"1h30m", 5400}, {"1500ms", 2}, {"90", 90}, {"0", 0}, {"-1", -1}, {"x", -1}, {"", -1},
		     {"9999999999999999999", -1}, {"5 m", -1}};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++)
		assert_int_equal(ctl_seconds(cases[i].text), cases[i].seconds);
}

static void test_paths_in_answers(void **state)
{
	struct json_object *json = parse("{\"a\":{\"b\":{\"c\":7}},\"l\":[1],\"t\":\"x\"}");

	(void)state;
	assert_int_equal(ctl_number(json, "a.b.c", -1), 7);
	assert_int_equal(ctl_number(json, "a.b.d", -1), -1);
	assert_int_equal(ctl_number(json, "t", -1), -1);
	assert_string_equal(ctl_text(json, "a.b"), "");
	assert_string_equal(ctl_text(json, "l"), "");
	assert_string_equal(ctl_text(json, "t.x"), "");
	assert_string_equal(ctl_text(NULL, "t"), "");
	json_object_put(json);
}

static void test_progress_line(void **state)
{
	struct ctl_progress p = {.label = "a\x1b" "b", .total = 10 << 20, .done = 5 << 20, .files = 8, .files_done = 3, .began_ns = 0};
	struct buf line;

	(void)state;
	buf_init(&line, 1000);
	ctl_progress_line(&p, INT64_C(2000000000), &line);
	assert_string_equal(line.ptr, "a?b  3/8 files  5.0 MiB of 10.0 MiB  50%  2.5 MiB/s  3s left");
	buf_clear(&line);
	p = (struct ctl_progress){.label = "x", .total = -1};
	ctl_progress_line(&p, 0, &line);
	assert_string_equal(line.ptr, "x  0 B  0 B/s");
	buf_fini(&line);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_empty_and_absent),
		cmocka_unit_test(test_control_bytes_do_not_reach_the_terminal),
		cmocka_unit_test(test_width_of_characters),
		cmocka_unit_test(test_any_room_is_kept),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_seconds),
		cmocka_unit_test(test_paths_in_answers),
		cmocka_unit_test(test_progress_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
