/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The test server: sessions and commands behind HTTP, kept outside of berthd. The work is the mock provider's own code,
 * one instance per deployment on one root; this program is the wire in front of it.
 *
 * Threads: libmicrohttpd's few, which never wait; one short-lived worker per request, which may; the clock thread,
 * which ends timers (commands without a process) and keeps silent streams alive.
 */
#ifndef HTTPPROV_SERVER_H
#define HTTPPROV_SERVER_H

#include <berth/provider.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#include "wire.h"

#define ARGS_MAX 16
#define QUEUE_MAX ((size_t)256 << 10)

struct options {
	const char *root, *runtime, *kill_grace, *memory_max, *ready_delay;
	char *token; /* NULL: none wanted */
	char *helpers;
	int64_t keepalive_ms;
	unsigned threads;
};
extern struct options options;

struct route;
/* One request. Owned by its connection, its worker and the lists it is in, by references. */
struct req {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	unsigned refs;
	struct MHD_Connection *con; /* NULL once it is over */
	bool suspended;
	const struct route *route;
	char *ref, *id; /* parts of the path */
	char *deployment;
	struct arg {
		char *name, *value;
		size_t len;
	} args[ARGS_MAX];
	unsigned arg_count;
	int64_t deadline_ns;

	char *in; /* upload that the worker has not read */
	size_t in_at, in_len;
	bool in_end, in_done; /* complete; the worker wants no more */

	struct wire_buf out;
	size_t out_at;
	unsigned status; /* 0: not decided */
	const char *type;
	int64_t retry_after_ms;
	bool out_end, out_broken;
	int64_t wrote_ns;
	bool aborted; /* the client is gone */
	int cancel_fd;
	struct req *prev, *next; /* of the streams */
};

/* req.c */
struct req *req_new(struct MHD_Connection *con);
void req_ref(struct req *req);
void req_unref(struct req *req);
/* Has libmicrohttpd look at it again. With the lock. */
void req_wake_locked(struct req *req);
/* The worker's side. Waits for room; false when the client is gone. */
bool req_write(struct req *req, const void *ptr, size_t len);
bool req_frame(struct req *req, enum wire_frame type, const void *ptr, size_t len);
/* Never waits: for a thread that serves many. */
void req_frame_now(struct req *req, enum wire_frame type, const void *ptr, size_t len);
/* Up to cap bytes; 0 at the end, -1 when the client left before. */
long req_read(struct req *req, void *buf, size_t cap);
bool req_read_all(struct req *req, struct wire_buf *ret, size_t max);
/* Decides the head; nothing when it is decided. */
void req_head(struct req *req, unsigned status, const char *type);
void req_end(struct req *req);
void req_break(struct req *req); /* so that the client sees that it is not whole */
void req_reply(struct req *req, unsigned status, struct json_object *json); /* takes the JSON */
/* Decoded; empty when absent. */
struct berth_str req_query(const struct req *req, const char *name);
int64_t req_query_number(const struct req *req, const char *name, int64_t otherwise);
void req_take_query(struct req *req); /* once, while the connection is there */

/* hostcall.c: what the engine gets as its host; one per operation. */
struct hostcall {
	struct req *req;
	int64_t deadline_ns;
	bool is_stream; /* output goes out as frames */
	bool follows;	/* detached when the client leaves */
	struct json_object *items;
	struct json_object *extra; /* cursor, token, expires_ms */
	int32_t code;
	char reason[BERTH_REASON_MAX + 1];
	char text[BERTH_TEXT_MAX];
	bool retryable, told;
	int64_t retry_after_ms;
};
extern const struct berth_host hostcall_host;
void hostcall_init(struct hostcall *hc, struct req *req);
void hostcall_fini(struct hostcall *hc);
static inline struct berth_call *hostcall_abi(struct hostcall *hc)
{
	return (struct berth_call *)(void *)hc;
}
struct json_object *hostcall_session(const struct berth_session_info *info);
/* The answer for code: an error document, or what was emitted: `items` as a list, or the only one. */
void hostcall_reply(struct hostcall *hc, int32_t code, bool only);
struct json_object *error_json(int32_t code, const char *reason, const char *text, bool retryable,
			       int64_t retry_after_ms);
void reply_error(struct req *req, int32_t code, const char *reason, const char *text);
int64_t now_ns(void);

/* engine.c */
bool engine_init(void);
const struct berth_ops *engine_ops(void);
/* The instance of a deployment, made on demand; NULL when it cannot be. */
void *engine_of(const char *deployment);
void engine_fini(void);

/* routes.c */
#define ROUTE_STREAM 1u
#define ROUTE_OPEN 2u /* without a token */
struct route {
	const char *method, *pattern; /* ":ref" and ":id" are parts */
	const char *name;
	void (*fn)(struct req *req, void *inst);
	unsigned flags;
};
extern const struct route routes[];
extern _Atomic uint64_t route_calls[];
/* NULL: none; *ret_allowed: the path is there with another method. */
const struct route *route_find(struct req *req, const char *method, const char *path, bool *ret_allowed);
void counter_started(void);
void control_counters(struct req *req, void *inst);
void control_sessions(struct req *req, void *inst);

/* sessions.c */
void serve_check(struct req *req, void *inst);
void serve_look(struct req *req, void *inst);
void serve_provision(struct req *req, void *inst);
void serve_inspect(struct req *req, void *inst);
void serve_ready(struct req *req, void *inst);
void serve_assign(struct req *req, void *inst);
void serve_renew(struct req *req, void *inst);
void serve_release(struct req *req, void *inst);
struct berth_session session_of(const struct req *req);

/* commands.c */
void serve_execute(struct req *req, void *inst);
void serve_stream(struct req *req, void *inst);
void serve_signal(struct req *req, void *inst);
void serve_forget(struct req *req, void *inst);
void command_ending(struct json_object *json, const struct berth_ending *ending);

/* files.c */
void serve_file_read(struct req *req, void *inst);
void serve_file_write(struct req *req, void *inst);
void serve_file_stat(struct req *req, void *inst);
void serve_file_list(struct req *req, void *inst);
void serve_file_remove(struct req *req, void *inst);
void serve_file_move(struct req *req, void *inst);
void serve_import(struct req *req, void *inst);
void serve_export(struct req *req, void *inst);
void serve_mark(struct req *req, void *inst);
void serve_changes(struct req *req, void *inst);

/* clock.c: commands that are only a time to wait, and what keeps streams alive. */
bool clock_start(void);
void clock_stop(void);
void clock_watch(struct req *req); /* a stream; until clock_unwatch */
void clock_unwatch(struct req *req);
struct timer_spec {
	int64_t ms, timeout_ms;
	int exit_code;
	uint64_t out;
	uint64_t out_max;
};
/* "#timer ms=N exit=N out=N" as the script's first line; until=N instead of ms: a moment, in milliseconds since 1970. */
bool timer_parse(struct berth_str script, struct timer_spec *ret);
/* BERTH_OK: it runs, and the request is its stream from here on. */
int32_t timer_begin(struct req *req, const struct timer_spec *spec, uint32_t attempt);
/* BERTH_OK: so it is, from the offset; NOT_FOUND: no timer of that name, and none may start up to that attempt. */
int32_t timer_resume(struct req *req, uint32_t attempt, uint64_t offset);
int32_t timer_signal(struct req *req, bool kill);
int32_t timer_forget(struct req *req); /* CONFLICT: it runs */
void timer_release(const char *ref);
void timer_counts(uint64_t *ret_known, uint64_t *ret_running);

/* front.c */
bool front_start(const char *host, unsigned port, unsigned *ret_port);
void front_stop(void);

#endif
