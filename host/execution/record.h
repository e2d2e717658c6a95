/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The durable record of one execution and its codec. The public record is one row without the command's body; the
 * private part of an open one (who runs it, until when, what cancel was asked) is another: it changes without revision
 * or event. Pure functions.
 */
#ifndef EXECUTION_RECORD_H
#define EXECUTION_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/arena.h"
#include "core/ident.h"
#include "core/json.h"

/* X(NAME, word, terminal) */
#define RECORD_STATUSES(X)                                                                                             \
	X(QUEUED, "queued", false)                                                                                     \
	X(CLAIMED, "claimed", false)                                                                                   \
	X(RUNNING, "running", false) X(COMPLETED, "completed", true) X(FAILED, "failed", true)                         \
		X(CANCELLED, "cancelled", true)
enum record_status {
	RECORD_NONE, /* there is no record yet */
#define X(name, word, terminal) RECORD_##name,
	RECORD_STATUSES(X)
#undef X
		RECORD_STATUS_COUNT
};

const char *record_status_word(enum record_status status);
enum record_status record_status_parse(const char *word); /* RECORD_NONE when not a status */
bool record_status_terminal(enum record_status status);

struct record_command {
	const char *command_body; /* only while a single record is shown; never in the row */
	const char *cwd, *env_ref, *stdin_ref, *command_path;
	const char **artifact_paths;
	size_t artifact_count;
	int64_t timeout_seconds;
	int64_t stdout_max_bytes, stderr_max_bytes;
	bool keep_descendants;
};

struct record_artifact {
	const char *path, *name, *content_type, *sha256, *error;
	int64_t size;
};

struct record_result {
	/* Never set: a result that carries output inline is refused by the codec. */
	const char *inline_stdout, *inline_stderr;
	const char *stdout_ref, *stderr_ref; /* as of record_output_key */
	int64_t stdout_bytes, stderr_bytes;  /* of the stored objects */
	const char *stdout_sha256, *stderr_sha256;
	bool stdout_truncated, stderr_truncated;
	int64_t stdout_dropped, stderr_dropped; /* bytes past a limit */
	const char *truncated_reason;		/* "limit", "spool_full", "spool_error" */
	int64_t exit_code;			/* shown only with an ending that has one */
	int64_t execution_time_ms;
	struct record_artifact *artifacts;
	size_t artifact_count;
};

struct record_ending {
	const char *kind; /* exit signal timeout cancelled oom session_lost unknown */
	int64_t exit_code;
	int64_t signal;
};

struct record_lost { /* bytes [from, to) of a stream that could not be recovered; to 0: nobody knows how many */
	const char *stream;
	int64_t from, to;
};

struct record {
	const char *id;
	int64_t revision;
	const char *session_id, *workflow_id;
	const char *task_id, *workspace_id;
	struct record_runtime {
		const char *region;
	} runtime;
	const char *status_word; /* stored form of status */
	enum record_status status;
	struct record_command command;
	const char **output_refs;
	size_t output_ref_count;
	struct record_result result;
	struct record_ending ending;
	int64_t survivors;
	struct record_lost *output_lost;
	size_t lost_count;
	const char *reason; /* a short stable word */
	const char *error;  /* at most LIMIT_ERROR_TEXT bytes */
	int64_t retry_after_ms;
	int64_t attempt, incarnation;
	const char *target;
	int64_t created_ms, updated_ms, queue_expires_ms;
	int64_t started_ms, execution_expires_ms, completed_ms;
	int64_t cancel_requested_ms; /* only while an open record is shown; it is the claim's, never in the row */
	const char *idempotency_key; /* hidden */
	const char *traceparent;     /* hidden: of the request that made it */
};

/* The private row of an execution that a runner took, or that was asked to cancel. */
struct claim {
	const char *runner;
	int64_t attempt;
	int64_t claim_until_ms; /* 0 = handed back */
	int64_t sent_attempt;	/* attempt under which execute may have been sent; 0 = none */
	int64_t deliveries;	/* attempts in a row that ended with no event after their own claimed */
	const char *handle;
	const char *target;
	int64_t incarnation, fence;
	int64_t cancel_requested_ms;
	const char *cancel_reason;
	int64_t live_attempt; /* whose segments hold output for other hosts, and how many bytes of it; 0 = none yet */
	int64_t live_stdout, live_stderr;
};

/* Refuses a result with inline output (ERR_INVALID_REQUEST) and a record that names no identity. */
int record_encode(const struct record *r, struct buf *buf, struct err *err);
/* The public form: hidden fields out, command.command_body in when set. */
int record_encode_public(const struct record *r, struct buf *buf, struct err *err);
/* Strings live in the arena. ERR_CORRUPT names the id. */
int record_decode(struct arena *arena, const char *id, const char *doc, size_t len, struct record *ret,
		  struct err *err);
/* Only the status, cheaply. RECORD_NONE with ERR_CORRUPT. */
int record_decode_status(struct arena *arena, const char *id, const char *doc, size_t len, enum record_status *ret,
			 struct err *err);
const char *claim_cancel(const struct claim *c); /* why a cancel was asked for; "": none was */
int claim_encode(const struct claim *c, struct buf *buf);
int claim_decode(struct arena *arena, const char *id, const char *doc, size_t len, struct claim *ret, struct err *err);

/* "sexec_" + 24 hex digits that sort by time: 11 of the millisecond, 13 random. */
#define RECORD_ID_PREFIX "sexec_"
void record_new_id(int64_t now_ms, char ret_id[IDENT_ID_MAX + 1]);
/* Sorts before all ids of that millisecond and later, and after all of earlier ones; not an id itself. */
void record_first_id(int64_t ms, char ret_id[IDENT_ID_MAX + 1]);
bool record_id_valid(const char *id);
/* Where an attempt stores its output: the first one at "executions/<id>/stdout", a later one at
 * "executions/<id>/<attempt>/stdout", so that one that was overtaken cannot replace what its successor has stored.
 * stream 1 or 2. */
#define RECORD_OUTPUT_KEY_MAX 144
void record_output_key(const char *id, int64_t attempt, unsigned stream, char ret_key[RECORD_OUTPUT_KEY_MAX]);
/* The key that an ended record names. NULL: none, or one that is not its own. */
const char *record_output_ref(const struct record *r, unsigned stream);

#endif
