/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the host offers a plugin. The table is given to init() and lives as long as the process.
 *
 * Every service may be used from any thread of the plugin, but a `call` belongs to the thread it was given to
 * and dies when the operation returns. Strings handed to a service are copied before it returns. A service
 * that returns int32_t returns a BERTH_ code; an operation that gets another code than OK should give up and
 * return that code.
 */
#ifndef BERTH_HOST_H
#define BERTH_HOST_H

#include <berth/types.h>

struct berth_call;   /* one operation while it runs; owned by the host */
struct berth_target; /* one configured target; owned by the host; valid from open() to close() */

#define BERTH_LOG_DEBUG UINT32_C(0)
#define BERTH_LOG_INFO UINT32_C(1)
#define BERTH_LOG_WARN UINT32_C(2)
#define BERTH_LOG_ERROR UINT32_C(3)

/* What every operation is told of its call; see info() below. */
struct berth_call_info {
	uint32_t struct_size;
	uint32_t reserved;
	int64_t deadline_ns; /* CLOCK_BOOTTIME */
	struct berth_str request_id;  /* these live until the operation returns */
	struct berth_str traceparent; /* W3C trace context, or empty */
};

/* One HTTP exchange; see http() below. */
struct berth_http_request {
	uint32_t struct_size;
	uint32_t flags; /* BERTH_HTTP_* */
	struct berth_str method;
	struct berth_str url;
	const struct berth_pair *headers;
	size_t header_count;
	const struct berth_pair *secret_headers; /* never logged, never sent to another origin */
	size_t secret_header_count;
	struct berth_str body; /* bytes; used when read is NULL */
	/* A body of unknown or large size: fill buf with up to cap bytes, set *ret_len (0 = end). */
	int32_t (*read)(void *ctx, void *buf, size_t cap, size_t *ret_len);
	uint64_t body_size; /* with read: the length, or BERTH_SIZE_UNKNOWN */
	/* Response bytes, on the calling thread, with back-pressure. Another code than OK ends the exchange, which then
	 * returns that code. A callback may call other services, but not http. */
	int32_t (*write)(void *ctx, const void *ptr, size_t len);
	/* Response head, before the first byte; may be NULL. The pairs live until it returns. */
	int32_t (*head)(void *ctx, uint32_t status, const struct berth_pair *headers, size_t count);
	void *ctx;
	struct berth_str unix_socket;
	struct berth_str proxy;
	struct berth_str ca_pem; /* then only these are trusted */
	struct berth_str client_cert_pem;
	struct berth_str client_key_pem;
	struct berth_str tls_server_name; /* instead of the URL's host, for TLS only */
	int64_t connect_timeout_ms; /* name, connection and TLS; 0 = 10 s */
	int64_t idle_timeout_ms;    /* no byte moved; 0 = 60 s, with HTTP_LONG none */
	int64_t total_timeout_ms;   /* 0 = the call's deadline, which it never passes */
	uint64_t response_max;      /* bytes of body taken; more ends the exchange as INVALID; 0 = 64 MiB, UINT64_MAX = any */
};
#define BERTH_HTTP_LONG UINT32_C(1)         /* expected to wait: runs on the sharded loops */
#define BERTH_HTTP_TLS_INSECURE UINT32_C(2) /* only when an option of the operator says so */

struct berth_http_response {
	uint32_t struct_size;
	uint32_t status;          /* 0 = no response */
	uint32_t sent;            /* 1 when a byte of the request may have reached the peer */
	uint32_t reserved;
	int64_t retry_after_ms;   /* from Retry-After; 0 = none; at most a day */
};

struct berth_host {
	uint32_t struct_size;
	uint16_t abi_major;
	uint16_t abi_minor;

	/* Writes one log line that names the target and, with a call, its request id. Both may be NULL.
	 * Secrets must not be passed. */
	void (*log)(struct berth_target *target, struct berth_call *call, uint32_t level, const struct berth_str *text,
		    const struct berth_pair *pairs, size_t count);

	/* Fills *ret_info (its struct_size set by the caller). */
	void (*info)(struct berth_call *call, struct berth_call_info *ret_info);

	/* Explains the code the operation is about to return, and returns that code: a short stable `reason` word
	 * (image_pull, evicted, …; [a-z0-9_], at most BERTH_REASON_MAX), whether the same call may work later, and when
	 * (0 = not known). `text` goes to the log and the record's error field only. */
	int32_t (*fail)(struct berth_call *call, int32_t code, const char *reason, uint32_t retryable,
			int64_t retry_after_ms, const char *text);

	/* Results. Copied and checked; capped in number and size by the host. More sessions than BERTH_RESULTS_MAX are the
	 * plugin's mistake, list has pages for them. More files or changes, or more than 64 MiB of their paths, are not, as
	 * they are what lies in the session: emit_file and emit_change return INVALID then, the operation returns that, and
	 * the caller is told that the folder is too large for one list. */
	int32_t (*emit_session)(struct berth_call *call, const struct berth_session_info *info);
	int32_t (*emit_cursor)(struct berth_call *call, const struct berth_str *cursor); /* list: more follows; none twice */
	int32_t (*emit_ending)(struct berth_call *call, const struct berth_ending *ending);
	int32_t (*emit_file)(struct berth_call *call, const struct berth_file_info *info);
	int32_t (*emit_change)(struct berth_call *call, const struct berth_change *change);
	int32_t (*emit_token)(struct berth_call *call, const struct berth_str *token);     /* mark */
	int32_t (*emit_expiry)(struct berth_call *call, int64_t effective_ms); /* renew: Unix ms or BERTH_EXPIRES_NEVER */

	/* provision: the provider acknowledged the session. It is stored durably before this returns; from then on
	 * only the host deletes it. */
	int32_t (*created)(struct berth_call *call, const struct berth_session_info *info);
	/* await_ready: where the session stands (BERTH_PHASE_*), with a short text for people. */
	void (*progress)(struct berth_call *call, uint32_t phase, const char *text);
	/* execute: the command has a handle, a text, that may help a reattach. Stored before this returns. */
	int32_t (*started)(struct berth_call *call, const struct berth_str *handle);
	/* execute, reattach: bytes [from, to) of a stream cannot be recovered. `from` is where the stream stands, and it goes
	 * on at `to`; with BERTH_SIZE_UNKNOWN as `to` nobody knows how many, and it goes on at `from`. */
	int32_t (*gap)(struct berth_call *call, uint32_t stream, uint64_t from, uint64_t to);
	/* Output and file bytes, in order. Other than OK: stop and return that code. Past the deadline nothing is taken, here
	 * and by started, gap, source_read, and lists of files and sessions: TIMEOUT. */
	int32_t (*sink_write)(struct berth_call *call, uint32_t stream, const void *ptr, size_t len);
	/* Input bytes (stdin of execute, file_write, import_tar): up to cap bytes, *ret_len = 0 at the end. The host has
	 * verified size and digest of what it passed when it reports the end; INVALID there means it was not what the
	 * request promised, and nothing may become visible. */
	int32_t (*source_read)(struct berth_call *call, void *buf, size_t cap, size_t *ret_len);

	/* BERTH_CANCEL_* as of now. */
	uint32_t (*cancel_state)(struct berth_call *call);
	/* A descriptor that polls readable once cancel_state is not NONE; owned by the call, made on demand;
	 * -1 when none could be made (then poll cancel_state at least 4 times a second). */
	int32_t (*cancel_fd)(struct berth_call *call);

	/* One blocking HTTP/1.1 exchange; an answer of any status is OK. Pooled connections; follows no redirect; sends again
	 * only once, when a reused connection turned out closed, and only if no byte was sent or the method is GET, HEAD or
	 * OPTIONS without a body. *ret_response is filled in any case. Any other code than OK has been explained with fail(),
	 * unless it is what a callback returned: the operation may return it as it is. UNKNOWN: sent, and what came of it is
	 * not known (never for those three methods); CANCELLED, INVALID and a callback's code leave that to `sent`.
	 *
	 * A cancel ends the exchange at once, if the plugin has not been told of it (by cancel_state, or by an exchange that
	 * returned CANCELLED). Exchanges after that run, so that a command can be stopped; after DETACH for at most 1 s.
	 * Not in open. `call` may be NULL in a thread of the plugin's own; then it has 30 s at most, and the target's close
	 * cancels it. */
	int32_t (*http)(struct berth_target *target, struct berth_call *call, const struct berth_http_request *request,
			struct berth_http_response *ret_response);

	/* Fills buf with random bytes from the system's generator; never fails. */
	void (*random)(void *buf, size_t len);
	/* Copies a secret option's current value (re-read from its file); *ret_len is its length. INVALID when cap is
	 * too small, NOT_FOUND when the option is not set or not declared secret, UNAVAILABLE when its source cannot be
	 * read; *ret_len is 0 then. Wipe buf after use. */
	int32_t (*secret)(struct berth_target *target, const char *option, char *buf, size_t cap, size_t *ret_len);
	/* Adds to a metric of the descriptor's table. */
	void (*counter)(struct berth_target *target, uint32_t index, uint64_t add);
	void (*histogram)(struct berth_target *target, uint32_t index, double value);
	/* A hint that sessions of this target changed. Where the host keeps a warm pool it lists and inspects within seconds, less
	 * often while hints go on, at most a minute later; elsewhere its next round is soon enough. Costs nothing to call. */
	void (*changed)(struct berth_target *target);
	/* Accounted memory; optional. NULL when there is none; free takes NULL. */
	void *(*alloc)(size_t size);
	void (*free)(void *ptr);
};

#endif
