/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of folders: looking up, which links stay inside, and a sandbox's own list, which nobody may trust. */
#include "unit.h"

#include "ctl/tree.h"

static void test_add_sort_find(void **state)
{
	static const char *const paths[] = {"b", "a/b", "a", "c/d/e", "", "a-b"};
	struct tree tree = {0};

	(void)state;
	for (size_t round = 0; round < 300; round++)
		for (size_t i = 0; i < COUNT_OF(paths); i++)
			assert_non_null(tree_add(&tree, paths[i], strlen(paths[i]), ENTRY_FILE));
	tree_sort(&tree);
	assert_int_equal(tree.count, COUNT_OF(paths));
	for (size_t i = 0; i < COUNT_OF(paths); i++)
		assert_string_equal(tree_find(&tree, paths[i])->path, paths[i]);
	for (size_t i = 1; i < tree.count; i++)
		assert_true(strcmp(tree.entries[i - 1].path, tree.entries[i].path) < 0);
	assert_null(tree_find(&tree, "c"));
	assert_null(tree_find(&(struct tree){0}, "a"));
	tree_fini(&tree);
}

static void test_join(void **state)
{
	static const char *const cases[][3] = {{".", "", "."}, {".", "a", "a"}, {"x", "", "x"}, {"x/y", "a/b", "x/y/a/b"}};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct buf out;

		buf_init(&out, 100);
		tree_join(cases[i][0], cases[i][1], &out);
		assert_string_equal(out.ptr, cases[i][2]);
		buf_fini(&out);
	}
}

static void test_links(void **state)
{
	static const struct {
		const char *path, *target;
		bool inside;
	} cases[] = {
		{"l", "a", true},	 {"l", "a/b/c", true},	 {"l", ".", true},	 {"l", "./a", true},	 {"a/l", "../b", true},
		{"a/b/l", "../..", true}, {"a/b/l", "../../c", true}, {"a/l", "..", true}, {"a/l", "..//b", true}, {"l", "a//b", true},
		{"l", "..a/..b", true},	 {"l", "...", true},	 {"l", "/a", false},	 {"l", "", false},	 {"l", "..", false},
		{"l", "../a", false},	 {"a/l", "../..", false}, {"a/l", "../../a", false}, {"l", "a/..", false}, {"l", "a/../b", false},
		{"a/l", "../b/../..", false}, {"l", "./..", false}, {"a/b/l", "..//..//../x", false}, {"l", "a/../../x", false},
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++)
		if (tree_link_inside(cases[i].path, cases[i].target) != cases[i].inside)
			fail_msg("%s -> %s", cases[i].path, cases[i].target);
}

static void test_links_by_option(void **state)
{
	static const struct {
		const char *how, *target;
		bool left_out, problem;
	} cases[] = {{NULL, "a", false, false},	  {NULL, "/a", false, true}, {"keep", "/a", false, true}, {"all", "/a", false, false},
		     {"skip", "a", true, false}, {"skip", "/a", true, false}};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		char path[] = "l", target[8];
		struct entry entry = {.path = path, .kind = ENTRY_LINK, .target = target};

		snprintf(target, sizeof(target), "%s", cases[i].target);
		assert_int_equal(tree_judge_link(&entry, cases[i].how), cases[i].left_out);
		assert_int_equal(entry.problem != NULL, cases[i].problem);
	}
}

#define SUM "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static void test_a_good_list(void **state)
{
	static const char text[] = "=list\n41ed 60 .\n81a4 0 ./a b\n81ed 12 ./d/x\n41c0 40 ./d\na1ff 3 ./l\n11a4 0 ./pipe\n"
				   "8180 5 ./.hidden\n" SUM "  ./a b\n" SUM "  ./d/x\n=odd\n./new\nline\0=links\n./l\0a b\n.\0=end\n";
	struct tree tree = {0};

	(void)state;
	assert_true(tree_parse("base", text, sizeof(text) - 1, &tree));
	assert_int_equal(tree.top, ENTRY_FOLDER);
	assert_int_equal(tree.count, 8);
	assert_int_equal(tree_find(&tree, "")->kind, ENTRY_FOLDER);
	assert_int_equal(tree_find(&tree, "d/x")->mode, 0755);
	assert_int_equal(tree_find(&tree, "d/x")->size, 12);
	assert_string_equal(tree_find(&tree, "a b")->sha256, SUM);
	assert_string_equal(tree_find(&tree, "l")->target, "a b");
	assert_null(tree_find(&tree, "l")->problem);
	assert_non_null(tree_find(&tree, "pipe")->problem);
	assert_non_null(tree_find(&tree, "new\nline")->problem);
	assert_string_equal(tree_find(&tree, ".hidden")->sha256, "");
	tree_fini(&tree);
}

static void test_what_the_top_is(void **state)
{
	static const struct {
		const char *text;
		enum entry_kind top;
	} cases[] = {{"=none\n", ENTRY_OTHER}, {"=file\n", ENTRY_FILE}, {"=link\n", ENTRY_LINK}};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct tree tree = {0};

		assert_true(tree_parse("b", cases[i].text, strlen(cases[i].text), &tree));
		assert_int_equal(tree.top, cases[i].top);
		tree_fini(&tree);
	}
}

/* Names that lead out are in the list, but nothing is ever copied from them or to them. */
static void test_names_that_lead_out(void **state)
{
	static const char *const names[] = {"./..", "./../x", "./a/../../x", "./a/./b", "./a//b", "./a/", "./a\\b", "./\xff", "./a\tb"};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(names); i++) {
		char text[200];
		struct tree tree = {0};
		int len = snprintf(text, sizeof(text), "=list\n81a4 1 %s\n=odd\n=links\n=end\n", names[i]);

		assert_true(tree_parse("base", text, (size_t)len, &tree));
		assert_int_equal(tree.count, 1);
		assert_non_null(tree.entries[0].problem);
		tree_fini(&tree);
	}
}

#define REFUSED(text) {text, sizeof(text) - 1}

static void test_no_list(void **state)
{
	static const struct {
		const char *text;
		size_t len;
	} cases[] = {
		REFUSED(""), REFUSED("x"), REFUSED("=none"), REFUSED("=none\nx"), REFUSED("=list\n"), REFUSED("=list\n=odd\n=links\n"),
		REFUSED("=list\n=odd\n=links\n=end\nx"), REFUSED("=list\nhello\n=odd\n=links\n=end\n"),
		REFUSED("=list\n81a4 1 /etc/passwd\n=odd\n=links\n=end\n"), REFUSED("=list\n81a4 1 x\n=odd\n=links\n=end\n"),
		REFUSED("=list\nzz 1 ./x\n=odd\n=links\n=end\n"), REFUSED("=list\n81a4 ./x\n=odd\n=links\n=end\n"),
		REFUSED("=list\n81a4 99999999999999999999 ./x\n=odd\n=links\n=end\n"), REFUSED("=list\n81a4 -1 ./x\n=odd\n=links\n=end\n"),
		REFUSED("=list\n81a4 1 ./x"), REFUSED("=list\n" SUM "  x\n=odd\n=links\n=end\n"), REFUSED("=list\n" SUM " \n=odd\n=links\n=end\n"),
		REFUSED("=list\n=odd\n./x=links\n=end\n"), REFUSED("=list\n=odd\nx\0=links\n=end\n"),
		REFUSED("=list\n=odd\n=links\n./l\0=end\n"), REFUSED("=list\n=odd\n=links\n./l\0x\0=end\n"),
		REFUSED("=list\n=odd\n=links\n./l\0x\n.=end\n"), REFUSED("=list\n\n=odd\n=links\n=end\n"), REFUSED("\0\0\0"),
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct tree tree = {0};

		if (tree_parse("b", cases[i].text, cases[i].len, &tree))
			fail_msg("taken: %s", cases[i].text);
		tree_fini(&tree);
	}
}

/* A link's target that is none of the list's links, a sum of a folder, sums before lines: no harm. */
static void test_lists_that_do_not_fit_together(void **state)
{
	static const char text[] = "=list\n41ed 1 ./d\n" SUM "  ./d\n" SUM "  ./gone\n=odd\n=links\n./d\0x\n.\0./gone\0y\n.\0=end\n";
	struct tree tree = {0};

	(void)state;
	assert_true(tree_parse("b", text, sizeof(text) - 1, &tree));
	assert_int_equal(tree.count, 1);
	assert_null(tree.entries[0].target);
	assert_string_equal(tree.entries[0].sha256, "");
	tree_fini(&tree);
}

static void test_quote(void **state)
{
	static const char *const cases[][2] = {{"", "''"}, {"a b", "'a b'"}, {"it's", "'it'\\''s'"}, {"$(x)`\\\n", "'$(x)`\\\n'"}, {"''", "''\\'''\\'''"}};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct buf out;

		buf_init(&out, 100);
		ctl_quote(&out, cases[i][0]);
		assert_string_equal(out.ptr, cases[i][1]);
		buf_fini(&out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_add_sort_find),
		cmocka_unit_test(test_join),
		cmocka_unit_test(test_links),
		cmocka_unit_test(test_links_by_option),
		cmocka_unit_test(test_a_good_list),
		cmocka_unit_test(test_what_the_top_is),
		cmocka_unit_test(test_names_that_lead_out),
		cmocka_unit_test(test_no_list),
		cmocka_unit_test(test_lists_that_do_not_fit_together),
		cmocka_unit_test(test_quote),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
