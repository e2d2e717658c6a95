/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations, one function each: check what the host promises the plugin, begin, call, end. The call's own thread;
 * may block until the call's deadline and, when the plugin misbehaves, longer.
 */
#include "plugin/private.h"

#include "core/clock.h"
#include "core/ident.h"
#include "obs/metrics.h"

#define ABI(call) ((struct berth_call *)(void *)(call))
#define OPS(call) ((call)->target->plugin->ops)
#define INST(call) ((call)->target->inst)

static struct berth_str str(const char *text)
{
	return (struct berth_str){.ptr = text ? text : "", .len = text ? strlen(text) : 0};
}

static int check_path(const char *field, const char *path, bool dot_ok, struct err *err)
{
	return ident_path_check(field, path, strlen(path), dot_ok, err);
}

int call_check(struct call *call, struct err *err)
{
	int rc = call_begin(call, OP_CHECK, err);

	return rc ? rc : call_end(call, OPS(call).check(INST(call), ABI(call)), err);
}

static int make_identity(struct berth_identity *ret, struct ident *ident, const char *workspace, const char *task,
			 struct err *err)
{
	int rc = ident_make(ident, workspace, task, err);

	if (rc)
		return rc;
	*ret = (struct berth_identity){
	    .struct_size = sizeof(*ret),
	    .workspace_id = str(ident->workspace),
	    .task_id = str(ident->task),
	};
	return 0;
}

int call_find(struct call *call, const char *workspace, const char *task, struct err *err)
{
	struct berth_identity identity;
	struct ident ident;
	int rc = make_identity(&identity, &ident, workspace, task, err);

	if (rc || (rc = call_begin(call, OP_FIND, err)))
		return rc;
	call->wanted = &identity;
	return call_end(call, OPS(call).find(INST(call), ABI(call), &identity), err);
}

int call_list(struct call *call, const char *cursor, struct err *err)
{
	const struct berth_str from = str(cursor);
	int rc = call_begin(call, OP_LIST, err);

	return rc ? rc : call_end(call, OPS(call).list(INST(call), ABI(call), &from), err);
}

int call_provision(struct call *call, const struct berth_spec *spec, struct err *err)
{
	int rc = call_begin(call, OP_PROVISION, err);
	int64_t start_ns = clock_boot_ns();

	if (rc)
		return rc;
	rc = call_end(call, OPS(call).provision(INST(call), ABI(call), spec), err);
	metric_add(METRIC_PROVISIONS, METRIC_OUTCOME(rc), 0, 1);
	metric_observe_ns(METRIC_PROVISION_SECONDS, 0, clock_boot_ns() - start_ns);
	return rc;
}

int call_await_ready(struct call *call, const struct berth_session *session, struct err *err)
{
	int rc = call_begin(call, OP_AWAIT_READY, err);

	return rc ? rc : call_end(call, OPS(call).await_ready(INST(call), ABI(call), session), err);
}

int call_assign(struct call *call, const struct berth_session *session, const char *workspace, const char *task,
		struct err *err)
{
	struct berth_identity identity;
	struct ident ident;
	int rc = make_identity(&identity, &ident, workspace, task, err);

	if (rc || (rc = call_begin(call, OP_ASSIGN, err)))
		return rc;
	call->wanted = &identity;
	return call_end(call, OPS(call).assign(INST(call), ABI(call), session, &identity), err);
}

int call_inspect(struct call *call, const struct berth_session *session, struct err *err)
{
	int rc = call_begin(call, OP_INSPECT, err);

	return rc ? rc : call_end(call, OPS(call).inspect(INST(call), ABI(call), session), err);
}

int call_execute(struct call *call, const struct berth_session *session, const struct berth_command *command,
		 struct err *err)
{
	int rc = call_begin(call, OP_EXECUTE, err);

	return rc ? rc : call_end(call, OPS(call).execute(INST(call), ABI(call), session, command), err);
}

int call_reattach(struct call *call, const struct berth_session *session, const struct berth_resume *resume,
		  struct err *err)
{
	int rc = call_begin(call, OP_REATTACH, err);

	return rc ? rc : call_end(call, OPS(call).reattach(INST(call), ABI(call), session, resume), err);
}

int call_forget(struct call *call, const struct berth_session *session, const char *execution_id, struct err *err)
{
	const struct berth_str id = str(execution_id);
	int rc = call_begin(call, OP_FORGET, err);

	return rc ? rc : call_end(call, OPS(call).forget(INST(call), ABI(call), session, &id), err);
}

int call_signal(struct call *call, const struct berth_session *session, const char *execution_id, uint32_t signal,
		struct err *err)
{
	const struct berth_str id = str(execution_id);
	int rc = call_begin(call, OP_SEND_SIGNAL, err);

	return rc ? rc : call_end(call, OPS(call).send_signal(INST(call), ABI(call), session, &id, signal), err);
}

int call_file_read(struct call *call, const struct berth_session *session, const char *path, uint64_t offset,
		   uint64_t length, struct err *err)
{
	const struct berth_str at = str(path);
	int rc = check_path("path", path, false, err);

	if (rc || (rc = call_begin(call, OP_FILE_READ, err)))
		return rc;
	return call_end(call, OPS(call).file_read(INST(call), ABI(call), session, &at, offset, length), err);
}

int call_file_write(struct call *call, const struct berth_session *session, const struct berth_file_write *write,
		    struct err *err)
{
	int rc = ident_path_check("path", write->path.ptr, write->path.len, false, err);

	if (rc || (rc = call_begin(call, OP_FILE_WRITE, err)))
		return rc;
	return call_end(call, OPS(call).file_write(INST(call), ABI(call), session, write), err);
}

int call_file_stat(struct call *call, const struct berth_session *session, const char *path, struct err *err)
{
	const struct berth_str at = str(path);
	int rc = check_path("path", path, true, err);

	if (rc || (rc = call_begin(call, OP_FILE_STAT, err)))
		return rc;
	return call_end(call, OPS(call).file_stat(INST(call), ABI(call), session, &at), err);
}

int call_file_list(struct call *call, const struct berth_session *session, const char *path, uint32_t flags,
		   struct err *err)
{
	const struct berth_str at = str(path);
	int rc = check_path("path", path, true, err);

	if (rc || (rc = call_begin(call, OP_FILE_LIST, err)))
		return rc;
	return call_end(call, OPS(call).file_list(INST(call), ABI(call), session, &at, flags), err);
}

int call_file_remove(struct call *call, const struct berth_session *session, const char *path, uint32_t flags,
		     struct err *err)
{
	const struct berth_str at = str(path);
	int rc = check_path("path", path, false, err);

	if (rc || (rc = call_begin(call, OP_FILE_REMOVE, err)))
		return rc;
	return call_end(call, OPS(call).file_remove(INST(call), ABI(call), session, &at, flags), err);
}

int call_file_move(struct call *call, const struct berth_session *session, const char *from, const char *to,
		   struct err *err)
{
	const struct berth_str source = str(from), dest = str(to);
	int rc = check_path("from", from, false, err);

	if (rc || (rc = check_path("to", to, false, err)) || (rc = call_begin(call, OP_FILE_MOVE, err)))
		return rc;
	return call_end(call, OPS(call).file_move(INST(call), ABI(call), session, &source, &dest), err);
}

int call_import(struct call *call, const struct berth_session *session, const char *path, struct err *err)
{
	const struct berth_str at = str(path);
	int rc = check_path("path", path, true, err);

	if (rc || (rc = call_begin(call, OP_IMPORT, err)))
		return rc;
	return call_end(call, OPS(call).import_tar(INST(call), ABI(call), session, &at), err);
}

int call_export(struct call *call, const struct berth_session *session, const struct berth_str *paths, size_t count,
		struct err *err)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < count; i++)
		rc = ident_path_check("path", paths[i].ptr, paths[i].len, true, err);
	if (rc || (rc = call_begin(call, OP_EXPORT, err)))
		return rc;
	return call_end(call, OPS(call).export_tar(INST(call), ABI(call), session, paths, count), err);
}

int call_mark(struct call *call, const struct berth_session *session, struct err *err)
{
	int rc = call_begin(call, OP_MARK, err);

	return rc ? rc : call_end(call, OPS(call).mark(INST(call), ABI(call), session), err);
}

int call_changes_since(struct call *call, const struct berth_session *session, const char *token, struct err *err)
{
	const struct berth_str from = str(token);
	int rc = call_begin(call, OP_CHANGES, err);

	return rc ? rc : call_end(call, OPS(call).changes(INST(call), ABI(call), session, &from), err);
}

int call_renew(struct call *call, const struct berth_session *session, int64_t until_ms, struct err *err)
{
	int rc = call_begin(call, OP_RENEW, err);

	return rc ? rc : call_end(call, OPS(call).renew(INST(call), ABI(call), session, until_ms), err);
}

int call_release(struct call *call, const struct berth_session *session, struct err *err)
{
	struct err why = {0};
	int rc = call_begin(call, OP_RELEASE, err);

	if (rc)
		return rc;
	rc = call_end(call, OPS(call).release(INST(call), ABI(call), session), &why);
	rc = rc == ERR_NOT_FOUND ? 0 : rc;
	metric_add(METRIC_RELEASES, METRIC_OUTCOME(rc), 0, 1);
	if (rc && err)
		*err = why;
	return rc;
}
