/* SPDX-License-Identifier: Apache-2.0 */
/*
 * berthctl's entry: from the words of a command line to a command, and to its exit code. Nothing else belongs here.
 */
#include <curl/curl.h>
#include <locale.h>

#include "ctl/ctl.h"

/* Every error of ours would look like the command's where its code is passed on. */
static int own(const struct ctl_command *command, int rc)
{
	return rc && command->flags & CTL_PASSES ? CTL_BERTH : rc;
}

static int run(const struct ctl_command *command, int argc, char **argv)
{
	union {
		max_align_t align;
		char bytes[CTL_OPTIONS_MAX];
	} options = {.bytes = {0}};
	struct ctl_shared shared = {0};
	struct ctl_args args;
	struct ctl ctl = {0};
	int rc = ctl_args_parse(command, argc, argv, &shared, &options, &args);
	bool read = !rc;

	ctl.json = shared.json;
	if (!rc && shared.help) {
		ctl_help(command);
	} else if (!rc && !(command->flags & CTL_LOCAL)) {
		rc = own(command, ctl_settings(&ctl, &shared));
		rc = rc ? rc : command->run(&ctl, &args);
	} else if (!rc) {
		rc = command->run(&ctl, &args);
	} else {
		rc = own(command, rc);
	}
	if (read && shared.json)
		ctl_json_end(command, rc);
	ctl_args_fini(command, &options, &args);
	ctl_fini(&ctl);
	return rc;
}

static int dispatch(int argc, char **argv)
{
	int words = 0;
	const struct ctl_command *command = ctl_find(argc, argv, &words);

	if (!command)
		return ctl_no_command(argc, argv);
	return run(command, argc - words + 1, argv + words - 1);
}

static const struct ctl_option *shared_option(const char *word)
{
	const struct ctl_option *row = ctl_shared_options;

	while (row->name && !(!strncmp(word, "--", 2) && !strcmp(word + 2, row->name)) &&
	       !(row->letter && word[0] == '-' && word[1] == row->letter && !word[2]))
		row++;
	return row->name ? row : NULL;
}

/* Shared options may stand before the command: they go behind its name, where all options stand. */
static int move_options(int argc, char **argv)
{
	char *ahead[32];
	const struct ctl_command *command;
	int count = 0, words = 0;

	while (count < argc && argv[count][0] == '-') {
		bool joined = !strncmp(argv[count], "--", 2) && strchr(argv[count], '=');
		const struct ctl_option *row = joined ? NULL : shared_option(argv[count]);

		if (ctl_refuse_token(argv[count]))
			return CTL_USAGE;
		if (!row && !joined)
			return ctl_fail(CTL_USAGE, "'%s' is not an option of every command; it stands behind the command's name", argv[count]);
		count += row && row->argument ? 2 : 1;
	}
	if (!count)
		return 0;
	command = count < argc && count < 32 ? ctl_find(argc - count, argv + count, &words) : NULL;
	if (!command)
		return count < argc ? ctl_no_command(argc - count, argv + count) : ctl_fail(CTL_USAGE, "a command is missing; see berthctl --help");
	memcpy(ahead, argv, (size_t)count * sizeof(*argv));
	memmove(argv, argv + count, (size_t)words * sizeof(*argv));
	memcpy(argv + words, ahead, (size_t)count * sizeof(*argv));
	return 0;
}

static int begin(int argc, char **argv)
{
	static char help[] = "help", version[] = "version";

	if (argc < 2) {
		ctl_usage(stderr);
		return CTL_USAGE;
	}
	if (!strcmp(argv[1], "help") && argc > 2 && !strcmp(argv[2], "--man"))
		return ctl_man(argc > 3 ? argv[3] : "berthctl");
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
		argv[1] = help;
	if (!strcmp(argv[1], "--version"))
		argv[1] = version;
	if (!strcmp(argv[1], "__complete"))
		return ctl_complete(argc - 2, argv + 2);
	return move_options(argc - 1, argv + 1) ? CTL_USAGE : dispatch(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
	int rc;

	setlocale(LC_CTYPE, "");
	curl_global_init(CURL_GLOBAL_DEFAULT);
	rc = begin(argc, argv);
	curl_global_cleanup();
	if (fflush(stdout) && !rc)
		rc = ctl_fail(CTL_ERROR, "standard output cannot be written: %m");
	ctl_die_if_stopped();
	return rc;
}
