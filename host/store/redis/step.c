/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs steps optimistically: the step reads, decides and buffers; one script checks what it read and applies what it
 * wrote; when something had changed meanwhile the step runs again. Entered by the callers' threads. Also a step that
 * only read, or failed, is believed only when what it read still stood: it may have seen rows of different moments.
 */
#include <stdlib.h>

#include "core/failpoint.h"
#include "obs/metrics.h"
#include "store/redis/redis.h"

#define CONFLICT_MS 15000 /* after that the rows are too busy */
#define LANE_AFTER 3

/* Those that keep losing go one by one: of all that run at once at least one always wins, and then another one. */
static void lane_enter(struct redis_store *store)
{
	lock_take(&store->lane_lock);
	while (store->lane_taken)
		cond_wait_until(&store->lane_free, &store->lane_lock, INT64_MAX);
	store->lane_taken = true;
	lock_drop(&store->lane_lock);
}

static void lane_leave(struct redis_store *store)
{
	lock_take(&store->lane_lock);
	store->lane_taken = false;
	cond_wake_one(&store->lane_free);
	lock_drop(&store->lane_lock);
}

struct job {
	struct rconn *conn;
	store_step step;
	void *arg;
	bool read_only;
};

/* What finds its change made may have found its own former try, which is on too few replicas yet. */
static bool must_wait(const struct job *job)
{
	const struct redis_store *store = job->conn->store;

	return !job->read_only && atomic_load(&store->unacked) != atomic_load(&store->made_up);
}

static int run_once(struct job *job, struct err *err)
{
	struct rconn *conn = job->conn;
	struct err apply_err = {0};
	struct txn txn;
	bool writes;
	int rc, applied;

	conn->run->cached = conn->run->fetched = 0;
	conn->run->seq_count = 0;
	err_clear(err);
	txn_init(&txn, &redis_ops, conn, conn->arena, guard_now(conn->store), job->read_only);
	rc = txn_end(&txn, job->step(&txn, job->arg, err), err);
	metric_add(METRIC_STORE_STEPS, 0, 0, 1);
	writes = rc == 0 && (txn_has_writes(&txn) || must_wait(job));
	if (txn.failed.code != 0 || (!writes && conn->run->cached == 0 && conn->run->fetched <= 1))
		return rc;
	if (writes && FAILPOINT("store.commit.before")) {
		err_set(err, ERR_STORE, "the state store: failed as asked");
		return ERR_STORE;
	}
	applied = apply_step(conn, &txn, writes, &apply_err);
	if (applied == 0 && writes && FAILPOINT("store.commit.after")) {
		err_set(err, ERR_STORE, "the state store: failed as asked");
		err_reason(err, "outcome_unknown");
		return ERR_STORE;
	}
	if (applied < 0)
		*err = apply_err;
	return applied != 0 ? applied : rc;
}

static int run_again(struct job *job, struct err *err)
{
	struct redis_store *store = job->conn->store;
	int64_t until_ns = clock_after_ms(CONFLICT_MS);
	unsigned round = 0;
	int rc;

	while ((rc = run_once(job, err)) == APPLY_STALE) {
		metric_add(METRIC_STORE_CONFLICTS, 0, 0, 1);
		if (clock_boot_ns() >= until_ns) {
			rc = err_set(err, ERR_STORE, "the state store: the rows are changed too often by others");
			err_reason(err, "busy");
			break;
		}
		if (++round == LANE_AFTER)
			lane_enter(store);
		if (round > 1)
			conns_pause(job->conn, round);
	}
	if (round >= LANE_AFTER)
		lane_leave(store);
	return rc;
}

static int run(struct redis_store *store, store_step step, void *arg, bool read_only, struct err *err)
{
	struct err ignored = {0};
	struct redis_run reads = {0};
	struct job job = {conns_take(store), step, arg, read_only};
	int rc;

	err = err != NULL ? err : &ignored;
	if (job.conn == NULL)
		return err_set(err, ERR_NOMEM, "no memory to talk to Redis");
	job.conn->run = &reads;
	rc = run_again(&job, err);
	job.conn->run = NULL;
	guard_mark(job.conn);
	conns_give(job.conn);
	free(reads.seqs);
	return rc;
}

int step_update(struct store *base, store_step step, void *arg, struct err *err)
{
	return run(redis_of(base), step, arg, false, err);
}

int step_view(struct store *base, store_step step, void *arg, struct err *err)
{
	return run(redis_of(base), step, arg, true, err);
}
