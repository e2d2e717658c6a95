/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writer: a role that one thread has at a time; whoever has it runs groups of queued steps (group.c). Callers enter
 * writer_update. One that finds the role free takes it for the group of its own step, so that a lone step costs no
 * hand-over to another thread; what is queued meanwhile is for the writer's thread. The role is never kept for others'
 * steps: its caller has an answer to give.
 */
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/clock.h"
#include "store/sqlite/sqlite.h"

#define IDLE_JUDGE_MS 5000

/* ---- the role ---- */

/* Under the lock. While the checkpointer asks for a pause nobody takes it. */
static bool role_is_free(const struct sqlite_store *store)
{
	return !store->writing && !store->pause && !store->stopping;
}

/* What was queued meanwhile is for the thread. */
static void leave_role(struct sqlite_store *store)
{
	checkpoint_grown(store);
	lock_take(&store->lock);
	store->writing = false;
	if (store->pause)
		cond_wake_all(&store->wake_pauser);
	if (store->writer_waits && (store->queue != NULL || store->ready != NULL || store->stopping)) {
		store->writer_waits = false;
		cond_wake_one(&store->wake_writer);
	}
	lock_drop(&store->lock);
}

/* Steps that others queued before are first; a full group may end before the own step's turn. */
static void write_own(struct sqlite_store *store, struct job *job)
{
	while (atomic_load_explicit(&job->state, memory_order_relaxed) != JOB_DONE)
		group_run(store);
	leave_role(store);
}

/* ---- callers ---- */

static void job_wait(struct job *job)
{
	unsigned seen = JOB_OPEN;

	if (!atomic_compare_exchange_strong(&job->state, &seen, JOB_AWAITED))
		return; /* done already */
	while (atomic_load_explicit(&job->state, memory_order_acquire) != JOB_DONE)
		syscall(SYS_futex, &job->state, FUTEX_WAIT_PRIVATE, JOB_AWAITED, NULL, NULL, 0);
}

/* The waiter may be gone with its stack as soon as done is set; a wake-up of a dead address does nothing. */
void job_wake(struct job *job)
{
	if (atomic_exchange_explicit(&job->state, JOB_DONE, memory_order_acq_rel) == JOB_AWAITED)
		syscall(SYS_futex, &job->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static int submit(struct sqlite_store *store, struct job *job, struct err *err)
{
	bool writes;

	lock_take(&store->lock);
	*store->queue_end = job;
	store->queue_end = &job->next;
	writes = role_is_free(store);
	if (writes)
		store->writing = true;
	lock_drop(&store->lock);
	if (writes)
		write_own(store, job);
	job_wait(job);
	if (job->rc != 0 && err != NULL) {
		*err = job->err;
		err->code = job->rc;
	}
	return job->rc;
}

int writer_update(struct store *base, store_step step, void *arg, struct err *err)
{
	struct job job = {.step = step, .arg = arg};

	return submit(sqlite_of(base), &job, err);
}

static int no_step(struct txn *txn, void *arg, struct err *err)
{
	(void)txn;
	(void)arg;
	(void)err;
	return 0;
}

/* A store in trouble is tried again here: without that nobody would learn that it works again. */
bool writer_healthy(struct store *base, struct err *err)
{
	struct sqlite_store *store = sqlite_of(base);
	struct job probe = {.step = no_step, .mark = true};
	bool trouble;

	lock_take(&store->lock);
	trouble = store->trouble.code != 0;
	lock_drop(&store->lock);
	return !trouble || submit(store, &probe, err) == 0;
}

/* ---- the thread ---- */

enum wanted { WANT_GROUP, WANT_JUDGE, WANT_STOP };

/* With the role free: only then is what lies ready to be looked at. */
static enum wanted wanted(const struct sqlite_store *store)
{
	if (store->queue != NULL || store->ready != NULL)
		return WANT_GROUP;
	return store->stopping ? WANT_STOP : WANT_JUDGE;
}

/* Waits for work that no caller does, and takes the role; stands still as long as the checkpointer asks. */
static enum wanted take_role(struct sqlite_store *store)
{
	enum wanted ret;
	bool in_time = true;

	lock_take(&store->lock);
	for (;;) {
		if (!store->writing && !store->pause) {
			ret = wanted(store);
			if (ret != WANT_JUDGE || !in_time)
				break;
		}
		store->writer_waits = true;
		in_time = cond_wait_until(&store->wake_writer, &store->lock, clock_after_ms(IDLE_JUDGE_MS));
		store->writer_waits = false;
	}
	store->writing = true;
	lock_drop(&store->lock);
	return ret;
}

static void *writer_main(void *arg)
{
	struct sqlite_store *store = arg;
	enum wanted what;

	while ((what = take_role(store)) != WANT_STOP) {
		if (what == WANT_GROUP)
			group_run(store);
		else
			group_judge_clock(store);
		leave_role(store);
	}
	group_last_mark(store);
	return NULL;
}

int writer_start(struct sqlite_store *store, struct err *err)
{
	int rc = group_init(store, err);

	if (rc != 0)
		return rc;
	if (thread_start(&store->writer, "store-writer", writer_main, store) != 0)
		return err_set(err, ERR_NOMEM, "cannot start the state database's writer");
	store->writer_runs = true;
	return 0;
}

void writer_stop(struct sqlite_store *store)
{
	if (!store->writer_runs)
		return;
	lock_take(&store->lock);
	store->stopping = true;
	store->pause = false;
	cond_wake_all(&store->wake_writer);
	lock_drop(&store->lock);
	pthread_join(store->writer, NULL);
}

void writer_pause(struct sqlite_store *store)
{
	lock_take(&store->lock);
	store->pause = true;
	while (store->writing)
		cond_wait_until(&store->wake_pauser, &store->lock, INT64_MAX);
	lock_drop(&store->lock);
}

void writer_resume(struct sqlite_store *store)
{
	lock_take(&store->lock);
	store->pause = false;
	cond_wake_all(&store->wake_writer);
	lock_drop(&store->lock);
}
