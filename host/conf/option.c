/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One option: text to checked value and back. Pure functions, any thread; used for the host's own table and for the
 * tables of plugins. Must never repeat the text of a secret option in an error.
 */
#include "conf/option.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <strings.h>

#include "core/clock.h"
#include "core/ident.h"
#include "core/near.h"

static const struct size_unit {
	const char *name;
	int64_t bytes;
} size_units[] = {
    {"TiB", INT64_C(1) << 40},
    {"GiB", INT64_C(1) << 30},
    {"MiB", INT64_C(1) << 20},
    {"KiB", INT64_C(1) << 10},
    {"TB", INT64_C(1000000000000)},
    {"GB", INT64_C(1000000000)},
    {"MB", INT64_C(1000000)},
    {"KB", INT64_C(1000)},
    {"B", 1},
    {NULL, 0},
};

int option_parse_size(const char *text, int64_t *ret_bytes)
{
	char *end = NULL;
	long long count;

	if (!isdigit((unsigned char)text[0]))
		return ERR_INVALID_REQUEST;
	errno = 0;
	count = strtoll(text, &end, 10);
	if (errno)
		return ERR_INVALID_REQUEST;
	if (count == 0 && !*end) {
		*ret_bytes = 0;
		return 0;
	}
	for (const struct size_unit *unit = size_units; unit->name; unit++) {
		if (strcmp(end, unit->name))
			continue;
		if (count > INT64_MAX / unit->bytes)
			return ERR_INVALID_REQUEST;
		*ret_bytes = count * unit->bytes;
		return 0;
	}
	return ERR_INVALID_REQUEST;
}

static void format_size(int64_t bytes, struct buf *buf)
{
	for (const struct size_unit *unit = size_units; unit->name; unit++) {
		bool binary = unit->bytes == 1 || unit->name[1] == 'i';

		if (!binary || (bytes % unit->bytes) || (bytes == 0 && unit->bytes != 1))
			continue;
		buf_printf(buf, "\"%lld%s\"", (long long)(bytes / unit->bytes), unit->name);
		return;
	}
}

/* Cuts what an error repeats, so that the sentence keeps its end. */
#define SHOWN 60
static int refuse(const struct option_row *row, const char *text, const char *where, const char *expected,
		  struct err *err)
{
	if (row->flags & OPTION_SECRET)
		return err_set(err, ERR_CONFIG, "%s: %s: expected %s", where, row->key, expected);
	return err_set(err, ERR_CONFIG, "%s: %s: expected %s, got \"%.*s\"", where, row->key, expected, SHOWN, text);
}

static int parse_boolean(const char *text, int64_t *ret)
{
	if (!strcasecmp(text, "true") || !strcmp(text, "1"))
		*ret = 1;
	else if (!strcasecmp(text, "false") || !strcmp(text, "0"))
		*ret = 0;
	else
		return ERR_INVALID_REQUEST;
	return 0;
}

static int parse_integer(const char *text, int64_t *ret)
{
	const char *digits = text + (*text == '-');
	char *end = NULL;
	long long value;

	if (!isdigit((unsigned char)*digits))
		return ERR_INVALID_REQUEST;
	errno = 0;
	value = strtoll(text, &end, 10);
	if (errno || *end)
		return ERR_INVALID_REQUEST;
	*ret = value;
	return 0;
}

static int parse_float(const char *text, double *ret)
{
	char *end = NULL;

	if (!*text || text[strspn(text, "+-.0123456789eE")])
		return ERR_INVALID_REQUEST;
	*ret = strtod(text, &end);
	return *end || !isfinite(*ret) ? ERR_INVALID_REQUEST : 0;
}

const char *option_expected(enum option_type type)
{
	switch (type) {
	case OPTION_INTEGER:
		return "an integer";
	case OPTION_BOOLEAN:
		return "true or false";
	case OPTION_FLOAT:
		return "a number";
	case OPTION_DURATION:
		return "a duration in quotes such as \"15m\"";
	case OPTION_SIZE:
		return "a size in quotes such as \"1GiB\"";
	default:
		return "a text in quotes";
	}
}

int option_check_kind(const struct option_row *row, enum option_type kind, const char *where, struct err *err)
{
	static const char *const found[] = {
	    [OPTION_INTEGER] = "an integer", [OPTION_BOOLEAN] = "true or false", [OPTION_FLOAT] = "a number"};

	if (kind == OPTION_STRING || row->type == OPTION_INTEGER || row->type == OPTION_BOOLEAN ||
	    row->type == OPTION_FLOAT)
		return 0;
	return err_set(err, ERR_CONFIG, "%s: config.%s: expected %s, got %s", where, row->key,
		       option_expected(row->type), found[kind]);
}

static const char *leaf(const char *key)
{
	const char *dot = strrchr(key, '.');

	return dot ? dot + 1 : key;
}

const char *option_near(const struct option_row *rows, const char *key)
{
	size_t least = strlen(key) > 2 * NEAR_SLIPS ? NEAR_SLIPS + 1 : NEAR_SLIPS; /* a short word is near to many */
	const char *best = NULL, *same_leaf = NULL;

	for (const struct option_row *row = rows; row->key; row++) {
		size_t far = near_distance(key, row->key);

		if (far < least) {
			least = far;
			best = row->key;
		}
		if (!same_leaf && !strcmp(leaf(key), leaf(row->key)))
			same_leaf = row->key;
	}
	return best ? best : same_leaf;
}

static bool is_word(const char *words, const char *text)
{
	const char *at = words;

	for (;;) {
		size_t len = strcspn(at, "|");

		if (len == strlen(text) && !strncmp(at, text, len))
			return true;
		if (!at[len])
			return false;
		at += len + 1;
	}
}

static bool is_text(const char *text)
{
	size_t len = strlen(text);

	for (size_t i = 0; i < len; i++)
		if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
			return false;
	return ident_utf8_valid(text, len);
}

/* In the row's own unit, as an operator would write it. */
static void format_bound(const struct option_row *row, int64_t bound, char *ret, size_t size)
{
	struct buf buf;
	struct option_value value = {.set = true, .integer = bound};

	buf_init(&buf, 64);
	option_format(row, &value, &buf);
	snprintf(ret, size, "%s", buf.error || !buf.ptr ? "?" : buf.ptr);
	buf_fini(&buf);
}

static int check_range(const struct option_row *row, const char *text, const char *where, int64_t value,
		       struct err *err)
{
	char least[40], most[40], expected[128];

	if (row->max <= row->min || (value >= row->min && value <= row->max))
		return 0;
	format_bound(row, row->min, least, sizeof(least));
	format_bound(row, row->max, most, sizeof(most));
	snprintf(expected, sizeof(expected), "%s to %s", least, most);
	return refuse(row, text, where, expected, err);
}

static int check_source(const struct option_row *row, const char *text, const char *where, struct err *err)
{
	bool may_be_empty = row->default_text && !*row->default_text;

	if (!(row->flags & OPTION_SECRET) || (!*text && may_be_empty) || (!strncmp(text, "file:/", 6) && text[6]) ||
	    (!strncmp(text, "env:", 4) && text[4]))
		return 0;
	return refuse(row, text, where, "a source, \"file:/path\" or \"env:NAME\"", err);
}

/* "none, container, or empty" of "|none|container". */
static void list_words(const char *words, char *ret, size_t size)
{
	bool may_be_empty = false;
	size_t len = (size_t)snprintf(ret, size, "one of ");
	const char *comma = "";

	for (const char *at = words;; at++) {
		size_t count = strcspn(at, "|");

		may_be_empty |= !count;
		if (count && len < size)
			len += (size_t)snprintf(ret + len, size - len, "%s%.*s", comma, (int)count, at);
		if (count)
			comma = ", ";
		at += count;
		if (!*at)
			break;
	}
	if (may_be_empty && len < size)
		snprintf(ret + len, size - len, ", or empty");
}

static int parse_string(const struct option_row *row, const char *text, const char *where, struct option_value *value,
			struct err *err)
{
	char expected[160] = "";
	int rc;

	if (!is_text(text))
		return refuse(row, "(bytes)", where, "UTF-8 text without control characters", err);
	if (row->type == OPTION_WORD && !is_word(row->words, text)) {
		list_words(row->words, expected, sizeof(expected));
		return refuse(row, text, where, expected, err);
	}
	rc = check_source(row, text, where, err);
	if (rc)
		return rc;
	value->string = strdup(text);
	return value->string ? 0 : err_set(err, ERR_NOMEM, "memory is out");
}

int option_parse(const struct option_row *row, const char *text, const char *where, struct option_value *ret,
		 struct err *err)
{
	struct option_value value = {.set = true};
	const char *expected = NULL;
	int rc = 0;

	switch (row->type) {
	case OPTION_STRING:
	case OPTION_WORD:
		rc = parse_string(row, text, where, &value, err);
		if (rc)
			return rc;
		break;
	case OPTION_INTEGER:
		rc = parse_integer(text, &value.integer);
		expected = "a whole number";
		break;
	case OPTION_BOOLEAN:
		rc = parse_boolean(text, &value.integer);
		expected = "true or false";
		break;
	case OPTION_DURATION:
		rc = clock_parse_duration(text, &value.integer);
		expected = "a duration with units such as \"15m\" or \"1h30m\"";
		break;
	case OPTION_SIZE:
		rc = option_parse_size(text, &value.integer);
		expected = "a size with a unit such as \"64KiB\" or \"1GiB\"";
		break;
	case OPTION_FLOAT:
		rc = parse_float(text, &value.number);
		expected = "a number";
		break;
	}
	if (rc)
		return refuse(row, text, where, expected, err);
	if (!value.string && row->type != OPTION_FLOAT && row->type != OPTION_BOOLEAN)
		rc = check_range(row, text, where, value.integer, err);
	if (!rc)
		*ret = value;
	return rc;
}

static void format_string(const char *text, struct buf *buf)
{
	buf_puts(buf, "\"");
	for (const char *at = text; *at; at++) {
		if (*at == '"' || *at == '\\')
			buf_append(buf, "\\", 1);
		buf_append(buf, at, 1);
	}
	buf_puts(buf, "\"");
}

static void format_float(double number, struct buf *buf)
{
	char text[40];

	snprintf(text, sizeof(text), "%.17g", number);
	buf_puts(buf, text);
	if (!strpbrk(text, ".e"))
		buf_puts(buf, ".0"); /* libconfig reads a number without a point as an integer */
}

void option_format(const struct option_row *row, const struct option_value *value, struct buf *buf)
{
	char text[32];

	switch (row->type) {
	case OPTION_STRING:
	case OPTION_WORD:
		if ((row->flags & OPTION_SECRET) && value->string && *value->string)
			buf_puts(buf, "\"(secret)\"");
		else
			format_string(value->string ? value->string : "", buf);
		break;
	case OPTION_INTEGER:
		buf_printf(buf, "%lld", (long long)value->integer);
		if (value->integer > 999999999 || value->integer < -999999999)
			buf_puts(buf, "L");
		break;
	case OPTION_BOOLEAN:
		buf_puts(buf, value->integer ? "true" : "false");
		break;
	case OPTION_DURATION:
		clock_format_duration(value->integer, text);
		buf_printf(buf, "\"%s\"", text);
		break;
	case OPTION_SIZE:
		format_size(value->integer, buf);
		break;
	case OPTION_FLOAT:
		format_float(value->number, buf);
		break;
	}
}
