/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A provider as it was written for ABI 1.0, with its own copy of the headers. It keeps sessions in memory, and runs
 * nothing. Any host of the same major version must load it and find its sessions, for ever. Not to be modernised.
 */
#include <berth/provider.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SESSIONS_MAX 4096
#define CAPABILITIES (BERTH_CAP_THREADSAFE | BERTH_CAP_RENEW | BERTH_CAP_ASSIGN_TAGS)

struct row {
	int used;
	char ref[40], workspace[132], task[132], intent[68];
	int64_t created_ms, expires_ms;
};

struct instance {
	pthread_mutex_t lock;
	unsigned serial;
	struct row rows[SESSIONS_MAX];
};

static const struct berth_host *host;

static struct berth_str text(const char *ptr)
{
	struct berth_str str = {ptr, strlen(ptr)};

	return str;
}

static int same(struct berth_str a, const char *b)
{
	return a.len == strlen(b) && memcmp(a.ptr ? a.ptr : "", b, a.len) == 0;
}

static void copy(char *to, size_t cap, struct berth_str from)
{
	size_t len = from.len < cap - 1 ? from.len : cap - 1;

	if (len)
		memcpy(to, from.ptr, len);
	to[len] = '\0';
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int32_t stopped(struct berth_call *call)
{
	struct berth_call_info info = {.struct_size = sizeof(info)};
	struct timespec ts;

	host->info(call, &info);
	clock_gettime(CLOCK_BOOTTIME, &ts);
	if (host->cancel_state(call) != BERTH_CANCEL_NONE)
		return BERTH_CANCELLED;
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec >= info.deadline_ns ? BERTH_TIMEOUT : BERTH_OK;
}

static struct berth_session_info describe(const struct row *row)
{
	struct berth_session_info info = {
		.struct_size = sizeof(info),
		.phase = BERTH_PHASE_READY,
		.ref = text(row->ref),
		.workspace_id = text(row->workspace),
		.task_id = text(row->task),
		.intent = text(row->intent),
		.boot_id = text("1"),
		.root = text("/"),
		.created_ms = row->created_ms,
		.expires_ms = row->expires_ms,
		.isolation = BERTH_ISOLATION_NONE,
	};

	return info;
}

static int32_t init(const struct berth_host *given)
{
	host = given;
	return BERTH_OK;
}

static int32_t op_open(const struct berth_open_args *args, struct berth_call *call, void **ret_inst,
		       struct berth_instance_info *ret_info)
{
	struct instance *inst = calloc(1, sizeof(*inst));

	(void)args;
	if (!inst)
		return host->fail(call, BERTH_UNAVAILABLE, "memory", 1, 0, "no memory");
	pthread_mutex_init(&inst->lock, NULL);
	ret_info->capabilities = CAPABILITIES;
	ret_info->isolation = BERTH_ISOLATION_NONE;
	*ret_inst = inst;
	return BERTH_OK;
}

static void op_close(void *opaque)
{
	struct instance *inst = opaque;

	pthread_mutex_destroy(&inst->lock);
	free(inst);
}

static int32_t op_check(void *opaque, struct berth_call *call)
{
	(void)opaque;
	return stopped(call);
}

static int32_t op_find(void *opaque, struct berth_call *call, const struct berth_identity *identity)
{
	struct instance *inst = opaque;
	int32_t rc = stopped(call);

	pthread_mutex_lock(&inst->lock);
	for (size_t i = 0; rc == BERTH_OK && i < SESSIONS_MAX; i++) {
		struct row *row = &inst->rows[i];
		struct berth_session_info info;

		if (!row->used || !same(identity->workspace_id, row->workspace) || !same(identity->task_id, row->task))
			continue;
		info = describe(row);
		rc = host->emit_session(call, &info);
	}
	pthread_mutex_unlock(&inst->lock);
	return rc;
}

static int32_t op_list(void *opaque, struct berth_call *call, const struct berth_str *cursor)
{
	struct instance *inst = opaque;
	int32_t rc = stopped(call);

	(void)cursor;
	pthread_mutex_lock(&inst->lock);
	for (size_t i = 0; rc == BERTH_OK && i < SESSIONS_MAX; i++) {
		struct berth_session_info info = describe(&inst->rows[i]);

		if (inst->rows[i].used)
			rc = host->emit_session(call, &info);
	}
	pthread_mutex_unlock(&inst->lock);
	return rc;
}

static int32_t op_provision(void *opaque, struct berth_call *call, const struct berth_spec *spec)
{
	struct instance *inst = opaque;
	struct berth_session_info info;
	struct row *row = NULL, made;

	pthread_mutex_lock(&inst->lock);
	for (size_t i = 0; !row && i < SESSIONS_MAX; i++)
		row = inst->rows[i].used ? NULL : &inst->rows[i];
	if (row) {
		memset(row, 0, sizeof(*row));
		row->used = 1;
		row->created_ms = now_ms();
		row->expires_ms = spec->expires_ms;
		snprintf(row->ref, sizeof(row->ref), "frozen-%u", ++inst->serial);
		copy(row->workspace, sizeof(row->workspace), spec->workspace_id);
		copy(row->task, sizeof(row->task), spec->task_id);
		copy(row->intent, sizeof(row->intent), spec->intent);
		made = *row;
	}
	pthread_mutex_unlock(&inst->lock);
	if (!row)
		return host->fail(call, BERTH_CAPACITY, "full", 1, 1000, "no session is left");
	info = describe(&made);
	return host->created(call, &info);
}

/* With the lock held; NULL when it is not there. */
static struct row *row_of(struct instance *inst, const struct berth_session *session)
{
	for (size_t i = 0; i < SESSIONS_MAX; i++)
		if (inst->rows[i].used && same(session->ref, inst->rows[i].ref))
			return &inst->rows[i];
	return NULL;
}

static int32_t report(struct instance *inst, struct berth_call *call, const struct berth_session *session, int32_t lost)
{
	int32_t rc = stopped(call);
	struct berth_session_info info;
	struct row *row;

	if (rc != BERTH_OK)
		return rc;
	pthread_mutex_lock(&inst->lock);
	row = row_of(inst, session);
	if (row) {
		info = describe(row);
		rc = host->emit_session(call, &info);
	}
	pthread_mutex_unlock(&inst->lock);
	return row ? rc : host->fail(call, lost, "deleted", 0, 0, "the session is not there");
}

static int32_t op_await_ready(void *opaque, struct berth_call *call, const struct berth_session *session)
{
	host->progress(call, BERTH_PHASE_STARTING, "it is ready at once");
	return report(opaque, call, session, BERTH_SESSION_LOST);
}

static int32_t op_inspect(void *opaque, struct berth_call *call, const struct berth_session *session)
{
	return report(opaque, call, session, BERTH_NOT_FOUND);
}

static int32_t op_assign(void *opaque, struct berth_call *call, const struct berth_session *session,
			 const struct berth_identity *identity)
{
	struct instance *inst = opaque;
	struct row *row;

	pthread_mutex_lock(&inst->lock);
	row = row_of(inst, session);
	if (row) {
		copy(row->workspace, sizeof(row->workspace), identity->workspace_id);
		copy(row->task, sizeof(row->task), identity->task_id);
	}
	pthread_mutex_unlock(&inst->lock);
	return report(inst, call, session, BERTH_SESSION_LOST);
}

static int32_t op_renew(void *opaque, struct berth_call *call, const struct berth_session *session, int64_t until_ms)
{
	struct instance *inst = opaque;
	int64_t effective = -1;
	struct row *row;

	pthread_mutex_lock(&inst->lock);
	row = row_of(inst, session);
	if (row && row->expires_ms && until_ms > row->expires_ms)
		row->expires_ms = until_ms;
	if (row)
		effective = row->expires_ms;
	pthread_mutex_unlock(&inst->lock);
	if (effective < 0)
		return host->fail(call, BERTH_SESSION_LOST, "deleted", 0, 0, "the session is not there");
	return host->emit_expiry(call, effective);
}

static int32_t op_release(void *opaque, struct berth_call *call, const struct berth_session *session)
{
	struct instance *inst = opaque;
	struct row *row;

	pthread_mutex_lock(&inst->lock);
	row = row_of(inst, session);
	if (row)
		row->used = 0;
	pthread_mutex_unlock(&inst->lock);
	return row ? BERTH_OK : host->fail(call, BERTH_NOT_FOUND, "deleted", 0, 0, "the session is not there");
}

static int32_t never(struct berth_call *call)
{
	return host->fail(call, BERTH_UNSUPPORTED, "memory_only", 0, 0, "nothing runs here, and there are no files");
}

static int32_t op_execute(void *inst, struct berth_call *call, const struct berth_session *session,
			  const struct berth_command *command)
{
	(void)inst;
	(void)session;
	(void)command;
	return never(call);
}

static int32_t op_file_read(void *inst, struct berth_call *call, const struct berth_session *session,
			    const struct berth_str *path, uint64_t offset, uint64_t length)
{
	(void)inst;
	(void)session;
	(void)path;
	(void)offset;
	(void)length;
	return never(call);
}

static int32_t op_file_write(void *inst, struct berth_call *call, const struct berth_session *session,
			     const struct berth_file_write *write)
{
	(void)inst;
	(void)session;
	(void)write;
	return never(call);
}

static int32_t op_file_stat(void *inst, struct berth_call *call, const struct berth_session *session,
			    const struct berth_str *path)
{
	(void)inst;
	(void)session;
	(void)path;
	return never(call);
}

static int32_t op_file_flags(void *inst, struct berth_call *call, const struct berth_session *session,
			     const struct berth_str *path, uint32_t flags)
{
	(void)inst;
	(void)session;
	(void)path;
	(void)flags;
	return never(call);
}

static int32_t op_file_move(void *inst, struct berth_call *call, const struct berth_session *session,
			    const struct berth_str *from, const struct berth_str *to)
{
	(void)inst;
	(void)session;
	(void)from;
	(void)to;
	return never(call);
}

static const struct berth_ops ops = {
	.struct_size = sizeof(ops),
	.open = op_open,
	.close = op_close,
	.check = op_check,
	.find = op_find,
	.list = op_list,
	.provision = op_provision,
	.await_ready = op_await_ready,
	.assign = op_assign,
	.inspect = op_inspect,
	.execute = op_execute,
	.file_read = op_file_read,
	.file_write = op_file_write,
	.file_stat = op_file_stat,
	.file_list = op_file_flags,
	.file_remove = op_file_flags,
	.file_move = op_file_move,
	.renew = op_renew,
	.release = op_release,
};

static const struct berth_option greeting = {
	.struct_size = sizeof(greeting),
	.type = BERTH_OPTION_STRING,
	.key = "greeting",
	.default_text = "hello",
	.doc = "An option of each kind that matters here: a text.",
};
static const struct berth_option *const options[] = {&greeting, NULL};

static const struct berth_metric made = {
	.struct_size = sizeof(made),
	.type = BERTH_METRIC_COUNTER,
	.name = "made",
	.unit = "",
	.doc = "Sessions made.",
};
static const struct berth_metric *const metrics[] = {&made, NULL};

static const struct berth_provider provider = {
	.magic = BERTH_PROVIDER_MAGIC,
	.abi_major = 1,
	.abi_minor = 0,
	.struct_size = sizeof(provider),
	.name = "frozen",
	.version = "1.0.0",
	.build_id = "frozen 1.0.0",
	.capabilities = CAPABILITIES,
	.init = init,
	.ops = &ops,
	.options = options,
	.metrics = metrics,
};

const struct berth_provider *berth_provider_entry_v1(void)
{
	return &provider;
}
