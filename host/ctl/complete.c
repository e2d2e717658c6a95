/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What may follow on a command line, from the table of commands, and from the daemon for tasks, executions, targets and paths. Main
 * thread. The shells' scripts know nothing but how to ask: `berthctl __complete WORD…`, the last one unfinished, answers a line
 * ":none", ":files" or ":nospace", then one candidate a line, with a tab and a sentence behind it. Never says anything else.
 */
#include <unistd.h>

#include "core/limits.h"
#include "ctl/commands.h"

#define ITEMS_MAX 200

struct completion {
	const char *word; /* the unfinished one */
	unsigned flags;	  /* of the command */
	struct ctl ctl;
	struct ctl_shared shared;
	bool connected;
	struct buf out;
	const char *directive;
};

static void offer(struct completion *c, const char *text, const char *doc)
{
	if (!*text || strncmp(text, c->word, strlen(c->word)) != 0)
		return;
	ctl_clean(&c->out, text);
	if (doc && *doc) {
		buf_puts(&c->out, "\t");
		ctl_clean(&c->out, doc);
	}
	buf_puts(&c->out, "\n");
}

static void offer_words(struct completion *c, const char *words)
{
	while (*words) {
		size_t len = strcspn(words, " ");
		char *one = strndup(words, len);

		if (one)
			offer(c, one, NULL);
		free(one);
		words += len + (words[len] == ' ');
	}
}

static bool connect_once(struct completion *c)
{
	if (!c->connected && ctl_settings(&c->ctl, &c->shared))
		return false;
	c->connected = true;
	c->ctl.hurried = true;
	return true;
}

/* The items of a list as candidates. */
static void offer_items(struct completion *c, const char *path, const char *key, const char *text_key, const char *doc_key)
{
	struct json_object *items;
	struct ctl_reply reply;

	if (ctl_call(&c->ctl, "GET", path, NULL, &reply) || reply.status != 200) {
		ctl_reply_fini(&reply);
		return;
	}
	items = ctl_at(reply.json, key);
	for (size_t i = 0; i < ctl_length(items) && i < ITEMS_MAX; i++) {
		struct json_object *item = json_object_array_get_idx(items, i);

		offer(c, ctl_text(item, text_key), doc_key ? ctl_text(item, doc_key) : NULL);
	}
	ctl_reply_fini(&reply);
}

static void offer_tasks(struct completion *c, const char *task)
{
	struct buf path;

	(void)task;
	buf_init(&path, 8192);
	buf_puts(&path, "/sandbox/sessions");
	ctl_query(&path, "workspace_id", c->ctl.workspace);
	offer_items(c, path.ptr, "items", "task_id", "state");
	buf_fini(&path);
}

static void offer_executions_that_are(struct completion *c, const char *status)
{
	struct buf path;

	buf_init(&path, 8192);
	buf_puts(&path, "/sandbox/executions");
	ctl_query(&path, "workspace_id", c->ctl.workspace);
	ctl_query(&path, "status", status);
	offer_items(c, path.ptr, "items", "id", "status");
	buf_fini(&path);
}

static void offer_executions(struct completion *c, const char *task)
{
	static const char *const open[] = {"running", "claimed", "queued"};

	(void)task;
	if (!(c->flags & CTL_OPEN)) {
		offer_executions_that_are(c, NULL);
		return;
	}
	for (size_t i = 0; i < sizeof(open) / sizeof(*open); i++)
		offer_executions_that_are(c, open[i]);
}

static void offer_targets(struct completion *c, const char *task)
{
	(void)task;
	offer_items(c, "/admin/targets", "items", "name", "provider");
}

static void offer_letters(struct completion *c, const char *task)
{
	(void)task;
	offer_items(c, "/admin/deadletters", "items", "id", "letter.reason");
}

static void offer_paths(struct completion *c, const char *task)
{
	struct buf path;

	ctl_file_path(&path, &c->ctl, "files", task, "list", ".");
	ctl_query(&path, "ensure", "false");
	offer_items(c, path.ptr, "paths", "", NULL);
	buf_fini(&path);
}

/* Words of the usage texts and of options that are completed by more than nothing. */
static const struct {
	const char *name;
	void (*offer)(struct completion *c, const char *task); /* NULL: local files */
} kinds[] = {
	{"TASK", offer_tasks},	   {"EXECUTION", offer_executions}, {"TARGET", offer_targets}, {"LETTER", offer_letters},
	{"PATH", offer_paths},	   {"FROM", offer_paths},	    {"TO", offer_paths},       {"LOCAL", NULL},
	{"FILE", NULL},		   {"PLUGIN", NULL},
};

static void offer_kind(struct completion *c, const char *kind, const char *task)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		if (strcmp(kinds[i].name, kind) != 0)
			continue;
		if (!kinds[i].offer)
			c->directive = ":files";
		else if (connect_once(c))
			kinds[i].offer(c, task);
	}
	if (!strcmp(kind, "SHELL"))
		offer_words(c, "bash zsh");
}

/* ---- commands ---- */

static void offer_commands(struct completion *c, const char *family)
{
	size_t len = strlen(family);
	char last[32] = "";

	for (const struct ctl_group *g = ctl_groups; g->title; g++)
		for (const struct ctl_command *row = g->commands; row->name; row++) {
			const char *space = strchr(row->name, ' ');
			char first[32];

			snprintf(first, sizeof(first), "%.*s", space ? (int)(space - row->name) : 31, row->name);
			if (len && space && !strcmp(first, family))
				offer(c, space + 1, row->doc);
			else if (!len && strcmp(first, last) != 0)
				offer(c, first, space ? "" : row->doc);
			snprintf(last, sizeof(last), "%s", first);
		}
}

static void offer_options(struct completion *c, const struct ctl_option *rows)
{
	char text[64];

	for (; rows && rows->name; rows++) {
		snprintf(text, sizeof(text), "--%s", rows->name);
		offer(c, text, rows->doc);
	}
}

/* What of the shared settings the line holds so far, so that the daemon that is meant is asked. */
static void take_shared(struct completion *c, const struct ctl_option *row, const char *value)
{
	for (const struct ctl_option *shared = ctl_shared_options; shared->name; shared++)
		if (shared == row && row->type == CTL_TEXT)
			memcpy((char *)&c->shared + row->off, &value, sizeof(value));
}

static void complete_arguments(struct completion *c, const struct ctl_command *command, int count, char **words)
{
	const struct ctl_option *pending = NULL;
	const char *usage = command->usage, *task = "";
	struct ctl_operand operand = {"", false, false};
	int operands = 0;
	bool rest = false;

	c->flags = command->flags;
	for (int i = 0; i < count; i++) {
		if (pending) {
			take_shared(c, pending, words[i]);
			pending = NULL;
		} else if (!rest && !strcmp(words[i], "--")) {
			rest = true;
		} else if (!rest && words[i][0] == '-' && words[i][1]) {
			pending = ctl_option_of(command, words[i], strlen(words[i]));
			pending = pending && pending->argument ? pending : NULL;
		} else {
			task = operands++ ? task : words[i];
			rest = rest || (command->flags & CTL_STOPS && operands > 1);
		}
	}
	if (pending && pending->words) {
		offer_words(c, pending->words);
		return;
	}
	if (pending) {
		offer_kind(c, pending->argument, task);
		return;
	}
	if (!rest && c->word[0] == '-') {
		offer_options(c, command->options);
		offer_options(c, ctl_shared_of(command));
		return;
	}
	for (int i = 0; i <= operands; i++)
		if (!operand.repeats && !ctl_operand_next(&usage, &operand))
			return;
	offer_kind(c, operand.name, task);
}

static void complete(struct completion *c, int count, char **words)
{
	const struct ctl_command *command;
	int taken = 0;

	if (count > 0 && !strcmp(words[0], "help")) {
		count--;
		words++;
		if (count > 1 || (count == 1 && ctl_find(count, words, &taken)))
			return;
		offer_commands(c, count ? words[0] : "");
		return;
	}
	command = count ? ctl_find(count, words, &taken) : NULL;
	if (command)
		complete_arguments(c, command, count - taken, words + taken);
	else if (count < 2)
		offer_commands(c, count ? words[0] : "");
	if (!count) {
		offer(c, "--help", "Print help.");
		offer(c, "--version", "Print the version.");
	}
}

int ctl_complete(int count, char **words)
{
	struct completion c = {.word = count ? words[count - 1] : "", .directive = ":none"};

	if (!freopen("/dev/null", "we", stderr))
		return CTL_ERROR;
	buf_init(&c.out, 4 * LIMIT_MIB);
	complete(&c, count ? count - 1 : 0, words);
	puts(c.directive);
	if (c.out.len)
		fwrite(c.out.ptr, 1, c.out.len, stdout);
	buf_fini(&c.out);
	ctl_fini(&c.ctl);
	return 0;
}

/* ---- the shells' scripts ---- */

static const char bash_script[] =
	"# Completion of berthctl for bash. Made by berthctl completion bash.\n"
	"_berthctl() {\n"
	"\tlocal IFS=$'\\n' lines line directive\n"
	"\tlines=($(\"${COMP_WORDS[0]}\" __complete \"${COMP_WORDS[@]:1:COMP_CWORD}\" 2>/dev/null))\n"
	"\tdirective=${lines[0]-}\n"
	"\tCOMPREPLY=()\n"
	"\tfor line in \"${lines[@]:1}\"; do\n"
	"\t\tCOMPREPLY+=(\"$(printf %q \"${line%%$'\\t'*}\")\")\n"
	"\tdone\n"
	"\tif [[ $directive == :files ]]; then\n"
	"\t\tcompopt -o filenames 2>/dev/null\n"
	"\t\tCOMPREPLY=($(compgen -f -- \"${COMP_WORDS[COMP_CWORD]}\"))\n"
	"\tfi\n"
	"}\n"
	"complete -F _berthctl berthctl\n";

static const char zsh_script[] =
	"#compdef berthctl\n"
	"# Completion of berthctl for zsh. Made by berthctl completion zsh.\n"
	"_berthctl() {\n"
	"\tlocal -a lines candidates\n"
	"\tlocal line directive\n"
	"\tlines=(\"${(@f)$(\"${words[1]}\" __complete \"${(@)words[2,CURRENT]}\" 2>/dev/null)}\")\n"
	"\tdirective=$lines[1]\n"
	"\tfor line in \"${(@)lines[2,-1]}\"; do\n"
	"\t\t[[ -n $line ]] || continue\n"
	"\t\tif [[ $line == *$'\\t'* ]]; then\n"
	"\t\t\tcandidates+=(\"${${line%%$'\\t'*}//:/\\\\:}:${line#*$'\\t'}\")\n"
	"\t\telse\n"
	"\t\t\tcandidates+=(\"${line//:/\\\\:}\")\n"
	"\t\tfi\n"
	"\tdone\n"
	"\tif [[ $directive == :files ]]; then\n"
	"\t\t_files\n"
	"\telif (( $#candidates )); then\n"
	"\t\t_describe berthctl candidates\n"
	"\tfi\n"
	"}\n"
	"if [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n"
	"\t_berthctl \"$@\"\n"
	"else\n"
	"\tcompdef _berthctl berthctl\n"
	"fi\n";

int ctl_completion(struct ctl *ctl, const struct ctl_args *args)
{
	static const struct {
		const char *shell, *script;
	} scripts[] = {{"bash", bash_script}, {"zsh", zsh_script}};

	(void)ctl;
	for (size_t i = 0; i < sizeof(scripts) / sizeof(*scripts); i++)
		if (!strcmp(scripts[i].shell, args->words[0])) {
			fputs(scripts[i].script, stdout);
			return 0;
		}
	return ctl_fail(CTL_USAGE, "completion: there are scripts for bash and zsh, not for '%s'", args->words[0]);
}
