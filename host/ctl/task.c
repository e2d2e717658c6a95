/* SPDX-License-Identifier: Apache-2.0 */
/*
 * task, sessions, retire, verify: what an operator asks about sessions. One thread.
 */
#include "ctl/ctl.h"

#include "core/json.h"

static void task_path(struct buf *path, const struct ctl *ctl, const char *task)
{
	buf_init(path, 8192);
	buf_puts(path, "/sandbox/task/");
	ctl_component(path, task);
	ctl_query(path, "workspace_id", ctl->workspace);
}

/* Rows of `berthctl task`; absent ones are left out. */
static const struct ctl_column task_rows[] = {
	{"workspace", "workspace_id", false}, {"task", "task_id", false},           {"stage", "stage", false},
	{"state", "state", false},            {"cause", "cause", false},            {"session", "ref", false},
	{"session", "id", false},             {"target", "target", false},          {"provider", "provider", false},
	{"region", "region", false},          {"isolation", "isolation", false},    {"incarnation", "incarnation", false},
	{"created", "created_at", false},     {"lease", "lease", false},            {"lease until", "lease_until", false},
	{"ends at", "ceiling_at", false},     {"phase", "phase", false},            {"failure", "failure.reason", false},
	{"", "failure.message", false},       {"release tries", "release.tries", false}, {"", "release.error", false},
	{0},
};

static void print_task(struct json_object *task)
{
	struct json_object *ops = ctl_at(task, "operations");

	for (const struct ctl_column *row = task_rows; row->title; row++) {
		const char *text = ctl_text(task, row->path);

		if (*text)
			printf("%-14s %s\n", row->title, text);
	}
	for (size_t i = 0; ops && i < json_object_array_length(ops); i++) {
		struct json_object *op = json_object_array_get_idx(ops, i);

		printf("%-14s %s %s%s\n", i ? "" : "operations", ctl_text(op, "id"), ctl_text(op, "kind"),
		       !strcmp(ctl_text(op, "waiting"), "true") ? " (waiting)" : "");
	}
}

int ctl_task(struct ctl *ctl, const struct ctl_command *command, int argc, char **argv)
{
	int at = ctl_parse(ctl, command, NULL, argc, argv, 1, 1, false), rc;
	struct ctl_reply reply;
	struct buf path;

	if (at < 0)
		return CTL_PARSED_EXIT(at);
	task_path(&path, ctl, argv[at]);
	rc = ctl_call(ctl, "GET", path.ptr, NULL, &reply);
	buf_fini(&path);
	if (!rc && reply.status != 200)
		rc = ctl_explain(ctl, &reply, argv[at]);
	else if (!rc && ctl->json)
		ctl_json(reply.json);
	else if (!rc)
		print_task(reply.json);
	ctl_reply_fini(&reply);
	return rc;
}

int ctl_sessions(struct ctl *ctl, const struct ctl_command *command, int argc, char **argv)
{
	static const struct ctl_column columns[] = {
		{"TASK", "task_id", true},       {"STAGE", "stage", false},        {"STATE", "state", false},
		{"SESSION", "id", true},         {"PROVIDER", "provider", false},  {"ISOLATION", "isolation", false},
		{"CREATED", "created_at", false}, {"EXPIRES", "expires_at", false}, {0},
	};
	char *limit = NULL;
	const struct ctl_option options[] = {{"limit", 'n', "N", &limit, "at most so many (default: all)"}, {0}};
	int at = ctl_parse(ctl, command, options, argc, argv, 0, 0, false), rc;
	struct json_object *items = NULL;
	struct buf path;

	if (at < 0)
		return CTL_PARSED_EXIT(at);
	buf_init(&path, 8192);
	buf_puts(&path, "/sandbox/sessions");
	ctl_query(&path, "workspace_id", ctl->workspace);
	rc = ctl_list(ctl, path.ptr, limit ? strtoll(limit, NULL, 10) : INT64_MAX, &items);
	buf_fini(&path);
	if (!rc && ctl->json)
		ctl_json(items);
	else if (!rc)
		ctl_table(items, columns);
	json_object_put(items);
	return rc;
}

int ctl_retire(struct ctl *ctl, const struct ctl_command *command, int argc, char **argv)
{
	bool force = false;
	char *wait = NULL;
	const struct ctl_option options[] = {
		{"force", 'f', NULL, &force, "stop running commands at once"},
		{"wait", 0, "TIME", &wait, "how long to wait for the provider (default 10s, at most 60s)"},
		{0},
	};
	int at = ctl_parse(ctl, command, options, argc, argv, 1, 1, false), rc;
	struct ctl_reply reply;
	struct buf path;

	if (at < 0)
		return CTL_PARSED_EXIT(at);
	task_path(&path, ctl, argv[at]);
	ctl_query(&path, "force", force ? "true" : NULL);
	ctl_query(&path, "wait", wait);
	rc = ctl_call(ctl, "DELETE", path.ptr, NULL, &reply);
	buf_fini(&path);
	if (!rc && reply.status != 204 && reply.status != 202)
		rc = ctl_explain(ctl, &reply, argv[at]);
	else if (!rc && ctl->json)
		printf("{\"task_id\": \"%s\", \"gone\": %s}\n", argv[at], reply.status == 204 ? "true" : "false");
	else if (!rc && reply.status == 202)
		printf("%s is being torn down; 'berthctl task %s' shows how it goes\n", argv[at], argv[at]);
	else if (!rc)
		printf("%s is gone\n", argv[at]);
	ctl_reply_fini(&reply);
	return rc;
}

static void print_strays(struct json_object *target, const char *key, const char *sentence)
{
	struct json_object *list = ctl_at(target, key);

	for (size_t i = 0; list && i < json_object_array_length(list); i++) {
		struct json_object *item = json_object_array_get_idx(list, i);

		printf("  %s: %s\n", sentence,
		       json_object_is_type(item, json_type_string) ? json_object_get_string(item) : ctl_text(item, ""));
	}
}

int ctl_verify(struct ctl *ctl, const struct ctl_command *command, int argc, char **argv)
{
	static const struct ctl_column columns[] = {
		{"TARGET", "name", true},     {"SESSIONS", "provider_sessions", false}, {"BINDINGS", "bindings", false},
		{"WARM", "warm", false},      {"ERROR", "error", true},                 {0},
	};
	int at = ctl_parse(ctl, command, NULL, argc, argv, 0, 0, false), rc;
	struct json_object *targets;
	struct ctl_reply reply;

	if (at < 0)
		return CTL_PARSED_EXIT(at);
	rc = ctl_call(ctl, "POST", "/admin/verify", NULL, &reply);
	if (!rc && reply.status != 200)
		rc = ctl_explain(ctl, &reply, "verify");
	else if (!rc && ctl->json)
		ctl_json(reply.json);
	else if (!rc && (targets = ctl_at(reply.json, "targets"))) {
		ctl_table(targets, columns);
		for (size_t i = 0; i < json_object_array_length(targets); i++) {
			print_strays(json_object_array_get_idx(targets, i), "unknown", "session without a binding");
			print_strays(json_object_array_get_idx(targets, i), "missing", "binding without a session");
		}
	}
	if (!rc && strcmp(ctl_text(reply.json, "ok"), "true"))
		rc = ctl->json ? CTL_ERROR : ctl_fail(CTL_ERROR, "sessions and bindings differ; run it again in a minute: what is being released settles");
	else if (!rc && !ctl->json)
		puts("ok");
	ctl_reply_fini(&reply);
	return rc;
}
