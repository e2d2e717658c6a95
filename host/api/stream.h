/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one connection's loop thread and one worker share: whether the connection is suspended, whether the answer is
 * ready, and a window of bytes in flight. Only this module calls MHD_suspend_connection and MHD_resume_connection.
 *
 * Upload: the loop thread feeds, the worker reads. Download: the worker writes, the loop thread takes. The window is
 * never both.
 */
#ifndef API_STREAM_H
#define API_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/guard.h"
#include "api/hangup.h"
#include "core/thread.h"

struct MHD_Connection;

struct stream {
	struct lock lock; /* class STREAM: everything below */
	struct cond cond;
	struct hangup *hangup;	    /* may be NULL */
	struct hangup_entry *entry; /* watched while suspended, or always; may be NULL */
	bool watch_always;
	struct guard_entry *guard;   /* told when the body is not read; may be NULL */
	struct MHD_Connection *conn; /* NULL once the request is over */
	bool suspended;
	bool ready;   /* the answer can be queued */
	bool gone;    /* nobody is at the other end, or it is to be treated so */
	bool eof;     /* the writing side is done */
	bool pumping; /* a job that fills the window is under way */
	int error;    /* the writing side failed: what the reading side gets after the bytes */
	char *ring;
	size_t head, used;
};

void stream_init(struct stream *s, struct hangup *hangup);
void stream_fini(struct stream *s);

/* ---- loop thread ---- */
/* `always`: an upload's end is watched for from now on, not only while suspended. */
void stream_bind(struct stream *s, struct MHD_Connection *conn, struct hangup_entry *entry, bool always);
void stream_guard(struct stream *s, struct guard_entry *guard); /* once, before anything is suspended */
/* Suspends until stream_answer; false when the answer is ready already. */
bool stream_await_answer(struct stream *s);
bool stream_is_ready(struct stream *s);
/* Takes what fits and suspends when the window is full; the number taken. 0 with *ret_ready: the worker has already
 * answered. */
size_t stream_feed(struct stream *s, const void *ptr, size_t len, bool *ret_ready);
void stream_feed_end(struct stream *s);
/* No more of the body will be taken; its reader gets `error`. */
void stream_feed_fail(struct stream *s, int error);
/* The request is over, delivered or not. */
void stream_over(struct stream *s);
#define STREAM_END (-1)
#define STREAM_BROKEN (-2)
/* Bytes for the client: > 0; 0 = none yet, the connection is suspended, and *ret_pump tells that nothing is under
 * way to fill the window; STREAM_END or STREAM_BROKEN. */
ptrdiff_t stream_take(struct stream *s, void *buf, size_t max, bool *ret_pump);

/* ---- worker ---- */
/* Blocks for the next bytes of the body; *ret_len 0 = its end. ERR_CANCELLED: the client is gone, or was cut for its
 * slowness (guard.h bounds the wait); else what stream_feed_fail said. */
int stream_read(struct stream *s, void *buf, size_t cap, size_t *ret_len);
/* Blocks while the window is full. ERR_CANCELLED: the client is gone, or was cut for its slowness. */
int stream_write(struct stream *s, const void *ptr, size_t len);
/* Room in the window now; for jobs that fill it without blocking. */
size_t stream_room(struct stream *s);
/* Gives the memory of an empty window back, before a wait that may be long. */
void stream_rest(struct stream *s);
/* No more bytes; error 0 = complete. The first word counts. */
void stream_write_end(struct stream *s, int error);
/* The job that filled the window wants to end; resumes the connection when there is something to send or an end.
 * True: the window was emptied meanwhile, the job must go on. */
bool stream_pumped(struct stream *s);
/* The answer can be queued: resumes. Any thread; at most once. */
void stream_answer(struct stream *s);

/* ---- any thread ---- */
/* Both sides stop: reads and writes fail, what was suspended is resumed. */
void stream_abort(struct stream *s);
bool stream_is_gone(struct stream *s);
bool stream_is_fed(struct stream *s); /* the body has come to its end */
bool stream_is_suspended(struct stream *s);

#endif
