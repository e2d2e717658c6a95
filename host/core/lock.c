/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns locks with classes and the conditions that go with them. Any thread. Each thread keeps the list of what it holds, so
 * the order is checked without touching shared memory. Misuse is a defect and ends the process: a daemon that deadlocks
 * later is worse.
 */
#include "core/thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/clock.h"
#include "core/log.h"

#define HELD_MAX 32
/* A wait is cut into slices of this length: the clock under it stands still through a suspend, a deadline does not. */
#define SLICE_NS (30 * CLOCK_NS_PER_S)

static _Thread_local struct lock *held[HELD_MAX];
static _Thread_local size_t held_count;

static const char *const class_words[] = {
	[LOCK_SERVER] = "server", [LOCK_RUNNER] = "runner", [LOCK_SESSION] = "session", [LOCK_TARGET] = "target",
	[LOCK_CALL] = "call",	  [LOCK_SPOOL] = "spool",   [LOCK_STORE] = "store",	[LOCK_BLOB] = "blob",
	[LOCK_WATCH] = "watch",	  [LOCK_POOL] = "pool",	    [LOCK_STREAM] = "stream",	[LOCK_LEAF] = "leaf"};

static void __attribute__((noreturn)) misuse(const char *what, const struct lock *lock, const struct lock *other)
{
	log_error(what, KS("lock", class_words[lock->class]), KS("held", other ? class_words[other->class] : ""));
	abort();
}

static void must(int r, const char *what, const struct lock *lock)
{
	if (r)
		misuse(what, lock, NULL);
}

void lock_init(struct lock *lock, enum lock_class class)
{
	pthread_mutexattr_t attr;

	memset(lock, 0, sizeof(*lock));
	lock->class = class;
	must(pthread_mutexattr_init(&attr), "lock attributes failed", lock);
	/* Error checking, so that a second take by the owner is seen in every build. */
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
	must(pthread_mutex_init(&lock->mutex, &attr), "lock initialisation failed", lock);
	pthread_mutexattr_destroy(&attr);
}

void lock_fini(struct lock *lock)
{
	must(pthread_mutex_destroy(&lock->mutex), "lock is destroyed while held", lock);
}

static void check_order(const struct lock *lock)
{
	for (size_t i = 0; i < held_count; i++) {
		if (held[i]->class >= lock->class)
			misuse("locks are taken in the wrong order", lock, held[i]);
	}
}

static void own(struct lock *lock)
{
	lock->owner = pthread_self();
	lock->held = true;
}

void lock_take(struct lock *lock)
{
	check_order(lock);
	must(pthread_mutex_lock(&lock->mutex), "lock is taken twice by one thread", lock);
	if (held_count == HELD_MAX)
		misuse("too many locks are held", lock, held[0]);
	held[held_count++] = lock;
	own(lock);
}

/* Index in held, or held_count. From the end: locks are mostly dropped in reverse. */
static size_t held_index(const struct lock *lock)
{
	for (size_t i = held_count; i > 0; i--) {
		if (held[i - 1] == lock)
			return i - 1;
	}
	return held_count;
}

void lock_drop(struct lock *lock)
{
	size_t i = held_index(lock);

	if (i == held_count)
		misuse("lock is dropped by a thread that does not hold it", lock, NULL);
	memmove(&held[i], &held[i + 1], (held_count - i - 1) * sizeof(held[0]));
	held_count--;
	lock->held = false;
	must(pthread_mutex_unlock(&lock->mutex), "lock cannot be dropped", lock);
}

void lock_assert(struct lock *lock)
{
	if (held_index(lock) == held_count)
		misuse("lock is not held by this thread", lock, NULL);
}

void cond_init(struct cond *cond)
{
	pthread_condattr_t attr;

	if (pthread_condattr_init(&attr) || pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) ||
	    pthread_cond_init(&cond->cond, &attr))
		abort();
	pthread_condattr_destroy(&attr);
}

void cond_fini(struct cond *cond)
{
	pthread_cond_destroy(&cond->cond);
}

void cond_wake_all(struct cond *cond)
{
	pthread_cond_broadcast(&cond->cond);
}

void cond_wake_one(struct cond *cond)
{
	pthread_cond_signal(&cond->cond);
}

static void monotonic_after(int64_t ns, struct timespec *ret)
{
	clock_gettime(CLOCK_MONOTONIC, ret);
	ns += ret->tv_nsec;
	ret->tv_sec += (time_t)(ns / CLOCK_NS_PER_S);
	ret->tv_nsec = (long)(ns % CLOCK_NS_PER_S);
}

bool cond_wait_until(struct cond *cond, struct lock *lock, int64_t deadline_ns)
{
	struct timespec ts;
	int r;

	lock_assert(lock);
	if (deadline_ns == INT64_MAX) {
		lock->held = false;
		r = pthread_cond_wait(&cond->cond, &lock->mutex);
	} else {
		int64_t left = deadline_ns - clock_boot_ns();

		if (left <= 0)
			return false;
		monotonic_after(left < SLICE_NS ? left : SLICE_NS, &ts);
		lock->held = false;
		r = pthread_cond_timedwait(&cond->cond, &lock->mutex, &ts);
	}
	own(lock);
	must(r && r != ETIMEDOUT, "wait failed", lock);
	/* The end of a slice counts as a wake-up without cause; going on waiting here could miss a real one. */
	return r == 0 || clock_boot_ns() < deadline_ns;
}
