/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends a process whose stop does not end: some part waits for what cannot be interrupted, as a network file system that
 * does not answer. Begun and ended by the main thread; a thread of its own looks at the clock. Must free nothing: to the
 * next start it was a crash.
 */
#include <stdio.h>
#include <unistd.h>

#include "core/log.h"
#include "core/log_batch.h"
#include "core/thread.h"
#include "daemon.h"

static struct {
	struct lock lock;
	struct cond changed;
	pthread_t thread;
	int64_t by_ns;
	const char *part; /* NULL: not under way */
} overdue;

static void *wait_for_end(void *arg)
{
	const char *part;

	(void)arg;
	lock_take(&overdue.lock);
	while (overdue.part && cond_wait_until(&overdue.changed, &overdue.lock, overdue.by_ns))
		;
	part = overdue.part;
	lock_drop(&overdue.lock);
	if (!part)
		return NULL;
	log_error("the stop does not end, and is left as it is", KS("part", part));
	log_batch_rescue();
	fprintf(stderr, "berthd: stop: the part \"%s\" does not come back\n", part);
	_exit(1);
}

void overdue_begin(int64_t by_ns)
{
	lock_init(&overdue.lock, LOCK_LEAF);
	cond_init(&overdue.changed);
	overdue.by_ns = by_ns;
	overdue.part = "";
	if (thread_start(&overdue.thread, "overdue", wait_for_end, NULL) != 0)
		overdue.part = NULL; /* then it takes as long as it takes */
}

void overdue_at(const char *part)
{
	if (!overdue.part)
		return;
	lock_take(&overdue.lock);
	overdue.part = part;
	lock_drop(&overdue.lock);
}

void overdue_end(void)
{
	if (!overdue.part)
		return;
	lock_take(&overdue.lock);
	overdue.part = NULL;
	cond_wake_all(&overdue.changed);
	lock_drop(&overdue.lock);
	pthread_join(overdue.thread, NULL);
	cond_fini(&overdue.changed);
	lock_fini(&overdue.lock);
}
