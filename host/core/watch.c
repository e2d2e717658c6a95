/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns who waits for which key. Any thread adds, cancels and notifies; one timer thread fires what is overdue. Waiters are
 * linked in place (a chained hash by key, a pairing heap by deadline), so adding cannot fail. Never calls fire with a lock
 * held, and never touches a waiter after its fire was called.
 */
#include "core/watch.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/secret.h"
#include "core/thread.h"
#include "core/watch_heap.h"

#define CHAINS 4096u /* a power of two; ten thousand waiters are two or three to a chain */

struct watch {
	struct lock lock;
	struct cond timer; /* the earliest deadline changed, or the watch stops */
	pthread_t thread;
	uint64_t seed;
	/* Below: under lock. */
	bool stopping;
	int64_t sleeps_until_ns; /* the timer thread; INT64_MIN = it is awake and looks at the heap before it sleeps */
	struct watch_waiter *deadlines; /* root of the heap */
	struct watch_waiter *chains[CHAINS];
};

/* FNV-1a. The seed only keeps an outsider from choosing keys that share one chain. */
static struct watch_waiter **chain_of(struct watch *watch, const char *key)
{
	uint64_t hash = watch->seed;

	for (; *key; key++)
		hash = (hash ^ (unsigned char)*key) * UINT64_C(0x100000001b3);
	return &watch->chains[(hash ^ (hash >> 32)) & (CHAINS - 1)];
}

static void put_on_locked(struct watch *watch, struct watch_waiter *waiter)
{
	struct watch_waiter **chain = chain_of(watch, waiter->key);

	waiter->prev = NULL;
	waiter->next = *chain;
	if (waiter->next)
		waiter->next->prev = waiter;
	*chain = waiter;
	waiter->added = true;
	watch->deadlines = watch_heap_add(watch->deadlines, waiter);
}

static void take_off_locked(struct watch *watch, struct watch_waiter *waiter)
{
	if (waiter->prev)
		waiter->prev->next = waiter->next;
	else
		*chain_of(watch, waiter->key) = waiter->next;
	if (waiter->next)
		waiter->next->prev = waiter->prev;
	waiter->added = false;
	watch->deadlines = watch_heap_remove(watch->deadlines, waiter);
}

/* The list is linked by next; a waiter may be gone as soon as its fire was called. */
static void fire_all(struct watch_waiter *list, bool timed_out)
{
	while (list) {
		struct watch_waiter *waiter = list;

		list = waiter->next;
		waiter->fire(waiter, timed_out);
	}
}

static struct watch_waiter *take_overdue_locked(struct watch *watch)
{
	int64_t now = clock_boot_ns();
	struct watch_waiter *list = NULL;

	while (watch->deadlines && (watch->stopping || watch->deadlines->deadline_ns <= now)) {
		struct watch_waiter *waiter = watch->deadlines;

		take_off_locked(watch, waiter);
		waiter->next = list;
		list = waiter;
	}
	return list;
}

static void *timer_main(void *arg)
{
	struct watch *watch = arg;

	lock_take(&watch->lock);
	while (!watch->stopping) {
		struct watch_waiter *overdue = take_overdue_locked(watch);

		if (overdue) {
			lock_drop(&watch->lock);
			fire_all(overdue, true);
			lock_take(&watch->lock);
			continue;
		}
		watch->sleeps_until_ns = watch->deadlines ? watch->deadlines->deadline_ns : INT64_MAX;
		cond_wait_until(&watch->timer, &watch->lock, watch->sleeps_until_ns);
		watch->sleeps_until_ns = INT64_MIN;
	}
	lock_drop(&watch->lock);
	return NULL;
}

struct watch *watch_new(void)
{
	struct watch *watch = calloc(1, sizeof(*watch));

	if (!watch)
		return NULL;
	secret_random(&watch->seed, sizeof(watch->seed));
	watch->sleeps_until_ns = INT64_MIN;
	lock_init(&watch->lock, LOCK_WATCH);
	cond_init(&watch->timer);
	if (thread_start(&watch->thread, "watch", timer_main, watch)) {
		cond_fini(&watch->timer);
		lock_fini(&watch->lock);
		free(watch);
		return NULL;
	}
	return watch;
}

void watch_free(struct watch *watch)
{
	if (!watch)
		return;
	lock_take(&watch->lock);
	watch->stopping = true;
	cond_wake_all(&watch->timer);
	lock_drop(&watch->lock);
	thread_join_until(watch->thread, INT64_MAX);

	lock_take(&watch->lock);
	struct watch_waiter *left = take_overdue_locked(watch);
	lock_drop(&watch->lock);
	fire_all(left, true);
	cond_fini(&watch->timer);
	lock_fini(&watch->lock);
	free(watch);
}

void watch_add(struct watch *watch, struct watch_waiter *waiter)
{
	lock_take(&watch->lock);
	put_on_locked(watch, waiter);
	/* A waiter that was taken off leaves the thread asleep until its deadline: one that comes no earlier needs no wake,
	 * so requests that wait one after the other do not wake it each time. */
	if (waiter->deadline_ns < watch->sleeps_until_ns)
		cond_wake_all(&watch->timer);
	lock_drop(&watch->lock);
}

bool watch_cancel(struct watch *watch, struct watch_waiter *waiter)
{
	lock_take(&watch->lock);

	bool added = waiter->added;

	if (added)
		take_off_locked(watch, waiter);
	lock_drop(&watch->lock);
	return added;
}

void watch_notify(struct watch *watch, const char *key)
{
	struct watch_waiter *list = NULL;
	struct watch_waiter *next;

	lock_take(&watch->lock);
	for (struct watch_waiter *waiter = *chain_of(watch, key); waiter; waiter = next) {
		next = waiter->next;
		if (strcmp(waiter->key, key) != 0)
			continue;
		take_off_locked(watch, waiter);
		waiter->next = list;
		list = waiter;
	}
	lock_drop(&watch->lock);
	fire_all(list, false);
}

void watch_notify_all(struct watch *watch)
{
	struct watch_waiter *list = NULL;

	lock_take(&watch->lock);
	for (size_t i = 0; i < CHAINS; i++) {
		while (watch->chains[i]) {
			struct watch_waiter *waiter = watch->chains[i];

			take_off_locked(watch, waiter);
			waiter->next = list;
			list = waiter;
		}
	}
	lock_drop(&watch->lock);
	fire_all(list, false);
}

struct block {
	struct lock lock;
	struct cond cond;
	bool fired, timed_out;
};

static void block_fire(struct watch_waiter *waiter, bool timed_out)
{
	struct block *block = waiter->arg;

	lock_take(&block->lock);
	block->fired = true;
	block->timed_out = timed_out;
	cond_wake_one(&block->cond);
	lock_drop(&block->lock);
}

static bool block_wait(struct block *block)
{
	lock_take(&block->lock);
	while (!block->fired)
		cond_wait_until(&block->cond, &block->lock, INT64_MAX);

	bool timed_out = block->timed_out;

	block->fired = false;
	lock_drop(&block->lock);
	return timed_out;
}

bool watch_block(struct watch *watch, const char *key, bool (*check)(void *arg), void *arg, int64_t deadline_ns)
{
	struct block block = {.fired = false};
	bool timed_out = false;
	bool done = false;

	lock_init(&block.lock, LOCK_LEAF);
	cond_init(&block.cond);
	while (!done && !timed_out) {
		struct watch_waiter waiter = {
			.key = key, .fire = block_fire, .arg = &block, .deadline_ns = deadline_ns};

		watch_add(watch, &waiter);
		done = check(arg);
		if (!done)
			timed_out = block_wait(&block);
		else if (!watch_cancel(watch, &waiter))
			block_wait(&block); /* fire is on its way and uses this stack */
	}
	if (timed_out)
		done = check(arg); /* the last notification and the deadline may have crossed */
	cond_fini(&block.cond);
	lock_fini(&block.lock);
	return done;
}
