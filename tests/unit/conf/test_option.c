/* SPDX-License-Identifier: Apache-2.0 */
/* One option: text in, value out, and the same text again. */
#include "conf_fixture.h"

static const struct option_row rows[] = {
    {.key = "t", .type = OPTION_STRING},
    {.key = "i", .type = OPTION_INTEGER, .min = -5, .max = INT64_C(9000000000)},
    {.key = "b", .type = OPTION_BOOLEAN},
    {.key = "d", .type = OPTION_DURATION, .min = 1, .max = 1000000000},
    {.key = "s", .type = OPTION_SIZE},
    {.key = "f", .type = OPTION_FLOAT},
    {.key = "w", .type = OPTION_WORD, .words = "|red|green"},
    {.key = "k", .type = OPTION_STRING, .flags = OPTION_SECRET},
};
enum { T, I, B, D, S, F, W, K };

static void sizes(void **state)
{
	static const struct {
		const char *text;
		int64_t bytes; /* -1: refused */
	} cases[] = {
	    {"0", 0},
	    {"512B", 512},
	    {"64KiB", 65536},
	    {"10MB", 10000000},
	    {"1GiB", 1073741824},
	    {"2TiB", INT64_C(2199023255552)},
	    {"", -1},
	    {"5", -1},
	    {"1G", -1},
	    {"1 GiB", -1},
	    {"-1B", -1},
	    {"GiB", -1},
	    {"1.5GiB", -1},
	    {"1gib", -1},
	    {"9223372036854775807B", INT64_MAX},
	    {"9223372036854775808B", -1},
	    {"9007199254740992KiB", -1},
	    {"+1B", -1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		int64_t bytes = -1;
		int rc = option_parse_size(cases[i].text, &bytes);

		if (bytes != cases[i].bytes || !rc != (cases[i].bytes >= 0))
			fail_msg("%s: rc %d, %lld bytes", cases[i].text, rc, (long long)bytes);
	}
}

static void values(void **state)
{
	/* row, text, as formatted again; NULL: refused */
	static const struct {
		int row;
		const char *text, *again;
	} cases[] = {
	    {T, "", "\"\""},
	    {T, "a \"b\" \\c", "\"a \\\"b\\\" \\\\c\""},
	    {T, "a\nb", NULL},
	    {T, "\xff", NULL},
	    {T, "\xc3\xa9", "\"\xc3\xa9\""},
	    {I, "0", "0"},
	    {I, "-5", "-5"},
	    {I, "-6", NULL},
	    {I, "1000000000", "1000000000L"},
	    {I, "9000000001", NULL},
	    {I, "1e9", NULL},
	    {I, " 1", NULL},
	    {I, "0x10", NULL},
	    {I, "", NULL},
	    {I, "99999999999999999999", NULL},
	    {B, "true", "true"},
	    {B, "False", "false"},
	    {B, "1", "true"},
	    {B, "yes", NULL},
	    {B, "", NULL},
	    {D, "15m", "\"15m\""},
	    {D, "90s", "\"1m30s\""},
	    {D, "0", NULL},
	    {D, "-1s", NULL},
	    {D, "15", NULL},
	    {D, "1.5h", NULL},
	    {D, "9223372036854775808s", NULL},
	    {D, "100d", NULL},
	    {S, "0", "\"0B\""},
	    {S, "1536MiB", "\"1536MiB\""},
	    {S, "1000KB", "\"1000000B\""},
	    {S, "2048MiB", "\"2GiB\""},
	    {S, "7", NULL},
	    {F, "1", "1.0"},
	    {F, "0.5", "0.5"},
	    {F, "1e300", "1.0000000000000001e+300"},
	    {F, "nan", NULL},
	    {F, "inf", NULL},
	    {F, "1e999", NULL},
	    {F, "0x1p3", NULL},
	    {F, "", NULL},
	    {W, "red", "\"red\""},
	    {W, "", "\"\""},
	    {W, "green", "\"green\""},
	    {W, "re", NULL},
	    {W, "red|green", NULL},
	    {W, "Red", NULL},
	    {K, "file:/etc/x", "\"(secret)\""},
	    {K, "env:X", "\"(secret)\""},
	    {K, "file:", NULL},
	    {K, "file:x", NULL},
	    {K, "env:", NULL},
	    {K, SECRET_A, NULL},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct option_value value = {0};
		struct err err = {0};
		struct buf buf;
		int rc = option_parse(&rows[cases[i].row], cases[i].text, "here:7", &value, &err);

		if (!cases[i].again) {
			char start[32];

			snprintf(start, sizeof(start), "here:7: %s: ", rows[cases[i].row].key);
			if (rc != ERR_CONFIG || strncmp(err.msg, start, strlen(start)))
				fail_msg("%s: rc %d, %s", cases[i].text, rc, err.msg);
			assert_false(value.set);
			assert_null(strstr(err.msg, SECRET_A));
			continue;
		}
		if (rc)
			fail_msg("%s: %s", cases[i].text, err.msg);
		buf_init(&buf, 4096);
		option_format(&rows[cases[i].row], &value, &buf);
		assert_string_equal(buf.ptr, cases[i].again);
		buf_fini(&buf);
		free(value.string);
	}
}

/* Every default of the tables parses, every row is explained, and no key or environment name stands twice. */
static void tables(void **state)
{
	const struct option_row *tables[] = {conf_options, conf_target_options};

	(void)state;
	for (size_t t = 0; t < 2; t++) {
		for (const struct option_row *row = tables[t]; row->key; row++) {
			struct option_value value = {0};
			struct err err = {0};

			if (row->default_text && option_parse(row, row->default_text, "table", &value, &err))
				fail_msg("%s", err.msg);
			free(value.string);
			if (!row->doc || row->doc[strlen(row->doc) - 1] != '.')
				fail_msg("%s: has no sentence", row->key);
			for (const struct option_row *other = tables[t]; other < row; other++) {
				assert_string_not_equal(other->key, row->key);
				if (row->env && other->env)
					assert_string_not_equal(other->env, row->env);
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(sizes), cmocka_unit_test(values), cmocka_unit_test(tables)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
