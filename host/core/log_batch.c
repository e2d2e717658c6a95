/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the lines that are kept for a moment. Any thread adds, the thread "log" writes them. Never keeps more than one of its
 * two texts, never keeps a line longer than HOLD_MS while standard error takes what is written, and never loses one but to
 * a SIGKILL: when there is no room the caller writes by itself, and waits for standard error as it would without this.
 */
#include "core/log_batch.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/thread.h"

#define TEXT_BYTES ((size_t)64 * 1024) /* some 250 lines */
#define HOLD_MS 2

/* Atomic only for log_batch_rescue: changed under the lock. */
static struct {
	struct lock lock;
	struct cond added;
	pthread_t writer;
	atomic_bool open;
	bool waiting;
	char text[2][TEXT_BYTES];
	atomic_uint filled; /* index of the one that lines are added to */
	atomic_size_t len;  /* of that one */
} batch;

bool log_batch_add(const char *line, size_t len)
{
	bool kept;

	if (!atomic_load(&batch.open))
		return false;
	lock_take(&batch.lock);
	kept = atomic_load(&batch.open) && len <= TEXT_BYTES - batch.len;
	if (kept) {
		memcpy(batch.text[batch.filled] + batch.len, line, len);
		batch.len += len;
	}
	if (kept && batch.waiting) {
		batch.waiting = false;
		cond_wake_one(&batch.added);
	}
	lock_drop(&batch.lock);
	return kept;
}

static void wait_for_lines_locked(void)
{
	static const struct timespec hold = {.tv_nsec = HOLD_MS * CLOCK_NS_PER_MS};

	while (!batch.len && batch.open) {
		batch.waiting = true;
		cond_wait_until(&batch.added, &batch.lock, INT64_MAX);
	}
	lock_drop(&batch.lock);
	nanosleep(&hold, NULL); /* more will come */
	lock_take(&batch.lock);
}

static void write_lines_locked(void)
{
	const char *text = batch.text[batch.filled];
	size_t len = batch.len;

	batch.filled ^= 1;
	batch.len = 0;
	lock_drop(&batch.lock);
	log_write(text, len);
	lock_take(&batch.lock);
}

static void *write_until_stop(void *arg)
{
	lock_take(&batch.lock);
	while (batch.open || batch.len) {
		wait_for_lines_locked();
		write_lines_locked();
	}
	lock_drop(&batch.lock);
	return arg;
}

int log_batch_start(struct err *err)
{
	lock_init(&batch.lock, LOCK_LEAF);
	cond_init(&batch.added);
	batch.open = true;
	if (thread_start(&batch.writer, "log", write_until_stop, NULL) == 0)
		return 0;
	batch.open = false;
	return err_set(err, ERR_NOMEM, "the log's thread cannot be started");
}

void log_batch_stop(void)
{
	if (!batch.open)
		return;
	lock_take(&batch.lock);
	batch.open = false;
	cond_wake_one(&batch.added);
	lock_drop(&batch.lock);
	pthread_join(batch.writer, NULL); /* the lock stays: a thread that was left behind may come late */
}

void log_batch_rescue(void)
{
	log_write(batch.text[batch.filled], batch.len);
}
