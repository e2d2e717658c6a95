/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What operators ask a running daemon: targets, plugins, hosts, dead letters, verify, recover. Main thread.
 */
#include "ctl/commands.h"

#include "core/limits.h"

#define NO_TARGET "berthctl targets lists them"
#define NO_LETTER "berthctl deadletters list lists them"

const struct ctl_option deadletters_options[] = {
	{.name = "limit", .letter = 'n', .type = CTL_COUNT, .argument = "N", .off = offsetof(struct list_options, limit),
	 .doc = "at most so many (default: all)"},
	{0},
};

/* ---- targets ---- */

static void print_targets(struct json_object *json)
{
	static const struct ctl_column columns[] = {
		{"TARGET", "name", true, CTL_PLAIN},	{"PROVIDER", "provider", true, CTL_PLAIN},
		{"REGION", "region", true, CTL_PLAIN},	{"STATUS", "status", false, CTL_PLAIN},
		{"DRAINED", "drained", false, CTL_PLAIN}, {"RUNNING", "running", false, CTL_PLAIN},
		{"STUCK", "stuck", false, CTL_PLAIN},	{"CALLS", "calls", false, CTL_PLAIN},
		{"FAILURES", "failures", false, CTL_PLAIN}, {"WHY", "why", true, CTL_PLAIN},
		{0},
	};

	ctl_table(ctl_at(json, "items"), columns);
}

int ctl_targets(struct ctl *ctl, const struct ctl_args *args)
{
	(void)args;
	return ctl_show(ctl, "GET", "/admin/targets", "targets", NULL, print_targets);
}

static void print_drained(struct json_object *json)
{
	bool drained = !strcmp(ctl_text(json, "drained"), "true");

	printf("%s %s\n", ctl_text(json, "name"),
	       drained ? "is drained: no new sessions there, what lives goes on" : "takes new sessions again");
}

static int drain(struct ctl *ctl, const char *target, const char *verb)
{
	struct buf path;
	int rc;

	buf_init(&path, 8192);
	buf_puts(&path, "/admin/targets/");
	ctl_component(&path, target);
	buf_printf(&path, "/%s", verb);
	rc = ctl_show(ctl, "POST", path.ptr, target, NO_TARGET, print_drained);
	buf_fini(&path);
	return rc;
}

int ctl_drain(struct ctl *ctl, const struct ctl_args *args)
{
	return drain(ctl, args->words[0], "drain");
}

int ctl_undrain(struct ctl *ctl, const struct ctl_args *args)
{
	return drain(ctl, args->words[0], "undrain");
}

/* ---- hosts, providers ---- */

static void print_hosts(struct json_object *json)
{
	static const struct ctl_column columns[] = {
		{"HOST", "id", true, CTL_PLAIN},
		{"VERSION", "version", false, CTL_PLAIN},
		{"ROLES", "roles", false, CTL_PLAIN},
		{"PID", "pid", false, CTL_PLAIN},
		{"UP", "started_at", false, CTL_AGE},
		{"CONNECTIONS", "connections", false, CTL_PLAIN},
		{"REQUESTS", "requests", false, CTL_PLAIN},
		{0},
	};

	ctl_table(ctl_at(json, "items"), columns);
}

int ctl_hosts(struct ctl *ctl, const struct ctl_args *args)
{
	(void)args;
	return ctl_show(ctl, "GET", "/admin/hosts", "hosts", NULL, print_hosts);
}

static void print_providers(struct json_object *json)
{
	static const struct ctl_column columns[] = {
		{"PROVIDER", "name", true, CTL_PLAIN}, {"VERSION", "version", true, CTL_PLAIN},
		{"ABI", "abi", false, CTL_PLAIN},      {"TARGETS", "targets", true, CTL_LIST},
		{"CAPABILITIES", "capabilities", true, CTL_LIST}, {"PATH", "path", true, CTL_PLAIN},
		{0},
	};

	ctl_table(ctl_at(json, "items"), columns);
}

int ctl_providers_list(struct ctl *ctl, const struct ctl_args *args)
{
	(void)args;
	return ctl_show(ctl, "GET", "/admin/providers", "providers", NULL, print_providers);
}

/* ---- dead letters ---- */

static void letter_path(struct buf *path, const char *id)
{
	buf_init(path, 4096);
	buf_puts(path, "/admin/deadletters/");
	ctl_component(path, id);
}

int ctl_deadletters_list(struct ctl *ctl, const struct ctl_args *args)
{
	static const struct ctl_column columns[] = {
		{"ID", "id", false, CTL_PLAIN},		      {"AGE", "at", false, CTL_AGE},
		{"REASON", "letter.reason", false, CTL_PLAIN}, {"SUBJECT", "letter.subject", false, CTL_PLAIN},
		{"SIZE", "letter.size", false, CTL_BYTES},    {"MESSAGE", "letter.event", true, CTL_PLAIN},
		{0},
	};
	const struct list_options *o = args->options;
	struct json_object *list = NULL, *items;
	int rc = ctl_list(ctl, "deadletters", "/admin/deadletters", o->limit ? o->limit : INT64_MAX, &list);

	items = ctl_at(list, "items");
	if (!rc && ctl->json)
		ctl_json(list);
	else if (!rc && !json_object_array_length(items))
		fputs("no dead letters\n", stderr);
	else if (!rc)
		ctl_table(items, columns);
	json_object_put(list);
	return rc;
}

int ctl_deadletters_show(struct ctl *ctl, const struct ctl_args *args)
{
	struct buf path;
	int rc;

	letter_path(&path, args->words[0]);
	rc = ctl_show(ctl, "GET", path.ptr, args->words[0], NO_LETTER, NULL);
	buf_fini(&path);
	return rc;
}

static int for_letters(struct ctl *ctl, const struct ctl_args *args, const char *method, const char *done, const char *key)
{
	struct json_object *items = json_object_new_array();
	int first = 0;

	for (int i = 0; i < args->count; i++) {
		struct ctl_reply reply;
		struct buf path;
		int rc;

		letter_path(&path, args->words[i]);
		rc = ctl_call(ctl, method, path.ptr, NULL, &reply);
		if (!rc && reply.status != 204)
			rc = ctl_explain(ctl, &reply, args->words[i], NO_LETTER);
		else if (!rc && !ctl->json)
			printf("%s %s\n", args->words[i], done);
		json_object_array_add(items, ctl_json_item("id", args->words[i], key, rc, &reply));
		ctl_reply_fini(&reply);
		buf_fini(&path);
		first = first ? first : rc;
		if (rc == CTL_DENIED || rc == CTL_UNAVAILABLE)
			break;
	}
	if (ctl->json)
		ctl_json_items(items);
	json_object_put(items);
	return first;
}

int ctl_deadletters_requeue(struct ctl *ctl, const struct ctl_args *args)
{
	return for_letters(ctl, args, "POST", "is back in the queue", "requeued");
}

int ctl_deadletters_drop(struct ctl *ctl, const struct ctl_args *args)
{
	return for_letters(ctl, args, "DELETE", "is dropped", "dropped");
}

/* ---- verify, recover ---- */

static void print_strays(struct json_object *target, const char *key, const char *sentence)
{
	struct json_object *list = ctl_at(target, key);
	size_t count = ctl_length(list);

	for (size_t i = 0; i < count; i++) {
		struct buf line;

		buf_init(&line, LIMIT_MIB);
		buf_printf(&line, "  %s: ", sentence);
		ctl_clean(&line, ctl_text(json_object_array_get_idx(list, i), ""));
		puts(line.ptr);
		buf_fini(&line);
	}
}

static void print_verified(struct json_object *json)
{
	static const struct ctl_column columns[] = {
		{"TARGET", "name", true, CTL_PLAIN},	{"SESSIONS", "provider_sessions", false, CTL_PLAIN},
		{"BINDINGS", "bindings", false, CTL_PLAIN}, {"WARM", "warm", false, CTL_PLAIN},
		{"ERROR", "error", true, CTL_PLAIN},	{0},
	};
	struct json_object *targets = ctl_at(json, "targets");

	ctl_table(targets, columns);
	for (size_t i = 0; i < ctl_length(targets); i++) {
		print_strays(json_object_array_get_idx(targets, i), "unknown", "session without a binding");
		print_strays(json_object_array_get_idx(targets, i), "missing", "binding without a session");
	}
}

int ctl_verify(struct ctl *ctl, const struct ctl_args *args)
{
	struct ctl_reply reply;
	int rc = ctl_call(ctl, "POST", "/admin/verify", NULL, &reply);

	(void)args;
	if (!rc && reply.status != 200)
		rc = ctl_explain(ctl, &reply, "verify", NULL);
	else if (!rc && ctl->json)
		ctl_json(reply.json);
	else if (!rc)
		print_verified(reply.json);
	if (!rc && strcmp(ctl_text(reply.json, "ok"), "true") != 0)
		rc = ctl->json ? CTL_ERROR
			       : ctl_fail(CTL_ERROR, "sessions and bindings differ\n  run it again in a minute: what is being released settles");
	else if (!rc && !ctl->json)
		puts("ok");
	ctl_reply_fini(&reply);
	return rc;
}

static void print_recovered(struct json_object *json)
{
	(void)json;
	puts("orphans are swept from now on");
}

int ctl_recover(struct ctl *ctl, const struct ctl_args *args)
{
	(void)args;
	return ctl_show(ctl, "POST", "/admin/recover", "recover", NULL, print_recovered);
}
