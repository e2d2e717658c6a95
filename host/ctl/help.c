/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Help as text, from the table of commands. Main thread; prints to standard output or error.
 */
#include "ctl/commands.h"

static const struct {
	int code;
	const char *text;
} exits[] = {
#define X(name, code_, text_) {code_, text_},
	CTL_EXITS(X)
#undef X
};

static void put_lines(FILE *out, const char *text, const char *indent)
{
	while (*text) {
		size_t len = strcspn(text, "\n");

		fprintf(out, "%s%.*s\n", len ? indent : "", (int)len, text);
		text += len + (text[len] == '\n');
	}
}

static void put_option(FILE *out, const struct ctl_option *o, const char *doc)
{
	char left[64];

	snprintf(left, sizeof(left), "%c%c%s--%s%s%s", o->letter ? '-' : ' ', o->letter ? o->letter : ' ', o->letter ? ", " : "  ",
		 o->name, o->argument ? " " : "", o->argument ? o->argument : "");
	fprintf(out, "  %-26s %s\n", left, doc);
}

static void put_exits(FILE *out, bool passes)
{
	fputs("\nExit codes:\n", out);
	for (size_t i = 0; i < sizeof(exits) / sizeof(*exits); i++)
		if (exits[i].code < CTL_BERTH || passes)
			fprintf(out, "  %3d  %s\n", exits[i].code, exits[i].text);
}

void ctl_help(const struct ctl_command *command)
{
	const struct ctl_option *o;

	printf("usage: berthctl %s [options]%s%s\n\n%s\n", command->name, *command->usage ? " " : "", command->usage, command->doc);
	if (command->more) {
		putchar('\n');
		put_lines(stdout, command->more, "");
	}
	if (command->examples) {
		puts("\nExamples:");
		put_lines(stdout, command->examples, "  ");
	}
	puts("\nOptions:");
	for (o = command->options; o && o->name; o++)
		put_option(stdout, o, o->doc);
	for (o = ctl_shared_of(command); o->name; o++)
		put_option(stdout, o, !strcmp(o->name, "json") ? ctl_shape_text(command) : o->doc);
	if (command->flags & CTL_PASSES)
		puts("\nExit codes: the command's own, or");
	if (command->flags & CTL_PASSES)
		for (size_t i = 0; i < sizeof(exits) / sizeof(*exits); i++) {
			if (exits[i].code >= CTL_BERTH)
				printf("  %3d  %s\n", exits[i].code, strchr(exits[i].text, ':') + 2);
		}
	else
		put_exits(stdout, false);
}

static void put_settings(FILE *out, const struct ctl_setting *rows)
{
	for (; rows->name; rows++)
		fprintf(out, "  %-16s %s\n", rows->name, rows->doc);
}

void ctl_usage(FILE *out)
{
	fputs("usage: berthctl COMMAND [options] …\n\nRuns commands of agents in sandboxes, one sandbox per task, through a berthd.\n", out);
	for (const struct ctl_group *g = ctl_groups; g->title; g++) {
		fprintf(out, "\n%s:\n", g->title);
		for (const struct ctl_command *c = g->commands; c->name; c++)
			fprintf(out, "  %-20s %s\n", c->name, c->doc);
	}
	fputs("\nberthctl COMMAND --help has options and examples.\n\nEvery command that asks a daemon takes:\n", out);
	for (const struct ctl_option *o = ctl_shared_options; o->name; o++)
		put_option(out, o, o->doc);
	fputc('\n', out);
	put_lines(out, ctl_json_rule, "");
	fputs("\nEnvironment:\n", out);
	put_settings(out, ctl_environment);
	fputs("\nSettings in the file, as key = \"value\"; the environment wins over it, and options win over both:\n", out);
	put_settings(out, ctl_file_keys);
	put_exits(out, true);
}

int ctl_help_of(struct ctl *ctl, const struct ctl_args *args)
{
	const struct ctl_command *command;
	int words;

	(void)ctl;
	if (!args->count) {
		ctl_usage(stdout);
		return 0;
	}
	command = ctl_find(args->count, args->words, &words);
	if (!command)
		return ctl_no_command(args->count, args->words);
	ctl_help(command);
	return 0;
}

int ctl_version(struct ctl *ctl, const struct ctl_args *args)
{
	struct json_object *json;

	(void)args;
	if (!ctl->json) {
		puts("berthctl " BERTH_VERSION);
		return 0;
	}
	json = json_object_new_object();
	json_object_object_add(json, "version", json_object_new_string(BERTH_VERSION));
	ctl_json(json);
	json_object_put(json);
	return 0;
}
