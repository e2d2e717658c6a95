/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one place through which every provider operation goes: deadline, cancel, detach, bulkhead, capability check, result
 * checks, stuck calls. A struct call belongs to the thread that runs the operation; call_cancel may come from any thread.
 */
#ifndef PLUGIN_CALL_H
#define PLUGIN_CALL_H

#include <berth/provider.h>
#include <stdbool.h>

#include "core/arena.h"
#include "core/err.h"
#include "plugin/target.h"

/* Where a call's bytes go and come from, and its live notices. Unused ones stay NULL. All run on the calling thread, or
 * on the call's own when it runs apart; two never run at once, and none after the call was given up. */
struct call_sink {
	int (*write)(void *arg, unsigned stream, const void *ptr, size_t len); /* 0, or an err code to stop with */
	int (*read)(void *arg, void *buf, size_t cap, size_t *ret_len);        /* likewise */
	int (*started)(void *arg, const char *handle, size_t len);
	int (*created)(void *arg, const struct berth_session_info *info); /* durable before it returns 0 */
	void (*progress)(void *arg, unsigned phase, const char *text);
	int (*gap)(void *arg, unsigned stream, uint64_t from, uint64_t to);
	/* Results as they come, instead of collecting them in the arena; NULL = collect. */
	int (*session)(void *arg, const struct berth_session_info *info);
	int (*file)(void *arg, const struct berth_file_info *info);
	/* The call is stuck and was given up: whoever can go on without it does so now. Its own thread stays in the
	 * plugin, and must find out with call_given_up when it returns, if ever. Once, on the watchdog's thread; the
	 * operation does not return to its caller before this does. Without it, and not apart, a stuck call is only
	 * counted. */
	void (*stuck)(void *arg);
	void *arg;
};

/* Of this host's ABI; a plugin that says another one broke the contract. */
static inline bool phase_is_known(uint32_t phase)
{
	return phase >= BERTH_PHASE_QUEUED && phase <= BERTH_PHASE_STOPPING;
}

/* Nothing will run in it any more. */
static inline bool phase_is_over(uint32_t phase)
{
	return phase == BERTH_PHASE_DEAD || phase == BERTH_PHASE_STOPPING;
}

struct call; /* opaque: the host's side of struct berth_call */

/* deadline_ns on clock_boot_ns. Request id and traceparent are the thread's (core/log.h). */
struct call *call_new(struct target *target, int64_t deadline_ns, const struct call_sink *sink);
/* Its operations run on a thread of their own, with copies of what they are given, and return a second after the
 * deadline at the latest: ERR_PROVIDER_TIMEOUT, reason "provider_stuck", when the plugin is not back by then. Nothing
 * of the caller's is touched from then on. Not for execute and reattach. */
void call_set_apart(struct call *call);
/* For operations that move bytes or results: when the plugin calls back nothing for so long it is told to stop, and its
 * operation ends with ERR_PROVIDER_TIMEOUT, reason "no_progress"; one that does not hear is stuck a second later. Time inside
 * a callback of the sink does not count. Before the operation. */
void call_set_patience(struct call *call, int64_t ms);
/* It was given up: what it would still bring is dropped. */
bool call_given_up(struct call *call);
/* Also while one that was given up is still in the plugin. */
void call_free(struct call *call);
/* BERTH_CANCEL_STOP or _DETACH; STOP may be raised to DETACH, never back. Safe while the call runs or after. Set before an
 * operation reached the plugin, it is not sent: ERR_CANCELLED or ERR_DETACHED, reason "not_sent". */
void call_cancel(struct call *call, uint32_t state);

/* Results collected by the last operation, valid until call_free or the end of the next one on this call, so that they may be
 * its input. */
const struct berth_session_info *call_sessions(const struct call *call, size_t *ret_count);
const struct berth_file_info *call_files(const struct call *call, size_t *ret_count);
const struct berth_change *call_changes(const struct call *call, size_t *ret_count);
const struct berth_ending *call_ending(const struct call *call); /* NULL when none */
const char *call_cursor(const struct call *call);                /* NULL: no more pages */
const char *call_token(const struct call *call);
int64_t call_expiry(const struct call *call);

/* The operations. 0, or an err code with reason, retry and a text for the log in *err. Each checks capability and slot
 * (ERR_UNSUPPORTED), takes the target's bulkhead (ERR_QUEUE_FULL, reason "target_busy", when max_operations run) and
 * checks what came back: exactly one ending, refs and texts within limits, known codes and enums, no embedded NUL; a
 * violation is ERR_INTERNAL, reason "plugin_violation", naming plugin and rule in the log. A code the plugin returns
 * that makes no sense for the operation is a violation too. Stuck: past deadline + 1 s without return counts on the
 * target until it returns; while too many are, no session is made there and no command started
 * (ERR_PROVIDER_UNAVAILABLE, reason "target_degraded"). */
int call_check(struct call *call, struct err *err);
int call_find(struct call *call, const char *workspace, const char *task, struct err *err);
int call_list(struct call *call, const char *cursor, struct err *err);
int call_provision(struct call *call, const struct berth_spec *spec, struct err *err);
int call_await_ready(struct call *call, const struct berth_session *session, struct err *err);
int call_assign(struct call *call, const struct berth_session *session, const char *workspace, const char *task,
		struct err *err);
int call_inspect(struct call *call, const struct berth_session *session, struct err *err);
int call_execute(struct call *call, const struct berth_session *session, const struct berth_command *command,
		 struct err *err);
int call_reattach(struct call *call, const struct berth_session *session, const struct berth_resume *resume,
		  struct err *err); /* ERR_NOT_STARTED */
int call_forget(struct call *call, const struct berth_session *session, const struct berth_execution *execution,
		struct err *err);
int call_signal(struct call *call, const struct berth_session *session, const struct berth_execution *execution,
		uint32_t signal, struct err *err); /* BERTH_SIGNAL_* */
int call_file_read(struct call *call, const struct berth_session *session, const char *path, uint64_t offset,
		   uint64_t length, struct err *err);
int call_file_write(struct call *call, const struct berth_session *session, const struct berth_file_write *write,
		    struct err *err);
int call_file_stat(struct call *call, const struct berth_session *session, const char *path, struct err *err);
int call_file_list(struct call *call, const struct berth_session *session, const char *path, uint32_t flags,
		   struct err *err);
int call_file_remove(struct call *call, const struct berth_session *session, const char *path, uint32_t flags,
		     struct err *err);
int call_file_move(struct call *call, const struct berth_session *session, const char *from, const char *to,
		   struct err *err);
int call_import(struct call *call, const struct berth_session *session, const char *path, struct err *err);
int call_export(struct call *call, const struct berth_session *session, const struct berth_str *paths, size_t count,
		struct err *err);
int call_mark(struct call *call, const struct berth_session *session, struct err *err);
int call_changes_since(struct call *call, const struct berth_session *session, const char *token, struct err *err);
int call_renew(struct call *call, const struct berth_session *session, int64_t until_ms, struct err *err);
int call_release(struct call *call, const struct berth_session *session, struct err *err); /* NOT_FOUND is 0 */

const char *call_code_word(int32_t code); /* BERTH_*, for people */

/* The table plugins get; constant. */
extern const struct berth_host hostapi_table;
/* Bytes that plugins hold through its alloc. */
uint64_t hostapi_allocated(void);

#endif
