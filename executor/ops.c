/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the table of routes and what each does: the SDK's functions, given this request's arguments. Any worker. Must
 * never act before the request was judged (request.c).
 */
#include "ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <berth/provider.h>

#include "forget.h"

#define STRING(key) #key, ARGS_STRING, true, offsetof(struct args, key)
#define INTEGER(key, least, most) #key, ARGS_INTEGER, true, offsetof(struct args, key), least, most
#define OPTIONAL(key, least, most, absent) #key, ARGS_INTEGER, false, offsetof(struct args, key), least, most, absent
#define LIST(key, most) #key, ARGS_LIST, false, offsetof(struct args, key), 0, most
#define BOOLEAN(key) #key, ARGS_BOOLEAN, false, offsetof(struct args, key)

static const struct args_key no_keys[] = {{NULL}};
static const struct args_key execute_keys[] = {
	{STRING(execution_id)},
	{INTEGER(attempt, 1, UINT32_MAX)},
	{STRING(cwd)},
	{INTEGER(timeout_ms, 1, INT64_MAX)},
	{INTEGER(stdout_max, 0, INT64_MAX)},
	{INTEGER(stderr_max, 0, INT64_MAX)},
	{BOOLEAN(keep_descendants)},
	{BOOLEAN(has_stdin)},
	{OPTIONAL(kill_grace_ms, 0, INT64_MAX, 2000)},
	{OPTIONAL(drain_grace_ms, 0, INT64_MAX, 200)},
	{LIST(forget, FORGET_MOST)},
	{NULL},
};
static const struct args_key reattach_keys[] = {
	{STRING(execution_id)},
	{INTEGER(attempt, 1, UINT32_MAX)},
	{INTEGER(stdout_offset, 0, INT64_MAX)},
	{INTEGER(stderr_offset, 0, INT64_MAX)},
	{NULL},
};
static const struct args_key signal_keys[] = {
	{STRING(execution_id)},
	{OPTIONAL(attempt, 0, UINT32_MAX, 0)},
	{STRING(signal)},
	{NULL},
};
static const struct args_key forget_keys[] = {
	{STRING(execution_id)},
	{OPTIONAL(attempt, 0, UINT32_MAX, 0)},
	{LIST(forget, FORGET_MOST)},
	{NULL},
};
static const struct args_key path_keys[] = {{STRING(path)}, {NULL}};
static const struct args_key read_keys[] = {
	{STRING(path)},
	{INTEGER(offset, 0, INT64_MAX)},
	{INTEGER(length, 0, INT64_MAX)},
	{NULL},
};
static const struct args_key write_keys[] = {
	{STRING(path)},
	{INTEGER(mode, 0, INT32_MAX)},
	{INTEGER(size, 0, INT64_MAX)},
	{NULL},
};
static const struct args_key tree_keys[] = {{STRING(path)}, {BOOLEAN(recursive)}, {NULL}};
static const struct args_key move_keys[] = {{STRING(from)}, {STRING(to)}, {NULL}};
static const struct args_key changes_keys[] = {{STRING(token)}, {NULL}};

/* Splits NAME=VALUE entries, each ended by a NUL. */
static int32_t split_env(struct berth_call *call, struct berth_pair **ret_pairs, size_t *ret_count)
{
	const struct frame_blob *env = &call->body.env;
	size_t count = 0;
	struct berth_pair *pairs;

	for (size_t i = 0; i < env->len; i++)
		count += env->ptr[i] == '\0';
	if (env->len && env->ptr[env->len - 1] != '\0')
		return call_fail(call, BERTH_INVALID, "env", false, "the environment does not end with a NUL");
	pairs = calloc(count + 1, sizeof(*pairs));
	if (!pairs)
		return call_fail(call, BERTH_UNAVAILABLE, "memory", true, "no memory for the environment");
	*ret_pairs = pairs;
	*ret_count = count;
	for (const char *at = env->ptr; count > 0; count--, pairs++) {
		size_t len = strlen(at), name = strcspn(at, "=");

		if (name == len)
			return call_fail(call, BERTH_INVALID, "env", false, "an entry of the environment has no '='");
		*pairs = (struct berth_pair){{at, name}, {at + name + 1, len - name - 1}};
		at += len + 1;
	}
	return BERTH_OK;
}

static int32_t run_execute(struct berth_call *call)
{
	const struct args *args = &call->args;
	struct berth_pair *env = NULL;
	struct berth_sup sup = call->executor->sup;
	struct berth_command command = {
		.struct_size = sizeof(command),
		.attempt = (uint32_t)args->attempt,
		.execution_id = args->execution_id,
		.script = {call->body.script.ptr, call->body.script.len},
		.cwd = args->cwd,
		.has_stdin = args->has_stdin,
		.keep_descendants = args->keep_descendants,
		.timeout_ms = args->timeout_ms,
		.stdout_max = (uint64_t)args->stdout_max,
		.stderr_max = (uint64_t)args->stderr_max,
	};
	int32_t rc = forget_check(call);

	if (rc == BERTH_OK)
		rc = split_env(call, &env, &command.env_count);
	sup.kill_grace_ms = args->kill_grace_ms;
	sup.drain_grace_ms = args->drain_grace_ms;
	command.env = env;
	call->announce = 'S';
	if (rc == BERTH_OK && !call->body.script.ptr)
		rc = call_fail(call, BERTH_INVALID, "frame", false, "a command has at least one frame C");
	if (rc == BERTH_OK)
		rc = berth_sup_execute(&call_host, call, &sup, &command);
	forget_others(call);
	free(env);
	return rc;
}

static int32_t run_reattach(struct berth_call *call)
{
	const struct args *args = &call->args;
	struct berth_resume resume = {
		.struct_size = sizeof(resume),
		.attempt = (uint32_t)args->attempt,
		.execution_id = args->execution_id,
		.stdout_offset = (uint64_t)args->stdout_offset,
		.stderr_offset = (uint64_t)args->stderr_offset,
	};

	call->announce = 'H';
	call->sent[BERTH_STREAM_STDOUT] = resume.stdout_offset;
	call->sent[BERTH_STREAM_STDERR] = resume.stderr_offset;
	return berth_sup_reattach(&call_host, call, &call->executor->sup, &resume);
}

static bool is(const struct berth_str *value, const char *word)
{
	return value->len == strlen(word) && memcmp(value->ptr, word, value->len) == 0;
}

static int32_t run_signal(struct berth_call *call)
{
	const struct berth_str *word = &call->args.signal;
	uint32_t signal = is(word, "TERM") ? BERTH_SIGNAL_TERM : is(word, "KILL") ? BERTH_SIGNAL_KILL : 0;

	return berth_sup_signal(&call_host, call, &call->executor->sup, &call->args.execution_id, signal);
}

static int32_t run_forget(struct berth_call *call)
{
	int32_t rc = forget_check(call);

	if (rc == BERTH_OK)
		rc = berth_sup_forget(&call_host, call, &call->executor->sup, &call->args.execution_id);
	forget_others(call);
	return rc;
}

static int32_t run_read(struct berth_call *call)
{
	const struct args *args = &call->args;

	call->sent[BERTH_STREAM_DATA] = (uint64_t)args->offset;
	return berth_localfs_read(&call_host, call, &call->executor->fs, &args->path, (uint64_t)args->offset,
				  (uint64_t)args->length);
}

static int32_t run_write(struct berth_call *call)
{
	const struct args *args = &call->args;
	struct berth_file_write write = {
		.struct_size = sizeof(write),
		.mode = (uint32_t)args->mode,
		.path = args->path,
		.size = args->size == INT64_MAX ? BERTH_SIZE_UNKNOWN : (uint64_t)args->size,
	};

	return berth_localfs_write(&call_host, call, &call->executor->fs, &write);
}

static int32_t run_stat(struct berth_call *call)
{
	return berth_localfs_stat(&call_host, call, &call->executor->fs, &call->args.path);
}

static int32_t run_list(struct berth_call *call)
{
	return berth_localfs_list(&call_host, call, &call->executor->fs, &call->args.path,
				  call->args.recursive ? BERTH_LIST_RECURSIVE : 0);
}

static int32_t run_remove(struct berth_call *call)
{
	return berth_localfs_remove(&call_host, call, &call->executor->fs, &call->args.path,
				    call->args.recursive ? BERTH_REMOVE_RECURSIVE : 0);
}

static int32_t run_move(struct berth_call *call)
{
	return berth_localfs_move(&call_host, call, &call->executor->fs, &call->args.from, &call->args.to);
}

static int32_t run_import(struct berth_call *call)
{
	return berth_localfs_import(&call_host, call, &call->executor->fs, &call->args.path);
}

static int32_t run_export(struct berth_call *call)
{
	const struct frame_blob *blob = &call->body.paths;
	struct berth_str *paths;
	size_t count = 0, i = 0;
	int32_t rc;

	for (size_t at = 0; at < blob->len; at++)
		count += blob->ptr[at] == '\0';
	if (count == 0 || blob->ptr[blob->len - 1] != '\0')
		return call_fail(call, BERTH_INVALID, "frame", false, "P holds paths, each ended by a NUL");
	paths = calloc(count, sizeof(*paths));
	if (!paths)
		return call_fail(call, BERTH_UNAVAILABLE, "memory", true, "no memory for the paths");
	for (const char *at = blob->ptr; i < count; i++) {
		paths[i] = (struct berth_str){at, strlen(at)};
		at += paths[i].len + 1;
	}
	rc = berth_localfs_export(&call_host, call, &call->executor->fs, paths, count);
	free(paths);
	return rc;
}

/* Left out of marks and changes, but not without a word. */
static void tell_unnamed(struct berth_call *call, size_t unnamed)
{
	if (unnamed)
		snprintf(call->result.text, sizeof(call->result.text),
			 "%zu entries have paths over %u bytes or lie in closed folders, and are left out", unnamed,
			 BERTH_PATH_MAX);
}

static int32_t run_mark(struct berth_call *call)
{
	size_t unnamed = 0;
	int32_t rc =
		berth_localfs_mark(&call_host, call, &call->executor->fs, call->executor->state.marks_fd, &unnamed);

	if (rc == BERTH_OK)
		tell_unnamed(call, unnamed);
	return rc;
}

static int32_t run_changes(struct berth_call *call)
{
	size_t unnamed = 0;
	int32_t rc = berth_localfs_changes(&call_host, call, &call->executor->fs, call->executor->state.marks_fd,
					   &call->args.token, &unnamed);

	if (rc == BERTH_OK)
		tell_unnamed(call, unnamed);
	return rc;
}

static int32_t run_check(struct berth_call *call)
{
	bool ready;
	char *text = executor_health(call->executor, &ready);

	if (!text)
		return call_fail(call, BERTH_UNAVAILABLE, "memory", true, "no memory");
	reply_plain(&call->reply, 200, "application/json", text, strlen(text));
	free(text);
	return BERTH_OK;
}

static const struct ops_route routes[] = {
	{.path = "/v1/check", run_check, no_keys, "", .anonymous = true},
	{.path = "/v1/execute", run_execute, execute_keys, "CV", .data = true, .execution = true, .stream = true},
	{.path = "/v1/reattach", run_reattach, reattach_keys, "", .execution = true, .stream = true},
	{.path = "/v1/signal", run_signal, signal_keys, "", .execution = true, .ends = true},
	{.path = "/v1/forget", run_forget, forget_keys, "", .execution = true},
	{.path = "/v1/file/read", run_read, read_keys, ""},
	{.path = "/v1/file/write", run_write, write_keys, "", .data = true},
	{.path = "/v1/file/stat", run_stat, path_keys, ""},
	{.path = "/v1/file/list", run_list, tree_keys, ""},
	{.path = "/v1/file/remove", run_remove, tree_keys, ""},
	{.path = "/v1/file/move", run_move, move_keys, ""},
	{.path = "/v1/tar/import", run_import, path_keys, "", .data = true},
	{.path = "/v1/tar/export", run_export, no_keys, "P"},
	{.path = "/v1/mark", run_mark, no_keys, ""},
	{.path = "/v1/changes", run_changes, changes_keys, ""},
};

const struct ops_route *ops_find(const char *path)
{
	for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++)
		if (strcmp(routes[i].path, path) == 0)
			return &routes[i];
	return NULL;
}
