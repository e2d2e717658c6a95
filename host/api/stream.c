/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the suspension of one connection and its window of bytes. Entered from the connection's loop thread, from one
 * worker and from the watcher; the stream outlives the connection, so a worker never touches a freed one. Must never
 * block a loop thread, and never resume a connection twice or after its end.
 */
#include "api/stream.h"

#include <assert.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>

#include "core/err.h"
#include "core/limits.h"

/* Whole pages: where the target of a large memcpy lies 16 bytes behind its source within a page, AMD's processors copy 2 GB/s instead
 * of 30. A provider's buffer that is aligned, too, is never there. */
#define RING_ALIGN 4096

/* Room past the window for the piece that filled it: libmicrohttpd hands out at most its buffer, 64 KiB. */
#define RING_SIZE (LIMIT_STREAM_WINDOW + 64 * LIMIT_KIB)

void stream_init(struct stream *s, struct hangup *hangup)
{
	*s = (struct stream){.hangup = hangup};
	lock_init(&s->lock, LOCK_STREAM);
	cond_init(&s->cond);
}

void stream_fini(struct stream *s)
{
	assert(!s->suspended);
	free(s->ring);
	cond_fini(&s->cond);
	lock_fini(&s->lock);
}

static void suspend_locked(struct stream *s)
{
	assert(s->conn && !s->suspended);
	s->suspended = true;
	if (s->guard)
		atomic_store(&s->guard->paused, true);
	MHD_suspend_connection(s->conn);
	if (s->hangup && s->entry && !s->watch_always)
		hangup_add(s->hangup, s->entry);
}

static void resume_locked(struct stream *s)
{
	if (!s->suspended)
		return;
	s->suspended = false;
	if (s->hangup && s->entry && !s->watch_always)
		hangup_remove(s->hangup, s->entry);
	if (s->guard)
		atomic_store(&s->guard->paused, false);
	MHD_resume_connection(s->conn);
}

static size_t ring_put(struct stream *s, const char *ptr, size_t len)
{
	size_t tail = (s->head + s->used) % RING_SIZE;
	size_t room = RING_SIZE - s->used;

	if (len > room)
		len = room;

	size_t first = len < RING_SIZE - tail ? len : RING_SIZE - tail;

	memcpy(s->ring + tail, ptr, first);
	memcpy(s->ring, ptr + first, len - first);
	s->used += len;
	return len;
}

static size_t ring_get(struct stream *s, char *buf, size_t cap)
{
	size_t len = cap < s->used ? cap : s->used;
	size_t first = len < RING_SIZE - s->head ? len : RING_SIZE - s->head;

	memcpy(buf, s->ring + s->head, first);
	memcpy(buf + first, s->ring, len - first);
	s->head = (s->head + len) % RING_SIZE;
	s->used -= len;
	return len;
}

/* False: memory is out; the stream is then broken for both sides. */
static bool ring_ready_locked(struct stream *s)
{
	if (!s->ring)
		s->ring = aligned_alloc(RING_ALIGN, RING_SIZE);
	if (!s->ring)
		s->gone = true;
	return s->ring;
}

void stream_bind(struct stream *s, struct MHD_Connection *conn, struct hangup_entry *entry, bool always)
{
	lock_take(&s->lock);
	s->conn = conn;
	s->entry = entry;
	s->watch_always = always;
	if (always && s->hangup && entry)
		hangup_add(s->hangup, entry);
	lock_drop(&s->lock);
}

void stream_guard(struct stream *s, struct guard_entry *guard)
{
	lock_take(&s->lock);
	s->guard = guard;
	lock_drop(&s->lock);
}

bool stream_await_answer(struct stream *s)
{
	lock_take(&s->lock);

	bool ready = s->ready;

	if (!ready)
		suspend_locked(s);
	lock_drop(&s->lock);
	return !ready;
}

size_t stream_feed(struct stream *s, const void *ptr, size_t len, bool *ret_ready)
{
	size_t taken = 0;

	lock_take(&s->lock);
	*ret_ready = s->ready;
	/* Several chunks of one buffer come one after another although the first one suspended: left for after the
	 * resume. */
	if (!s->ready && !s->suspended) {
		/* Nobody reads any more: dropped, until the worker's answer is there. */
		taken = ring_ready_locked(s) && !s->gone ? ring_put(s, ptr, len) : len;
		if (s->used >= LIMIT_STREAM_WINDOW && !s->gone)
			suspend_locked(s);
		cond_wake_all(&s->cond);
	}
	lock_drop(&s->lock);
	return taken;
}

void stream_feed_end(struct stream *s)
{
	lock_take(&s->lock);
	s->eof = true;
	cond_wake_all(&s->cond);
	lock_drop(&s->lock);
}

void stream_feed_fail(struct stream *s, int error)
{
	lock_take(&s->lock);
	s->error = error;
	s->gone = true;
	cond_wake_all(&s->cond);
	lock_drop(&s->lock);
}

void stream_over(struct stream *s)
{
	lock_take(&s->lock);
	assert(!s->suspended);
	if (s->hangup && s->entry)
		hangup_remove(s->hangup, s->entry);
	s->conn = NULL;
	s->gone = true;
	cond_wake_all(&s->cond);
	lock_drop(&s->lock);
}

ptrdiff_t stream_take(struct stream *s, void *buf, size_t max, bool *ret_pump)
{
	ptrdiff_t taken = 0;

	*ret_pump = false;
	lock_take(&s->lock);
	if (s->gone) {
		taken = STREAM_BROKEN;
	} else if (s->used) {
		taken = (ptrdiff_t)ring_get(s, buf, max);
		cond_wake_all(&s->cond);
	} else if (s->error) {
		taken = STREAM_BROKEN;
	} else if (s->eof) {
		taken = STREAM_END;
	} else {
		suspend_locked(s);
		*ret_pump = !s->pumping;
		s->pumping = true;
	}
	lock_drop(&s->lock);
	return taken;
}

int stream_read(struct stream *s, void *buf, size_t cap, size_t *ret_len)
{
	int r = 0;

	lock_take(&s->lock);
	while (!s->used && !s->eof && !s->gone)
		cond_wait_until(&s->cond, &s->lock, INT64_MAX);
	if (s->gone && !s->eof)
		r = s->error ? s->error : ERR_CANCELLED;
	if (r == 0) {
		*ret_len = s->used ? ring_get(s, buf, cap) : 0;
		if (!s->eof && s->used <= LIMIT_STREAM_WINDOW / 2)
			resume_locked(s);
	}
	lock_drop(&s->lock);
	return r;
}

int stream_write(struct stream *s, const void *ptr, size_t len)
{
	const char *from = ptr;
	int r = 0;

	lock_take(&s->lock);
	while (len && r == 0) {
		if (s->gone || !ring_ready_locked(s)) {
			r = ERR_CANCELLED;
		} else if (s->used >= LIMIT_STREAM_WINDOW) {
			cond_wait_until(&s->cond, &s->lock, INT64_MAX);
		} else {
			size_t done = ring_put(s, from, len);

			from += done;
			len -= done;
			if (s->ready)
				resume_locked(s);
		}
	}
	lock_drop(&s->lock);
	return r;
}

size_t stream_room(struct stream *s)
{
	lock_take(&s->lock);

	size_t room = s->used >= LIMIT_STREAM_WINDOW ? 0 : LIMIT_STREAM_WINDOW - s->used;

	lock_drop(&s->lock);
	return room;
}

void stream_rest(struct stream *s)
{
	lock_take(&s->lock);
	if (!s->used) {
		free(s->ring);
		s->ring = NULL;
		s->head = 0;
	}
	lock_drop(&s->lock);
}

void stream_write_end(struct stream *s, int error)
{
	lock_take(&s->lock);
	if (!s->eof && !s->error) {
		s->eof = error == 0;
		s->error = error;
	}
	if (s->ready)
		resume_locked(s);
	lock_drop(&s->lock);
}

bool stream_pumped(struct stream *s)
{
	lock_take(&s->lock);

	bool idle = s->used || s->eof || s->error || s->gone;

	if (idle)
		resume_locked(s);
	/* Emptied and suspended again while this job ran: nobody else would fill it. */
	s->pumping = !idle && s->suspended;

	bool again = s->pumping;

	lock_drop(&s->lock);
	return again;
}

void stream_answer(struct stream *s)
{
	lock_take(&s->lock);
	assert(!s->ready);
	s->ready = true;
	resume_locked(s);
	lock_drop(&s->lock);
}

void stream_abort(struct stream *s)
{
	lock_take(&s->lock);
	s->gone = true;
	cond_wake_all(&s->cond);
	/* Without an answer the resumed connection would only be suspended again; the worker's answer resumes it. */
	if (s->ready)
		resume_locked(s);
	lock_drop(&s->lock);
}

static bool flag(struct stream *s, const bool *which)
{
	lock_take(&s->lock);

	bool value = *which;

	lock_drop(&s->lock);
	return value;
}

bool stream_is_ready(struct stream *s)
{
	return flag(s, &s->ready);
}

bool stream_is_gone(struct stream *s)
{
	return flag(s, &s->gone);
}

bool stream_is_fed(struct stream *s)
{
	return flag(s, &s->eof);
}

bool stream_is_suspended(struct stream *s)
{
	return flag(s, &s->suspended);
}
