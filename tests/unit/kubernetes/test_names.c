/* SPDX-License-Identifier: Apache-2.0 */
/* Labels, names and refs: whatever a task is called, Kubernetes takes it, and no two tasks meet. */
#include "kube_test.h"

#include "names.h"
#include "session.h"

static void label_is(const char *id, const char *expected)
{
	char value[LABEL_VALUE_MAX + 1];

	assert_true(names_label(id, value));
	if (expected)
		assert_string_equal(value, expected);
	else
		assert_true(!strncmp(value, "h-", 2) && strlen(value) == 54 && strcmp(value, id));
}

static void test_labels(void **state)
{
	char long_id[129];

	(void)state;
	label_is("t", "t");
	label_is("Task_1.a-B", "Task_1.a-B");
	label_is("7b1f4ef0-7a1d-4a4e-9f0c-0123456789ab", "7b1f4ef0-7a1d-4a4e-9f0c-0123456789ab");
	label_is("ends-in-", NULL);
	label_is("ends.", NULL);
	label_is("h-looks-hashed", NULL);
	memset(long_id, 'x', sizeof(long_id) - 1);
	long_id[128] = '\0';
	label_is(long_id, NULL);
	long_id[63] = '\0';
	label_is(long_id, long_id);
	long_id[63] = 'x';
	long_id[64] = '\0';
	label_is(long_id, NULL);
}

static void test_names_differ(void **state)
{
	static const char *const ids[][3] = {{"d", "w", "t"}, {"d", "w", "T"}, {"d", "wt", ""}, {"d", "", "wt"},
					     {"dw", "", "t"}, {"d", "t", "w"}, {"", "dw", "t"}};
	char names[8][NAME_MAX_LEN + 1];

	(void)state;
	for (size_t i = 0; i < 7; i++) {
		assert_true(names_task("berth", ids[i][0], ids[i][1], ids[i][2], names[i]));
		assert_true(names_dns(names[i], 63));
		for (size_t j = 0; j < i; j++)
			assert_string_not_equal(names[i], names[j]);
	}
	assert_true(names_intent("abcdefghijkl", "d", "00000000000000000000000000000000", names[7]));
	assert_true(names_dns(names[7], 63));
	assert_true(names_task("berth", "d", "w", "t", names[7]));
	assert_string_equal(names[7], names[0]);
}

static void test_refs(void **state)
{
	static const char *const bad[] = {"",	  "a",	     "a/b",   "a/b/",	"/b/c",
					  "a//c", "a/b/c/d", "A/b/c", "a/b_/c", "a/../c"};
	char text[BERTH_REF_MAX + 1], longest[200];
	struct ref ref;

	(void)state;
	assert_true(names_ref_text("ns", "berth-t1", "u-1", text));
	assert_string_equal(text, "ns/berth-t1/u-1");
	assert_true(names_ref(str_of(text), &ref));
	assert_string_equal(ref.name, "berth-t1");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(names_ref(str_of(bad[i]), &ref));
	memset(longest, 'a', sizeof(longest));
	longest[199] = '\0';
	assert_false(names_ref_text("ns", longest, "u", text));
}

static void test_a_session_comes_back(void **state)
{
	struct session made = {.pod = "p",
			       .uid = "u",
			       .ip = "10.0.0.1",
			       .instance = "0123456789abcdef0123456789abcdef",
			       .workspace = "w",
			       .task = "t"},
		       found;
	char text[1024];
	struct berth_session from = {.struct_size = sizeof(from), .ref = str_of("ns/name/uid")};

	(void)state;
	session_state(&made, text);
	from.state = str_of(text);
	assert_true(session_of(&from, &found));
	assert_string_equal(found.instance, made.instance);
	assert_string_equal(found.task, "t");
	assert_string_equal(found.pod, "p");
	for (size_t len = 1; len < strlen(text); len++) {
		from.state.len = len;
		assert_false(session_of(&from, &found));
	}
	from.state.len = 0;
	assert_true(session_of(&from, &found));
	assert_string_equal(found.pod, "name");
}

/* The pod's version is kept while it is warm; a state without one, of an older plugin too, is whole. */
static void test_a_warm_session_keeps_its_version(void **state)
{
	struct session made = {.pod = "p", .uid = "u", .ip = "10.0.0.1", .version = "1234"}, found;
	char text[1024];
	struct berth_session from = {.struct_size = sizeof(from), .ref = str_of("ns/name/uid")};

	(void)state;
	session_state(&made, text);
	from.state = str_of(text);
	assert_true(session_of(&from, &found));
	assert_string_equal(found.version, "1234");
	from.state.len -= strlen("1234\n");
	assert_true(session_of(&from, &found));
	assert_string_equal(found.version, "");
	from.state.len += 2;
	assert_false(session_of(&from, &found));
}

static void test_texts(void **state)
{
	uint64_t milli = 0;
	size_t len;
	char *bytes, text[64];

	(void)state;
	assert_true(text_quantity("1.5Gi", &milli) && milli == UINT64_C(1610612736000));
	assert_true(text_quantity("250m", &milli) && milli == 250);
	assert_true(text_quantity("1e3", &milli) && milli == 1000000);
	assert_false(text_quantity("", &milli) || text_quantity("-1", &milli) || text_quantity("1X", &milli) ||
		     text_quantity("1e30", &milli));
	assert_int_equal(text_time_ms("2026-01-02T03:04:05.5Z"), INT64_C(1767323045500));
	assert_int_equal(text_time_ms("2026-01-02"), 0);
	assert_int_equal(text_time_ms(NULL), 0);
	text_time(INT64_C(1767323045000), text);
	assert_string_equal(text, "2026-01-02T03:04:05Z");
	bytes = text_base64("aGVs\nbG8=", &len);
	assert_non_null(bytes);
	assert_true(len == 5 && !memcmp(bytes, "hello", 5));
	free(bytes);
	assert_null(text_base64("a", &len));
	text_base32("fooba", 5, text, sizeof(text));
	assert_string_equal(text, "mzxw6ytb");
	assert_true(text_is_utf8(str_of("\xc3\xa9")) && !text_is_utf8(str_of("\xc3")) &&
		    !text_is_utf8(str_of("\xed\xa0\x80")));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_labels), cmocka_unit_test(test_names_differ),
		cmocka_unit_test(test_refs),   cmocka_unit_test(test_a_session_comes_back),
		cmocka_unit_test(test_texts),  cmocka_unit_test(test_a_warm_session_keeps_its_version),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
