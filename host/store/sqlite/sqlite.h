/* SPDX-License-Identifier: Apache-2.0 */
/* Internal to the SQLite store: connections and their statements, the store's threads, and what the files share. */
#ifndef STORE_SQLITE_SQLITE_H
#define STORE_SQLITE_SQLITE_H

#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>

#include "core/thread.h"
#include "store/clock.h"
#include "store/ops.h"

#define SQLITE_STORE_SCHEMA 2
#define SQLITE_STORE_APP_ID 0x42727468 /* "Brth", in the file's header */

#define WAL_CHECKPOINT_BYTES (4 * 1024 * 1024)
#define WAL_PAUSE_BYTES (64 * 1024 * 1024) /* past it the writer stands still for one pass, so that the log starts anew */
#define QUICK_CHECK_BYTES (256LL * 1024 * 1024)
#define GROUP_STEPS 128
#define GROUP_NS (2 * INT64_C(1000000))
#define GROUP_MOST_NS (20 * INT64_C(1000000))

/* Statements per table; "@" in the text is the table's name. */
#define SQLITE_TABLE_STMTS(X)                                                                                           \
	X(GET, "SELECT key,grp,due,rev,doc FROM @ WHERE key=?1")                                                        \
	X(INSERT, "INSERT INTO @(key,grp,due,rev,doc) VALUES(?1,?2,?3,1,?4)")                                           \
	X(UPSERT, "INSERT INTO @(key,grp,due,rev,doc) VALUES(?1,?2,?3,1,?4) ON CONFLICT(key) DO UPDATE SET "            \
		  "grp=excluded.grp,due=excluded.due,rev=rev+1,doc=excluded.doc")                                       \
	X(UPDATE_DOC, "UPDATE @ SET rev=rev+1,doc=?2 WHERE key=?1")                                                     \
	X(UPDATE_DUE, "UPDATE @ SET due=?3,rev=rev+1,doc=?2 WHERE key=?1")                                              \
	X(DELETE, "DELETE FROM @ WHERE key=?1")                                                                         \
	X(DUE, "SELECT key,grp,due,rev,doc FROM @ WHERE due>0 AND due<=?1 ORDER BY due LIMIT ?2")                       \
	X(DUE_SIZE, "SELECT count(*) FROM @ WHERE due>0")                                                               \
	X(ALL_UP, "SELECT key,grp,due,rev,doc FROM @ WHERE key>?2 ORDER BY key LIMIT ?3")                               \
	X(ALL_DOWN, "SELECT key,grp,due,rev,doc FROM @ WHERE key<?2 ORDER BY key DESC LIMIT ?3")                        \
	X(GROUP_UP, "SELECT key,grp,due,rev,doc FROM @ WHERE grp=?1 AND grp<>'' AND key>?2 ORDER BY key LIMIT ?3")      \
	X(GROUP_DOWN,                                                                                                   \
	  "SELECT key,grp,due,rev,doc FROM @ WHERE grp=?1 AND grp<>'' AND key<?2 ORDER BY key DESC LIMIT ?3")

#define SQLITE_STREAM_STMTS(X)                                                      \
	X(APPEND, "INSERT INTO @(seq,subject,at,doc) VALUES(?4,?1,?2,?3)")          \
	X(ACK, "DELETE FROM @ WHERE seq=?1")                                        \
	X(ACK_SUBJECT, "DELETE FROM @ WHERE subject=?1")                            \
	X(READ, "SELECT seq,subject,at,doc FROM @ WHERE seq>?1 ORDER BY seq LIMIT ?2") \
	X(READ_SUBJECT, "SELECT seq,subject,at,doc FROM @ WHERE subject=?3 AND seq>?1 ORDER BY seq LIMIT ?2") \
	X(HEAD, "SELECT seq,at FROM @ ORDER BY seq LIMIT ?1")                       \
	X(SIZE, "SELECT count(*) FROM @")                                           \
	X(TRIM, "DELETE FROM @ WHERE seq<=?1")

#define SQLITE_PLAIN_STMTS(X)                                                                                \
	X(BEGIN_WRITE, "BEGIN IMMEDIATE")                                                                    \
	X(BEGIN_READ, "BEGIN")                                                                               \
	X(COMMIT, "COMMIT")                                                                                  \
	X(ROLLBACK, "ROLLBACK")                                                                              \
	X(COUNT_GET, "SELECT value FROM counters WHERE name=?1")                                             \
	X(COUNT_ADD, "INSERT INTO counters(name,value) VALUES(?1,?2) "                                       \
		     "ON CONFLICT(name) DO UPDATE SET value=value+excluded.value")                           \
	X(COUNT_SET, "INSERT INTO counters(name,value) VALUES(?1,?2) "                                       \
		     "ON CONFLICT(name) DO UPDATE SET value=excluded.value")                                 \
	X(META_GET, "SELECT doc FROM meta WHERE key=?1")                                                     \
	X(META_SET, "INSERT INTO meta(key,grp,due,rev,doc) VALUES(?1,'',0,1,?2) "                            \
		    "ON CONFLICT(key) DO UPDATE SET rev=rev+1,doc=excluded.doc")

enum table_stmt {
#define X(name, sql) STMT_##name,
	SQLITE_TABLE_STMTS(X)
#undef X
		STMT_TABLE_COUNT
};
enum stream_stmt {
#define X(name, sql) STMT_STREAM_##name,
	SQLITE_STREAM_STMTS(X)
#undef X
		STMT_STREAM_COUNT
};
enum plain_stmt {
#define X(name, sql) STMT_PLAIN_##name,
	SQLITE_PLAIN_STMTS(X)
#undef X
		STMT_PLAIN_COUNT
};

/* Of a stream. A number is given once, also to an entry that a crash or a failing step took back. */
struct numbers {
	int64_t next;
	int64_t stored; /* in the database: none from here on was given before */
	int64_t asked;  /* what the running transaction makes of it */
};

/* One connection with its statements; used by one thread at a time. */
struct conn {
	sqlite3 *db;
	const char *name; /* of the database file, for sentences; borrowed */
	struct sqlite_store *store;
	struct conn *next; /* idle reader */
	struct arena *arena; /* of the step that runs on it; NULL on a connection that runs none */
	sqlite3_stmt *table[STORE_TABLE_COUNT][STMT_TABLE_COUNT];
	sqlite3_stmt *stream[STREAM_COUNT][STMT_STREAM_COUNT];
	sqlite3_stmt *plain[STMT_PLAIN_COUNT];
	unsigned privates; /* statements handed out beside the cached ones */
};

/* A caller sleeps only when the state says so, and only then a wake costs a system call. */
enum job_state { JOB_OPEN, JOB_AWAITED, JOB_DONE };

/* A caller of store_update; lives on its stack until it is done. */
struct job {
	struct job *next;
	store_step step;
	void *arg;
	bool mark; /* write the clock mark even when nothing else is written: the probe of store_healthy */
	int rc;
	struct err err;
	atomic_uint state; /* enum job_state */
};

struct sqlite_store {
	struct store base;
	char *path, *name;
	int lock_fd;
	struct store_clock clock; /* as started; never changed after, so any thread reads it */

	struct lock lock; /* the queue, pausing, checkpoint requests, health */
	struct cond wake_writer, wake_pauser, wake_checkpoint;
	struct job *queue, **queue_end;
	bool writing; /* a thread has the writer's role */
	bool writer_waits, stopping;
	bool pause;
	bool checkpoint_asked, checkpoint_stop;
	struct err trouble; /* of the last group; code 0 = none */

	pthread_t writer;
	bool writer_runs;

	/* Of whoever has the writer's role. */
	struct conn *writer_conn;
	struct job *ready; /* taken from the queue, not yet run */
	struct store_clock mark;
	int64_t marked_ns;
	int64_t commit_ns; /* what the last COMMIT took */
	uint64_t next, next_stored;
	struct numbers numbers[STREAM_COUNT];
	size_t wal_bytes, wal_asked;
	size_t page_size;

	pthread_t checkpointer;
	bool checkpoint_runs;
	struct conn *checkpoint_conn;
	bool checkpoint_failing;

	struct lock reader_lock;
	struct cond wake_reader;
	struct conn *readers;
	unsigned readers_open, readers_max;
};

/* conn.c */
enum conn_kind { CONN_WRITER, CONN_READER, CONN_CHECKPOINT, CONN_CREATE };
int conn_open(const char *path, const char *name, enum conn_kind kind, struct conn **ret, struct err *err);
void conn_close(struct conn *conn);
/* Makes the file a write-ahead-log database; only once it is known to be ours. */
int conn_set_wal(struct conn *conn, struct err *err);
/* Fills err from what the connection reports for an SQLite result code: always ERR_STORE, with a reason. */
int conn_error(struct conn *conn, int code, struct err *err);
int conn_exec(struct conn *conn, const char *sql, struct err *err);
/* Statements are prepared at first use. conn_take_* gives a private copy when the cached one is being stepped
 * through. */
int conn_plain(struct conn *conn, enum plain_stmt which, sqlite3_stmt **ret, struct err *err);
int conn_table(struct conn *conn, enum store_table table, enum table_stmt which, sqlite3_stmt **ret, struct err *err);
int conn_stream(struct conn *conn, enum store_stream stream, enum stream_stmt which, sqlite3_stmt **ret,
		struct err *err);
/* Resets a cached statement, finalizes a private copy. */
void conn_give(struct conn *conn, sqlite3_stmt *stmt);
/* Steps a statement that returns no rows, and gives it back. */
int conn_run(struct conn *conn, sqlite3_stmt *stmt, struct err *err);
int conn_run_plain(struct conn *conn, enum plain_stmt which, struct err *err);

int conn_read_int(struct conn *conn, const char *sql, int *ret, struct err *err);

/* schema.c */
/* Makes the tables and the store's own rows in a fresh file, in one transaction. */
int schema_create(struct conn *conn, const char *id, const char *deployment, const struct store_clock *clock,
		  struct err *err);
/* Refuses files that are not Berth's, another deployment's or a newer schema's; the store id goes to ret_id. */
int schema_check(struct conn *conn, const char *deployment, int *ret_schema, char ret_id[33], struct err *err);
int schema_load_clock(struct conn *conn, struct store_clock *ret, struct err *err);
int schema_save_clock(struct conn *conn, const struct store_clock *clock, struct err *err);
const char *schema_table(enum store_table table);
int schema_set(struct conn *conn, int schema, struct err *err); /* the number of it */
const char *schema_stream(enum store_stream stream);
const char *schema_stream_counter(enum store_stream stream); /* holds numbers[].stored */

/* migrate.c */
struct migration {
	int from; /* to from + 1 */
	const char *sql;
};
#define MIGRATIONS (SQLITE_STORE_SCHEMA - 1)
extern const struct migration migrations[MIGRATIONS];
/* From schema to SQLITE_STORE_SCHEMA: a backup copy beside the database first, then one transaction. */
int schema_migrate(struct conn *conn, const char *path, int schema, const struct migration *steps, size_t count,
		   struct err *err);

/* read.c: the reading half of the ops table. */
int read_get(struct txn *txn, enum store_table table, const char *key, struct store_row *ret_row, int64_t *ret_rev,
	     struct err *err);
int read_scan_due(struct txn *txn, enum store_table table, int64_t upto, size_t limit, row_fn fn, void *arg,
		  struct err *err);
int read_scan(struct txn *txn, enum store_table table, const char *group, const char *after, bool newest_first,
	      size_t limit, row_fn fn, void *arg, struct err *err);
int read_stream(struct txn *txn, enum store_stream stream, const char *subject, uint64_t after, size_t limit,
		entry_fn fn, void *arg, struct err *err);
int read_find_trim(struct txn *txn, enum store_stream stream, int64_t older_than_ms, size_t limit, size_t *ret_count,
		   uint64_t *ret_last, struct err *err);
int read_due_size(struct txn *txn, enum store_table table, int64_t *ret, struct err *err);
int read_stream_size(struct txn *txn, enum store_stream stream, int64_t *ret, struct err *err);
int read_count(struct txn *txn, const char *name, int64_t *ret, struct err *err);
int read_next(struct txn *txn, uint64_t *ret, struct err *err);

/* apply.c: writes what a step left in its txn. */
int apply_txn(struct conn *conn, const struct txn *txn, struct err *err);

/* group.c: for whoever has the writer's role. */
int group_init(struct sqlite_store *store, struct err *err);
void group_run(struct sqlite_store *store); /* as many of the queued steps as one transaction takes */
void group_judge_clock(struct sqlite_store *store); /* stores a jump of the wall clock */
void group_last_mark(struct sqlite_store *store);

/* writer.c */
void job_wake(struct job *job); /* the last touch of it */
int writer_update(struct store *store, store_step step, void *arg, struct err *err);
bool writer_healthy(struct store *store, struct err *err);
int writer_start(struct sqlite_store *store, struct err *err);
void writer_stop(struct sqlite_store *store); /* runs what is queued, writes the clock mark */
void writer_pause(struct sqlite_store *store);
void writer_resume(struct sqlite_store *store);

/* reader.c */
int reader_view(struct store *store, store_step step, void *arg, struct err *err);
void reader_close_all(struct sqlite_store *store);

/* walfile.c: the VFS of the writer's connection. */
#define WALFILE_VFS "berth"
void walfile_init(void); /* any thread, any number of times */

/* checkpoint.c */
int checkpoint_start(struct sqlite_store *store, struct err *err);
void checkpoint_stop(struct sqlite_store *store);
void checkpoint_grown(struct sqlite_store *store); /* the writer's word after a commit */
void checkpoint_truncate(struct conn *conn);

/* lockfile.c: <path>.lock, held while the process lives. */
int lockfile_take(const char *path, const char *name, int *ret_fd, struct err *err);
void lockfile_drop(int fd);

/* open.c */
int sync_parent(const char *path, struct err *err); /* the folder that the path names a file in */
extern const struct store_ops sqlite_ops;
int sqlite_open_with(const struct store_config *config, const struct migration *steps, size_t count, struct store **ret,
		     struct err *err);

static inline struct sqlite_store *sqlite_of(struct store *store)
{
	return (struct sqlite_store *)store;
}

#endif
