/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Manual pages in man(7), for the build: berthctl.1 from the table of commands, berth.conf.5 from the tables of options. Main
 * thread; prints to standard output.
 */
#include <ctype.h>

#include "conf/conf.h"
#include "core/utf8.h"
#include "ctl/ctl.h"

static unsigned long code_point(const char *ptr, size_t len)
{
	unsigned long code = (unsigned char)ptr[0] & (0xffu >> (len + 1));

	for (size_t i = 1; i < len; i++)
		code = code << 6 | ((unsigned char)ptr[i] & 0x3f);
	return code;
}

/* Text as troff takes it: no line is read as a request, dashes and quotes stay what they are. */
static void put_text(const char *text, size_t len)
{
	bool start = true;
	size_t step;

	for (size_t i = 0; i < len; i += step) {
		char c = text[i];

		step = utf8_length(text + i, len - i);
		if (step > 1) { /* not every troff reads UTF-8 */
			printf("\\[u%04lX]", code_point(text + i, step));
			continue;
		}
		step = 1;

		if (start && (c == '.' || c == '\''))
			fputs("\\&", stdout);
		if (c == '\\')
			fputs("\\e", stdout);
		else if (c == '-')
			fputs("\\-", stdout);
		else if (c == '\'')
			fputs("\\(aq", stdout);
		else if (c == '`')
			fputs("\\(ga", stdout);
		else if (c == '^')
			fputs("\\(ha", stdout);
		else if (c == '~')
			fputs("\\(ti", stdout);
		else
			putchar(c);
		start = c == '\n';
	}
}

static void put(const char *text)
{
	put_text(text, strlen(text));
}

static void put_line(const char *macro, const char *text)
{
	fputs(macro, stdout);
	put(text);
	putchar('\n');
}

/* Paragraphs are parted by an empty line; breaks inside of one are for terminals only. */
static void put_paragraphs(const char *text)
{
	while (*text) {
		const char *end = strstr(text, "\n\n");
		size_t len = end ? (size_t)(end - text) : strlen(text);

		puts(".PP");
		put_text(text, len);
		if (len && text[len - 1] != '\n')
			putchar('\n');
		text += len + (end ? 2 : 0);
	}
}

static void put_option(const struct ctl_option *o, const char *doc)
{
	puts(".TP");
	fputs(".B ", stdout);
	if (o->letter)
		printf("\\-%c\\fR, \\fB", o->letter);
	printf("\\-\\-");
	put(o->name);
	if (o->argument) {
		fputs("\\fR \\fI", stdout);
		put(o->argument);
		fputs("\\fR", stdout);
	}
	putchar('\n');
	put(doc);
	puts(".");
}

static void put_command(const struct ctl_command *c)
{
	fputs(".SS berthctl ", stdout);
	put(c->name);
	fputs("\n.PP\n\\fBberthctl ", stdout);
	put(c->name);
	fputs("\\fR [\\fIoptions\\fR]", stdout);
	if (*c->usage) {
		fputs(" \\fI", stdout);
		put(c->usage);
		fputs("\\fR", stdout);
	}
	fputs("\n.PP\n", stdout);
	put(c->doc);
	putchar('\n');
	if (c->more)
		put_paragraphs(c->more);
	for (const struct ctl_option *o = c->options; o && o->name; o++)
		put_option(o, o->doc);
	for (const struct ctl_option *o = ctl_shared_of(c); ctl_shape_text(c) && o->name; o++)
		if (!strcmp(o->name, "json"))
			put_option(o, ctl_shape_text(c));
	if (c->examples) {
		puts(".PP\nExamples:\n.PP\n.RS 4\n.nf");
		put(c->examples);
		puts(".fi\n.RE");
	}
}

static void put_settings(const struct ctl_setting *rows)
{
	for (; rows->name; rows++) {
		put_line(".TP\n.B ", rows->name);
		put(rows->doc);
		puts(".");
	}
}

static void put_title(const char *name, const char *section)
{
	printf(".\\\" Made by berthctl help --man; the tables of the sources are the original.\n.TH ");
	for (const char *c = name; *c; c++)
		putchar(toupper((unsigned char)*c));
	printf(" %s \"\" \"Berth %s\" \"Berth\"\n.SH NAME\n", section, BERTH_VERSION);
}

static void put_exits(void)
{
	static const struct {
		const char *code, *text;
	} exits[] = {
#define X(name, code_, text_) {#code_, text_},
		CTL_EXITS(X)
#undef X
	};

	puts(".SH EXIT STATUS");
	for (size_t i = 0; i < sizeof(exits) / sizeof(*exits); i++) {
		put_line(".TP\n.B ", exits[i].code);
		put(exits[i].text);
		puts(".");
	}
	puts(".PP\n\\fBberthctl exec\\fR and \\fBberthctl wait\\fR end with the exit code of the command; everything that is not the command's own is 125 or 130.");
}

static int page_ctl(void)
{
	put_title("berthctl", "1");
	puts("berthctl \\- run commands in the sandboxes of Berth, and look after them\n"
	     ".SH SYNOPSIS\n.B berthctl\n.I COMMAND\n[\\fIoptions\\fR] \\&...\n.SH DESCRIPTION\n"
	     "Berth gives each task of an agent one sandbox: found by the task's name, made when there is none, taken away when it has been\n"
	     "quiet.\n.B berthctl\nspeaks the HTTP API of\n.BR berthd .");
	for (const struct ctl_group *g = ctl_groups; g->title; g++) {
		printf(".SH ");
		for (const char *c = g->title; *c; c++)
			putchar(toupper((unsigned char)*c));
		putchar('\n');
		for (const struct ctl_command *c = g->commands; c->name; c++)
			put_command(c);
	}
	puts(".SH OPTIONS\nOf every command that asks a daemon:");
	for (const struct ctl_option *o = ctl_shared_options; o->name; o++)
		put_option(o, o->doc);
	puts(".SH JSON");
	put(ctl_json_rule);
	put_exits();
	puts(".SH ENVIRONMENT");
	put_settings(ctl_environment);
	puts(".SH FILES\n.TP\n.I \\(ti/.config/berth/ctl.conf\nSettings, one\n.RI \" key \" = \" \\(dqvalue\\(dq\"\na line; the environment wins"
	     " over them, and options win over both:");
	put_settings(ctl_file_keys);
	puts(".SH SEE ALSO\n.BR berth.conf (5)");
	return 0;
}

static void put_conf_rows(const struct option_row *rows)
{
	for (; rows->key; rows++) {
		put_line(".TP\n.B ", rows->key);
		if (rows->doc)
			put_line("", rows->doc);
		if (rows->words)
			put_line(".br\nOne of: ", rows->words);
		if (rows->default_text && *rows->default_text)
			put_line(".br\nDefault: ", rows->default_text);
		if (rows->flags & OPTION_REQUIRED)
			puts(".br\nMust be given.");
		if (rows->env)
			put_line(".br\nEnvironment: ", rows->env);
	}
}

static int page_conf(void)
{
	put_title("berth.conf", "5");
	puts("berth.conf \\- configuration of berthd\n.SH DESCRIPTION\n"
	     "The syntax is that of libconfig. Durations and sizes are texts with units (\\(dq15m\\(dq, \\(dq1GiB\\(dq). A key that is unknown,\n"
	     "given twice or of the wrong type refuses the start. A key a.b stands as b in the group a. Each file of\n.I providers.d\n"
	     "beside the file is one target.\n.B berthctl config check\nchecks it all,\n.B berthctl config dump\nprints what is in effect.\n"
	     ".SH KEYS OF THE HOST");
	put_conf_rows(conf_options);
	puts(".TP\n.B tokens\nA list of groups: name, secret (\\(dqfile:/path\\(dq or \\(dqenv:NAME\\(dq), scopes, workspaces, and perhaps"
	     " not_after.\nScopes are:");
	for (unsigned i = 0; i < SCOPE_COUNT; i++)
		printf("%s%s\n", conf_scope_word(i), i + 1 < SCOPE_COUNT ? "," : ".");
	puts(".SH KEYS OF A TARGET");
	put_conf_rows(conf_target_options);
	puts(".TP\n.B config\nA group of the provider's own keys;\n.B berthctl providers inspect\nlists them.\n.SH SEE ALSO\n.BR berthctl (1)");
	return 0;
}

int ctl_man(const char *page)
{
	if (!strcmp(page, "berthctl"))
		return page_ctl();
	if (!strcmp(page, "berth.conf"))
		return page_conf();
	return ctl_fail(CTL_USAGE, "there are the pages berthctl and berth.conf, not '%s'", page);
}
