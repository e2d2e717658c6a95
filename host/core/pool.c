/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns worker pools: a ring of jobs and threads that come when jobs wait and leave after ten idle seconds. Any thread
 * submits; workers run jobs with no lock held. Never runs a job in the submitting thread and never drops an accepted one.
 */
#include "core/thread.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/clock.h"
#include "core/err.h"
#include "core/log.h"

#define MAGIC 0x706f6f6cu
#define IDLE_MS 10000

struct job {
	void (*fn)(void *);
	void *arg;
};

/* A worker that waits, on its own stack. */
struct idle {
	struct idle *next, *prev;
	struct cond cond;
	bool woken;
};

struct pool {
	unsigned magic;
	char name[16];
	unsigned max_threads;
	struct lock lock;
	struct cond left; /* a worker left */
	/* Below: under lock. */
	struct idle *idle; /* the one that began to wait last is woken first, so that the others grow old and leave */
	unsigned threads, busy;
	unsigned lent; /* of the busy ones: their jobs do not come back soon, and others have their place */
	int64_t idle_ms;
	unsigned first, queued; /* of the ring */
	unsigned ring_size;
	unsigned started; /* ever; numbers the names */
	bool stopping;
	bool given_up; /* pool_stop came back without having stopped it */
	bool has_gone;
	pthread_t gone; /* the worker that left last; joined by the next one to leave, or by pool_stop */
	struct job ring[];
};

struct pool *pool_new(const char *name, unsigned max_threads, unsigned max_queued)
{
	/* A job that a thread is about to fetch is in the ring too, but does not count as waiting. */
	size_t ring_size = (size_t)max_threads + max_queued;
	struct pool *pool;

	assert(max_threads > 0 && ring_size <= UINT32_MAX);
	pool = calloc(1, sizeof(*pool) + ring_size * sizeof(struct job));
	if (!pool)
		return NULL;
	thread_expect(max_threads);
	pool->magic = MAGIC;
	snprintf(pool->name, sizeof(pool->name), "%s", name);
	pool->max_threads = max_threads;
	pool->idle_ms = IDLE_MS;
	pool->ring_size = (unsigned)ring_size;
	lock_init(&pool->lock, LOCK_POOL);
	cond_init(&pool->left);
	return pool;
}

static void idle_add_locked(struct pool *pool, struct idle *idle)
{
	cond_init(&idle->cond);
	idle->woken = false;
	idle->prev = NULL;
	idle->next = pool->idle;
	if (idle->next)
		idle->next->prev = idle;
	pool->idle = idle;
}

static void idle_take_off_locked(struct pool *pool, struct idle *idle)
{
	if (idle->prev)
		idle->prev->next = idle->next;
	else
		pool->idle = idle->next;
	if (idle->next)
		idle->next->prev = idle->prev;
	idle->woken = true;
}

static void idle_wake_locked(struct pool *pool)
{
	struct idle *idle = pool->idle;

	idle_take_off_locked(pool, idle);
	cond_wake_one(&idle->cond);
}

/* False when the worker should leave: it was idle for long, or one that was lent came back and there are too many. */
static bool wait_for_job_locked(struct pool *pool)
{
	int64_t deadline = clock_after_ms(pool->idle_ms);
	bool in_time = true;

	if (pool->threads - pool->lent > pool->max_threads)
		return false;
	while (pool->queued == 0 && !pool->stopping && in_time) {
		struct idle idle;

		idle_add_locked(pool, &idle);
		while (!idle.woken && in_time)
			in_time = cond_wait_until(&idle.cond, &pool->lock, deadline);
		if (!idle.woken)
			idle_take_off_locked(pool, &idle);
		cond_fini(&idle.cond);
	}
	return pool->queued > 0;
}

static void run_next_locked(struct pool *pool)
{
	struct job job = pool->ring[pool->first];

	pool->first = (pool->first + 1) % pool->ring_size;
	pool->queued--;
	pool->busy++;
	lock_drop(&pool->lock);
	job.fn(job.arg);
	log_set_request(NULL);
	lock_take(&pool->lock);
	pool->busy--;
}

/* The pool may be freed as soon as the lock is dropped here. */
static void leave_locked(struct pool *pool)
{
	pthread_t before = pool->gone;
	bool join = pool->has_gone;

	pool->gone = pthread_self();
	pool->has_gone = true;
	pool->threads--;
	cond_wake_all(&pool->left);
	lock_drop(&pool->lock);
	if (join)
		pthread_join(before, NULL);
}

static void *worker_main(void *arg)
{
	struct pool *pool = arg;

	assert(pool->magic == MAGIC);
	lock_take(&pool->lock);
	while (wait_for_job_locked(pool))
		run_next_locked(pool);
	leave_locked(pool);
	return NULL;
}

/* 0 when a thread will take the job just queued, sooner or later. */
static int find_worker_locked(struct pool *pool)
{
	char name[32];
	pthread_t thread;

	if (pool->idle) {
		idle_wake_locked(pool);
		return 0;
	}
	/* Workers that begin, or are between two jobs, look at the queue before they wait: they count as free. */
	if (pool->threads - pool->busy >= pool->queued || pool->threads - pool->lent >= pool->max_threads)
		return 0;
	snprintf(name, sizeof(name), "%.10s-%u", pool->name, pool->started % 10000);
	if (thread_start(&thread, name, worker_main, pool))
		return pool->threads ? 0 : ERR_NOMEM;
	pool->threads++;
	pool->started++;
	return 0;
}

int pool_submit(struct pool *pool, void (*fn)(void *), void *arg)
{
	int r = 0;

	assert(pool->magic == MAGIC);
	lock_take(&pool->lock);
	if (pool->stopping) {
		r = ERR_SHUTTING_DOWN;
	} else if ((size_t)pool->busy - pool->lent + pool->queued >= pool->ring_size) {
		r = ERR_QUEUE_FULL;
	} else {
		pool->ring[(pool->first + pool->queued) % pool->ring_size] = (struct job){fn, arg};
		pool->queued++;
		r = find_worker_locked(pool);
		if (r)
			pool->queued--;
	}
	lock_drop(&pool->lock);
	return r;
}

void pool_lend(struct pool *pool)
{
	lock_take(&pool->lock);
	pool->lent++;
	assert(pool->lent <= pool->busy);
	if (pool->queued)
		(void)find_worker_locked(pool); /* what waits may have waited for this place */
	cond_wake_all(&pool->left);
	lock_drop(&pool->lock);
}

void pool_take_back(struct pool *pool)
{
	lock_take(&pool->lock);
	assert(pool->lent > 0);
	pool->lent--;
	lock_drop(&pool->lock);
}

unsigned pool_busy(struct pool *pool)
{
	lock_take(&pool->lock);

	unsigned busy = pool->busy;

	lock_drop(&pool->lock);
	return busy;
}

unsigned pool_queued(struct pool *pool)
{
	lock_take(&pool->lock);

	unsigned queued = pool->queued;

	lock_drop(&pool->lock);
	return queued;
}

unsigned pool_threads(struct pool *pool)
{
	lock_take(&pool->lock);

	unsigned threads = pool->threads;

	lock_drop(&pool->lock);
	return threads;
}

void pool_set_idle_ms(struct pool *pool, int64_t ms)
{
	lock_take(&pool->lock);
	pool->idle_ms = ms;
	lock_drop(&pool->lock);
}

bool pool_stop(struct pool *pool, int64_t deadline_ns)
{
	bool in_time = true;

	lock_take(&pool->lock);
	pool->stopping = true;
	while (pool->idle)
		idle_wake_locked(pool);
	while (pool->threads > pool->lent && in_time)
		in_time = cond_wait_until(&pool->left, &pool->lock, deadline_ns);

	bool stopped = pool->threads == 0;

	pool->given_up = !stopped;

	bool join = stopped && pool->has_gone;
	pthread_t gone = pool->gone;

	if (join)
		pool->has_gone = false;
	lock_drop(&pool->lock);
	if (join)
		pthread_join(gone, NULL);
	return stopped;
}

void pool_free(struct pool *pool)
{
	if (!pool)
		return;
	assert(pool->magic == MAGIC);
	/* A worker that is stuck still uses the pool: its memory stays, and the process is about to end. */
	if (!pool_stop(pool, pool->given_up ? 0 : INT64_MAX)) {
		log_warn("pool still has running jobs, its memory is kept", KS("pool", pool->name));
		return;
	}
	cond_fini(&pool->left);
	lock_fini(&pool->lock);
	pool->magic = 0;
	free(pool);
}
