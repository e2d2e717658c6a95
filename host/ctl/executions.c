/* SPDX-License-Identifier: Apache-2.0 */
/*
 * executions, show, logs, wait, cancel: looking at commands and ending them. Main thread besides the second output stream of follow.c.
 */
#include "core/limits.h"
#include "ctl/commands.h"

#define LIST_USUAL 50

const struct ctl_option logs_options[] = {
	{.name = "follow", .letter = 'f', .type = CTL_FLAG, .off = offsetof(struct logs_options, follow),
	 .doc = "go on until the command ends"},
	{.name = "stdout", .type = CTL_FLAG, .off = offsetof(struct logs_options, only_stdout), .doc = "only standard output"},
	{.name = "stderr", .type = CTL_FLAG, .off = offsetof(struct logs_options, only_stderr), .doc = "only standard error"},
	{0},
};

const struct ctl_option executions_options[] = {
	{.name = "status", .letter = 's', .type = CTL_TEXT, .argument = "STATUS", .off = offsetof(struct list_options, status),
	 .doc = "only those: queued, claimed, running, completed, failed or cancelled",
	 .words = "queued claimed running completed failed cancelled"},
	{.name = "limit", .letter = 'n', .type = CTL_COUNT, .argument = "N", .off = offsetof(struct list_options, limit),
	 .doc = "at most so many (default 50)"},
	{0},
};

const struct ctl_option wait_options[] = {
	{.name = "quiet", .letter = 'q', .type = CTL_FLAG, .off = offsetof(struct wait_options, quiet),
	 .doc = "do not say what ended it, or that output was cut"},
	{0},
};

static int get_record(struct ctl *ctl, const char *id, const char *rest, struct json_object **ret)
{
	struct ctl_reply reply;
	struct buf path;
	int rc;

	ctl_execution_path(&path, id, rest);
	rc = ctl_call(ctl, "GET", path.ptr, NULL, &reply);
	buf_fini(&path);
	if (!rc && reply.status != 200)
		rc = ctl_explain(ctl, &reply, id, ctl_no_execution(id));
	if (!rc && !*ctl_text(reply.json, "id"))
		rc = ctl_not_berthd(ctl);
	if (!rc)
		*ret = json_object_get(reply.json);
	ctl_reply_fini(&reply);
	return rc;
}

/* A stream that was followed has ended, and the record that is there by now tells whether it is whole. */
static int say_what_is_missing(struct ctl *ctl, const char *id, struct json_object *record, const struct logs_options *o)
{
	struct json_object *ended = NULL;
	int rc = o->follow ? ctl_wait_terminal(ctl, id, &ended) : 0;

	if (!rc)
		ctl_say_missing(ended ? ended : record, !o->only_stderr, !o->only_stdout);
	json_object_put(ended);
	return rc;
}

int ctl_logs(struct ctl *ctl, const struct ctl_args *args)
{
	const struct logs_options *o = args->options;
	const char *id = args->words[0];
	struct json_object *record = NULL;
	int rc;

	if (o->only_stdout && o->only_stderr)
		return ctl_fail(CTL_USAGE, "logs: --stdout and --stderr exclude each other; without them both are shown");
	rc = get_record(ctl, id, ctl->json ? "?preview=65536" : "", &record);
	if (!rc && ctl->json && o->follow) {
		json_object_put(record);
		record = NULL;
		rc = ctl_wait_terminal(ctl, id, &record);
		json_object_put(record);
		record = NULL;
		if (!rc)
			rc = get_record(ctl, id, "?preview=65536", &record);
	}
	if (!rc && ctl->json)
		ctl_json(record);
	else if (!rc)
		rc = ctl_follow(ctl, id, !o->only_stderr, !o->only_stdout, o->follow);
	if (!rc && !ctl->json)
		rc = say_what_is_missing(ctl, id, record, o);
	json_object_put(record);
	return rc;
}

static void say_none(const struct ctl *ctl, const char *task, const char *status)
{
	fprintf(stderr, "no executions%s%s%s%s in workspace '%s'; -w NAME names another one\n", task ? " of task " : "", task ? task : "",
		status ? " that are " : "", status ? status : "", ctl->workspace);
}

/* What was asked to end and has not yet has no reason of its own so far. */
static void note_cancels(struct json_object *items)
{
	for (size_t i = 0; i < json_object_array_length(items); i++) {
		struct json_object *item = json_object_array_get_idx(items, i);

		if (*ctl_text(item, "cancel_requested_at"))
			json_object_object_add(item, "reason", json_object_new_string("cancel asked for"));
	}
}

int ctl_executions(struct ctl *ctl, const struct ctl_args *args)
{
	static const struct ctl_column columns[] = {
		{"ID", "id", false, CTL_PLAIN},
		{"TASK", "task_id", true, CTL_PLAIN},
		{"STATUS", "status", false, CTL_PLAIN},
		{"EXIT", "result.exit_code", false, CTL_PLAIN},
		{"ENDING", "ending.kind", false, CTL_PLAIN},
		{"TOOK", "result.execution_time_ms", false, CTL_MS},
		{"AGE", "created_at", false, CTL_AGE},
		{"REASON", "reason", true, CTL_PLAIN},
		{0},
	};
	const struct list_options *o = args->options;
	struct json_object *list = NULL, *items;
	struct buf path;
	int rc;

	buf_init(&path, 8192);
	buf_puts(&path, "/sandbox/executions");
	ctl_query(&path, "workspace_id", ctl->workspace);
	ctl_query(&path, "task_id", args->count ? args->words[0] : NULL);
	ctl_query(&path, "status", o->status);
	rc = ctl_list(ctl, "executions", path.ptr, o->limit ? o->limit : LIST_USUAL, &list);
	items = ctl_at(list, "items");
	buf_fini(&path);
	if (!rc && ctl->json)
		ctl_json(list);
	else if (!rc && !json_object_array_length(items))
		say_none(ctl, args->count ? args->words[0] : NULL, o->status);
	else if (!rc) {
		note_cancels(items);
		ctl_table(items, columns);
		if (!o->limit && ctl_at(list, "next_cursor"))
			fprintf(stderr, "these are the newest %d; --limit N lists more\n", LIST_USUAL);
	}
	json_object_put(list);
	return rc;
}

/* ---- one ---- */

static void print_execution(struct json_object *record)
{
	static const struct ctl_column rows[] = {
		{"execution", "id", false, CTL_PLAIN},
		{"workspace", "workspace_id", false, CTL_PLAIN},
		{"task", "task_id", false, CTL_PLAIN},
		{"status", "status", false, CTL_PLAIN},
		{"cancel asked", "cancel_requested_at", false, CTL_AGO},
		{"reason", "reason", false, CTL_PLAIN},
		{"", "error", false, CTL_PLAIN},
		{"exit code", "result.exit_code", false, CTL_PLAIN},
		{"ending", "ending.kind", false, CTL_PLAIN},
		{"signal", "ending.signal", false, CTL_PLAIN},
		{"took", "result.execution_time_ms", false, CTL_MS},
		{"age", "created_at", false, CTL_AGE},
		{"target", "target", false, CTL_PLAIN},
		{"folder", "command.cwd", false, CTL_PLAIN},
		{"stdout", "result.stdout_bytes", false, CTL_BYTES},
		{"stderr", "result.stderr_bytes", false, CTL_BYTES},
		{0},
	};
	const char *line = ctl_text(record, "command.command_body");

	ctl_rows(record, rows);
	for (const char *label = "command"; *line; label = "") {
		size_t len = strcspn(line, "\n");
		char *one = strndup(line, len);
		struct buf clean;

		buf_init(&clean, LIMIT_COMMAND_BODY + 1);
		ctl_clean(&clean, one ? one : "");
		printf("%-14s %s\n", label, clean.ptr ? clean.ptr : "");
		buf_fini(&clean);
		free(one);
		line += len + (line[len] == '\n');
	}
	ctl_say_missing(record, true, true);
}

int ctl_execution_show(struct ctl *ctl, const struct ctl_args *args)
{
	struct json_object *record = NULL;
	int rc = get_record(ctl, args->words[0], "", &record);

	if (!rc && ctl->json)
		ctl_json(record);
	else if (!rc)
		print_execution(record);
	json_object_put(record);
	return rc;
}

int ctl_wait(struct ctl *ctl, const struct ctl_args *args)
{
	const struct wait_options *o = args->options;
	const char *id = args->words[0];
	struct json_object *record = NULL;
	/* What is wrong with the address or the id is said at once; only later outages are waited for. */
	int rc = get_record(ctl, id, "", &record);

	json_object_put(record);
	record = NULL;
	if (!rc)
		rc = ctl_wait_terminal(ctl, id, &record);
	if (rc)
		return CTL_BERTH;
	if (ctl->json)
		ctl_json(record);
	rc = ctl_end(record, o->quiet);
	json_object_put(record);
	return rc;
}

int ctl_cancel(struct ctl *ctl, const struct ctl_args *args)
{
	struct json_object *record = NULL;
	struct ctl_reply reply;
	struct buf path;
	int rc;

	ctl_execution_path(&path, args->words[0], "");
	rc = ctl_call(ctl, "DELETE", path.ptr, NULL, &reply);
	buf_fini(&path);
	if (!rc && reply.status != 200 && reply.status != 202)
		rc = ctl_explain(ctl, &reply, args->words[0], ctl_no_execution(args->words[0]));
	ctl_reply_fini(&reply);
	if (!rc)
		rc = ctl_wait_terminal(ctl, args->words[0], &record);
	if (rc)
		return rc;
	if (ctl->json)
		ctl_json(record);
	else
		printf("%s %s\n", args->words[0], ctl_text(record, "status"));
	json_object_put(record);
	return 0;
}
