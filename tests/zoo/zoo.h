/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole, well-behaved provider in a header. Each animal of the zoo is a file that defines its name, overrides the one
 * thing it gets wrong, and includes this.
 */
#ifndef ZOO_H
#define ZOO_H

#include <berth/provider.h>
#include <string.h>

#ifndef ZOO_NAME
#error "an animal has a name"
#endif
#ifndef ZOO_MAGIC
#define ZOO_MAGIC BERTH_PROVIDER_MAGIC
#endif
#ifndef ZOO_MAJOR
#define ZOO_MAJOR BERTH_ABI_MAJOR
#endif
#ifndef ZOO_MINOR
#define ZOO_MINOR BERTH_ABI_MINOR
#endif
#ifndef ZOO_SIZE
#define ZOO_SIZE sizeof(struct berth_provider)
#endif
#ifndef ZOO_FLAGS
#define ZOO_FLAGS 0
#endif
#ifndef ZOO_DESC_NAME
#define ZOO_DESC_NAME ZOO_NAME
#endif
#ifndef ZOO_CAPABILITIES
#define ZOO_CAPABILITIES BERTH_CAP_THREADSAFE
#endif
#ifndef ZOO_OPTIONS
#define ZOO_OPTIONS NULL
#endif
#ifndef ZOO_METRICS
#define ZOO_METRICS NULL
#endif
#ifndef ZOO_RESERVED
#define ZOO_RESERVED NULL
#endif

#define UNUSED __attribute__((unused))

UNUSED static const struct berth_host *host;

UNUSED static struct berth_str zoo_str(const char *text)
{
	return (struct berth_str){.ptr = text, .len = strlen(text)};
}

UNUSED static int32_t zoo_init(const struct berth_host *given)
{
	host = given;
	return BERTH_OK;
}

UNUSED static int32_t zoo_open(const struct berth_open_args *args, struct berth_call *call, void **ret_inst,
			       struct berth_instance_info *ret_info)
{
	(void)call;
	*ret_inst = args->target;
	ret_info->isolation = BERTH_ISOLATION_NONE;
	return BERTH_OK;
}

UNUSED static void zoo_close(void *inst)
{
	(void)inst;
}

UNUSED static struct berth_session_info zoo_session(struct berth_str ref)
{
	return (struct berth_session_info){
	    .struct_size = sizeof(struct berth_session_info),
	    .phase = BERTH_PHASE_READY,
	    .ref = ref,
	    .root = zoo_str("/work"),
	    .isolation = BERTH_ISOLATION_NONE,
	};
}

UNUSED static int32_t zoo_find(void *inst, struct berth_call *call, const struct berth_identity *identity)
{
	(void)inst;
	(void)call;
	(void)identity;
	return BERTH_OK;
}

UNUSED static int32_t zoo_list(void *inst, struct berth_call *call, const struct berth_str *cursor)
{
	(void)inst;
	(void)call;
	(void)cursor;
	return BERTH_OK;
}

UNUSED static int32_t zoo_provision(void *inst, struct berth_call *call, const struct berth_spec *spec)
{
	struct berth_session_info info = zoo_session(zoo_str("made"));

	(void)inst;
	info.workspace_id = spec->workspace_id;
	info.task_id = spec->task_id;
	info.intent = spec->intent;
	return host->created(call, &info);
}

UNUSED static int32_t zoo_inspect(void *inst, struct berth_call *call, const struct berth_session *session)
{
	struct berth_session_info info = zoo_session(session->ref);

	(void)inst;
	return host->emit_session(call, &info);
}

UNUSED static int32_t zoo_execute(void *inst, struct berth_call *call, const struct berth_session *session,
				  const struct berth_command *command)
{
	struct berth_ending ending = {
	    .struct_size = sizeof(ending),
	    .kind = BERTH_ENDING_EXIT,
	    .quiescent = BERTH_QUIESCENT_YES,
	};

	(void)inst;
	(void)session;
	(void)command;
	return host->emit_ending(call, &ending);
}

UNUSED static int32_t zoo_file_read(void *inst, struct berth_call *call, const struct berth_session *session,
				    const struct berth_str *path, uint64_t offset, uint64_t length)
{
	(void)inst;
	(void)session;
	(void)offset;
	(void)length;
	return host->sink_write(call, BERTH_STREAM_DATA, path->ptr, path->len);
}

UNUSED static int32_t zoo_file_write(void *inst, struct berth_call *call, const struct berth_session *session,
				     const struct berth_file_write *write)
{
	char buf[64];
	size_t len = 1;
	int32_t rc = BERTH_OK;

	(void)inst;
	(void)session;
	(void)write;
	while (!rc && len)
		rc = host->source_read(call, buf, sizeof(buf), &len);
	return rc;
}

UNUSED static int32_t zoo_file_stat(void *inst, struct berth_call *call, const struct berth_session *session,
				    const struct berth_str *path)
{
	struct berth_file_info info = {
	    .struct_size = sizeof(info),
	    .kind = BERTH_FILE_REGULAR,
	    .path = *path,
	    .mode = 0644,
	};

	(void)inst;
	(void)session;
	return host->emit_file(call, &info);
}

UNUSED static int32_t zoo_file_list(void *inst, struct berth_call *call, const struct berth_session *session,
				    const struct berth_str *path, uint32_t flags)
{
	(void)flags;
	return zoo_file_stat(inst, call, session, path);
}

UNUSED static int32_t zoo_file_remove(void *inst, struct berth_call *call, const struct berth_session *session,
				      const struct berth_str *path, uint32_t flags)
{
	(void)inst;
	(void)call;
	(void)session;
	(void)path;
	(void)flags;
	return BERTH_OK;
}

UNUSED static int32_t zoo_file_move(void *inst, struct berth_call *call, const struct berth_session *session,
				    const struct berth_str *from, const struct berth_str *to)
{
	(void)inst;
	(void)call;
	(void)session;
	(void)from;
	(void)to;
	return BERTH_OK;
}

UNUSED static int32_t zoo_release(void *inst, struct berth_call *call, const struct berth_session *session)
{
	(void)inst;
	(void)call;
	(void)session;
	return BERTH_OK;
}

#ifndef ZOO_INIT
#define ZOO_INIT zoo_init
#endif
#ifndef ZOO_FINI
#define ZOO_FINI NULL
#endif
#ifndef ZOO_OPEN
#define ZOO_OPEN zoo_open
#endif
#ifndef ZOO_CLOSE
#define ZOO_CLOSE zoo_close
#endif
#ifndef ZOO_FIND
#define ZOO_FIND zoo_find
#endif
#ifndef ZOO_LIST
#define ZOO_LIST zoo_list
#endif
#ifndef ZOO_PROVISION
#define ZOO_PROVISION zoo_provision
#endif
#ifndef ZOO_INSPECT
#define ZOO_INSPECT zoo_inspect
#endif
#ifndef ZOO_EXECUTE
#define ZOO_EXECUTE zoo_execute
#endif
#ifndef ZOO_FILE_LIST
#define ZOO_FILE_LIST zoo_file_list
#endif
#ifndef ZOO_RELEASE
#define ZOO_RELEASE zoo_release
#endif

static const struct berth_ops zoo_ops = {
    .struct_size = sizeof(struct berth_ops),
    .open = ZOO_OPEN,
    .close = ZOO_CLOSE,
    .find = ZOO_FIND,
    .list = ZOO_LIST,
    .provision = ZOO_PROVISION,
    .await_ready = ZOO_INSPECT,
    .inspect = ZOO_INSPECT,
    .execute = ZOO_EXECUTE,
    .file_read = zoo_file_read,
    .file_write = zoo_file_write,
    .file_stat = zoo_file_stat,
    .file_list = ZOO_FILE_LIST,
    .file_remove = zoo_file_remove,
    .file_move = zoo_file_move,
    .release = ZOO_RELEASE,
};

static const struct berth_provider zoo_provider UNUSED = {
    .magic = ZOO_MAGIC,
    .abi_major = ZOO_MAJOR,
    .abi_minor = ZOO_MINOR,
    .struct_size = ZOO_SIZE,
    .flags = ZOO_FLAGS,
    .name = ZOO_DESC_NAME,
    .version = "1.2.3",
    .build_id = "zoo",
    .capabilities = ZOO_CAPABILITIES,
    .init = ZOO_INIT,
    .fini = ZOO_FINI,
    .ops = &zoo_ops,
    .options = ZOO_OPTIONS,
    .metrics = ZOO_METRICS,
    .reserved = {ZOO_RESERVED},
};

#ifndef ZOO_NO_ENTRY
const struct berth_provider *berth_provider_entry_v1(void)
{
#ifdef ZOO_ENTRY_NULL
	return NULL;
#else
	return &zoo_provider;
#endif
}
#endif

#endif
