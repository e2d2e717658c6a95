/* SPDX-License-Identifier: Apache-2.0 */
/* What is taken out of answers before they are parsed, and that nothing else is. */
#include "kube_test.h"

#include "prune.h"

static const struct row {
	const char *from, *to;
} rows[] = {
	{"", ""},
	{"{}", "{}"},
	{"{\"metadata\":{\"managedFields\":[{\"a\":{\"f:b\":{}}},{}],\"name\":\"n\"}}",
	 "{\"metadata\":{\"managedFields\":0,\"name\":\"n\"}}"},
	{"{\"managedFields\":[\"]},\\\"\",{\"x\":[1,2]}]}", "{\"managedFields\":0}"},
	{"[{\"managedFields\":[]},{\"managedFields\":null,\"a\":1},{\"b\":2}]",
	 "[{\"managedFields\":0},{\"managedFields\":0,\"a\":1},{\"b\":2}]"},
	{"{\"managedFields\": [ 1 ] , \"a\":1}", "{\"managedFields\":0, \"a\":1}"},
	/* Not the key: a value, a part of a string, another key. */
	{"[\"managedFields\",\"a\"]", "[\"managedFields\",\"a\"]"},
	{"{\"a\":\"\\\"managedFields\\\":[1,2]\"}", "{\"a\":\"\\\"managedFields\\\":[1,2]\"}"},
	{"{\"x\\\"managedFields\":[1,2]}", "{\"x\\\"managedFields\":[1,2]}"},
	{"{\"unmanagedFields\":[1],\"managedFieldsToo\":[2]}", "{\"unmanagedFields\":[1],\"managedFieldsToo\":[2]}"},
	/* Cut off, or none at all: as it is. */
	{"{\"managedFields\":[1,{\"a\":", "{\"managedFields\":[1,{\"a\":"},
	{"{\"managedFields\":[\"a", "{\"managedFields\":[\"a"},
	{"{\"managedFields\":[\"a\\", "{\"managedFields\":[\"a\\"},
	{"{\"managedFields\":", "{\"managedFields\":"},
	{"{\"managedFields\":}", "{\"managedFields\":}"},
	{"\"managedFields\":]", "\"managedFields\":]"},
};

static void test_every_row(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		/* Of its own length, so that a sanitizer sees what reaches past it. */
		size_t len = strlen(rows[i].from);
		char *text = malloc(len + 1);

		assert_non_null(text);
		memcpy(text, rows[i].from, len + 1);
		len = prune_json(text, len);
		assert_int_equal(len, strlen(rows[i].to));
		assert_memory_equal(text, rows[i].to, len);
		free(text);
	}
}

/* Whatever is cut where: it stays within its bytes, and never grows. */
static void test_cut_anywhere(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (size_t len = 0; len <= strlen(rows[i].from); len++) {
			char *text = malloc(len ? len : 1);

			assert_non_null(text);
			memcpy(text, rows[i].from, len);
			assert_true(prune_json(text, len) <= len);
			free(text);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_row),
		cmocka_unit_test(test_cut_anywhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
