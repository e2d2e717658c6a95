/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec: what is sent first (standard input, variables), the command, its output, its exit code. Main thread besides the second
 * output stream of follow.c. Every error of our own is CTL_BERTH, so that it is not taken for the command's.
 */
#include "ctl/commands.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "core/ident.h"
#include "core/json.h"
#include "core/limits.h"
#include "core/secret.h"

#define OPT(name_, letter_, type_, argument_, field_, doc_)                                                            \
	{                                                                                                              \
		.name = name_, .letter = letter_, .type = type_, .argument = argument_,                                \
		.off = offsetof(struct exec_options, field_), .doc = doc_                                              \
	}

const struct ctl_option exec_options[] = {
	OPT("cwd", 'C', CTL_TEXT, "DIR", cwd, "folder of the workspace to run in"),
	OPT("timeout", 't', CTL_TIME, "TIME", timeout, "stop it after this long, as in 90s or 10m (default: the daemon's)"),
	OPT("stdin", 'i', CTL_FLAG, NULL, input, "send standard input first, to its end, and give it to the command"),
	OPT("env", 'e', CTL_MANY, "NAME[=VALUE]", env, "set a variable, or pass the one of here on; may be repeated"),
	OPT("env-ref", 0, CTL_TEXT, "PATH", env_ref, "workspace file with NUL-separated NAME=VALUE pairs"),
	OPT("stdin-ref", 0, CTL_TEXT, "PATH", stdin_ref, "workspace file to read as standard input"),
	OPT("script", 0, CTL_TEXT, "FILE", script, "run this local file as the script ('-' = standard input)"),
	OPT("region", 0, CTL_TEXT, "NAME", region, "region the session must be in"),
	OPT("keep", 0, CTL_FLAG, NULL, keep, "let background processes live on after the command"),
	OPT("detach", 'd', CTL_FLAG, NULL, detach, "print the execution's id and do not wait"),
	OPT("quiet", 'q', CTL_FLAG, NULL, quiet, "do not print the output"),
	OPT("idempotency-key", 0, CTL_TEXT, "KEY", key, "asked again with the same key, it is the same execution"),
	{0},
};

/* ---- the script ---- */

static int read_stream(struct buf *script, FILE *file, const char *path)
{
	char piece[8192];
	size_t got;
	int rc = 0;

	while ((got = fread(piece, 1, sizeof(piece), file)) > 0)
		if (buf_append(script, piece, got))
			break;
	if (script->error)
		rc = ctl_fail(CTL_REFUSED, "%s: a command may have at most %zu bytes; put the file into the task and run it there", path,
			      LIMIT_COMMAND_BODY);
	else if (ferror(file))
		rc = ctl_fail(CTL_ERROR, "%s: %m", path);
	else if (script->len && memchr(script->ptr, 0, script->len))
		rc = ctl_fail(CTL_USAGE, "%s: a script holds no NUL byte", path);
	return rc;
}

static int read_script(struct buf *script, const char *path)
{
	FILE *file;
	int rc;

	if (!strcmp(path, "-"))
		return read_stream(script, stdin, path);
	file = fopen(path, "re");
	if (!file)
		return ctl_fail(CTL_USAGE, "%s: %m", path);
	rc = read_stream(script, file, path);
	fclose(file);
	return rc;
}

static int make_script(struct buf *script, const char *file, int count, char **words)
{
	buf_puts(script, "");
	if (file)
		return count ? ctl_fail(CTL_USAGE, "exec: --script and a COMMAND exclude each other") : read_script(script, file);
	if (!count)
		return ctl_fail(CTL_USAGE, "exec: what should run? see berthctl exec --help");
	if (count == 1)
		buf_puts(script, words[0]);
	for (int i = 0; count > 1 && i < count; i++) {
		buf_puts(script, i ? " " : "");
		ctl_quote(script, words[i]);
	}
	if (script->error)
		return ctl_fail(CTL_REFUSED, "a command may have at most %zu bytes; --script and files of the task take more",
				LIMIT_COMMAND_BODY);
	return 0;
}

/* A whole script in one word and an option of ours behind it: several words are quoted and run as they are, so that the script
 * becomes the name of a program. It is run all the same; "--" in front says that it is meant. */
static void hint_misplaced(const struct ctl_args *args)
{
	char *name[] = {(char[]){"exec"}, NULL};
	int words;
	const struct ctl_command *exec = ctl_find(1, name, &words);

	if (args->dashes || args->count < 3 || !strpbrk(args->words[1], " \t\n"))
		return;
	for (int i = 2; i < args->count; i++) {
		size_t len = strcspn(args->words[i], "=");

		if (!ctl_option_of(exec, args->words[i], len))
			continue;
		fprintf(stderr, "berthctl: '%.*s' went to the command; options stand before COMMAND: berthctl exec %.*s … %s '…'\n", (int)len,
			args->words[i], (int)len, args->words[i], args->words[0]);
		return;
	}
}

/* ---- what is sent first ---- */

struct inputs {
	char stdin_path[80], env_path[80]; /* "" = none was sent */
	char left[240];			   /* what to say when nobody removes them */
};

/* With a key of the caller's the name is the same whenever it is asked again: it is part of what is asked. */
static void name_input(char path[80], const char *kind, const char *key)
{
	char id[IDENT_ID_MAX + 1], digest[65];

	ident_random(id, "", 16);
	if (key)
		secret_sha256_hex(key, strlen(key), digest);
	snprintf(path, 80, ".berthctl-%s-%.16s", kind, key ? digest : id);
}

static int send_stdin(struct ctl *ctl, const char *task, const char *key, struct inputs *in)
{
	if (isatty(STDIN_FILENO))
		fputs("berthctl: reading standard input; Ctrl-D ends it\n", stderr);
	name_input(in->stdin_path, "stdin", key);
	return ctl_send(ctl, task, in->stdin_path, STDIN_FILENO, "standard input", 0600, NULL);
}

/* Said here, where it can be said of --env: berthd would refuse the command when it is to start, and call it the first pair. */
static bool is_name(const char *word)
{
	static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
	size_t len = strspn(word, letters);

	return len > 0 && !isdigit((unsigned char)*word) && (word[len] == '=' || word[len] == '\0');
}

static int make_env(const struct ctl_many *env, struct buf *out)
{
	for (size_t i = 0; i < env->count; i++) {
		const char *word = env->words[i], *value = strchr(word, '=');

		if (value && !is_name(word))
			return ctl_fail(CTL_USAGE, "--env: '%.*s' is not a name; it is made of letters, digits and _, no digit first",
					(int)(value - word), word);
		if (!value && !getenv(word))
			return ctl_fail(CTL_USAGE, "--env: there is no variable '%s' here; write NAME=VALUE%s", word,
					strchr(word, '/') ? ", or --env-ref for a file of the workspace" : "");
		buf_puts(out, word);
		if (!value) {
			buf_puts(out, "=");
			buf_puts(out, getenv(word));
		}
		buf_append(out, "", 1);
	}
	return out->error ? ctl_fail(CTL_REFUSED, "--env: at most %zu bytes in all", LIMIT_ENV_BYTES) : 0;
}

static int send_env(struct ctl *ctl, const char *task, const struct exec_options *o, struct inputs *in)
{
	struct buf pairs;
	int rc;

	buf_init(&pairs, LIMIT_ENV_BYTES);
	rc = make_env(&o->env, &pairs);
	if (!rc) {
		name_input(in->env_path, "env", o->key);
		rc = ctl_send_bytes(ctl, task, in->env_path, pairs.ptr, pairs.len);
	}
	buf_fini(&pairs);
	return rc;
}

static int send_inputs(struct ctl *ctl, const char *task, const struct exec_options *o, struct inputs *in)
{
	int rc = 0;

	if (o->input && (o->stdin_ref || (o->script && !strcmp(o->script, "-"))))
		return ctl_fail(CTL_USAGE, "exec: --stdin excludes --stdin-ref and --script -");
	if (o->env.count && o->env_ref)
		return ctl_fail(CTL_USAGE, "exec: --env and --env-ref exclude each other");
	ctl_stop_on_signal(true);
	if (o->env.count)
		rc = send_env(ctl, task, o, in);
	if (!rc && o->input)
		rc = send_stdin(ctl, task, o->key, in);
	return rc;
}

static void remove_quietly(struct ctl *ctl, const char *task, const char *name)
{
	struct ctl_reply reply;
	struct buf path;

	ctl_file_path(&path, ctl, "files", task, "path", name);
	ctl_query(&path, "ensure", "false");
	ctl_try(ctl, "DELETE", path.ptr, NULL, NULL, &reply);
	ctl_reply_fini(&reply);
	buf_fini(&path);
}

static bool leaves(struct inputs *in)
{
	snprintf(in->left, sizeof(in->left), "berthctl: in the workspace stays what was sent for it: %s%s%s\n", in->env_path,
		 *in->env_path && *in->stdin_path ? " " : "", in->stdin_path);
	return *in->env_path || *in->stdin_path;
}

/* They end with the command; when that is not waited for, with the session. */
static void drop_inputs(struct ctl *ctl, const char *task, const struct inputs *in, bool detached)
{
	const char *paths[] = {in->stdin_path, in->env_path};

	for (size_t i = 0; i < 2; i++) {
		if (!*paths[i])
			continue;
		if (ctl_stopped()) /* named first: another Ctrl-C leaves it there */
			fprintf(stderr, "berthctl: stopped; removing %s from the workspace\n", paths[i]);
		if (detached)
			fprintf(stderr, "berthctl: %s stays in the workspace for the command to read; remove it later, or it ends with the session\n",
				paths[i]);
		else
			remove_quietly(ctl, task, paths[i]);
	}
}

/* ---- the end ---- */

static int follow_to_end(struct ctl *ctl, const char *id, const char *task, const struct exec_options *o)
{
	struct json_object *record = NULL;
	int rc = 0;

	ctl_wait_running(ctl, id, task);
	if (!ctl->json && !o->quiet)
		rc = ctl_follow(ctl, id, true, true, true);
	if (rc)
		return CTL_BERTH;
	rc = ctl_wait_terminal(ctl, id, &record);
	if (rc)
		return CTL_BERTH;
	if (ctl->json)
		ctl_json(record);
	rc = ctl_end(record, o->quiet);
	json_object_put(record);
	return rc;
}

static int run(struct ctl *ctl, const struct ctl_create *create, const struct exec_options *o)
{
	struct json_object *record = NULL;
	const char *id;
	int rc;

	/* From before the create on: a command whose id is not known yet could not be cancelled. */
	if (!o->detach)
		ctl_cancel_on_signal();
	ctl_stop_on_signal(false);
	if (ctl_stopped())
		return CTL_BERTH;
	rc = ctl_create(ctl, create, &record);
	id = rc ? "" : ctl_text(record, "id");
	if (rc)
		rc = CTL_BERTH;
	else if (o->detach && ctl->json)
		ctl_json(record);
	else if (o->detach)
		puts(id);
	else {
		ctl_cancel_target(id);
		rc = follow_to_end(ctl, id, create->task, o);
		ctl_cancel_target(NULL);
	}
	json_object_put(record);
	return rc;
}

int ctl_exec(struct ctl *ctl, const struct ctl_args *args)
{
	const struct exec_options *o = args->options;
	struct ctl_create create = {.task = args->words[0], .cwd = o->cwd, .region = o->region, .env_ref = o->env_ref,
				    .stdin_ref = o->stdin_ref, .key = o->key, .timeout = o->timeout, .keep = o->keep};
	struct sigaction ignore = {.sa_handler = SIG_IGN};
	struct inputs inputs = {0};
	struct buf script;
	int rc;

	sigaction(SIGPIPE, &ignore, NULL); /* a reader that goes away cancels the command */
	buf_init(&script, LIMIT_COMMAND_BODY);
	rc = make_script(&script, o->script, args->count - 1, args->words + 1);
	if (!rc)
		hint_misplaced(args);
	if (!rc)
		rc = send_inputs(ctl, create.task, o, &inputs);
	if (rc) {
		drop_inputs(ctl, create.task, &inputs, false);
		buf_fini(&script);
		return CTL_BERTH;
	}
	if (*inputs.stdin_path)
		create.stdin_ref = inputs.stdin_path;
	if (*inputs.env_path)
		create.env_ref = inputs.env_path;
	create.script = script.ptr;
	create.script_len = script.len;
	ctl_leave_behind(leaves(&inputs) ? inputs.left : NULL);
	rc = run(ctl, &create, o);
	drop_inputs(ctl, create.task, &inputs, o->detach && !ctl_stopped());
	ctl_leave_behind(NULL);
	buf_fini(&script);
	return rc;
}
