/* SPDX-License-Identifier: Apache-2.0 */
/* The table of commands: what help, completion and man pages take for granted of every row. */
#include "unit.h"

#include <ctype.h>

static void each_command(void (*check)(const struct ctl_command *command))
{
	for (const struct ctl_group *g = ctl_groups; g->title; g++)
		for (const struct ctl_command *c = g->commands; c->name; c++)
			check(c);
}

static void sentence(const char *text, const char *of)
{
	size_t len = strlen(text);

	if (!isupper((unsigned char)text[0]) || text[len - 1] == ' ' || (text[len - 1] != '.' && !strchr(text, ';')))
		fail_msg("%s: '%s' is no sentence", of, text);
}

static void check_row(const struct ctl_command *c)
{
	const char *usage = c->usage;
	struct ctl_operand operand;
	bool optional = false, repeats = false;

	sentence(c->doc, c->name);
	assert_non_null(c->run);
	assert_non_null(c->examples);
	assert_true(strlen(c->name) <= 20);
	assert_true(c->options_size <= CTL_OPTIONS_MAX);
	assert_true(!c->options == !c->options_size);
	while (ctl_operand_next(&usage, &operand)) {
		assert_false(repeats);
		assert_true(operand.optional || !optional);
		optional = operand.optional;
		repeats = operand.repeats;
	}
	while (*usage == ' ')
		usage++;
	assert_string_equal(usage, "");
	for (const char *line = c->examples; *line; line = strchr(line, '\n') + 1) {
		assert_non_null(strstr(line, "berthctl"));
		assert_non_null(strchr(line, '\n'));
	}
	if (c->more)
		assert_int_equal(c->more[strlen(c->more) - 1], '\n');
}

static void check_options(const struct ctl_command *c)
{
	const struct ctl_option *tables[] = {c->options, ctl_shared_of(c)};
	const struct ctl_option *seen[64];
	size_t count = 0;

	for (size_t t = 0; t < 2; t++)
		for (const struct ctl_option *o = tables[t]; o && o->name; o++) {
			assert_non_null(o->doc);
			assert_true(!o->argument == (o->type == CTL_FLAG));
			if (!t)
				assert_true(o->off < c->options_size);
			for (size_t i = 0; i < count; i++) {
				assert_string_not_equal(seen[i]->name, o->name);
				assert_true(!o->letter || o->letter != seen[i]->letter);
			}
			seen[count++] = o;
		}
}

static void check_found(const struct ctl_command *c)
{
	char copy[64], *argv[3] = {copy};
	int words = 0;

	snprintf(copy, sizeof(copy), "%s", c->name);
	argv[1] = strchr(copy, ' ');
	if (argv[1])
		*argv[1]++ = '\0';
	assert_ptr_equal(ctl_find(argv[1] ? 2 : 1, argv, &words), c);
	assert_int_equal(words, argv[1] ? 2 : 1);
}

static void test_every_row(void **state)
{
	(void)state;
	each_command(check_row);
}

static void test_every_option(void **state)
{
	(void)state;
	each_command(check_options);
}

static void test_every_command_is_found(void **state)
{
	char *nothing[] = {(char[]){"nonsense"}, NULL}, *half[] = {(char[]){"providers"}, NULL};
	int words;

	(void)state;
	each_command(check_found);
	assert_null(ctl_find(1, nothing, &words));
	assert_null(ctl_find(1, half, &words));
}

static void test_exit_codes_are_one_each(void **state)
{
	static const int codes[] = {
#define X(name, code, text) code,
		CTL_EXITS(X)
#undef X
	};

	(void)state;
	for (size_t i = 1; i < COUNT_OF(codes); i++)
		assert_true(codes[i] > codes[i - 1]);
	assert_int_equal(ctl_code_of(401), CTL_DENIED);
	assert_int_equal(ctl_code_of(410), CTL_NOT_FOUND);
	assert_int_equal(ctl_code_of(429), CTL_UNAVAILABLE);
	assert_int_equal(ctl_code_of(422), CTL_REFUSED);
	assert_int_equal(ctl_code_of(500), CTL_ERROR);
	assert_int_equal(ctl_code_of(302), CTL_ERROR);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_row),
		cmocka_unit_test(test_every_option),
		cmocka_unit_test(test_every_command_is_found),
		cmocka_unit_test(test_exit_codes_are_one_each),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
