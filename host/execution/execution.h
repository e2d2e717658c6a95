/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executions: durable records, the queue, the runner, spool and outputs. Knows sessions; never HTTP.
 *
 * A record changes only by events of the transition table (transition.c); record, event and message are written in one
 * step.
 */
#ifndef EXECUTION_EXECUTION_H
#define EXECUTION_EXECUTION_H

#include <stdbool.h>
#include <stddef.h>

#include "blob/blob.h"
#include "core/buf.h"
#include "core/ident.h"
#include "core/watch.h"
#include "session/session.h"

struct executions;

struct executions_config {
	const struct conf *conf;
	struct store *store;
	struct blob_store *blobs;
	struct sessions *sessions;
	struct watch *watch;
	const char *host_id;
	const struct seal *seal; /* of a shared store: see shared.h */
};

int executions_new(const struct executions_config *config, struct executions **ret, struct err *err);
/* The store was lost and is being told what hosts hold: who asks is told to come again. */
bool execution_is_closed(const struct executions *e);
/* Takes over what the former process left (running -> reattach, queued and claimed -> run), then reads the queue. */
int executions_start(struct executions *e, struct err *err);
/* Stops reading; running commands are detached from after stop_grace; waiters are answered by their own deadline. */
void executions_stop(struct executions *e, int64_t deadline_ns);
/* False: a worker is not back from its plugin, and may still use everything that executions were given. */
bool executions_free(struct executions *e);

/* A create request, checked for shape by the API layer; the rest is checked here (ERR_INVALID_REQUEST names the field).
 */
struct execution_create {
	struct ident ident;
	const char *session_id, *workflow_id; /* opaque labels or NULL */
	const char *region;
	const char *command_body;
	size_t command_len;
	const char *cwd, *env_ref, *stdin_ref, *command_path;
	const char **artifact_paths;
	size_t artifact_count;
	int64_t timeout_seconds;	/* 0 = default */
	int64_t stdout_max, stderr_max; /* -1 = operator's limit */
	bool keep_descendants;
	const char *idempotency_key; /* or NULL */
	const char *nonce_key;	     /* of a signed token, see nonce.h; or NULL */
	int64_t nonce_expires_ms;
	const char *traceparent; /* or NULL */
	char body_sha256[65];
};

/* Stores the record (durable when it returns 0) and starts or queues it. ret_id gets the id; *ret_replayed: the
 * idempotency key answered with an earlier record. ERR_QUEUE_FULL, ERR_NO_TARGET, ERR_CONFLICT (key reused with another
 * body). */
int execution_create(struct executions *e, const struct execution_create *in, char ret_id[IDENT_ID_MAX + 1],
		     bool *ret_replayed, struct err *err);

/* Takes a nonce for the cancel of an execution, for the same one as often as it is asked. ERR_UNAUTHORIZED: it was used for
 * something else. */
int execution_use_nonce(struct executions *e, const char *key, const char *id, int64_t expires_ms, struct err *err);

/* Asks for cancel; *ret_done: the record is terminal now. */
int execution_cancel(struct executions *e, const char *id, const char *reason, bool *ret_done, struct err *err);

/* What a reader needs to know before it may see anything. */
struct execution_head {
	struct ident ident;
	int64_t revision;
	bool terminal;
	bool running;
};
int execution_head(struct executions *e, const char *id, struct execution_head *ret, struct err *err);
/* Certainly not terminal, and who watches it is notified when it is: this process runs it, and nobody else could end it.
 * False says nothing. Waits for nothing. */
bool execution_runs_here(struct executions *e, const char *id);
/* The public record as JSON. preview > 0 adds `preview` with at most that many bytes (<= 64 KiB) of head and tail of
 * each stream. */
int execution_render(struct executions *e, const char *id, size_t preview, struct buf *buf,
		     struct execution_head *ret_head, struct err *err);
/* The same of an ended one that is in memory; waits for nothing. False says nothing about the record. */
bool execution_ended(struct executions *e, const char *id, struct execution_head *ret, struct buf *buf);
/* Items of a list, newest first: records without command_body. status NULL = any. workspace required, task may be NULL.
 * *ret_next is malloc'ed or NULL. */
int execution_list(struct executions *e, const char *workspace, const char *task, const char *status, const char *after,
		   size_t limit, struct buf *buf, size_t *ret_count, char **ret_next, struct err *err);
/* Watch key of a record: changes of it notify this key. "exec:<id>" into ret. */
void execution_watch_key(const char *id, char ret_key[64]);

/* Output, live or stored. Reads up to cap bytes at offset. *ret_len = 0 and *ret_end = false: nothing yet, wait on the
 * watch key "out:<id>"; *ret_end = true: no byte will ever come at or after offset + *ret_len. Bytes are stable: the
 * same offset gives the same bytes for the life of the record. stream: 1 stdout, 2 stderr. */
struct output_reader;
int output_open(struct executions *e, const char *id, unsigned stream, struct output_reader **ret, struct err *err);
int output_read(struct output_reader *reader, uint64_t offset, void *buf, size_t cap, size_t *ret_len, bool *ret_end,
		struct err *err);
/* Total size when it is final; ERR_NOT_FOUND (none yet) while the command is open. */
int output_size(struct output_reader *reader, uint64_t *ret_size, struct err *err);
void output_close(struct output_reader *reader);
void output_watch_key(const char *id, char ret_key[64]);

/* The next event of an execution after the seq-th entry of the stream; *ret_doc is malloc'ed, NULL when there is none (yet):
 * wait on execution_watch_key. Events live as long as `execution.retention`. */
int execution_next_event(struct executions *e, const char *id, uint64_t after, uint64_t *ret_seq, char **ret_doc,
			 struct err *err);
/* Bytes of both streams now; *ret_final: they will not grow any more. */
int execution_offsets(struct executions *e, const char *id, uint64_t ret_bytes[2], bool *ret_final, struct err *err);

/* Dead letters, oldest first, after the seq-th: members of a JSON array. *ret_last is where the next page starts, 0 on
 * the last one. `only`: that one alone, ERR_NOT_FOUND without it. */
int execution_dead_list(struct executions *e, uint64_t after, uint64_t only, size_t limit, struct buf *buf,
			size_t *ret_count, uint64_t *ret_last, struct err *err);
/* Puts the message back into the request stream, which is then read. ERR_CONFLICT: there is no
 * message in it, or no open execution that it asks for. */
int execution_dead_requeue(struct executions *e, uint64_t seq, struct err *err);
int execution_dead_drop(struct executions *e, uint64_t seq, struct err *err);

/* Limits that may change while it runs: `concurrency` at most what it was made with, the others as conf has them. */
void execution_set_limits(struct executions *e, unsigned concurrency, const struct conf *conf);

/* Counts for health and tests. */
struct executions_stat {
	unsigned running, queued, parked;
	unsigned queue_max;
	uint64_t defects; /* transitions that the table refused: each is a defect of this program, named in the log */
};
void executions_stat(struct executions *e, struct executions_stat *ret);

#endif
