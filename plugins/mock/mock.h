/* SPDX-License-Identifier: Apache-2.0 */
/* One instance of the mock provider, and the operations of the provider table. */
#ifndef MOCK_MOCK_H
#define MOCK_MOCK_H

#include <berth/provider.h>
#include <stdbool.h>

#include "fault.h"
#include "limit.h"
#include "store.h"
#include "tally.h"

#define MOCK_CAPABILITIES                                                                                              \
	(BERTH_CAP_THREADSAFE | BERTH_CAP_REATTACH | BERTH_CAP_SIGNAL | BERTH_CAP_BULK | BERTH_CAP_CHANGES |           \
	 BERTH_CAP_RENEW | BERTH_CAP_ASSIGN_TAGS)
#define MOCK_CAPABILITIES_NULL (BERTH_CAP_THREADSAFE | BERTH_CAP_RENEW | BERTH_CAP_ASSIGN_TAGS)

struct null_cache;
struct berth_launcher;

/* Constant after open, but for what its parts protect themselves. */
struct mock {
	struct berth_target *target;
	bool null; /* runtime null: nothing runs */
	char *fault_file;
	char *supervise;
	char deployment[256];
	int64_t ready_delay_ms;
	int64_t create_settle_ms;
	int64_t session_ttl_ms;
	int64_t kill_grace_ms;
	uint32_t isolation; /* what open reported */
	struct store store;
	struct tally tally;
	struct faults faults;
	struct limits limits;
	struct null_cache *cache; /* runtime null only */
	struct berth_launcher *launcher; /* NULL with runtime null */
};

/* open.c */
extern const struct berth_option *const mock_options[];
int32_t mock_open(const struct berth_open_args *args, struct berth_call *call, void **ret_inst,
		  struct berth_instance_info *ret_info);
void mock_close(void *inst);
int32_t mock_check(void *inst, struct berth_call *call);

/* sessions.c */
int32_t mock_find(void *inst, struct berth_call *call, const struct berth_identity *identity);
int32_t mock_list(void *inst, struct berth_call *call, const struct berth_str *cursor);
int32_t mock_provision(void *inst, struct berth_call *call, const struct berth_spec *spec);
int32_t mock_await_ready(void *inst, struct berth_call *call, const struct berth_session *session);
int32_t mock_assign(void *inst, struct berth_call *call, const struct berth_session *session,
		    const struct berth_identity *identity);
int32_t mock_inspect(void *inst, struct berth_call *call, const struct berth_session *session);
int32_t mock_renew(void *inst, struct berth_call *call, const struct berth_session *session, int64_t until_ms);
int32_t mock_release(void *inst, struct berth_call *call, const struct berth_session *session);

/* exec.c */
int32_t mock_execute(void *inst, struct berth_call *call, const struct berth_session *session,
		     const struct berth_command *command);
int32_t mock_reattach(void *inst, struct berth_call *call, const struct berth_session *session,
		      const struct berth_resume *resume);
int32_t mock_forget(void *inst, struct berth_call *call, const struct berth_session *session,
		    const struct berth_execution *execution);
int32_t mock_send_signal(void *inst, struct berth_call *call, const struct berth_session *session,
			 const struct berth_execution *execution, uint32_t signal);

/* files.c */
int32_t mock_file_read(void *inst, struct berth_call *call, const struct berth_session *session,
		       const struct berth_str *path, uint64_t offset, uint64_t length);
int32_t mock_file_write(void *inst, struct berth_call *call, const struct berth_session *session,
			const struct berth_file_write *write);
int32_t mock_file_stat(void *inst, struct berth_call *call, const struct berth_session *session,
		       const struct berth_str *path);
int32_t mock_file_list(void *inst, struct berth_call *call, const struct berth_session *session,
		       const struct berth_str *path, uint32_t flags);
int32_t mock_file_remove(void *inst, struct berth_call *call, const struct berth_session *session,
			 const struct berth_str *path, uint32_t flags);
int32_t mock_file_move(void *inst, struct berth_call *call, const struct berth_session *session,
		       const struct berth_str *from, const struct berth_str *to);
int32_t mock_import_tar(void *inst, struct berth_call *call, const struct berth_session *session,
			const struct berth_str *path);
int32_t mock_export_tar(void *inst, struct berth_call *call, const struct berth_session *session,
			const struct berth_str *paths, size_t path_count);

/* changes.c */
int32_t mock_mark(void *inst, struct berth_call *call, const struct berth_session *session);
int32_t mock_changes(void *inst, struct berth_call *call, const struct berth_session *session,
		     const struct berth_str *token);

#endif
