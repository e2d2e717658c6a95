/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec, logs, executions, cancel: commands of a task. One thread besides the second output stream of follow.c.
 */
#include "ctl/ctl.h"

#include <unistd.h>

#include "core/json.h"
#include "core/limits.h"

static void quote_word(struct buf *script, const char *word)
{
	buf_puts(script, script->len ? " '" : "'");
	for (; *word; word++) {
		if (*word == '\'')
			buf_puts(script, "'\\''");
		else
			buf_append(script, word, 1);
	}
	buf_puts(script, "'");
}

static int read_script(struct buf *script, const char *path)
{
	FILE *file = !strcmp(path, "-") ? stdin : fopen(path, "re");
	char piece[8192];
	size_t got;
	int rc = 0;

	if (!file)
		return ctl_fail(CTL_USAGE, "%s: %m", path);
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
	if (file != stdin)
		fclose(file);
	return rc;
}

static int make_script(struct buf *script, const char *file, int argc, char **argv)
{
	if (file)
		return argc ? ctl_fail(CTL_USAGE, "--script and a COMMAND exclude each other") : read_script(script, file);
	if (!argc)
		return ctl_fail(CTL_USAGE, "exec: what should run? see berthctl exec --help");
	if (argc == 1)
		buf_puts(script, argv[0]);
	else
		for (int i = 0; i < argc; i++)
			quote_word(script, argv[i]);
	if (script->error)
		return ctl_fail(CTL_REFUSED, "a command may have at most %zu bytes", LIMIT_COMMAND_BODY);
	return 0;
}

struct exec_options {
	char *cwd, *timeout, *region, *env, *input, *script, *key;
	bool keep, detach, quiet;
};

static void put_text(struct buf *body, const char *key, const char *value)
{
	if (!value)
		return;
	buf_printf(body, ",\"%s\":", key);
	json_put_string(body, value, strlen(value));
}

static void make_body(struct buf *body, const struct ctl *ctl, const char *task, const struct exec_options *o, int64_t timeout,
		      const struct buf *script)
{
	buf_puts(body, "{\"workspace_id\":");
	json_put_string(body, ctl->workspace, strlen(ctl->workspace));
	put_text(body, "task_id", task);
	if (o->region) {
		buf_puts(body, ",\"runtime\":{\"region\":");
		json_put_string(body, o->region, strlen(o->region));
		buf_puts(body, "}");
	}
	buf_puts(body, ",\"command\":{\"command_body\":");
	json_put_string(body, script->ptr ? script->ptr : "", script->len);
	put_text(body, "cwd", o->cwd);
	put_text(body, "env_ref", o->env);
	put_text(body, "stdin_ref", o->input);
	if (timeout > 0)
		buf_printf(body, ",\"timeout_seconds\":%lld", (long long)timeout);
	if (o->keep)
		buf_puts(body, ",\"keep_descendants\":true");
	buf_puts(body, "}}");
}

/* The exit code of a terminal record, and a sentence for what is not the command's own doing. */
static int exit_of(struct json_object *record, bool quiet)
{
	const char *status = ctl_text(record, "status"), *kind = ctl_text(record, "ending.kind");
	const char *reason = ctl_text(record, "reason"), *error = ctl_text(record, "error");

	if (!strcmp(status, "completed")) {
		if (!strcmp(kind, "timeout") && !quiet)
			fprintf(stderr, "berthctl: the command ran into its timeout and was stopped\n");
		return (int)ctl_number(record, "result.exit_code", CTL_BERTH);
	}
	if (!strcmp(status, "cancelled"))
		return ctl_fail(CTL_CANCELLED, "%s was cancelled%s%s", ctl_text(record, "id"), *reason ? ": " : "", reason);
	return ctl_fail(CTL_BERTH, "%s failed: %s%s%s", ctl_text(record, "id"), *reason ? reason : "no reason given", *error ? ": " : "",
			error);
}

static int follow_to_end(struct ctl *ctl, const char *id, const struct exec_options *o)
{
	struct json_object *record = NULL;
	int rc = 0;

	ctl_cancel_on_signal(id);
	if (!ctl->json && !o->quiet)
		rc = ctl_follow(ctl, id, true, true);
	if (rc && rc != CTL_UNAVAILABLE)
		return CTL_BERTH;
	rc = ctl_wait_terminal(ctl, id, &record);
	ctl_cancel_on_signal(NULL);
	if (rc)
		return CTL_BERTH;
	if (ctl->json)
		ctl_json(record);
	rc = exit_of(record, o->quiet);
	json_object_put(record);
	return rc;
}

static int create(struct ctl *ctl, const char *body, char **ret_id)
{
	struct ctl_reply reply;
	int rc = ctl_call(ctl, "POST", "/sandbox/executions", body, &reply);

	if (!rc && reply.status != 202 && reply.status != 200)
		rc = ctl_explain(ctl, &reply, "exec");
	if (!rc)
		*ret_id = strdup(ctl_text(reply.json, "id"));
	ctl_reply_fini(&reply);
	return rc;
}

int ctl_exec(struct ctl *ctl, const struct ctl_command *command, int argc, char **argv)
{
	struct exec_options o = {0};
	const struct ctl_option options[] = {
		{"cwd", 'C', "DIR", &o.cwd, "folder of the workspace to run in"},
		{"timeout", 't', "TIME", &o.timeout, "stop it after this long, as in 90s or 10m (default: the daemon's)"},
		{"env-ref", 0, "PATH", &o.env, "workspace file with NUL-separated NAME=VALUE pairs"},
		{"stdin-ref", 0, "PATH", &o.input, "workspace file to read as standard input"},
		{"script", 0, "FILE", &o.script, "run this local file as the script ('-' = standard input)"},
		{"region", 0, "NAME", &o.region, "region the session must be in"},
		{"keep", 0, NULL, &o.keep, "let background processes live on after the command"},
		{"detach", 'd', NULL, &o.detach, "print the execution's id and do not wait"},
		{"quiet", 'q', NULL, &o.quiet, "do not print the output"},
		{0},
	};
	int at = ctl_parse(ctl, command, options, argc, argv, 1, -1, true), rc;
	struct buf script, body;
	int64_t timeout = 0;
	const char *task;
	char *id = NULL;

	if (at < 0)
		return CTL_PARSED_EXIT(at);
	task = argv[at];
	/* Options may also stand between the task and the command. */
	if (at + 1 < argc) {
		int next = ctl_parse(ctl, command, options, argc - at, argv + at, 0, -1, true);

		if (next < 0)
			return CTL_PARSED_EXIT(next);
		at += next - 1;
	}
	if (o.timeout && (timeout = ctl_seconds(o.timeout)) <= 0)
		return ctl_fail(CTL_USAGE, "--timeout: '%s' is not a time; write 90s or 10m", o.timeout);
	buf_init(&script, LIMIT_COMMAND_BODY);
	buf_init(&body, LIMIT_CREATE_BODY);
	rc = make_script(&script, o.script, argc - at - 1, argv + at + 1);
	if (!rc) {
		make_body(&body, ctl, task, &o, timeout, &script);
		rc = body.error ? ctl_fail(CTL_REFUSED, "the command is too long") : create(ctl, body.ptr, &id);
		if (rc)
			rc = CTL_BERTH;
	}
	if (!rc && o.detach)
		puts(id);
	else if (!rc)
		rc = follow_to_end(ctl, id, &o);
	free(id);
	buf_fini(&script);
	buf_fini(&body);
	return rc;
}

static int get_record(struct ctl *ctl, const char *id, struct json_object **ret)
{
	struct ctl_reply reply;
	struct buf path;
	int rc;

	buf_init(&path, 4096);
	buf_puts(&path, "/sandbox/executions/");
	ctl_component(&path, id);
	rc = ctl_call(ctl, "GET", path.ptr, NULL, &reply);
	buf_fini(&path);
	if (!rc && reply.status != 200)
		rc = ctl_explain(ctl, &reply, id);
	if (!rc)
		*ret = json_object_get(reply.json);
	ctl_reply_fini(&reply);
	return rc;
}

static int print_stored(struct ctl *ctl, const char *id, bool want_out, bool want_err)
{
	/* follow of an ended command ends with its last byte, so one path serves both. */
	return ctl_follow(ctl, id, want_out, want_err);
}

int ctl_logs(struct ctl *ctl, const struct ctl_command *command, int argc, char **argv)
{
	bool follow = false, only_out = false, only_err = false;
	const struct ctl_option options[] = {
		{"follow", 'f', NULL, &follow, "go on until the command ends"},
		{"stdout", 0, NULL, &only_out, "only standard output"},
		{"stderr", 0, NULL, &only_err, "only standard error"},
		{0},
	};
	int at = ctl_parse(ctl, command, options, argc, argv, 1, 1, false), rc;
	struct json_object *record = NULL;
	const char *status;

	if (at < 0)
		return CTL_PARSED_EXIT(at);
	rc = get_record(ctl, argv[at], &record);
	if (rc)
		return rc;
	if (ctl->json)
		ctl_json(record);
	status = ctl_text(record, "status");
	if (!follow && (!strcmp(status, "queued") || !strcmp(status, "claimed") || !strcmp(status, "running")))
		rc = ctl_fail(CTL_ERROR, "%s is still %s; use -f to follow it", argv[at], status);
	else if (!ctl->json)
		rc = print_stored(ctl, argv[at], !only_err, !only_out);
	json_object_put(record);
	return rc;
}

int ctl_executions(struct ctl *ctl, const struct ctl_command *command, int argc, char **argv)
{
	char *status = NULL, *limit = NULL;
	const struct ctl_option options[] = {
		{"status", 's', "STATUS", &status, "only queued, claimed, running, completed, failed or cancelled"},
		{"limit", 'n', "N", &limit, "at most so many (default 50)"},
		{0},
	};
	static const struct ctl_column columns[] = {
		{"ID", "id", false},         {"TASK", "task_id", true},        {"STATUS", "status", false},
		{"EXIT", "result.exit_code", false}, {"ENDING", "ending.kind", false}, {"REASON", "reason", true},
		{"MS", "result.execution_time_ms", false}, {"CREATED", "created_at", false}, {0},
	};
	int at = ctl_parse(ctl, command, options, argc, argv, 0, 1, false), rc;
	struct json_object *items = NULL;
	struct buf path;

	if (at < 0)
		return CTL_PARSED_EXIT(at);
	buf_init(&path, 8192);
	buf_puts(&path, "/sandbox/executions");
	ctl_query(&path, "workspace_id", ctl->workspace);
	ctl_query(&path, "task_id", at < argc ? argv[at] : NULL);
	ctl_query(&path, "status", status);
	rc = ctl_list(ctl, path.ptr, limit ? strtoll(limit, NULL, 10) : 50, &items);
	buf_fini(&path);
	if (!rc && ctl->json)
		ctl_json(items);
	else if (!rc)
		ctl_table(items, columns);
	json_object_put(items);
	return rc;
}

int ctl_cancel(struct ctl *ctl, const struct ctl_command *command, int argc, char **argv)
{
	int at = ctl_parse(ctl, command, NULL, argc, argv, 1, 1, false), rc;
	struct json_object *record = NULL;
	struct ctl_reply reply;
	struct buf path;

	if (at < 0)
		return CTL_PARSED_EXIT(at);
	buf_init(&path, 4096);
	buf_puts(&path, "/sandbox/executions/");
	ctl_component(&path, argv[at]);
	rc = ctl_call(ctl, "DELETE", path.ptr, NULL, &reply);
	buf_fini(&path);
	if (!rc && reply.status != 200 && reply.status != 202)
		rc = ctl_explain(ctl, &reply, argv[at]);
	ctl_reply_fini(&reply);
	if (!rc)
		rc = ctl_wait_terminal(ctl, argv[at], &record);
	if (rc)
		return rc;
	if (ctl->json)
		ctl_json(record);
	else
		printf("%s %s\n", argv[at], ctl_text(record, "status"));
	json_object_put(record);
	return 0;
}
