/* SPDX-License-Identifier: Apache-2.0 */
/*
 * berthctl's entry: the table of commands and the general help. Nothing else belongs here.
 */
#include <curl/curl.h>
#include <locale.h>

#include "ctl/ctl.h"

static const struct ctl_command commands[] = {
	{"exec", "TASK [--] COMMAND…", "Run a command in the task's sandbox; streams its output and exits with its code.",
	 "One COMMAND word is a shell script; several are quoted and run as they are.\n"
	 "Exit code: the command's own (124 timeout, 128+n killed by signal n); 125 when Berth could not run it or does not\n"
	 "know its outcome; 130 when it was cancelled. Ctrl-C cancels the command.\n\n"
	 "  berthctl exec build-7 make test\n"
	 "  berthctl exec build-7 'cd src && make 2>&1 | tail'\n"
	 "  berthctl exec build-7 --timeout 10m --detach ./long-job\n"
	 "  berthctl exec build-7 --script setup.sh\n",
	 ctl_exec},
	{"put", "TASK LOCAL [PATH]", "Copy a local file into the task's workspace ('-' = standard input).",
	 "  berthctl put build-7 data.csv in/data.csv\n  tar c src | berthctl put build-7 - src.tar\n", ctl_put},
	{"get", "TASK PATH [LOCAL]", "Copy a file of the task's workspace to here.",
	 "The local name defaults to the last part of PATH; the file appears only when it is complete.\n\n"
	 "  berthctl get build-7 out/report.pdf\n", ctl_get},
	{"ls", "TASK [PREFIX]", "List the files of the task's workspace.", NULL, ctl_ls},
	{"cat", "TASK PATH", "Write a file of the task's workspace to standard output.", NULL, ctl_cat},
	{"task", "TASK", "Show a task: its session, lease, operations.", NULL, ctl_task},
	{"sessions", "", "List the sessions of a workspace.", NULL, ctl_sessions},
	{"retire", "TASK", "Tear a task's session down.",
	 "Waits until the provider confirmed it (up to --wait); without --force running commands get the grace of the configuration.\n",
	 ctl_retire},
	{"executions", "[TASK]", "List executions, newest first.", NULL, ctl_executions},
	{"logs", "EXECUTION", "Print the output of an execution.",
	 "  berthctl logs -f sexec_0123456789abcdef01234567\n", ctl_logs},
	{"cancel", "EXECUTION", "Cancel an execution and wait until its process tree is gone.", NULL, ctl_cancel},
	{"verify", "", "Compare what the providers hold with what Berth knows.",
	 "Exit code 0 when every session belongs to a binding and every binding has its session, else 1.\n", ctl_verify},
	{0},
};

static void usage(FILE *out)
{
	fputs("usage: berthctl COMMAND [options] …\n\nCommands:\n", out);
	for (const struct ctl_command *c = commands; c->name; c++)
		fprintf(out, "  %-11s %s\n", c->name, c->doc);
	fputs("\nEvery command takes --address, --token-file, --workspace, --json and --help.\n"
	      "Environment: BERTH_ADDRESS, BERTH_TOKEN, BERTH_WORKSPACE. File: ~/.config/berth/ctl.conf, or BERTH_CTL_CONF, with\n"
	      "  address = \"http://127.0.0.1:8000\"; token = \"file:/path\"; workspace = \"default\";\n",
	      out);
}

static const struct ctl_command *find(const char *name)
{
	for (const struct ctl_command *c = commands; c->name; c++)
		if (!strcmp(c->name, name))
			return c;
	return NULL;
}

static int dispatch(int argc, char **argv)
{
	const struct ctl_command *command = find(argv[1]);
	struct ctl ctl = {0};
	int rc;

	if (!command) {
		ctl_fail(CTL_USAGE, "there is no command '%s'; see berthctl --help", argv[1]);
		return CTL_USAGE;
	}
	rc = command->run(&ctl, command, argc - 1, argv + 1);
	ctl_fini(&ctl);
	return rc;
}

int main(int argc, char **argv)
{
	int rc;

	setlocale(LC_CTYPE, "");
	if (argc < 2) {
		usage(stderr);
		return CTL_USAGE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		const struct ctl_command *command = argc > 2 ? find(argv[2]) : NULL;
		struct ctl ctl = {0};
		char *help[] = {argc > 2 ? argv[2] : NULL, (char[]){"--help"}, NULL};

		if (!command) {
			usage(stdout);
			return 0;
		}
		return command->run(&ctl, command, 2, help);
	}
	if (!strcmp(argv[1], "--version")) {
		puts("berthctl " BERTH_VERSION);
		return 0;
	}
	curl_global_init(CURL_GLOBAL_DEFAULT);
	rc = dispatch(argc, argv);
	curl_global_cleanup();
	return rc;
}
