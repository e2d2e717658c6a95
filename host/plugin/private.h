/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of plugin/ share: the inside of a target and of a call. Nothing outside includes it. */
#ifndef PLUGIN_PRIVATE_H
#define PLUGIN_PRIVATE_H

#include <stdatomic.h>

#include "core/thread.h"
#include "core/trace.h"
#include "plugin/call.h"
#include "plugin/guard.h"
#include "plugin/loader.h"

#define TARGET_MAGIC 0x74617267u
#define CALL_MAGIC 0x63616c6cu
#define CALL_STUCK_AFTER_MS 1000
#define PLUGIN_LIMIT_OPEN_MS 30000
/* Debug builds look after every call whether the process was changed; it costs a few system calls. (Assertions, and so
 * NDEBUG, are no sign of a debug build here.) */
#ifndef __OPTIMIZE__
#define PLUGIN_GUARD_CALLS 1
#endif

struct watchdog;
struct net;
struct net_waker;

struct pool;

struct metric_state {
	_Atomic uint64_t count;
	_Atomic uint64_t sum_bits; /* of a double */
	_Atomic uint64_t buckets[TARGET_BUCKETS];
};

struct target_state {
	struct lock lock;    /* LOCK_TARGET: everything down to `why` */
	struct cond cond;    /* a call left, or one was cancelled while it waits its turn */
	struct call *inside; /* list of the calls that are in the plugin now */
	unsigned running;    /* slots of the bulkhead taken: inside, or waiting their turn */
	unsigned stuck;
	atomic_bool degraded; /* by stuck calls; also read without the lock */
	bool turn_taken; /* not THREADSAFE: one call is inside */
	bool opened;
	bool closing;
	bool refused;
	bool lost; /* open or close did not come back: nothing of it may be freed */
	uint64_t calls, failures;
	char why[256]; /* with refused: the sentence */
	_Atomic uint64_t changes;
	atomic_bool bad_metric; /* said once */
	struct metric_state *metrics;
	/* Constant once opened. */
	struct berth_option_value *values;
	const struct berth_option_value **options; /* to each of `values` */
	char **strings; /* owned texts of `values`; of a secret its source */
	size_t option_count;
	char *data_dir;
	struct watchdog *watchdog;
	struct net *net;
	struct net_waker *wakers; /* lock: exchanges of the plugin's own threads, which the target's end ends */
	atomic_bool ending;	  /* it is being closed */
	struct pool *apart; /* threads of the calls that run apart from their callers */
#ifdef PLUGIN_GUARD_CALLS
	const struct guard *base; /* what calls must leave as it was */
#endif
};

/* What an operation may say, and must have said when it returns OK. */
enum {
	SAY_SESSION = 1 << 0,
	SAY_CURSOR = 1 << 1,
	SAY_ENDING = 1 << 2,
	SAY_FILE = 1 << 3,
	SAY_CHANGE = 1 << 4,
	SAY_TOKEN = 1 << 5,
	SAY_EXPIRY = 1 << 6,
	SAY_CREATED = 1 << 7,
	SAY_PROGRESS = 1 << 8,
	SAY_STARTED = 1 << 9,
	SAY_GAP = 1 << 10,
	SAY_OUTPUT = 1 << 11, /* sink_write of stdout and stderr */
	SAY_DATA = 1 << 12,   /* sink_write of data */
	SAY_SOURCE = 1 << 13, /* source_read */
};

enum op_kind {
	OP_OPEN,
	OP_CHECK,
	OP_FIND,
	OP_LIST,
	OP_PROVISION,
	OP_AWAIT_READY,
	OP_ASSIGN,
	OP_INSPECT,
	OP_EXECUTE,
	OP_REATTACH,
	OP_FORGET,
	OP_SEND_SIGNAL,
	OP_FILE_READ,
	OP_FILE_WRITE,
	OP_FILE_STAT,
	OP_FILE_LIST,
	OP_FILE_REMOVE,
	OP_FILE_MOVE,
	OP_IMPORT,
	OP_EXPORT,
	OP_MARK,
	OP_CHANGES,
	OP_RENEW,
	OP_RELEASE,
};

struct op {
	const char *name;
	size_t off; /* of its slot in struct berth_ops */
	uint64_t capability;
	unsigned says;
	unsigned once;  /* of `says`: exactly one when it returns OK, never two */
	unsigned codes; /* bit per BERTH_ code that makes sense */
};
extern const struct op op_table[];

/* What an operation was asked for, other than a command. In a call that runs apart all of it lies in `arena`: the
 * plugin may still read it when the caller is gone. */
struct call_args {
	struct arena *arena;
	struct berth_session session;
	struct berth_identity identity; /* with a struct_size: what must come back, too */
	struct berth_spec spec;
	struct berth_file_write write;
	struct berth_execution execution;
	struct berth_str text, other; /* cursor, path, token; the path that a file moves to */
	const struct berth_str *paths;
	size_t path_count;
	uint64_t offset, length;
	uint32_t flags;
	int64_t until_ms;
	const struct berth_command *command; /* these two stay the caller's: such a call does not run apart */
	const struct berth_resume *resume;
};

struct call {
	unsigned magic;
	struct target *target;
	const struct op *op; /* while one runs, else NULL */
	pthread_t thread;
	int64_t deadline_ns;
	struct call_sink sink;
	char request_id[64];
	char traceparent[TRACE_MAX + 1];
#ifdef PLUGIN_GUARD_CALLS
	sigset_t mask; /* of the thread when the operation began: masks differ from thread to thread */
#endif
	/* Under the target's lock. */
	struct call *prev, *next; /* target_state.inside */
	int64_t begun_ns; /* when it went inside */
	bool stuck;
	bool telling; /* the watchdog is in sink.stuck */

	struct lock lock; /* LOCK_CALL: down to violation */
	int cancel_fd;
	struct net_waker *wakers; /* exchanges that a cancel ends */
	struct cond back;	  /* apart: for its caller */
	bool in_sink;		  /* a callback of the sink is running */
	int64_t sink_ns;	  /* when the last one ended */
	int64_t stalled_ns;	  /* when it was told to stop for lack of progress; 0 = it was not */
	bool gone;		  /* given up: nothing of the caller's is touched any more */
	bool returned;		  /* apart: the plugin came back, with `code` */
	bool ends_apart;	  /* apart: it came back too late, its own thread puts it away */
	bool orphan;		  /* apart: its caller has freed it */
	bool over;		  /* apart: put away but for its memory */
	int32_t code;
	char violation[160];
	_Atomic uint32_t cancel;
	atomic_bool violated;

	/* Of the caller. */
	bool apart;
	int64_t patience_ns; /* 0: until the deadline */
	bool left; /* the caller went on without it: nothing below is the caller's any more */

	/* Everything below belongs to the thread that runs the operation. */
	int32_t (*run)(struct call *call);
	struct call_args args;
	uint32_t told; /* the cancel that the plugin knows of */
	int sink_code; /* what a callback of the sink refused with */
	int32_t fail_code;
	uint32_t fail_retryable;
	int64_t fail_retry_after_ms;
	char fail_reason[BERTH_REASON_MAX + 1];
	char fail_text[200];
	unsigned counts[16]; /* how often each SAY_ was said, by bit number */
	struct call_results {
		struct arena *arena; /* the texts */
		struct berth_session_info *sessions;
		struct berth_file_info *files;
		struct berth_change *changes;
		size_t session_count, session_room, file_count, file_room, change_count, change_room;
	} results, before; /* `before`: of the operation before, which may be this one's input; gone when it ends */
	struct berth_ending ending;
	const char *cursor, *token;
	int64_t expiry_ms;
};

/* call.c: begin takes the bulkhead; end gives it back and judges. Between them the plugin runs. */
int call_begin(struct call *call, enum op_kind kind, struct err *err);
int call_end(struct call *call, int32_t code, struct err *err);
int call_not_run(struct call *call, struct err *err); /* instead of both: there is no thread for it */
/* Around the plugin's code, on the thread that runs it. */
void call_inside(struct call *call);
void call_outside(struct call *call);
/* Around a callback of the sink. False: the caller is gone, and its sink with it. */
bool call_sink_enter(struct call *call);
/* Also false past the deadline, which ends the call: one that keeps moving bytes would else never be held to it. */
bool call_sink_enter_in_time(struct call *call);
bool call_is_late(const struct call *call);
void call_sink_leave(struct call *call);
bool call_is_gone(struct call *call);
/* Its deadline passed before `what`. */
int call_late(const struct target *target, const char *what, struct err *err);
int call_gave_up(const struct call *call, struct err *err); /* the error of a call that was given up */
void call_destroy(struct call *call);
/* The watchdog's, with the target's lock held: when it counts as stuck, or is to be looked at again. Stops one that stalls. */
int64_t call_expires_locked(struct call *call, int64_t now);
/* The watchdog's: with the target's lock held. False: it is in a callback, which is the host's time. */
bool call_give_up_locked(struct call *call, int64_t now);
/* apart.c */
int call_run(struct call *call, int32_t (*run)(struct call *call), struct err *err);
int args_keep(struct call *call, struct err *err); /* copies what the caller owns, when it runs apart */
/* The first one counts; it is logged here. Any thread. */
void call_violate(struct call *call, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* judge.c */
int call_judge(struct call *call, int32_t code, struct err *err);
int32_t call_code_of(int err_code); /* for a plugin: what a host error is called there */

/* watchdog.c */
struct watchdog *watchdog_new(struct registry *registry);
void watchdog_stop(struct watchdog *watchdog); /* joins; expect stays harmless */
void watchdog_free(struct watchdog *watchdog);
void watchdog_expect(struct watchdog *watchdog, int64_t when_ns);

/* target.c */
struct target *target_new(const struct conf_target *conf);
void target_free(struct target *target);
/* The count of stuck calls changed; with the lock held. */
void target_judge_locked(struct target *target);
int target_open(struct target *target, struct plugin *plugin, const struct conf *conf, int64_t limit_ms,
		struct err *err);
/* False when close did not come back; the target must then stay as it is. */
bool target_close(struct target *target, int64_t deadline_ns);
void target_refuse(struct target *target, const char *why);
/* A required target that cannot be: what its provider calls INVALID is a configuration that is refused. */
int refused_target(const struct err *why, struct err *err);

/* settings.c: the target's config group against the plugin's table. */
int settings_build(struct target *target, const struct plugin *plugin, struct err *err);
void settings_free(struct target_state *state);
const char *settings_secret_source(const struct target *target, const char *option);

/* emit.c: the services that take results; for the table in hostapi.c. */
int32_t emit_session(struct berth_call *abi, const struct berth_session_info *info);
int32_t emit_cursor(struct berth_call *abi, const struct berth_str *cursor);
int32_t emit_ending(struct berth_call *abi, const struct berth_ending *ending);
int32_t emit_file(struct berth_call *abi, const struct berth_file_info *info);
int32_t emit_change(struct berth_call *abi, const struct berth_change *change);
int32_t emit_token(struct berth_call *abi, const struct berth_str *token);
int32_t emit_expiry(struct berth_call *abi, int64_t effective_ms);
int32_t emit_created(struct berth_call *abi, const struct berth_session_info *info);
/* http.c */
int32_t http_exchange(struct berth_target *target, struct berth_call *call, const struct berth_http_request *request,
		      struct berth_http_response *ret_response);
void http_wake_locked(struct call *call); /* a cancel is there */
void http_end(struct target_state *ts);   /* the target is being closed */
/* flow.c */
void flow_progress(struct berth_call *abi, uint32_t phase, const char *text);
int32_t flow_started(struct berth_call *abi, const struct berth_str *handle);
int32_t flow_gap(struct berth_call *abi, uint32_t stream, uint64_t from, uint64_t to);
int32_t flow_write(struct berth_call *abi, uint32_t stream, const void *ptr, size_t len);
int32_t flow_read(struct berth_call *abi, void *buf, size_t cap, size_t *ret_len);

/* The call behind a plugin's pointer when this service may be used now, else NULL (and the violation is noted). */
struct call *call_enter(struct berth_call *abi, unsigned say);
/* Any service, any time between begin and end. NULL for NULL. */
struct call *call_of(struct berth_call *abi);
bool call_text_fits(struct call *call, const char *what, struct berth_str text, size_t max, bool is_bytes);

#endif
