/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "Tell me when the thing named key may have changed." In-process; a key is "task:<ws>/<task>", "exec:<id>" or "out:<id>".
 * The order that loses no wake-up: add, look at the thing, then wait.
 */
#ifndef CORE_WATCH_H
#define CORE_WATCH_H

#include <stdbool.h>
#include <stdint.h>

struct watch;

/* Owned by whoever waits; zero it, or use watch_block. */
struct watch_waiter {
	struct watch_waiter *next, *prev;
	const char *key; /* borrowed while added */
	/* Called once, from the notifying or the timer thread, without locks held, after the waiter has been taken off. Must not
	 * block. timed_out tells the reason. */
	void (*fire)(struct watch_waiter *waiter, bool timed_out);
	void *arg;
	int64_t deadline_ns; /* INT64_MAX = never */
	bool added;
	/* Private to watch.c: place among the deadlines. */
	struct watch_waiter *child, *sibling, *before;
};

struct watch *watch_new(void); /* starts its timer thread */
void watch_free(struct watch *watch); /* fires whatever is left as timed out */
void watch_add(struct watch *watch, struct watch_waiter *waiter);
/* True: taken off, fire will not be called. False: it was called, or is being called right now. */
bool watch_cancel(struct watch *watch, struct watch_waiter *waiter);
void watch_notify(struct watch *watch, const char *key);
/* As if every key that somebody waits for had been notified. */
void watch_notify_all(struct watch *watch);

/* Blocks until check(arg) is true (called after each notification, and first); false when deadline_ns came first. */
bool watch_block(struct watch *watch, const char *key, bool (*check)(void *arg), void *arg, int64_t deadline_ns);

#endif
