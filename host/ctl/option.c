/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arguments, help and settings of berthctl. Flags win over the environment, the environment over the file. The token is never
 * taken from the command line itself, where every user of the machine could read it.
 */
#include "ctl/ctl.h"

#include <errno.h>
#include <getopt.h>
#include <libconfig.h>
#include <stdarg.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/secret.h"

#define OPTION_MAX 32

int ctl_fail(int code, const char *fmt, ...)
{
	va_list args;

	fflush(stdout);
	fputs("berthctl: ", stderr);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
	return code;
}

static void help_row(const struct ctl_option *o)
{
	char left[64];

	snprintf(left, sizeof(left), "%c%c%s--%s%s%s", o->letter ? '-' : ' ', o->letter ? o->letter : ' ', o->letter ? ", " : "  ",
		 o->name, o->argument ? " " : "", o->argument ? o->argument : "");
	printf("  %-28s %s\n", left, o->doc);
}

static const struct ctl_option shared_help[] = {
	{"address", 0, "URL", NULL, "where berthd listens"},
	{"token-file", 0, "FILE", NULL, "file with the bearer token"},
	{"workspace", 'w', "NAME", NULL, "workspace of the task (default: \"default\")"},
	{"json", 0, NULL, NULL, "print JSON instead of text"},
	{"help", 'h', NULL, NULL, "print this help"},
	{0},
};

void ctl_help(const struct ctl_command *command, const struct ctl_option *options)
{
	printf("usage: berthctl %s [options]%s%s\n\n%s\n\nOptions:\n", command->name, *command->usage ? " " : "", command->usage,
	       command->doc);
	for (const struct ctl_option *o = options; o && o->name; o++)
		help_row(o);
	for (const struct ctl_option *o = shared_help; o->name; o++)
		help_row(o);
	if (command->more)
		printf("\n%s", command->more);
}

/* All rows of one parse: the command's and the shared ones, in getopt's form. */
struct parser {
	const struct ctl_option *rows[OPTION_MAX];
	struct option longs[OPTION_MAX + 1];
	char letters[3 * OPTION_MAX];
	size_t count;
};

static void parser_add(struct parser *p, const struct ctl_option *rows)
{
	for (; rows && rows->name && p->count < OPTION_MAX; rows++, p->count++) {
		p->rows[p->count] = rows;
		p->longs[p->count] = (struct option){rows->name, rows->argument ? required_argument : no_argument, NULL,
						     256 + (int)p->count};
		if (rows->letter) {
			size_t len = strlen(p->letters);

			snprintf(p->letters + len, sizeof(p->letters) - len, "%c%s", rows->letter, rows->argument ? ":" : "");
		}
	}
}

static const struct ctl_option *parser_find(const struct parser *p, int got)
{
	if (got >= 256)
		return p->rows[got - 256];
	for (size_t i = 0; i < p->count; i++)
		if (p->rows[i]->letter == got)
			return p->rows[i];
	return NULL;
}

static int operands_ok(const struct ctl_command *command, int count, int least, int most)
{
	if (count < least) {
		ctl_fail(CTL_USAGE, "usage: berthctl %s [options] %s", command->name, command->usage);
		return -1;
	}
	if (most >= 0 && count > most) {
		ctl_fail(CTL_USAGE, "%s: too many arguments; see berthctl %s --help", command->name, command->name);
		return -1;
	}
	return 0;
}

static int parse_all(struct parser *p, const struct ctl_command *command, int argc, char **argv)
{
	int got;

	opterr = 0;
	optind = 0; /* the C library's word for: a new argument list, from its first word */
	while ((got = getopt_long(argc, argv, p->letters, p->longs, NULL)) != -1) {
		const struct ctl_option *row = got == '?' || got == ':' ? NULL : parser_find(p, got);

		if (!row)
			return ctl_fail(CTL_USAGE, "%s: '%s' is not an option here, or lacks its value; see berthctl %s --help",
					command->name, argv[optind - 1], command->name);
		if (row->argument)
			*(char **)row->value = optarg;
		else
			*(bool *)row->value = true;
	}
	return 0;
}

static int read_token_file(struct ctl *ctl, const char *path)
{
	char source[4200];
	struct secret *secret = NULL;
	struct err err = {0};
	const void *ptr;
	size_t len;

	snprintf(source, sizeof(source), "file:%s", path);
	if (secret_load(source, &secret, &err) || !secret) {
		secret_free(secret);
		return ctl_fail(CTL_USAGE, "%s", err.msg[0] ? err.msg : "the token file is empty");
	}
	ptr = secret_ptr(secret, &len);
	free(ctl->token);
	ctl->token = strndup(ptr, len);
	secret_free(secret);
	return 0;
}

static void set(char **value, const char *text)
{
	if (text && *text) {
		free(*value);
		*value = strdup(text);
	}
}

static int read_settings(struct ctl *ctl, config_t *config)
{
	const char *text = NULL;

	if (config_lookup_string(config, "address", &text))
		set(&ctl->address, text);
	if (config_lookup_string(config, "workspace", &text))
		set(&ctl->workspace, text);
	if (config_lookup_string(config, "token", &text)) {
		if (strncmp(text, "file:", 5))
			return ctl_fail(CTL_USAGE, "token in the settings file must be \"file:<path>\"");
		return read_token_file(ctl, text + 5);
	}
	return 0;
}

static int read_file(struct ctl *ctl)
{
	const char *named = getenv("BERTH_CTL_CONF"), *home = getenv("HOME");
	char path[4096];
	config_t config;
	int rc = 0;

	snprintf(path, sizeof(path), "%s%s", named ? named : home ? home : "", named ? "" : "/.config/berth/ctl.conf");
	if (!named && access(path, F_OK))
		return 0;
	config_init(&config);
	if (!config_read_file(&config, path))
		rc = ctl_fail(CTL_USAGE, "%s:%d: %s", path, config_error_line(&config), config_error_text(&config));
	else
		rc = read_settings(ctl, &config);
	config_destroy(&config);
	return rc;
}

int ctl_config(struct ctl *ctl)
{
	int rc = read_file(ctl);

	if (rc)
		return rc;
	set(&ctl->address, getenv("BERTH_ADDRESS"));
	set(&ctl->token, getenv("BERTH_TOKEN"));
	set(&ctl->workspace, getenv("BERTH_WORKSPACE"));
	if (!ctl->address)
		ctl->address = strdup("http://127.0.0.1:8000");
	if (!ctl->workspace)
		ctl->workspace = strdup("default");
	while (*ctl->address && ctl->address[strlen(ctl->address) - 1] == '/')
		ctl->address[strlen(ctl->address) - 1] = '\0';
	return 0;
}

int ctl_parse(struct ctl *ctl, const struct ctl_command *command, const struct ctl_option *options, int argc, char **argv,
	      int least, int most, bool stop_early)
{
	char *address = NULL, *token_file = NULL, *workspace = NULL;
	const struct ctl_option shared[] = {
		{"address", 0, "URL", &address, NULL},   {"token-file", 0, "FILE", &token_file, NULL},
		{"workspace", 'w', "NAME", &workspace, NULL}, {"json", 0, NULL, &ctl->json, NULL},
		{"help", 'h', NULL, &ctl->help, NULL},   {0},
	};
	struct parser parser = {0};
	int rc;

	if (stop_early) /* options may follow the first operand (the task), but not what comes after it */
		setenv("POSIXLY_CORRECT", "1", 1);
	parser_add(&parser, options);
	parser_add(&parser, shared);
	rc = parse_all(&parser, command, argc, argv);
	if (rc)
		return -rc - 1;
	if (ctl->help) {
		ctl_help(command, options);
		return -CTL_OK - 1;
	}
	if (operands_ok(command, argc - optind, least, most))
		return -CTL_USAGE - 1;
	rc = ctl->address ? 0 : ctl_config(ctl); /* a second parse of one command keeps what the first one read */
	if (!rc && token_file)
		rc = read_token_file(ctl, token_file);
	if (rc)
		return -rc - 1;
	set(&ctl->address, address);
	set(&ctl->workspace, workspace);
	return optind;
}

void ctl_fini(struct ctl *ctl)
{
	free(ctl->address);
	if (ctl->token)
		secret_wipe(ctl->token, strlen(ctl->token));
	free(ctl->token);
	free(ctl->workspace);
}

int64_t ctl_seconds(const char *text)
{
	int64_t ms;
	char *end;

	if (!clock_parse_duration(text, &ms) && ms > 0)
		return (ms + 999) / 1000;
	errno = 0;
	ms = strtoll(text, &end, 10);
	return errno || *end || end == text || ms < 0 ? -1 : ms;
}
