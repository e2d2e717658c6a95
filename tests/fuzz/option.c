/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: one option's value. The first byte says the type and which flags; what was read can be written and read
 * again. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "conf/option.h"
#include "core/clock.h"
#include "fuzz.h"

static const enum option_type types[] = {OPTION_STRING, OPTION_INTEGER, OPTION_BOOLEAN, OPTION_DURATION,
					 OPTION_SIZE,	OPTION_FLOAT,	OPTION_WORD};

/* Without the quotes of the file's syntax, and the suffix of a long integer. */
static char *bare(const struct option_row *row, const struct buf *buf)
{
	bool quoted = buf->ptr[0] == '"';
	size_t len = buf->len - (quoted ? 2 : 0);

	if (row->type == OPTION_INTEGER && buf->ptr[buf->len - 1] == 'L')
		len--;
	return fuzz_copy(buf->ptr + quoted, len);
}

static void check_again(const struct option_row *row, const struct option_value *value)
{
	struct option_value again;
	struct buf buf;
	char *text;

	buf_init(&buf, 1 << 22);
	option_format(row, value, &buf);
	FUZZ_CHECK(!buf.error && buf.len);
	text = bare(row, &buf);
	if (!value->string) {
		FUZZ_PLANTED(text, strlen(text));
		FUZZ_CHECK(option_parse(row, text, "again", &again, NULL) == 0);
		FUZZ_CHECK(again.integer == value->integer && !isless(again.number, value->number) &&
			   !isgreater(again.number, value->number));
	}
	free(text);
	buf_fini(&buf);
}

static void check_time(const char *text)
{
	int64_t ms = 0, again = 0;
	char written[32];

	if (clock_parse(text, &ms) != 0)
		return;
	clock_format(ms, written);
	FUZZ_CHECK(ms == 0 || (clock_parse(written, &again) == 0 && again == ms));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	unsigned first = fuzz_byte(&in);
	struct option_row row = {
		.key = "group.key",
		.type = types[first % 7],
		.flags = first & 64 ? OPTION_SECRET : 0,
		.min = first & 128 ? 5 : 0,
		.max = first & 128 ? 86400000 : 0,
		.words = "one|two|three",
	};
	struct option_value value = {0};
	struct err err = {0};
	char *text = fuzz_copy(in.ptr, in.len);

	if (option_parse(&row, text, "here", &value, &err) == 0)
		check_again(&row, &value);
	else
		FUZZ_CHECK(err.code == ERR_CONFIG && err.msg[0] && !value.string);
	check_time(text);
	free(value.string);
	free(text);
	return 0;
}
