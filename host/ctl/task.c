/* SPDX-License-Identifier: Apache-2.0 */
/*
 * task, sessions, retire: a workspace's tasks and their sessions. Main thread.
 */
#include "ctl/commands.h"

#include "core/clock.h"
#include "core/json.h"

#define WAIT_PIECE_MAX 60

const struct ctl_option sessions_options[] = {
	{.name = "limit", .letter = 'n', .type = CTL_COUNT, .argument = "N", .off = offsetof(struct list_options, limit),
	 .doc = "at most so many (default: all)"},
	{0},
};

const struct ctl_option retire_options[] = {
	{.name = "force", .letter = 'f', .type = CTL_FLAG, .off = offsetof(struct retire_options, force),
	 .doc = "stop running commands at once"},
	{.name = "wait", .type = CTL_TIME, .argument = "TIME", .off = offsetof(struct retire_options, wait),
	 .doc = "how long to wait until the provider confirms it (default 10s)"},
	{0},
};

static void task_path(struct buf *path, const struct ctl *ctl, const char *task)
{
	buf_init(path, 8192);
	buf_puts(path, "/sandbox/task/");
	ctl_component(path, task);
	ctl_query(path, "workspace_id", ctl->workspace);
}

static const struct ctl_column task_rows[] = {
	{"workspace", "workspace_id", false, CTL_PLAIN},
	{"task", "task_id", false, CTL_PLAIN},
	{"stage", "stage", false, CTL_PLAIN},
	{"state", "state", false, CTL_PLAIN},
	{"cause", "cause", false, CTL_PLAIN},
	{"ref", "ref", false, CTL_PLAIN},
	{"session", "id", false, CTL_PLAIN},
	{"target", "target", false, CTL_PLAIN},
	{"provider", "provider", false, CTL_PLAIN},
	{"region", "region", false, CTL_PLAIN},
	{"isolation", "isolation", false, CTL_PLAIN},
	{"incarnation", "incarnation", false, CTL_PLAIN},
	{"age", "created_at", false, CTL_AGE},
	{"lease", "lease", false, CTL_PLAIN},
	{"lease ends in", "lease_until", false, CTL_UNTIL},
	{"life ends in", "ceiling_at", false, CTL_UNTIL},
	{"ends by", "ends_with", false, CTL_PLAIN},
	{"torn down for", "teardown_at", false, CTL_AGE},
	{"phase", "phase", false, CTL_PLAIN},
	{"failure", "failure.reason", false, CTL_PLAIN},
	{"", "failure.message", false, CTL_PLAIN},
	{"release tries", "release.tries", false, CTL_PLAIN},
	{"", "release.error", false, CTL_PLAIN},
	{0},
};

static void print_task(struct json_object *task)
{
	struct json_object *ops = ctl_at(task, "operations");

	ctl_rows(task, task_rows);
	for (size_t i = 0; i < ctl_length(ops); i++) {
		struct json_object *op = json_object_array_get_idx(ops, i);

		printf("%-14s %s %s%s\n", i ? "" : "operations", ctl_text(op, "id"), ctl_text(op, "kind"),
		       !strcmp(ctl_text(op, "waiting"), "true") ? " (waiting)" : "");
	}
}

int ctl_task(struct ctl *ctl, const struct ctl_args *args)
{
	struct buf path;
	int rc;

	task_path(&path, ctl, args->words[0]);
	rc = ctl_show(ctl, "GET", path.ptr, args->words[0], CTL_NO_TASK, print_task);
	buf_fini(&path);
	return rc;
}

int ctl_sessions(struct ctl *ctl, const struct ctl_args *args)
{
	static const struct ctl_column columns[] = {
		{"TASK", "task_id", true, CTL_PLAIN},	   {"STAGE", "stage", false, CTL_PLAIN},
		{"STATE", "state", false, CTL_PLAIN},	   {"TARGET", "target", true, CTL_PLAIN},
		{"OPERATIONS", "operations", false, CTL_PLAIN}, {"AGE", "created_at", false, CTL_AGE},
		{"ENDS IN", "expires_at", false, CTL_UNTIL}, {"SESSION", "id", true, CTL_PLAIN},
		{0},
	};
	const struct list_options *o = args->options;
	struct json_object *list = NULL, *items;
	struct buf path;
	int rc;

	buf_init(&path, 8192);
	buf_puts(&path, "/sandbox/sessions");
	ctl_query(&path, "workspace_id", ctl->workspace);
	rc = ctl_list(ctl, "sessions", path.ptr, o->limit ? o->limit : INT64_MAX, &list);
	items = ctl_at(list, "items");
	buf_fini(&path);
	if (!rc && ctl->json)
		ctl_json(list);
	else if (!rc && !json_object_array_length(items))
		fprintf(stderr, "no sessions in workspace '%s'; -w NAME names another one\n", ctl->workspace);
	else if (!rc)
		ctl_table(items, columns);
	json_object_put(list);
	return rc;
}

/* ---- retire ---- */

static int ask(struct ctl *ctl, const char *task, bool force, int64_t wait, long *ret_status)
{
	struct ctl_reply reply;
	struct buf path;
	char text[32];
	int rc;

	snprintf(text, sizeof(text), "%llds", (long long)(wait < WAIT_PIECE_MAX ? wait : WAIT_PIECE_MAX));
	task_path(&path, ctl, task);
	ctl_query(&path, "force", force ? "true" : NULL);
	ctl_query(&path, "wait", text);
	rc = ctl_call(ctl, "DELETE", path.ptr, NULL, &reply);
	buf_fini(&path);
	if (!rc && reply.status != 204 && reply.status != 202)
		rc = ctl_explain(ctl, &reply, task, CTL_NO_TASK);
	*ret_status = reply.status;
	ctl_reply_fini(&reply);
	return rc;
}

/* Taking down what is not there succeeds like taking down what is, so only a look beforehand tells a slip of the name. What
 * hinders the look, as a token that may not, is for the teardown to judge. */
static bool is_known(struct ctl *ctl, const char *task)
{
	struct ctl_reply reply;
	struct buf path;
	bool known;

	task_path(&path, ctl, task);
	known = ctl_try(ctl, "GET", path.ptr, NULL, NULL, &reply) || reply.status != 404;
	ctl_reply_fini(&reply);
	buf_fini(&path);
	return known;
}

int ctl_retire(struct ctl *ctl, const struct ctl_args *args)
{
	const struct retire_options *o = args->options;
	const char *task = args->words[0];
	bool known = ctl->json || is_known(ctl, task);
	int64_t until_ns = clock_after_ms((o->wait ? o->wait : 10) * 1000), left;
	long status = 202;
	int rc;

	do {
		left = (clock_left_ms(until_ns) + 999) / 1000;
		rc = ask(ctl, task, o->force, left, &status);
	} while (!rc && status == 202 && clock_left_ms(until_ns));
	if (rc)
		return rc;
	if (ctl->json) {
		struct json_object *json = json_object_new_object();

		json_object_object_add(json, "task_id", json_object_new_string(task));
		json_object_object_add(json, "gone", json_object_new_boolean(status == 204));
		ctl_json(json);
		json_object_put(json);
	} else if (status == 202) {
		fprintf(stderr, "%s is still being torn down; 'berthctl task %s' shows how it goes\n", task, task);
	} else if (!known) {
		fprintf(stderr, "there was no such task in workspace '%s': %s\n  %s\n", ctl->workspace, task, CTL_NO_TASK);
	} else {
		printf("%s is gone\n", task);
	}
	return status == 202 ? CTL_UNAVAILABLE : 0;
}
