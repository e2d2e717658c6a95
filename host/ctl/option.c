/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arguments: from the words of a command line to operands and options by the rows of a command, nothing else. Main thread.
 * Every refusal is one sentence that names the word.
 */
#include "ctl/ctl.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>

#include "core/limits.h"
#include "core/near.h"

#define OPTION_MAX 40
#define LONG_BASE 256

/* Names and words of a sandbox are in it, too. */
static void clean_lines(struct buf *out, char *text)
{
	for (char *line; (line = strsep(&text, "\n"));) {
		ctl_clean(out, line);
		buf_puts(out, text ? "\n" : "");
	}
}

int ctl_fail(int code, const char *fmt, ...)
{
	char *sentence = NULL;
	struct buf clean;
	va_list args;

	fflush(stdout);
	va_start(args, fmt);
	if (vasprintf(&sentence, fmt, args) < 0)
		sentence = NULL;
	va_end(args);
	buf_init(&clean, LIMIT_MIB);
	if (sentence)
		clean_lines(&clean, sentence);
	fprintf(stderr, "berthctl: %s\n", clean.ptr ? clean.ptr : fmt);
	if (clean.ptr)
		ctl_json_failed(code, clean.ptr);
	buf_fini(&clean);
	free(sentence);
	return code;
}

#define SHARED(name_, letter_, type_, argument_, field_, doc_)                                                         \
	{                                                                                                              \
		.name = name_, .letter = letter_, .type = type_, .argument = argument_,                                \
		.off = offsetof(struct ctl_shared, field_), .doc = doc_                                                \
	}

const struct ctl_option ctl_shared_options[] = {
	SHARED("address", 0, CTL_TEXT, "URL", address, "where berthd listens"),
	SHARED("token-file", 0, CTL_TEXT, "FILE", token_file, "file with the bearer token"),
	SHARED("ca-file", 0, CTL_TEXT, "FILE", ca_file, "PEM file of the authority that signed an https server"),
	SHARED("workspace", 'w', CTL_TEXT, "NAME", workspace, "workspace of the task"),
	SHARED("json", 0, CTL_FLAG, NULL, json, "print JSON instead of text"),
	SHARED("help", 'h', CTL_FLAG, NULL, help, "print this help"),
	{0},
};

const struct ctl_option *ctl_shared_of(const struct ctl_command *command)
{
	const struct ctl_option *row = ctl_shared_options;

	while (command->flags & CTL_LOCAL && strcmp(row->name, "json") != 0)
		row++;
	if (!ctl_shape_text(command))
		while (strcmp(row->name, "help") != 0)
			row++;
	return row;
}

const struct ctl_option *ctl_option_of(const struct ctl_command *command, const char *word, size_t len)
{
	const struct ctl_option *tables[] = {command->options, ctl_shared_of(command)};

	for (size_t i = 0; i < 2; i++)
		for (const struct ctl_option *row = tables[i]; row && row->name; row++)
			if ((len > 2 && !strncmp(word, "--", 2) && strlen(row->name) == len - 2 && !strncmp(word + 2, row->name, len - 2)) ||
			    (len == 2 && word[0] == '-' && row->letter && word[1] == row->letter))
				return row;
	return NULL;
}

/* Whoever writes --token means the token itself, and getopt would take it for the name of a file and have it printed. */
int ctl_refuse_token(const char *word)
{
	static const char name[] = "--token-file";
	size_t len = strcspn(word, "=");

	if (len < strlen("--t") || len >= strlen(name) || strncmp(word, name, len) != 0)
		return 0;
	return ctl_fail(CTL_USAGE,
			"'%.*s' is not an option: a token does not stand on a command line, where all users of the machine can read it\n"
			"  BERTH_TOKEN holds it, or --token-file names a file with it",
			(int)len, word);
}

bool ctl_operand_next(const char **usage, struct ctl_operand *ret)
{
	const char *at = *usage + strspn(*usage, " ");
	size_t len = strcspn(at, " ");

	if (len == strlen("[--]") && !strncmp(at, "[--]", len)) {
		at += len + strspn(at + len, " ");
		len = strcspn(at, " ");
	}
	*usage = at + len;
	ret->optional = *at == '[';
	ret->repeats = memmem(at, len, "…", strlen("…")) != NULL;
	at += ret->optional;
	for (len = 0; len < sizeof(ret->name) - 1 && isupper((unsigned char)at[len]); len++)
		ret->name[len] = at[len];
	ret->name[len] = '\0';
	return len > 0;
}

/* All rows of one parse, the command's and the shared ones, in getopt's form. */
struct parser {
	const struct ctl_command *command;
	const struct ctl_option *rows[OPTION_MAX];
	void *bases[OPTION_MAX];
	struct option longs[OPTION_MAX + 1];
	char letters[3 * OPTION_MAX + 3];
	size_t count;
};

static void parser_add(struct parser *p, const struct ctl_option *rows, void *base)
{
	for (; rows && rows->name && p->count < OPTION_MAX; rows++, p->count++) {
		size_t len = strlen(p->letters);

		p->rows[p->count] = rows;
		p->bases[p->count] = base;
		p->longs[p->count] = (struct option){rows->name, rows->argument ? required_argument : no_argument, NULL,
						     LONG_BASE + (int)p->count};
		if (rows->letter)
			snprintf(p->letters + len, sizeof(p->letters) - len, "%c%s", rows->letter, rows->argument ? ":" : "");
	}
}

static bool is_word_of(const char *words, const char *text)
{
	size_t len = strlen(text);

	for (const char *at = words; len && (at = strstr(at, text)); at += len)
		if ((at == words || at[-1] == ' ') && (at[len] == ' ' || !at[len]))
			return true;
	return false;
}

static int add_many(struct ctl_many *many, const char *text)
{
	const char **more = realloc(many->words, (many->count + 1) * sizeof(*more));

	if (!more)
		return -1;
	more[many->count++] = text;
	many->words = more;
	return 0;
}

static int64_t count_of(const char *text)
{
	char *end;
	long long value;

	errno = 0;
	value = strtoll(text, &end, 10);
	return errno || *end || end == text || value < 1 ? -1 : value;
}

static int take(const struct parser *p, size_t at, const char *text)
{
	const struct ctl_option *row = p->rows[at];
	void *field = (char *)p->bases[at] + row->off;
	int64_t number;

	if (row->words && !is_word_of(row->words, text))
		return ctl_fail(CTL_USAGE, "--%s: '%s' is none of: %s", row->name, text, row->words);
	switch (row->type) {
	case CTL_FLAG:
		*(bool *)field = true;
		return 0;
	case CTL_TEXT:
		*(const char **)field = text;
		return 0;
	case CTL_MANY:
		return add_many(field, text) ? ctl_fail(CTL_ERROR, "out of memory") : 0;
	case CTL_TIME:
		number = ctl_seconds(text);
		if (number <= 0)
			return ctl_fail(CTL_USAGE, "--%s: '%s' is not a time; write 90s or 10m", row->name, text);
		break;
	default:
		number = count_of(text);
		if (number < 0)
			return ctl_fail(CTL_USAGE, "--%s: '%s' is not a number of 1 or more", row->name, text);
	}
	*(int64_t *)field = number;
	return 0;
}

/* The option that "--word" is a slip of, or NULL. */
static const char *nearest(const struct parser *p, const char *word, size_t len)
{
	size_t least = NEAR_SLIPS + 1;
	const char *best = NULL;
	char name[32];

	if (len < 4 || len - 2 >= sizeof(name) || strncmp(word, "--", 2) != 0)
		return NULL;
	snprintf(name, sizeof(name), "%.*s", (int)len - 2, word + 2);
	for (size_t i = 0; i < p->count; i++) {
		size_t far = near_distance(name, p->rows[i]->name);

		if (far < least && far < strlen(name) / 2) {
			least = far;
			best = p->rows[i]->name;
		}
	}
	return best;
}

static int refuse(const struct parser *p, int got, const char *word)
{
	const char *name = p->command->name, *near;
	int len = (int)strcspn(word, "="); /* the value may be a secret */

	if (got == ':')
		return ctl_fail(CTL_USAGE, "%s: '%.*s' needs a value; see berthctl %s --help", name, len, word, name);
	near = nearest(p, word, (size_t)len);
	if (near)
		return ctl_fail(CTL_USAGE, "%s: '%.*s' is not an option of this command; did you mean '--%s'? berthctl %s --help lists all",
				name, len, word, near, name);
	return ctl_fail(CTL_USAGE, "%s: '%.*s' is not an option of this command; see berthctl %s --help", name, len, word, name);
}

/* Options up to the next operand. ret_rest: "--" stood there, and everything after it is an operand. */
static int parse_options(struct parser *p, int argc, char **argv, bool *ret_rest)
{
	for (;;) {
		int before = optind ? optind : 1, got = getopt_long(argc, argv, p->letters, p->longs, NULL);
		size_t at = 0;
		int rc;

		if (got == -1) {
			*ret_rest = optind == before + 1 && !strcmp(argv[before], "--");
			return 0;
		}
		if (got == '?' || got == ':')
			return got == ':' && ctl_refuse_token(argv[before]) ? CTL_USAGE : refuse(p, got, argv[before]);
		while (at < p->count && got != LONG_BASE + (int)at && got != p->rows[at]->letter)
			at++;
		assert(at < p->count); /* getopt knows no others */
		rc = !strcmp(p->rows[at]->name, "token-file") ? ctl_refuse_token(argv[before]) : 0;
		rc = rc ? rc : take(p, at, optarg);
		if (rc)
			return rc;
	}
}

static int check_count(const struct ctl_command *command, int count)
{
	const char *usage = command->usage;
	struct ctl_operand operand;
	int least = 0, most = 0;

	while (ctl_operand_next(&usage, &operand)) {
		least += !operand.optional;
		most = operand.repeats || most == -1 ? -1 : most + 1;
	}
	if (count < least)
		return ctl_fail(CTL_USAGE, "%s: an argument is missing\n  usage: berthctl %s [options] %s", command->name,
				command->name, command->usage);
	if (most >= 0 && count > most)
		return ctl_fail(CTL_USAGE, "%s: there is an argument too many\n  usage: berthctl %s [options]%s%s", command->name,
				command->name, most ? " " : "", command->usage);
	return 0;
}

static int parse_words(struct parser *p, int argc, char **argv, struct ctl_args *ret)
{
	bool rest = false;
	int rc;

	opterr = 0;
	optind = 0; /* the C library's word for: a new argument list, from its first word */
	for (;;) {
		rc = 0;
		if (!rest) {
			rc = parse_options(p, argc, argv, &rest);
			ret->dashes = rest;
		}
		if (rc || optind >= argc)
			return rc;
		rest = rest || (p->command->flags & CTL_STOPS && ret->count > 0);
		ret->words[ret->count++] = argv[optind++];
	}
}

int ctl_args_parse(const struct ctl_command *command, int argc, char **argv, struct ctl_shared *shared, void *options,
		   struct ctl_args *ret)
{
	struct parser parser = {.command = command, .letters = "+:"};
	int rc;

	*ret = (struct ctl_args){.words = calloc((size_t)argc + 1, sizeof(char *)), .options = options};
	if (!ret->words)
		return ctl_fail(CTL_ERROR, "out of memory");
	parser_add(&parser, command->options, options);
	parser_add(&parser, ctl_shared_of(command), shared);
	rc = parse_words(&parser, argc, argv, ret);
	if (!rc && !shared->help)
		rc = check_count(command, ret->count);
	return rc;
}

void ctl_args_fini(const struct ctl_command *command, void *options, struct ctl_args *args)
{
	for (const struct ctl_option *row = command->options; row && row->name; row++)
		if (row->type == CTL_MANY)
			free(((struct ctl_many *)((char *)options + row->off))->words);
	free(args->words);
}
