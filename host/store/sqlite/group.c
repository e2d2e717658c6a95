/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One group: queued steps that run one after another in a single SQLite transaction, with the rows that the store itself
 * adds, and their callers' answers after its COMMIT. Entered by whoever has the writer's role (writer.c), by nobody else.
 * A caller must never be told "done" before the commit, and never be told an answer that was computed on top of steps
 * which were rolled back.
 */
#include "core/clock.h"
#include "core/failpoint.h"
#include "core/log.h"
#include "obs/metrics.h"
#include "store/sqlite/sqlite.h"

#define MARK_EVERY_NS CLOCK_NS_PER_S
#define COUNTER_NEXT STORE_RESERVED "next"
#define NUMBERS_AHEAD 1024 /* of a stream, put aside with one write */

struct group {
	struct job *jobs[GROUP_STEPS];
	size_t count;
	bool writes; /* something must reach the disk */
	bool mark;
};

static void roll_back(struct conn *conn)
{
	struct err ignored;

	/* SQLite may have rolled back by itself; a failing ROLLBACK leaves nothing behind either. */
	if (!sqlite3_get_autocommit(conn->db))
		conn_run_plain(conn, STMT_PLAIN_ROLLBACK, &ignored);
}

/* False when the transaction is lost: then the steps that ran before in it are lost too. */
static bool run_job(struct sqlite_store *store, struct group *group, struct job *job, struct err *err)
{
	struct conn *conn = store->writer_conn;
	struct txn txn;
	bool writes;

	txn_init(&txn, &sqlite_ops, conn, conn->arena, store_clock_now(&store->clock, clock_boot_ns()), false);
	err_clear(&job->err);
	job->rc = txn_end(&txn, job->step(&txn, job->arg, &job->err), &job->err);
	group->mark |= job->mark;
	if (sqlite3_get_autocommit(conn->db)) {
		*err = job->err;
		if (job->rc != ERR_STORE)
			conn_error(conn, SQLITE_IOERR, err);
		return false;
	}
	writes = job->rc == 0 && txn_has_writes(&txn);
	group->writes |= writes || job->mark;
	return !writes || apply_txn(conn, &txn, err) == 0;
}

static int count_set(struct conn *conn, const char *name, int64_t value, struct err *err)
{
	sqlite3_stmt *stmt;
	int rc = conn_plain(conn, STMT_PLAIN_COUNT_SET, &stmt, err);

	if (rc != 0)
		return rc;
	sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
	sqlite3_bind_int64(stmt, 2, value);
	return conn_run(conn, stmt, err);
}

/* Also when only failing steps took numbers: they must not be given again after a crash. */
static int store_next(struct sqlite_store *store, struct err *err)
{
	if (store->next == store->next_stored)
		return 0;
	return count_set(store->writer_conn, COUNTER_NEXT, (int64_t)store->next, err);
}

static int store_numbers(struct sqlite_store *store, struct err *err)
{
	struct numbers *n;
	int rc = 0;

	for (int i = 0; rc == 0 && i < STREAM_COUNT; i++) {
		n = &store->numbers[i];
		n->asked = n->next > n->stored ? n->next + NUMBERS_AHEAD : n->stored;
		if (n->asked != n->stored)
			rc = count_set(store->writer_conn, schema_stream_counter((enum store_stream)i), n->asked, err);
	}
	return rc;
}

static void judge_clock(struct sqlite_store *store, int64_t now_ns)
{
	int64_t before = store->mark.offset_ms;

	if (store_clock_judge(&store->mark, clock_wall_ms(), now_ns))
		log_warn("the wall clock jumped; the store's clock goes on as before",
			 KI("moved_ms", before - store->mark.offset_ms), KI("offset_ms", store->mark.offset_ms));
}

static int store_mark(struct sqlite_store *store, int64_t now_ns, struct err *err)
{
	int rc;

	judge_clock(store, now_ns);
	store_clock_mark(&store->mark, now_ns);
	rc = schema_save_clock(store->writer_conn, &store->mark, err);
	if (rc == 0)
		store->marked_ns = now_ns;
	return rc;
}

/* What the store itself adds to a group. */
static int add_own_rows(struct sqlite_store *store, struct group *group, struct err *err)
{
	int64_t now_ns = clock_boot_ns();
	int rc = store_next(store, err);

	if (rc == 0)
		rc = store_numbers(store, err);
	if (rc != 0)
		return rc;
	if (!group->mark && !(group->writes && now_ns - store->marked_ns >= MARK_EVERY_NS))
		return 0;
	return store_mark(store, now_ns, err);
}

/*
 * When a COMMIT fails because the log could not be written or synced, its frames may still be in the log: a crash
 * right now would replay them. When the disk is full the last frame, the one that counts, is missing.
 */
static int commit(struct sqlite_store *store, struct err *err)
{
	struct conn *conn = store->writer_conn;
	sqlite3_stmt *stmt;
	int rc = conn_plain(conn, STMT_PLAIN_COMMIT, &stmt, err);
	int code;

	if (rc != 0)
		return rc;
	if (FAILPOINT("store.commit.before"))
		return conn_error(conn, SQLITE_FULL, err);
	code = sqlite3_step(stmt);
	sqlite3_reset(stmt);
	if (code == SQLITE_DONE && FAILPOINT("store.commit.after"))
		code = SQLITE_IOERR;
	if (code == SQLITE_DONE)
		return 0;
	conn_error(conn, code, err);
	if ((code & 0xff) == SQLITE_IOERR)
		err_reason(err, "outcome_unknown");
	return ERR_STORE;
}

static int finish(struct sqlite_store *store, struct group *group, struct err *err)
{
	uint64_t next = store->next;
	int rc = add_own_rows(store, group, err);
	int64_t start_ns = clock_boot_ns();

	if (rc == 0)
		rc = commit(store, err);
	store->commit_ns = clock_boot_ns() - start_ns;
	if (rc == 0) {
		store->next_stored = next;
		for (int i = 0; i < STREAM_COUNT; i++)
			store->numbers[i].stored = store->numbers[i].asked;
	}
	metric_add(rc ? METRIC_STORE_FAILURES : METRIC_STORE_GROUPS, 0, 0, 1);
	metric_add(METRIC_STORE_STEPS, 0, 0, group->count);
	metric_observe_ns(METRIC_STORE_COMMIT_SECONDS, 0, store->commit_ns);
	return rc;
}

/* How long a group may take steps: on a slow disk a group that is cut short waits longer for the next commit than it
 * saved. */
static int64_t group_budget_ns(const struct sqlite_store *store)
{
	if (store->commit_ns <= GROUP_NS)
		return GROUP_NS;
	return store->commit_ns < GROUP_MOST_NS ? store->commit_ns : GROUP_MOST_NS;
}

static void fail_all(struct group *group, const struct err *err)
{
	size_t i;

	for (i = 0; i < group->count; i++) {
		group->jobs[i]->rc = ERR_STORE;
		group->jobs[i]->err = *err;
	}
}

/* Remembers the trouble for store_healthy and wakes the callers, whose jobs are gone afterwards. */
static void answer(struct sqlite_store *store, struct group *group, int rc, const struct err *err)
{
	size_t i;

	if (rc != 0)
		fail_all(group, err);
	lock_take(&store->lock);
	if (rc != 0)
		store->trouble = *err;
	else if (group->writes)
		err_clear(&store->trouble);
	lock_drop(&store->lock);
	for (i = 0; i < group->count; i++)
		job_wake(group->jobs[i]);
}

/* A step that broke the transaction took the others of its group with it: each is run again in a transaction of its
 * own. */
static void run_alone(struct sqlite_store *store, struct group *group)
{
	struct group one = {.count = 1};
	struct err err;
	size_t i;
	int rc;

	for (i = 0; i < group->count; i++) {
		one = (struct group){.jobs = {group->jobs[i]}, .count = 1};
		err_clear(&err);
		rc = conn_run_plain(store->writer_conn, STMT_PLAIN_BEGIN_WRITE, &err);
		if (rc == 0 && !run_job(store, &one, one.jobs[0], &err))
			rc = ERR_STORE;
		if (rc == 0)
			rc = finish(store, &one, &err);
		roll_back(store->writer_conn);
		answer(store, &one, rc, &err);
	}
}

/* The next queued step, or NULL. The whole queue is taken at once; what one group leaves is first in the next. */
static struct job *next_job(struct sqlite_store *store)
{
	struct job *job = store->ready;

	if (job == NULL) {
		lock_take(&store->lock);
		job = store->queue;
		store->queue = NULL;
		store->queue_end = &store->queue;
		lock_drop(&store->lock);
	}
	if (job != NULL)
		store->ready = job->next;
	return job;
}

void group_run(struct sqlite_store *store)
{
	struct group group = {.count = 0};
	int64_t end_ns = clock_boot_ns() + group_budget_ns(store);
	struct err err = {0};
	struct job *job;
	int rc = conn_run_plain(store->writer_conn, STMT_PLAIN_BEGIN_WRITE, &err);

	while (group.count < GROUP_STEPS && (job = next_job(store)) != NULL) {
		group.jobs[group.count++] = job;
		if (rc != 0)
			continue;
		if (!run_job(store, &group, job, &err)) {
			roll_back(store->writer_conn);
			run_alone(store, &group);
			return;
		}
		if (clock_boot_ns() >= end_ns)
			break;
	}
	if (rc == 0)
		rc = finish(store, &group, &err);
	roll_back(store->writer_conn);
	answer(store, &group, rc, &err);
}

/* ---- without steps ---- */

/* Nobody wrote for a while: a jump of the wall clock in that time must be known before the next crash. */
void group_judge_clock(struct sqlite_store *store)
{
	int64_t now_ns = clock_boot_ns(), offset = store->mark.offset_ms;
	struct group none = {.mark = true, .writes = true};
	struct err err = {0};
	int rc;

	judge_clock(store, now_ns);
	if (store->mark.offset_ms == offset)
		return;
	rc = conn_run_plain(store->writer_conn, STMT_PLAIN_BEGIN_WRITE, &err);
	if (rc == 0)
		rc = finish(store, &none, &err);
	roll_back(store->writer_conn);
	answer(store, &none, rc, &err);
}

void group_last_mark(struct sqlite_store *store)
{
	struct group none = {.mark = true, .writes = true};
	struct err err = {0};
	int rc = conn_run_plain(store->writer_conn, STMT_PLAIN_BEGIN_WRITE, &err);

	if (rc == 0)
		rc = finish(store, &none, &err);
	roll_back(store->writer_conn);
	if (rc != 0)
		log_warn("the state database was closed without its last clock mark", KS("error", err.msg));
}

/* ---- the beginning ---- */

static int on_wal(void *arg, sqlite3 *db, const char *schema, int pages)
{
	struct sqlite_store *store = arg;

	(void)db;
	(void)schema;
	store->wal_bytes = (size_t)pages * store->page_size;
	return SQLITE_OK;
}

static int load_numbers(struct sqlite_store *store, struct txn *txn, struct err *err)
{
	struct numbers *n;
	int rc = 0;

	for (int i = 0; rc == 0 && i < STREAM_COUNT; i++) {
		n = &store->numbers[i];
		rc = read_count(txn, schema_stream_counter((enum store_stream)i), &n->stored, err);
		n->next = n->stored > 0 ? n->stored : 1;
	}
	return rc;
}

int group_init(struct sqlite_store *store, struct err *err)
{
	struct conn *conn = store->writer_conn;
	struct txn txn;
	int64_t next = 0;
	int rc;

	txn_init(&txn, &sqlite_ops, conn, conn->arena, 0, true);
	rc = read_count(&txn, COUNTER_NEXT, &next, err);
	if (rc == 0)
		rc = load_numbers(store, &txn, err);
	if (rc != 0)
		return rc;
	store->next_stored = (uint64_t)next;
	store->next = next > 0 ? (uint64_t)next : (uint64_t)store->clock.time_ms * 1000;
	store->mark = store->clock;
	store->marked_ns = store->clock.boot_ns;
	sqlite3_wal_hook(conn->db, on_wal, store);
	return 0;
}
