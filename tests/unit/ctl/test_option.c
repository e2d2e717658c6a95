/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines: operands and options in any order, where options end, and every refusal. */
#include "unit.h"

struct options {
	const char *text;
	int64_t time, count;
	struct ctl_many many;
	bool flag;
};

#define ROW(name_, letter_, type_, argument_, field_, ...)                                                             \
	{                                                                                                              \
		.name = name_, .letter = letter_, .type = type_, .argument = argument_, .off = offsetof(struct options, field_), \
		.doc = "doc", __VA_ARGS__                                                                              \
	}

static const struct ctl_option rows[] = {
	ROW("text", 't', CTL_TEXT, "T", text, .words = "red green blue-green"),
	ROW("time", 0, CTL_TIME, "TIME", time, .words = NULL),
	ROW("count", 'n', CTL_COUNT, "N", count, .words = NULL),
	ROW("many", 'm', CTL_MANY, "M", many, .words = NULL),
	ROW("flag", 'f', CTL_FLAG, NULL, flag, .words = NULL),
	{0},
};

static const struct ctl_command plain = {.name = "plain", .usage = "ONE [TWO]", .options = rows, .options_size = sizeof(struct options)};
static const struct ctl_command stops = {.name = "stops", .usage = "TASK [--] [COMMAND…]", .options = rows,
					 .options_size = sizeof(struct options), .flags = CTL_STOPS};
static const struct ctl_command none_but_shared = {.name = "shared", .usage = "ONE"};
static const struct ctl_command none = {.name = "none", .usage = ""};

struct parsed {
	struct ctl_shared shared;
	struct options options;
	struct ctl_args args;
	int rc;
};

/* words: apart by blanks; "" = none. The copy lives as long as the test. */
static struct parsed parse(const struct ctl_command *command, const char *words)
{
	static char copy[512], *argv[32];
	struct parsed p = {0};
	int argc = 0;

	snprintf(copy, sizeof(copy), "%s %s", command->name, words);
	for (char *at = copy; *at; at += strspn(at, " ")) {
		argv[argc++] = at;
		at += strcspn(at, " ");
		if (*at)
			*at++ = '\0';
	}
	argv[argc] = NULL;
	p.rc = ctl_args_parse(command, argc, argv, &p.shared, &p.options, &p.args);
	return p;
}

static void done(const struct ctl_command *command, struct parsed *p)
{
	ctl_args_fini(command, &p->options, &p->args);
}

static void test_operands_and_options_mix(void **state)
{
	struct parsed p = parse(&plain, "-f a --text red -n3 b --time 2m --json -w team -m 1 --many=2");

	(void)state;
	assert_int_equal(p.rc, 0);
	assert_int_equal(p.args.count, 2);
	assert_string_equal(p.args.words[0], "a");
	assert_string_equal(p.args.words[1], "b");
	assert_true(p.options.flag && p.shared.json);
	assert_string_equal(p.options.text, "red");
	assert_string_equal(p.shared.workspace, "team");
	assert_int_equal(p.options.count, 3);
	assert_int_equal(p.options.time, 120);
	assert_int_equal(p.options.many.count, 2);
	assert_string_equal(p.options.many.words[1], "2");
	done(&plain, &p);
}

static void test_options_end(void **state)
{
	struct parsed p = parse(&plain, "-- -f -n");

	(void)state;
	assert_int_equal(p.rc, 0);
	assert_int_equal(p.args.count, 2);
	assert_string_equal(p.args.words[0], "-f");
	assert_false(p.options.flag);
	done(&plain, &p);

	p = parse(&plain, "--text red -- --");
	assert_int_equal(p.args.count, 1);
	assert_string_equal(p.args.words[0], "--");
	done(&plain, &p);

	/* What looks like the end may be a value. */
	p = parse(&plain, "-m -- a");
	assert_int_equal(p.rc, 0);
	assert_string_equal(p.options.many.words[0], "--");
	assert_int_equal(p.args.count, 1);
	done(&plain, &p);
}

static void test_a_command_keeps_its_own_options(void **state)
{
	static const struct {
		const char *words;
		int count;
		bool flag;
		const char *second;
	} cases[] = {
		{"-f task make -n -f", 4, true, "make"}, {"task -f make -n", 3, true, "make"}, {"task -f -- make --json", 3, true, "make"},
		{"task -- -f", 2, false, "-f"},		 {"task make -- -f", 4, false, "make"}, {"-- task -f", 2, false, "-f"},
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct parsed p = parse(&stops, cases[i].words);

		assert_int_equal(p.rc, 0);
		assert_int_equal(p.args.count, cases[i].count);
		assert_int_equal(p.options.flag, cases[i].flag);
		assert_string_equal(p.args.words[1], cases[i].second);
		assert_false(p.shared.json);
		done(&stops, &p);
	}
}

static void test_refusals(void **state)
{
	static const char *const cases[] = {"",	    "a b c",	   "a --bogus",	   "a -x",	     "a -n",	      "a --count",
					    "a -n 0",	    "a -n -1", "a -n 1x",	   "a --time 0",     "a --time soon", "a --time -5s",
					    "a --text pink", "a -t gree",    "a -t green-",   "a --flag=1", "a -n 99999999999999999999"};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct parsed p = parse(&plain, cases[i]);

		if (p.rc != CTL_USAGE)
			fail_msg("taken: %s", cases[i]);
		done(&plain, &p);
	}
}

static void test_a_token_is_no_shortened_file(void **state)
{
	static const char *const refused[] = {"a --token secret", "a --token=secret", "a --tok secret", "a --t=secret", "a --token-fil secret"};
	struct parsed p;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(refused); i++) {
		p = parse(&none_but_shared, refused[i]);
		if (p.rc != CTL_USAGE || p.shared.token_file)
			fail_msg("taken: %s", refused[i]);
		done(&none_but_shared, &p);
	}
	p = parse(&none_but_shared, "a --token-file f --addr http://x");
	assert_int_equal(p.rc, 0);
	assert_string_equal(p.shared.token_file, "f");
	assert_string_equal(p.shared.address, "http://x");
	done(&none_but_shared, &p);
}

static void test_dashes_are_known(void **state)
{
	static const struct {
		const char *words;
		bool dashes;
	} cases[] = {{"task make", false}, {"task -- make", true}, {"-- task make", true}, {"task make -- x", false}, {"task", false}};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct parsed p = parse(&stops, cases[i].words);

		assert_int_equal(p.args.dashes, cases[i].dashes);
		done(&stops, &p);
	}
}

static void test_words_are_whole(void **state)
{
	struct parsed p = parse(&plain, "a --text blue-green");

	(void)state;
	assert_int_equal(p.rc, 0);
	done(&plain, &p);
	p = parse(&plain, "a --text blue");
	assert_int_equal(p.rc, CTL_USAGE);
	done(&plain, &p);
}

static void test_help_needs_no_operand(void **state)
{
	struct parsed p = parse(&plain, "--help");

	(void)state;
	assert_int_equal(p.rc, 0);
	assert_true(p.shared.help);
	done(&plain, &p);
	p = parse(&none, "x");
	assert_int_equal(p.rc, CTL_USAGE);
	done(&none, &p);
}

static void test_local_commands_take_no_address(void **state)
{
	static const struct ctl_command local = {.name = "local", .usage = "", .flags = CTL_LOCAL};
	struct parsed p = parse(&local, "--json");

	(void)state;
	assert_int_equal(p.rc, 0);
	done(&local, &p);
	p = parse(&local, "--address http://x");
	assert_int_equal(p.rc, CTL_USAGE);
	done(&local, &p);
}

static void test_usage_texts(void **state)
{
	const char *usage = "TASK [--] [COMMAND…]";
	struct ctl_operand operand;

	(void)state;
	assert_true(ctl_operand_next(&usage, &operand));
	assert_string_equal(operand.name, "TASK");
	assert_false(operand.optional || operand.repeats);
	assert_true(ctl_operand_next(&usage, &operand));
	assert_string_equal(operand.name, "COMMAND");
	assert_true(operand.optional && operand.repeats);
	assert_false(ctl_operand_next(&usage, &operand));
	assert_false(ctl_operand_next(&usage, &operand));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_operands_and_options_mix),
		cmocka_unit_test(test_options_end),
		cmocka_unit_test(test_a_command_keeps_its_own_options),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_a_token_is_no_shortened_file),
		cmocka_unit_test(test_dashes_are_known),
		cmocka_unit_test(test_words_are_whole),
		cmocka_unit_test(test_help_needs_no_operand),
		cmocka_unit_test(test_local_commands_take_no_address),
		cmocka_unit_test(test_usage_texts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
