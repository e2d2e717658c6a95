/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one table of commands. Constant. Help, shell completion and man pages are made of these rows and of nothing else.
 */
#include "ctl/commands.h"

#include "core/near.h"

#define ROW(name_, function_, usage_, doc_, ...)                                                                       \
	{                                                                                                              \
		.name = name_, .run = ctl_##function_, .usage = usage_, .doc = doc_, __VA_ARGS__                       \
	}
#define LIST .json = CTL_SHAPE_LIST
#define OPTIONS(rows_, type_) .options = rows_, .options_size = sizeof(struct type_)

static const struct ctl_command running[] = {
	ROW("exec", exec, "TASK [--] [COMMAND…]", "Run a command in the task's sandbox; streams its output and exits with its code.",
	    OPTIONS(exec_options, exec_options), .flags = CTL_STOPS | CTL_PASSES,
	    .more = "One COMMAND word is a shell script; several are quoted and run as they are. Options stand before COMMAND.\n"
		    "The sandbox is made when the task has none. Files stay from command to command, shell variables do not.\n"
		    "There is no terminal in it, and no input while it runs: --stdin sends all of it first.\n\n"
		    "Ctrl-C, SIGTERM and a reader that closes the output (as head does) cancel the command and wait for its end; a\n"
		    "second signal leaves. Whatever else ends berthctl, the command goes on: after a lost connection, a hangup or\n"
		    "SIGKILL 'berthctl logs -f' shows the rest, and 'berthctl cancel' cancels.\n\n"
		    "The exit code is the command's own: 124 when it ran into its timeout, 128+n when signal n killed it. Everything\n"
		    "that is berthctl's or Berth's own is 125, a cancelled command is 130. A command may use these numbers too:\n"
		    "--json prints the record, which tells.\n",
	    .examples = "berthctl exec build-7 make test\n"
			"berthctl exec build-7 'cd src && make 2>&1 | tail'\n"
			"berthctl exec build-7 --timeout 10m -e CFLAGS=-O2 -- make -C src\n"
			"berthctl exec -i build-7 'gzip -d | wc -l' <data.gz\n"
			"berthctl exec build-7 --script setup.sh\n"
			"id=$(berthctl exec -d build-7 ./long-job)\n"),
	ROW("logs", logs, "EXECUTION", "Print the output of an execution, standard output and standard error each to its own.",
	    OPTIONS(logs_options, logs_options),
	    .more = "Without --follow: what is there now. --json prints the record with the head and tail of both streams.\n",
	    .examples = "berthctl logs -f sexec_0123456789abcdef01234567\nberthctl logs --stderr sexec_0123456789abcdef01234567\n"),
	ROW("events", events, "EXECUTION", "Print what happens to an execution, until it has ended.", .json = CTL_SHAPE_LINES,
	    .examples = "berthctl events sexec_0123456789abcdef01234567\n"),
	ROW("executions", executions, "[TASK]", "List executions, newest first.", LIST, OPTIONS(executions_options, list_options),
	    .more = "Lists hold no commands: 'berthctl show' prints one execution with its command.\n",
	    .examples = "berthctl executions build-7\nberthctl executions --status running --json\n"),
	ROW("show", execution_show, "EXECUTION", "Show one execution: its command, where it stands, how it ended.",
	    .examples = "berthctl show sexec_0123456789abcdef01234567\n"),
	ROW("wait", wait, "EXECUTION", "Wait until an execution has ended, and exit as its exec would have.",
	    OPTIONS(wait_options, wait_options), .flags = CTL_PASSES | CTL_OPEN,
	    .more = "Prints no output of the command: 'berthctl logs' does. Ctrl-C ends the waiting, and the command goes on.\n\n"
		    "The exit code is the command's own: 124 when it ran into its timeout, 128+n when signal n killed it. When it was not\n"
		    "run, or cannot be waited for, it is 125; of a cancelled command 130. --json prints the record, which tells.\n",
	    .examples = "id=$(berthctl exec -d build-7 ./long-job); berthctl wait $id\n"),
	ROW("cancel", cancel, "EXECUTION", "Cancel an execution and wait until its process tree is gone.", .flags = CTL_OPEN,
	    .examples = "berthctl cancel sexec_0123456789abcdef01234567\n"),
	{0},
};

static const struct ctl_command files[] = {
	ROW("put", put, "TASK LOCAL [PATH]", "Copy a local file or folder into the task's workspace ('-' = standard input).",
	    OPTIONS(put_options, put_options),
	    .more = "PATH is what LOCAL becomes; without it, the last part of LOCAL. The daemon checks size and digest, and a file\n"
		    "appears whole or not at all.\n\n"
		    "With --recursive what is the same there already is not sent again: repeat a copy that broke off. Permissions and\n"
		    "symbolic links are kept. What cannot be copied is named, the rest is copied, and the exit code is not 0. Comparing,\n"
		    "links and folders take short scripts in the sandbox (find, stat, sha256sum), and so the right to run commands;\n"
		    "--plain does without: it sends every file and leaves folders' permissions to the daemon.\n",
	    .examples = "berthctl put build-7 data.csv in/data.csv\n"
			"berthctl put -r build-7 src\n"
			"berthctl put -r build-7 . project\n"
			"tar c src | berthctl put build-7 - src.tar\n"),
	ROW("get", get, "TASK PATH [LOCAL]", "Copy a file or folder of the task's workspace to here ('-' = standard output).",
	    OPTIONS(get_options, get_options),
	    .more = "LOCAL is what PATH becomes; without it, the last part of PATH, and the task's name for the whole workspace (.). Where\n"
		    "LOCAL is a folder, a file goes into it. A file appears only when it is complete, with its permissions.\n\n"
		    "With --recursive what is the same here already is not fetched again, and each file is held against the digest that\n"
		    "the sandbox told. Nothing is written outside of LOCAL, whatever the names and links are; links that lead out of\n"
		    "the folder are named and not made. --plain does without a script in the sandbox.\n",
	    .examples = "berthctl get build-7 out/report.pdf\n"
			"berthctl get -r build-7 out results\n"
			"berthctl get -r build-7 .\n"),
	ROW("ls", ls, "TASK [PATH]", "List the files of the task's workspace, at any depth.", OPTIONS(ls_options, ls_options), LIST,
	    .more = "With --long folders end in '/', links in '@'.\n",
	    .examples = "berthctl ls build-7\nberthctl ls -l build-7 src\n"),
	ROW("cat", cat, "TASK PATH", "Write a file of the task's workspace to standard output.",
	    .more = "--json prints the content as base64, of a file of at most 16 MiB.\n",
	    .examples = "berthctl cat build-7 out/summary.txt\n"),
	ROW("rm", rm, "TASK PATH…", "Remove files of the task's workspace.", LIST, OPTIONS(rm_options, rm_options),
	    .examples = "berthctl rm build-7 in/data.csv\nberthctl rm -r build-7 out\n"),
	ROW("mv", mv, "TASK FROM TO", "Rename or move a file of the task's workspace.",
	    .examples = "berthctl mv build-7 draft.md final.md\n"),
	{0},
};

static const struct ctl_command tasks[] = {
	ROW("task", task, "TASK", "Show a task: its session, lease, operations.", .examples = "berthctl task build-7\n"),
	ROW("sessions", sessions, "", "List the sessions of a workspace, one for each task that has a sandbox.", LIST,
	    OPTIONS(sessions_options, list_options), .examples = "berthctl sessions\nberthctl sessions -w team --json\n"),
	ROW("retire", retire, "TASK", "Tear a task's session down.", OPTIONS(retire_options, retire_options),
	    .more = "Waits until the provider confirms it; with exit code 5 when that takes longer than --wait: it goes on by itself. Without\n"
		    "--force running commands have session.teardown_wait of the configuration (30s) to end.\n"
		    "The files of the sandbox end with it; records and outputs stay.\n\n"
		    "Where there is no such task, or none any more, it says so, and the exit code is 0: what was asked for is so.\n",
	    .examples = "berthctl retire build-7\nberthctl retire --force --wait 1m build-7\n"),
	{0},
};

static const struct ctl_command operators[] = {
	ROW("targets", targets, "", "List targets: the configured providers, their health and what they do.", LIST,
	    .more = "REGION is what commands may ask for with --region. STATUS is ok, or degraded: then it is given no new work, and WHY has\n"
		    "the reason. DRAINED is true where no new sessions are made; what lives goes on ('berthctl undrain' opens it).\n\n"
		    "RUNNING counts the calls of the plugin right now, a command that runs among them. STUCK are those of them that are\n"
		    "past their deadline and have not returned; too many degrade the target. CALLS and FAILURES count since berthd\n"
		    "started, FAILURES those that ended in an error, not those that found nothing. These four are of the one daemon\n"
		    "that is asked.\n",
	    .examples = "berthctl targets\n"),
	ROW("drain", drain, "TARGET", "Close a target for new sessions; what lives there goes on.",
	    .examples = "berthctl drain eu-1\n"),
	ROW("undrain", undrain, "TARGET", "Let a drained target take new sessions again.", .examples = "berthctl undrain eu-1\n"),
	ROW("hosts", hosts, "", "List the daemons that serve this deployment.", LIST, .examples = "berthctl hosts\n"),
	ROW("verify", verify, "", "Compare what the providers hold with what Berth knows.",
	    .more = "Exit code 0 when every session belongs to a binding and every binding has its session, else 1.\n",
	    .examples = "berthctl verify\n"),
	ROW("recover", recover, "", "After a lost store: let orphaned sessions be swept from now on.",
	    .more = "A daemon with a new store keeps the sweep off for one lease and adopts what providers still hold\n"
		    "(docs/state.md). This ends that early.\n",
	    .examples = "berthctl recover\n"),
	ROW("deadletters list", deadletters_list, "", "List messages that could not be handled, oldest first.", LIST,
	    OPTIONS(deadletters_options, list_options), .examples = "berthctl deadletters list\n"),
	ROW("deadletters show", deadletters_show, "LETTER", "Print one of them as JSON.", .examples = "berthctl deadletters show 17\n"),
	ROW("deadletters requeue", deadletters_requeue, "LETTER…", "Put their messages back into the queue.", LIST,
	    .examples = "berthctl deadletters requeue 17 18\n"),
	ROW("deadletters drop", deadletters_drop, "LETTER…", "Drop them.", LIST, .examples = "berthctl deadletters drop 17\n"),
	ROW("providers list", providers_list, "", "List the plugins of the running daemon.", LIST, .examples = "berthctl providers list\n"),
	{0},
};

static const struct ctl_command locals[] = {
	ROW("providers check", providers_check, "", "Load each target's plugin as a start of berthd would, and say what comes of it.", LIST,
	    OPTIONS(local_options, local_options), .flags = CTL_LOCAL,
	    .more = "Needs no running daemon: each target is opened by a 'berthd -t' of its own, with its configuration, after the trial of\n"
		    "its plugin in a child. Exit code 6 when one is refused.\n",
	    .examples = "berthctl providers check\nberthctl providers check -c etc/berth.conf\n"),
	ROW("providers inspect", providers_inspect, "PLUGIN", "Print what a plugin says of itself: version, capabilities, options.",
	    OPTIONS(local_options, local_options), .flags = CTL_LOCAL,
	    .more = "PLUGIN is a file, or the name of a provider in the configured folder. It is checked and tried as at a start.\n",
	    .examples = "berthctl providers inspect ./acme.so\nberthctl providers inspect mock --json\n"),
	ROW("config check", config_check, "", "Check a configuration, its plugins and targets included, as 'berthd -t' does.",
	    OPTIONS(local_options, local_options), .flags = CTL_LOCAL,
	    .examples = "berthctl config check -c etc/berth.conf && systemctl reload berthd\n"),
	ROW("config dump", config_dump, "", "Print every key that is in effect, defaults and environment included, secrets masked.",
	    OPTIONS(local_options, local_options), .flags = CTL_LOCAL,
	    .examples = "berthctl config dump\nberthctl config dump --json -c etc/berth.conf\n"),
	ROW("completion", completion, "SHELL", "Print the completion script of bash or zsh.", .json = CTL_SHAPE_NONE, .flags = CTL_LOCAL,
	    .more = "SHELL is bash or zsh. Tasks, executions, targets and paths are completed by asking the daemon, with the same settings as\n"
		    "every command.\n",
	    .examples = ". <(berthctl completion bash)\n"
			"berthctl completion zsh >\"${fpath[1]}/_berthctl\"\n"),
	ROW("help", help_of, "[COMMAND…]", "Print help, of a command too.", .json = CTL_SHAPE_NONE, .flags = CTL_LOCAL,
	    .examples = "berthctl help exec\nberthctl help providers check\n"),
	ROW("version", version, "", "Print the version of berthctl; 'berthctl hosts' has those of the daemons.", .flags = CTL_LOCAL,
	    .examples = "berthctl version\nberthctl version --json\n"),
	{0},
};

const struct ctl_group ctl_groups[] = {
	{"Commands", running}, {"Files", files}, {"Tasks", tasks}, {"Operators", operators}, {"Without a daemon", locals}, {0},
};

/* ---- finding one ---- */

static bool names(const struct ctl_command *command, int argc, char **argv, int *ret_words)
{
	const char *space = strchr(command->name, ' ');
	size_t first = space ? (size_t)(space - command->name) : strlen(command->name);

	if (argc < (space ? 2 : 1) || strlen(argv[0]) != first || strncmp(argv[0], command->name, first) != 0)
		return false;
	if (space && strcmp(argv[1], space + 1) != 0)
		return false;
	*ret_words = space ? 2 : 1;
	return true;
}

const struct ctl_command *ctl_find(int argc, char **argv, int *ret_words)
{
	for (const struct ctl_group *g = ctl_groups; g->title; g++)
		for (const struct ctl_command *c = g->commands; c->name; c++)
			if (names(c, argc, argv, ret_words))
				return c;
	return NULL;
}

/* What it is called elsewhere. */
static const struct {
	const char *word, *name;
} elsewhere[] = {
	{"run", "exec"},	{"shell", "exec"},   {"ssh", "exec"},	     {"cp", "put' or 'get"}, {"copy", "put' or 'get"}, {"push", "put"},
	{"pull", "get"},	{"upload", "put"},   {"download", "get"},    {"ps", "executions"},   {"jobs", "executions"},
	{"list", "sessions"},	{"tasks", "sessions"}, {"status", "task' or 'targets"}, {"inspect", "show' or 'task"}, {"describe", "show' or 'task"},
	{"delete", "retire"},	{"down", "retire"},  {"stop", "cancel' or 'retire"}, {"kill", "cancel"}, {"log", "logs"}, {"tail", "logs"},
	{"move", "mv"},		{"rename", "mv"},    {"dump", "config dump"}, {"check", "config check"}, {"plugins", "providers list"},
	{"health", "targets"},	{"nodes", "hosts"},
};

static const char *elsewhere_is(const char *word)
{
	for (size_t i = 0; i < sizeof(elsewhere) / sizeof(*elsewhere); i++)
		if (!strcmp(elsewhere[i].word, word))
			return elsewhere[i].name;
	return NULL;
}

static const struct ctl_command *nearest(const char *word)
{
	const struct ctl_command *best = NULL;
	size_t least = NEAR_SLIPS + 1;

	for (const struct ctl_group *g = ctl_groups; g->title; g++)
		for (const struct ctl_command *c = g->commands; c->name; c++) {
			char first[32];
			size_t far;

			snprintf(first, sizeof(first), "%.*s", (int)strcspn(c->name, " "), c->name);
			far = near_distance(word, first);

			if (far < least) {
				least = far;
				best = c;
			}
		}
	return best;
}

int ctl_no_command(int argc, char **argv)
{
	size_t len = strlen(argv[0]), members = 0;
	const struct ctl_command *near;
	const char *name;

	for (const struct ctl_group *g = ctl_groups; g->title; g++)
		for (const struct ctl_command *c = g->commands; c->name; c++) {
			if (strncmp(c->name, argv[0], len) != 0 || c->name[len] != ' ')
				continue;
			if (!members++ && argc > 1 && argv[1][0] != '-')
				ctl_fail(CTL_USAGE, "%s: there is no '%s' of it; there are", argv[0], argv[1]);
			else if (members == 1)
				ctl_fail(CTL_USAGE, "%s: there are", argv[0]);
			fprintf(stderr, "  %-20s %s\n", c->name, c->doc);
		}
	if (members)
		return CTL_USAGE;
	near = nearest(argv[0]);
	name = elsewhere_is(argv[0]);
	if (name || near)
		return ctl_fail(CTL_USAGE, "there is no command '%s'; did you mean '%s'? berthctl --help lists all", argv[0],
				name ? name : near->name);
	return ctl_fail(CTL_USAGE, "there is no command '%s'; berthctl --help lists them", argv[0]);
}
