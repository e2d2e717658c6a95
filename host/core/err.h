/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors of the host: one table of codes, one struct that carries the sentence. A function returns 0 or a negative
 * enum err_code and fills the caller's struct err; only the request layer and main log it, once.
 */
#ifndef CORE_ERR_H
#define CORE_ERR_H

#include <stdint.h>

/* X(name, word of the HTTP API, HTTP status, retryable). The one home of every error word. */
#define ERR_TABLE(X)                                                   \
	X(INVALID_REQUEST, "invalid_request", 400, 0)                  \
	X(UNSUPPORTED_CONTRACT, "unsupported_contract_version", 400, 0) \
	X(UNAUTHORIZED, "unauthorized", 401, 0)                        \
	X(FORBIDDEN, "forbidden", 403, 0)                              \
	X(SCOPE_MISMATCH, "workspace_scope_mismatch", 403, 0)          \
	X(NOT_FOUND, "not_found", 404, 0)                              \
	X(METHOD_NOT_ALLOWED, "method_not_allowed", 405, 0)            \
	X(REQUEST_TIMEOUT, "request_timeout", 408, 0)                  \
	X(CONFLICT, "conflict", 409, 0)                                \
	X(EXECUTION_CONFLICT, "execution_conflict", 409, 0)            \
	X(REGION_CONFLICT, "region_conflict", 409, 0)                  \
	X(SANDBOX_EXPIRED, "sandbox_expired", 410, 0)                  \
	X(SESSION_GONE, "session_gone", 410, 1)                        \
	X(PRECONDITION, "precondition_failed", 412, 0)                 \
	X(PAYLOAD_TOO_LARGE, "payload_too_large", 413, 0)              \
	X(URI_TOO_LONG, "uri_too_long", 414, 0)                        \
	X(MEDIA_TYPE, "unsupported_media_type", 415, 0)                \
	X(RANGE, "range_not_satisfiable", 416, 0)                      \
	X(EXPECTATION, "expectation_failed", 417, 0)                   \
	X(MISDIRECTED, "misdirected_request", 421, 0)                  \
	X(NO_TARGET, "no_eligible_target", 422, 0)                     \
	X(SESSION_LIFE, "exceeds_session_life", 422, 0)                \
	X(QUOTA, "quota_exceeded", 429, 1)                             \
	X(RATE_LIMITED, "rate_limited", 429, 1)                        \
	X(INTERNAL, "internal", 500, 0)                                \
	X(UNSUPPORTED, "unsupported", 501, 0)                          \
	X(PROVIDER, "provider_error", 502, 0)                          \
	X(PROVIDER_AUTH, "provider_auth", 502, 0)                      \
	X(WORKSPACE_CORRUPT, "workspace_corrupt", 502, 0)              \
	X(CAPACITY, "capacity_exhausted", 503, 1)                      \
	X(PROVIDER_UNAVAILABLE, "provider_unavailable", 503, 1)        \
	X(SESSION_BUSY, "session_busy", 503, 1)                        \
	X(STORE, "store_unavailable", 503, 1)                          \
	X(WORKSPACE, "workspace_unavailable", 503, 1)                  \
	X(QUEUE_FULL, "queue_full", 503, 1)                            \
	X(SHUTTING_DOWN, "shutting_down", 503, 1)                      \
	X(NO_MANIFEST, "runtime_manifest_unavailable", 503, 0)         \
	X(PROVIDER_TIMEOUT, "provider_timeout", 504, 1)                \
	X(STORAGE_FULL, "provider_storage_full", 507, 0)               \
	/* Internal: these never reach a caller under their own name. */ \
	X(NOMEM, "internal", 500, 0)                                   \
	X(IO, "internal", 500, 0)                                      \
	X(CONFIG, "invalid_configuration", 500, 0)                     \
	X(CORRUPT, "internal", 500, 0)                                 \
	X(CANCELLED, "cancelled", 499, 0)                              \
	X(DETACHED, "detached", 499, 0)                                \
	X(NOT_STARTED, "not_started", 500, 0)                          \
	X(OUTCOME_UNKNOWN, "provider_error", 502, 0)                  \
	X(IN_USE, "internal", 500, 0) /* of the start: a database, a port that another process has */

enum err_ordinal {
	ERR_ORDINAL_OK,
#define X(name, word, http, retry) ERR_ORDINAL_##name,
	ERR_TABLE(X)
#undef X
		ERR_ORDINAL_COUNT
};

enum err_code {
	ERR_OK = 0,
#define X(name, word, http, retry) ERR_##name = -(int)ERR_ORDINAL_##name,
	ERR_TABLE(X)
#undef X
};

struct err {
	int code;
	int retryable;
	int64_t retry_after_ms; /* 0 = not known */
	char reason[32];        /* a short stable word, or "" */
	char msg[256];
};

/* Fills err (which may be NULL) and returns code, so that `return err_set(…)` reads well. Retryable comes from the table. */
int err_set(struct err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
#ifdef BERTH_ANALYZE /* the static checkers, one file at a time, do not see which number comes back */
#define err_set(err, code, ...) (err_set((err), (code), __VA_ARGS__), (code))
#endif
/* Puts "what: " before the sentence that err holds; returns err->code. */
int err_prefix(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void err_clear(struct err *err);
void err_reason(struct err *err, const char *reason);

const char *err_word(int code);    /* the API's word; "internal" for a number not in the table */
const char *err_name(int code);    /* the table's name, lower case; to store and to log */
int err_http(int code);
int err_retryable(int code);
int err_from_name(const char *name); /* ERR_INTERNAL when not known */

#endif
