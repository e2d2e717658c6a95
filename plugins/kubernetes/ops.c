/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations of the provider table: each takes the host's words apart, calls the part that does the work, and
 * explains a failure. Entered by any thread; nothing is kept between calls.
 */
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "backend.h"
#include "capabilities.h"
#include "exec.h"
#include "files.h"
#include "kube.h"
#include "ready.h"

/* ---- what the host passes ---- */

static int32_t not_ours(struct kerr *err)
{
	return kerr_set(err, BERTH_NOT_FOUND, "deleted", "not a session of this provider");
}

/* Of any namespace: the target's may have been another when the session was made, which is no reason to call it gone.
 */
static int32_t take_session(const struct berth_session *from, struct session *ret, struct kerr *err)
{
	return session_of(from, ret) ? BERTH_OK : not_ours(err);
}

static struct json_object *text_value(struct berth_str text)
{
	return json_object_new_string_len(text.len ? text.ptr : "", (int)text.len);
}

/* {key: value}, to which more may be added. */
static struct json_object *with_path(const char *key, const struct berth_str *path)
{
	struct json_object *arguments = json_object_new_object();

	json_object_object_add(arguments, key, text_value(*path));
	return arguments;
}

static struct json_object *count_value(uint64_t value)
{
	return json_object_new_int64(value > INT64_MAX ? INT64_MAX : (int64_t)value);
}

/* ---- sessions ---- */

static int32_t op_check(void *inst, struct berth_call *call)
{
	struct kube *k = inst;
	struct kerr err = {0};
	int32_t rc = backend_of(k)->check(k, call, &err);

	if (rc == BERTH_NOT_FOUND)
		rc = kerr_set(&err, BERTH_INVALID, "namespace", "the namespace, or the resource in it, does not exist");
	return kube_end(call, rc, &err);
}

static int32_t find_names(struct kube *k, struct berth_call *call, const struct berth_identity *identity,
			  struct kerr *err)
{
	char *workspace = str_dup(identity->workspace_id), *task = str_dup(identity->task_id);
	int32_t rc;

	if (!workspace || !task || !*workspace || !*task)
		rc = kerr_set(err, BERTH_INVALID, "identity", "not a task identity");
	else
		rc = backend_find(k, call, workspace, task, err);
	free(workspace);
	free(task);
	return rc;
}

/* Finding is never answered with NOT_FOUND: there, it means that the namespace is not there. */
static int32_t op_find(void *inst, struct berth_call *call, const struct berth_identity *identity)
{
	struct kube *k = inst;
	struct kerr err = {0};
	int32_t rc = find_names(k, call, identity, &err);

	if (rc == BERTH_NOT_FOUND || rc == BERTH_CONFLICT)
		rc = kerr_set(&err, BERTH_INVALID, "namespace", "the namespace, or the resource in it, does not exist");
	return kube_end(call, rc, &err);
}

static int32_t op_list(void *inst, struct berth_call *call, const struct berth_str *cursor)
{
	struct kube *k = inst;
	struct kerr err = {0};
	char *text = str_dup(*cursor);
	int32_t rc = text ? backend_list(k, call, text, &err)
			  : kerr_set(&err, BERTH_INVALID, "cursor", "not a cursor of this provider");

	free(text);
	if (rc == BERTH_NOT_FOUND || rc == BERTH_CONFLICT)
		rc = kerr_set(&err, BERTH_INVALID, "namespace", "the namespace, or the resource in it, does not exist");
	return kube_end(call, rc, &err);
}

static int32_t op_provision(void *inst, struct berth_call *call, const struct berth_spec *spec)
{
	struct kube *k = inst;
	struct kerr err = {0};
	int32_t rc = backend_of(k)->provision(k, call, spec, &err);

	if (rc == BERTH_NOT_FOUND)
		rc = kerr_set(&err, BERTH_INVALID, "namespace", "the namespace, or the resource in it, does not exist");
	return kube_end(call, rc, &err);
}

static int32_t op_await_ready(void *inst, struct berth_call *call, const struct berth_session *from)
{
	struct kube *k = inst;
	struct kerr err = {0};
	struct session session;
	int32_t rc = take_session(from, &session, &err);

	if (!rc)
		rc = ready_wait(k, call, &session, &err);
	return kube_end(call,
			rc == BERTH_CONFLICT ? kerr_set(&err, BERTH_UNAVAILABLE, "conflict", "refused as a conflict")
					     : rc,
			&err);
}

static int32_t op_assign(void *inst, struct berth_call *call, const struct berth_session *from,
			 const struct berth_identity *identity)
{
	struct kube *k = inst;
	struct kerr err = {0};
	struct session session;
	char *workspace = str_dup(identity->workspace_id), *task = str_dup(identity->task_id),
	     *root = str_dup(from->root);
	int32_t rc = take_session(from, &session, &err);

	if (!backend_of(k)->assign)
		rc = kerr_set(&err, BERTH_UNSUPPORTED, "mode", "mode sandboxclaim keeps its pool itself");
	else if (!rc && (!workspace || !task || !root || !*workspace || !*task))
		rc = kerr_set(&err, BERTH_INVALID, "identity", "not a task identity");
	else if (!rc)
		rc = backend_of(k)->assign(k, call, &session, workspace, task, root, &err);
	free(workspace);
	free(task);
	free(root);
	return kube_end(call, rc, &err);
}

static int32_t op_inspect(void *inst, struct berth_call *call, const struct berth_session *from)
{
	struct kube *k = inst;
	struct kerr err = {0};
	struct session session;
	char *root = str_dup(from->root);
	int32_t rc = take_session(from, &session, &err);

	if (!rc)
		rc = root ? backend_of(k)->inspect(k, call, &session, root, &err)
			  : kerr_set(&err, BERTH_UNAVAILABLE, "memory", "no memory");
	free(root);
	return kube_end(call, rc, &err);
}

static int32_t op_renew(void *inst, struct berth_call *call, const struct berth_session *from, int64_t until_ms)
{
	struct kube *k = inst;
	struct kerr err = {0};
	struct session session;
	int32_t rc = take_session(from, &session, &err);

	if (!backend_of(k)->renew)
		rc = kerr_set(&err, BERTH_UNSUPPORTED, "mode", "a pod's limit of time can only be lowered");
	else if (!rc)
		rc = backend_of(k)->renew(k, call, &session, until_ms, &err);
	return kube_end(call, rc, &err);
}

static int32_t op_release(void *inst, struct berth_call *call, const struct berth_session *from)
{
	struct kube *k = inst;
	struct kerr err = {0};
	struct session session;
	int32_t rc = take_session(from, &session, &err);

	if (!rc)
		rc = backend_of(k)->release(k, call, &session, &err);
	if (!rc)
		owed_drop(k->owed, &session);
	return kube_end(call, rc, &err);
}

/* ---- commands ---- */

static int32_t take_command(const struct berth_session *from, const struct berth_str *execution_id, struct session *ret,
			    char **ret_id, struct kerr *err)
{
	int32_t rc = take_session(from, ret, err);

	*ret_id = rc ? NULL : str_dup(*execution_id);
	if (!rc && (!*ret_id || strpbrk(*ret_id, "\n")))
		rc = kerr_set(err, BERTH_INVALID, "execution_id", "not an execution id");
	/* What these operations do needs a session; none of ours is a lost one. */
	return rc == BERTH_NOT_FOUND ? kerr_set(err, BERTH_SESSION_LOST, "deleted", "not a session of this provider")
				     : rc;
}

static int32_t op_execute(void *inst, struct berth_call *call, const struct berth_session *from,
			  const struct berth_command *command)
{
	struct kube *k = inst;
	struct kerr err = {0};
	struct session session;
	char *id;
	int32_t rc = take_command(from, &command->execution_id, &session, &id, &err);

	if (!rc)
		rc = exec_run(k, call, &session, id, command, &err);
	free(id);
	return kube_end(call, rc, &err);
}

static int32_t op_reattach(void *inst, struct berth_call *call, const struct berth_session *from,
			   const struct berth_resume *resume)
{
	struct kube *k = inst;
	struct kerr err = {0};
	struct session session;
	char *id;
	int32_t rc = take_command(from, &resume->execution_id, &session, &id, &err);

	if (!rc)
		rc = exec_follow(k, call, &session, id, resume, &err);
	free(id);
	/* An attempt below the one that the executor knows: its owner has changed. */
	if (rc == BERTH_CONFLICT)
		rc = kerr_set(&err, BERTH_UNKNOWN, "stale_attempt", "a later attempt of this execution is known");
	return kube_end(call, rc, &err);
}

static int32_t op_forget(void *inst, struct berth_call *call, const struct berth_session *from,
			 const struct berth_execution *execution)
{
	struct kube *k = inst;
	struct kerr err = {0};
	struct session session;
	char *id;
	int32_t rc = take_command(from, &execution->id, &session, &id, &err);

	if (!rc)
		rc = exec_forget(k, call, &session, id, execution->attempt, &err);
	free(id);
	return kube_end(call, rc, &err);
}

static int32_t op_send_signal(void *inst, struct berth_call *call, const struct berth_session *from,
			      const struct berth_execution *execution, uint32_t signal)
{
	struct kube *k = inst;
	struct kerr err = {0};
	struct session session;
	char *id;
	int32_t rc;

	if (signal != BERTH_SIGNAL_TERM && signal != BERTH_SIGNAL_KILL)
		return BERTH_UNSUPPORTED;
	rc = take_command(from, &execution->id, &session, &id, &err);
	if (!rc)
		rc = exec_signal(k, call, &session, id, execution->attempt, signal == BERTH_SIGNAL_KILL ? "KILL" : "TERM", &err);
	free(id);
	return kube_end(call, rc, &err);
}

/* ---- files ---- */

static int32_t with_files(files_fn *fn, void *inst, struct berth_call *call, const struct berth_session *from,
			  const struct files_request *asked)
{
	struct kube *k = inst;
	struct kerr err = {0};
	struct session session;
	int32_t rc = take_session(from, &session, &err);

	if (!rc)
		return kube_end(call, fn(k, call, &session, asked, &err), &err);
	json_object_put(asked->arguments);
	return kube_end(call, kerr_set(&err, BERTH_SESSION_LOST, "deleted", "not a session of this provider"), &err);
}

/* Takes the arguments. */
static int32_t file_op(files_fn *fn, void *inst, struct berth_call *call, const struct berth_session *from,
		       const char *path, struct json_object *arguments)
{
	return with_files(fn, inst, call, from, &(struct files_request){.path = path, .arguments = arguments});
}

static int32_t op_file_read(void *inst, struct berth_call *call, const struct berth_session *from,
			    const struct berth_str *path, uint64_t offset, uint64_t length)
{
	struct json_object *arguments = with_path("path", path);

	json_object_object_add(arguments, "offset", count_value(offset));
	json_object_object_add(arguments, "length", count_value(length));
	return file_op(files_fetch, inst, call, from, "/v1/file/read", arguments);
}

static int32_t op_file_write(void *inst, struct berth_call *call, const struct berth_session *from,
			     const struct berth_file_write *write)
{
	struct json_object *arguments = with_path("path", &write->path);

	json_object_object_add(arguments, "mode", json_object_new_int64(write->mode));
	json_object_object_add(arguments, "size", count_value(write->size));
	return file_op(files_store, inst, call, from, "/v1/file/write", arguments);
}

static int32_t op_file_stat(void *inst, struct berth_call *call, const struct berth_session *from,
			    const struct berth_str *path)
{
	return file_op(files_ask, inst, call, from, "/v1/file/stat", with_path("path", path));
}

static int32_t op_file_list(void *inst, struct berth_call *call, const struct berth_session *from,
			    const struct berth_str *path, uint32_t flags)
{
	struct json_object *arguments;

	if (flags & ~BERTH_LIST_RECURSIVE)
		return BERTH_UNSUPPORTED;
	arguments = with_path("path", path);
	json_object_object_add(arguments, "recursive", json_object_new_boolean((flags & BERTH_LIST_RECURSIVE) != 0));
	return file_op(files_ask, inst, call, from, "/v1/file/list", arguments);
}

static int32_t op_file_remove(void *inst, struct berth_call *call, const struct berth_session *from,
			      const struct berth_str *path, uint32_t flags)
{
	struct json_object *arguments;

	if (flags & ~BERTH_REMOVE_RECURSIVE)
		return BERTH_UNSUPPORTED;
	arguments = with_path("path", path);
	json_object_object_add(arguments, "recursive", json_object_new_boolean((flags & BERTH_REMOVE_RECURSIVE) != 0));
	return file_op(files_ask, inst, call, from, "/v1/file/remove", arguments);
}

static int32_t op_file_move(void *inst, struct berth_call *call, const struct berth_session *from_session,
			    const struct berth_str *from, const struct berth_str *to)
{
	struct json_object *arguments = with_path("from", from);

	json_object_object_add(arguments, "to", text_value(*to));
	return file_op(files_ask, inst, call, from_session, "/v1/file/move", arguments);
}

static int32_t op_import_tar(void *inst, struct berth_call *call, const struct berth_session *from,
			     const struct berth_str *path)
{
	return file_op(files_store, inst, call, from, "/v1/tar/import", with_path("path", path));
}

static int32_t op_export_tar(void *inst, struct berth_call *call, const struct berth_session *from,
			     const struct berth_str *paths, size_t path_count)
{
	const struct files_request asked = {"/v1/tar/export", json_object_new_object(), paths, path_count};

	return with_files(files_fetch, inst, call, from, &asked);
}

static int32_t op_mark(void *inst, struct berth_call *call, const struct berth_session *from)
{
	return file_op(files_ask, inst, call, from, "/v1/mark", json_object_new_object());
}

static int32_t op_changes(void *inst, struct berth_call *call, const struct berth_session *from,
			  const struct berth_str *token)
{
	return file_op(files_ask, inst, call, from, "/v1/changes", with_path("token", token));
}

const struct berth_ops kube_ops = {
	.struct_size = sizeof(kube_ops),
	.open = kube_open,
	.close = kube_close,
	.check = op_check,
	.find = op_find,
	.list = op_list,
	.provision = op_provision,
	.await_ready = op_await_ready,
	.assign = op_assign,
	.inspect = op_inspect,
	.execute = op_execute,
	.reattach = op_reattach,
	.forget = op_forget,
	.send_signal = op_send_signal,
	.file_read = op_file_read,
	.file_write = op_file_write,
	.file_stat = op_file_stat,
	.file_list = op_file_list,
	.file_remove = op_file_remove,
	.file_move = op_file_move,
	.import_tar = op_import_tar,
	.export_tar = op_export_tar,
	.mark = op_mark,
	.changes = op_changes,
	.renew = op_renew,
	.release = op_release,
};
