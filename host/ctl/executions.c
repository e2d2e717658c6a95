/* SPDX-License-Identifier: Apache-2.0 */
/*
 * executions, logs, cancel: looking at commands and ending them. Main thread besides the second output stream of follow.c.
 */
#include "ctl/commands.h"

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
	struct json_object *items = NULL;
	struct buf path;
	int rc;

	buf_init(&path, 8192);
	buf_puts(&path, "/sandbox/executions");
	ctl_query(&path, "workspace_id", ctl->workspace);
	ctl_query(&path, "task_id", args->count ? args->words[0] : NULL);
	ctl_query(&path, "status", o->status);
	rc = ctl_list(ctl, "executions", path.ptr, o->limit ? o->limit : 50, &items);
	buf_fini(&path);
	if (!rc && ctl->json)
		ctl_json(items);
	else if (!rc)
		ctl_table(items, columns);
	json_object_put(items);
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
