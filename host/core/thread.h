/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads, locks and worker pools. Threads are named, have all signals but those of faults blocked, and 256 KiB of
 * stack. Locks know their class; taking one whose class is not above every class this thread already holds aborts.
 */
#ifndef CORE_THREAD_H
#define CORE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define THREAD_STACK (256u * 1024u)

/* 0 or ERR_NOMEM. The name is cut to 15 bytes. */
int thread_start(pthread_t *ret, const char *name, void *(*main)(void *), void *arg);
/* Joins, waiting at most until deadline_ns; false when the thread is still running (it is then detached). */
bool thread_join_until(pthread_t thread, int64_t deadline_ns);

/* The acquisition order, outermost first. A thread may take a lock only of a class after those it holds. */
enum lock_class {
	LOCK_SERVER,
	LOCK_RUNNER,
	LOCK_SESSION,
	LOCK_TARGET,
	LOCK_CALL,
	LOCK_SPOOL,
	LOCK_STORE,
	LOCK_BLOB,
	LOCK_WATCH,
	LOCK_POOL,
	LOCK_STREAM,
	LOCK_LEAF,
};

struct lock {
	pthread_mutex_t mutex;
	pthread_t owner;
	bool held;
	enum lock_class class;
};
void lock_init(struct lock *lock, enum lock_class class);
void lock_fini(struct lock *lock);
void lock_take(struct lock *lock);
void lock_drop(struct lock *lock);
void lock_assert(struct lock *lock); /* held by this thread */

struct cond {
	pthread_cond_t cond;
};
void cond_init(struct cond *cond);
void cond_fini(struct cond *cond);
void cond_wake_all(struct cond *cond);
void cond_wake_one(struct cond *cond);
/* Waits until woken or deadline_ns (clock_boot_ns; INT64_MAX = for ever). False on timeout. */
bool cond_wait_until(struct cond *cond, struct lock *lock, int64_t deadline_ns);

/* Gives back the memory that deeper calls have used of this thread's stack; before a wait that may be long. */
void thread_shed_stack(void);
/* So many threads may wait at once; told before they are there, it only makes their wakes quicker. */
void thread_expect(unsigned count);

/* A pool of workers that grows on demand and shrinks when idle for 10 s. */
struct pool;
struct pool *pool_new(const char *name, unsigned max_threads, unsigned max_queued);
/* Queues fn(arg). 0, or ERR_QUEUE_FULL when max_queued jobs wait, or ERR_SHUTTING_DOWN. A job never runs in the caller. */
int pool_submit(struct pool *pool, void (*fn)(void *), void *arg);
unsigned pool_busy(struct pool *pool);   /* threads running a job now */
unsigned pool_queued(struct pool *pool);
unsigned pool_threads(struct pool *pool); /* working or idle */
void pool_set_idle_ms(struct pool *pool, int64_t ms); /* instead of 10 s, for threads that begin to wait from now on */
/* A job that runs will not come back soon: it does not count any more, and another thread takes its place. Any thread.
 */
void pool_lend(struct pool *pool);
void pool_take_back(struct pool *pool); /* the job did come back after all, and ends now; called by it */
/* Refuses new jobs, runs what is queued, joins; false when something still runs at deadline_ns. Those lent are not
 * waited for. */
bool pool_stop(struct pool *pool, int64_t deadline_ns);
void pool_free(struct pool *pool);

#endif
