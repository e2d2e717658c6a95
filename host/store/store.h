/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store: rows in a few tables, changed by steps.
 *
 * A step is a function that reads rows, decides, and writes rows; the store runs it as one atomic, durable unit. The decision
 * logic (bindings, executions, queue) is written once, in C, as steps; a store only has to get, scan and apply. SQLite runs
 * steps one after another on its writer thread and commits groups of them; Redis runs them optimistically and applies the
 * buffered writes with one script that checks the revision of every row the step read. Hence the rules for a step:
 *   - pure but for its txn and its own argument: no locks, no waiting, no logging, no random; it may run again from the
 *     start, so it resets its results first;
 *   - quick: it runs on the writer's thread, or holds a connection;
 *   - it may see rows of different moments, and is run again then: no assertions on what rows say together;
 *   - a row found by a scan is only a candidate: get it again before deciding (scans are not checked for conflicts);
 *   - returning an error drops all it wrote.
 * Rows and strings handed to a step live until it returns. See docs/decisions.md, "Steps instead of one script per operation".
 */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/arena.h"
#include "core/err.h"
#include "core/secret.h"

/* X(name, sql name, whole). whole: it can be scanned from end to end, which costs an index where the store has none anyway. due and
 * group are per table: see the columns in docs/state.md. */
#define STORE_TABLES(X)                                                           \
	X(META, "meta", false)            /* store id, clock, schema */           \
	X(TASK, "tasks", true)            /* key ws/task; group ws */             \
	X(EXECUTION, "executions", true)  /* key id; group ws/task */             \
	X(EXECUTION_INDEX, "execution_index", false) /* key id; group ws: lists of a workspace */ \
	X(COMMAND, "commands", false)     /* key id: body, written once */        \
	X(CLAIM, "claims", false)         /* key id: private part of an open execution */ \
	X(IDEMPOTENCY, "idempotency", false) /* key ws/task/key */                \
	X(NONCE, "nonces", false)                                                 \
	X(OBJECT, "objects", false)       /* small outputs, key as in blob.h */   \
	X(TARGET, "targets", false)       /* drain marks */                       \
	X(HOST, "hosts", true)            /* registry of living hosts */          \
	X(WARM, "warm", false)            /* key target/intent; group target/state */

enum store_table {
#define X(name, sql, whole) STORE_##name,
	STORE_TABLES(X)
#undef X
		STORE_TABLE_COUNT
};

/* Append-only streams with acknowledgement. */
enum store_stream { STREAM_REQUESTS, STREAM_EVENTS, STREAM_DEAD, STREAM_COUNT };

struct store_row {
	const char *key;
	const char *group; /* "" = none */
	int64_t due_ms;    /* 0 = none */
	const char *doc;   /* bytes, NUL after them; NULL: no such row */
	size_t doc_len;
};

struct stream_entry {
	uint64_t seq; /* grows within a stream */
	const char *subject;
	int64_t at_ms;
	const char *doc;
	size_t doc_len;
};

struct store;
struct txn;
typedef int (*store_step)(struct txn *txn, void *arg, struct err *err);

/* ---- inside a step ---- */
/* Store time, one value per step, Unix ms on the store's guarded clock. */
int64_t txn_now(const struct txn *txn);
/* The next number of the deployment's counter (fences and incarnations). Never given twice, grows; a step that fails or runs
 * again leaves a gap. */
int txn_next(struct txn *txn, uint64_t *ret, struct err *err);
/* Scratch memory that lives as long as the step. */
struct arena *txn_arena(struct txn *txn);
/* Sees the step's own writes. Absent: 0 with ret->doc = NULL. */
int txn_get(struct txn *txn, enum store_table table, const char *key, struct store_row *ret, struct err *err);
/* doc must not be NULL and at most LIMIT_ROW bytes (ERR_PAYLOAD_TOO_LARGE); all of row is copied. Keys of META that begin with
 * "store." belong to the store. */
int txn_put(struct txn *txn, enum store_table table, const struct store_row *row, struct err *err);
/* No table has, or ever had, a row of this key, which was just drawn at random: a store need not look for what the step's writes
 * replace. One key per step. */
int txn_fresh(struct txn *txn, const char *key, struct err *err);
int txn_delete(struct txn *txn, enum store_table table, const char *key, struct err *err);
/* Rows with 0 < due_ms <= upto in order of due; or of one group in order of key, after `after` ("" = from the start); or all, in
 * order of key (group NULL, only of tables that are whole, else ERR_INTERNAL; "" is no group and finds nothing). newest_first turns
 * the order of keys round: keys that are ids sort by time. The row of `after` need not exist any more. limit: most rows, SIZE_MAX =
 * all. fn returning false ends the scan. Own writes of the step are not seen, neither here nor by txn_read_stream and txn_trim. What
 * a step reads counts against its 64 MiB: page through big tables, a page per step. */
int txn_scan_due(struct txn *txn, enum store_table table, int64_t upto, size_t limit,
		 bool (*fn)(const struct store_row *row, void *arg), void *arg, struct err *err);
int txn_scan(struct txn *txn, enum store_table table, const char *group, const char *after, bool newest_first, size_t limit,
	     bool (*fn)(const struct store_row *row, void *arg), void *arg, struct err *err);
/* How many rows of a table have a due; the step's own are not seen. */
int txn_due_size(struct txn *txn, enum store_table table, int64_t *ret, struct err *err);
/* Named numbers whose changes commute (sessions of a target, …). */
int txn_count_add(struct txn *txn, const char *name, int64_t delta, struct err *err);
int txn_count_get(struct txn *txn, const char *name, int64_t *ret, struct err *err);
/* Streams. An entry is there until acknowledged (REQUESTS), dropped (DEAD) or trimmed (EVENTS). */
int txn_append(struct txn *txn, enum store_stream stream, const char *subject, const char *doc, size_t len, struct err *err);
int txn_ack(struct txn *txn, enum store_stream stream, uint64_t seq, struct err *err);
/* Acknowledges every entry of a subject. */
int txn_ack_subject(struct txn *txn, enum store_stream stream, const char *subject, struct err *err);
/* Its entries stay as they are, but a store need not find them by their subject any more. */
int txn_forget_subject(struct txn *txn, enum store_stream stream, const char *subject, struct err *err);
int txn_read_stream(struct txn *txn, enum store_stream stream, uint64_t after, size_t limit,
		    bool (*fn)(const struct stream_entry *entry, void *arg), void *arg, struct err *err);
/* Only entries of one subject. */
int txn_read_subject(struct txn *txn, enum store_stream stream, const char *subject, uint64_t after, size_t limit,
		     bool (*fn)(const struct stream_entry *entry, void *arg), void *arg, struct err *err);
/* How many entries a stream has; the step's own are not seen. */
int txn_stream_size(struct txn *txn, enum store_stream stream, int64_t *ret, struct err *err);
int txn_trim(struct txn *txn, enum store_stream stream, int64_t older_than_ms, size_t limit, size_t *ret_count,
	     struct err *err);

/* Tells the other processes of this store that what `key` names may have changed, once the step's writes are durable; what this
 * process wants to know of its own steps it tells itself. A step that only notifies writes nothing, and tells nobody. A notice can be
 * lost: whoever depends on one looks again by itself. Nothing happens where the store is exclusive. */
int txn_notify(struct txn *txn, const char *key, struct err *err);

/* ---- outside ---- */
/* Runs a step; when it returns 0 its writes are durable, also those of a former try that it found done. Blocks. ERR_STORE: the
 * store is away or refused; nothing was written unless err->reason is "outcome_unknown". Never call from inside a step or with a
 * lock held. */
int store_update(struct store *store, store_step step, void *arg, struct err *err);
/* A read-only step on a snapshot; writes are refused (ERR_INTERNAL). */
int store_view(struct store *store, store_step step, void *arg, struct err *err);
/* Conveniences. ret_doc is malloc'ed; NULL when absent. */
int store_get(struct store *store, enum store_table table, const char *key, char **ret_doc, size_t *ret_len,
	      struct err *err);
/* Store time now, without a step; 0 or ERR_STORE. */
int store_now(struct store *store, int64_t *ret_ms, struct err *err);
const char *store_id(const struct store *store); /* random, made with the store; the text lives as long as `store` */
bool store_is_new(const struct store *store);    /* this open made it */
/* True for SQLite: this process is the only one, so claims and operations of former processes are dead at once. */
bool store_is_exclusive(const struct store *store);
bool store_healthy(struct store *store, struct err *err);
/* Another store, or none, stands where this one was: every step is refused (ERR_STORE, "store_lost") until store_renew. */
bool store_is_lost(struct store *store);
/* After a loss: takes what stands there now or, with `begin`, begins a new store, whose id is then another one and whose numbers go
 * on above all that were ever given. 0 also when nothing was lost; ERR_STORE, "store_lost": there is none, and none was to be begun.
 * Whoever calls it puts back what this process knows. */
int store_renew(struct store *store, bool begin, struct err *err);
/* For how long nobody may reclaim, take over or sweep: the store was away or its clock jumped, so what looks dead may only
 * have been unable to say that it lives. 0: go on. */
int64_t store_hold_ms(struct store *store);

/* fn hears the notices of other processes, on a thread of the store's own; it may call the store. key NULL: notices may have been
 * lost, anything may have changed. Replaces the listener before; when the call returns that one is not called any more. fn NULL:
 * none. Exclusive stores never call it. */
int store_listen(struct store *store, void (*fn)(const char *key, void *arg), void *arg, struct err *err);

struct store_config {
	const char *path;
	const char *deployment;
	const char *host_id; /* of this process, "name-random" */
	unsigned readers;    /* connections for store_view, default 4 */
};
/* Locks the database (ERR_CONFIG: "… is in use by berthd pid N"), checks deployment and schema, migrates after a backup copy, opens
 * or makes it. An unreadable or foreign database is refused with a sentence, never overwritten. */
int store_open_sqlite(const struct store_config *config, struct store **ret, struct err *err);

#define STORE_REDIS_PREFIX "agentarea:sandbox"
#define STORE_REDIS_REQUESTS "agentarea.sandbox.execution.requests"
#define STORE_REDIS_EVENTS "agentarea.sandbox.execution.events"
#define STORE_REDIS_DEAD "agentarea.sandbox.execution.dead"
#define STORE_REDIS_GROUP "agentarea-sandbox-runners"

/* Strings that are NULL or empty mean the names above. */
struct store_redis_config {
	const char *url;	       /* see redis/redis.h; may hold a login */
	const char *user;	       /* of the ACL, for a url without login */
	const struct secret *password; /* NULL: none, or in the url */
	const char *deployment;
	const char *host_id;
	const char *prefix; /* of all keys but the streams' */
	const char *request_stream, *event_stream, *dead_stream, *group;
	unsigned connections; /* most at once, default 16 */
	unsigned min_acks;    /* replicas that must have a change before it counts */
	int64_t ack_wait_ms;  /* for so long they are waited for, default 1 s */
	int64_t hold_ms;      /* of store_hold_ms: 2 x operation_ttl, default 60 s */
	bool is_volatile;     /* take a Redis that may lose the state */
};
/* Refuses, with a sentence, a Redis that may lose state, a Cluster, a sentinel, another deployment's keys, a newer schema. */
int store_open_redis(const struct store_redis_config *config, struct store **ret, struct err *err);
void store_close(struct store *store);

/* What an implementation provides; see store/store.c for how steps are run on top. */
struct store_ops;

#endif
