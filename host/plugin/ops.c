/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations, two functions each: one checks what the host promises the plugin and puts the arguments into the
 * call, the other hands them to the plugin. The former on the caller's thread, the latter there or on the call's own;
 * may block until the call's deadline and, when the plugin misbehaves, longer (not when the call runs apart).
 */
#include "plugin/private.h"

#include <assert.h>

#include "core/clock.h"
#include "core/ident.h"
#include "obs/metrics.h"

#define ABI(call) ((struct berth_call *)(void *)(call))
#define OPS(call) ((call)->target->plugin->ops)
#define INST(call) ((call)->target->inst)
/* One slot of the table with its arguments, of which `args` holds some. */
#define RUN(slot, ...)                                                                                                 \
	static int32_t run_##slot(struct call *call)                                                                   \
	{                                                                                                              \
		const struct call_args *args = &call->args;                                                            \
                                                                                                                       \
		(void)args;                                                                                            \
		return OPS(call).slot(INST(call), ABI(call) __VA_ARGS__);                                              \
	}
RUN(check, )
RUN(find, , &args->identity)
RUN(list, , &args->text)
RUN(provision, , &args->spec)
RUN(await_ready, , &args->session)
RUN(assign, , &args->session, &args->identity)
RUN(inspect, , &args->session)
RUN(execute, , &args->session, args->command)
RUN(reattach, , &args->session, args->resume)
RUN(forget, , &args->session, &args->execution)
RUN(send_signal, , &args->session, &args->execution, args->flags)
RUN(file_read, , &args->session, &args->text, args->offset, args->length)
RUN(file_write, , &args->session, &args->write)
RUN(file_stat, , &args->session, &args->text)
RUN(file_list, , &args->session, &args->text, args->flags)
RUN(file_remove, , &args->session, &args->text, args->flags)
RUN(file_move, , &args->session, &args->text, &args->other)
RUN(import_tar, , &args->session, &args->text)
RUN(export_tar, , &args->session, args->paths, args->path_count)
RUN(mark, , &args->session)
RUN(changes, , &args->session, &args->text)
RUN(renew, , &args->session, args->until_ms)
RUN(release, , &args->session)

static struct berth_str str(const char *text)
{
	return (struct berth_str){.ptr = text ? text : "", .len = text ? strlen(text) : 0};
}

static int check_path(const char *field, const char *path, bool dot_ok, struct err *err)
{
	return ident_path_check(field, path, strlen(path), dot_ok, err);
}

/* begin, the plugin, end: the frame of every operation. */
static int go(struct call *call, enum op_kind kind, int32_t (*run)(struct call *call), struct err *err)
{
	int rc = call_begin(call, kind, err);

	return rc ? rc : call_run(call, run, err);
}

static struct call_args *clear_args(struct call *call)
{
	assert(!call->left); /* one that was given up is still in the plugin */
	call->args = (struct call_args){.arena = call->args.arena};
	return &call->args;
}

static struct call_args *args_at(struct call *call, const struct berth_session *session)
{
	struct call_args *args = clear_args(call);

	args->session = *session;
	return args;
}

int call_check(struct call *call, struct err *err)
{
	clear_args(call);
	return go(call, OP_CHECK, run_check, err);
}

static int set_identity(struct call_args *args, struct ident *ident, const char *workspace, const char *task,
			struct err *err)
{
	int rc = ident_make(ident, workspace, task, err);

	if (rc)
		return rc;
	args->identity = (struct berth_identity){
		.struct_size = sizeof(args->identity),
		.workspace_id = str(ident->workspace),
		.task_id = str(ident->task),
	};
	return 0;
}

int call_find(struct call *call, const char *workspace, const char *task, struct err *err)
{
	struct ident ident;
	int rc = set_identity(clear_args(call), &ident, workspace, task, err);

	if (rc)
		return rc;
	return go(call, OP_FIND, run_find, err);
}

int call_list(struct call *call, const char *cursor, struct err *err)
{
	clear_args(call)->text = str(cursor);
	return go(call, OP_LIST, run_list, err);
}

int call_provision(struct call *call, const struct berth_spec *spec, struct err *err)
{
	int64_t start_ns = clock_boot_ns();
	int rc;

	clear_args(call)->spec = *spec;
	rc = call_begin(call, OP_PROVISION, err);
	if (rc)
		return rc;
	rc = call_run(call, run_provision, err);
	metric_add(METRIC_PROVISIONS, METRIC_OUTCOME(rc), 0, 1);
	metric_observe_ns(METRIC_PROVISION_SECONDS, 0, clock_boot_ns() - start_ns);
	return rc;
}

int call_await_ready(struct call *call, const struct berth_session *session, struct err *err)
{
	args_at(call, session);
	return go(call, OP_AWAIT_READY, run_await_ready, err);
}

int call_assign(struct call *call, const struct berth_session *session, const char *workspace, const char *task,
		struct err *err)
{
	struct ident ident;
	int rc = set_identity(args_at(call, session), &ident, workspace, task, err);

	if (rc)
		return rc;
	return go(call, OP_ASSIGN, run_assign, err);
}

int call_inspect(struct call *call, const struct berth_session *session, struct err *err)
{
	args_at(call, session);
	return go(call, OP_INSPECT, run_inspect, err);
}

int call_execute(struct call *call, const struct berth_session *session, const struct berth_command *command,
		 struct err *err)
{
	assert(!call->apart);
	args_at(call, session)->command = command;
	return go(call, OP_EXECUTE, run_execute, err);
}

int call_reattach(struct call *call, const struct berth_session *session, const struct berth_resume *resume,
		  struct err *err)
{
	assert(!call->apart);
	args_at(call, session)->resume = resume;
	return go(call, OP_REATTACH, run_reattach, err);
}

int call_forget(struct call *call, const struct berth_session *session, const struct berth_execution *execution,
		struct err *err)
{
	args_at(call, session)->execution = *execution;
	return go(call, OP_FORGET, run_forget, err);
}

int call_signal(struct call *call, const struct berth_session *session, const struct berth_execution *execution,
		uint32_t signal, struct err *err)
{
	struct call_args *args = args_at(call, session);

	args->execution = *execution;
	args->flags = signal;
	return go(call, OP_SEND_SIGNAL, run_send_signal, err);
}

/* Most file operations: one path, checked. */
static int go_path(struct call *call, enum op_kind kind, int32_t (*run)(struct call *call), const char *path,
		   bool dot_ok, struct err *err)
{
	int rc = check_path("path", path, dot_ok, err);

	return rc ? rc : go(call, kind, run, err);
}

int call_file_read(struct call *call, const struct berth_session *session, const char *path, uint64_t offset,
		   uint64_t length, struct err *err)
{
	struct call_args *args = args_at(call, session);

	args->text = str(path);
	args->offset = offset;
	args->length = length;
	return go_path(call, OP_FILE_READ, run_file_read, path, false, err);
}

int call_file_write(struct call *call, const struct berth_session *session, const struct berth_file_write *write,
		    struct err *err)
{
	int rc = ident_path_check("path", write->path.ptr, write->path.len, false, err);

	if (rc)
		return rc;
	args_at(call, session)->write = *write;
	return go(call, OP_FILE_WRITE, run_file_write, err);
}

int call_file_stat(struct call *call, const struct berth_session *session, const char *path, struct err *err)
{
	args_at(call, session)->text = str(path);
	return go_path(call, OP_FILE_STAT, run_file_stat, path, true, err);
}

int call_file_list(struct call *call, const struct berth_session *session, const char *path, uint32_t flags,
		   struct err *err)
{
	struct call_args *args = args_at(call, session);

	args->text = str(path);
	args->flags = flags;
	return go_path(call, OP_FILE_LIST, run_file_list, path, true, err);
}

int call_file_remove(struct call *call, const struct berth_session *session, const char *path, uint32_t flags,
		     struct err *err)
{
	struct call_args *args = args_at(call, session);

	args->text = str(path);
	args->flags = flags;
	return go_path(call, OP_FILE_REMOVE, run_file_remove, path, false, err);
}

int call_file_move(struct call *call, const struct berth_session *session, const char *from, const char *to,
		   struct err *err)
{
	struct call_args *args = args_at(call, session);
	int rc = check_path("from", from, false, err);

	if (rc || (rc = check_path("to", to, false, err)))
		return rc;
	args->text = str(from);
	args->other = str(to);
	return go(call, OP_FILE_MOVE, run_file_move, err);
}

int call_import(struct call *call, const struct berth_session *session, const char *path, struct err *err)
{
	args_at(call, session)->text = str(path);
	return go_path(call, OP_IMPORT, run_import_tar, path, true, err);
}

int call_export(struct call *call, const struct berth_session *session, const struct berth_str *paths, size_t count,
		struct err *err)
{
	struct call_args *args = args_at(call, session);
	int rc = 0;

	for (size_t i = 0; !rc && i < count; i++)
		rc = ident_path_check("path", paths[i].ptr, paths[i].len, true, err);
	args->paths = paths;
	args->path_count = count;
	return rc ? rc : go(call, OP_EXPORT, run_export_tar, err);
}

int call_mark(struct call *call, const struct berth_session *session, struct err *err)
{
	args_at(call, session);
	return go(call, OP_MARK, run_mark, err);
}

int call_changes_since(struct call *call, const struct berth_session *session, const char *token, struct err *err)
{
	args_at(call, session)->text = str(token);
	return go(call, OP_CHANGES, run_changes, err);
}

int call_renew(struct call *call, const struct berth_session *session, int64_t until_ms, struct err *err)
{
	args_at(call, session)->until_ms = until_ms;
	return go(call, OP_RENEW, run_renew, err);
}

int call_release(struct call *call, const struct berth_session *session, struct err *err)
{
	struct err why = {0};
	int rc;

	args_at(call, session);
	rc = call_begin(call, OP_RELEASE, err);
	if (rc)
		return rc;
	rc = call_run(call, run_release, &why);
	rc = rc == ERR_NOT_FOUND ? 0 : rc;
	metric_add(METRIC_RELEASES, METRIC_OUTCOME(rc), 0, 1);
	if (rc && err)
		*err = why;
	return rc;
}
