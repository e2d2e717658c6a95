/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the events of one execution as server-sent events: each stored event with its place in the stream as id, how far
 * the outputs are in between, the end after the terminal event. Entered from workers, as the outputs are (outputs.c): a
 * follower that waits holds no thread. Must never end the stream before the terminal event was in it.
 */
#include <stdlib.h>
#include <string.h>

#include "api/resources.h"
#include "api/wait.h"
#include "core/clock.h"
#include "core/limits.h"
#include "execution/execution.h"

#define PIECE_MAX (96 * LIMIT_KIB)   /* of one event; the window holds two */
#define BEAT_MS 15000		     /* a comment after this much silence, so that a dead connection is noticed */
#define OUTPUT_EVERY_MS 200	     /* at most so often the offsets are told */
#define RUNNING_LOOK_MS 2000	     /* while outputs are waited for, the record is looked at this often */

struct events {
	char id[IDENT_ID_MAX + 1];
	uint64_t last; /* place of the last event that was sent, or that the client has */
	uint64_t told[2];
	bool running, final, behind; /* as of the last look; behind: offsets are held back */
	int64_t told_ns, wrote_ns;
	bool ended;
};

static struct executions *executions_of(const struct req *req)
{
	return api_of(req)->config.executions;
}

/* ---- into the window ---- */

static int put(struct req *req, const struct buf *text)
{
	struct events *events = req->state;

	events->wrote_ns = clock_boot_ns();
	return text->error ? text->error : stream_write(&req->stream, text->ptr, text->len);
}

static int put_event(struct req *req, uint64_t seq, const char *doc)
{
	struct buf text;
	int r;

	buf_init(&text, PIECE_MAX);
	buf_printf(&text, "id: %llu\nevent: status\ndata: %s\n\n", (unsigned long long)seq, doc);
	r = put(req, &text);
	buf_fini(&text);
	return r;
}

static int put_offsets(struct req *req, const uint64_t bytes[2])
{
	struct events *events = req->state;
	struct buf text;
	int r;

	buf_init(&text, PIECE_MAX);
	buf_printf(&text, "event: output\ndata: {\"stdout_bytes\":%llu,\"stderr_bytes\":%llu}\n\n",
		   (unsigned long long)bytes[0], (unsigned long long)bytes[1]);
	memcpy(events->told, bytes, sizeof(events->told));
	events->told_ns = clock_boot_ns();
	r = put(req, &text);
	buf_fini(&text);
	return r;
}

static int put_beat(struct req *req)
{
	static char beat[] = ":\n\n";

	return put(req, &(struct buf){.ptr = beat, .len = sizeof(beat) - 1});
}

/* ---- what there is to say ---- */

/* An event that is not told yet. */
struct held {
	uint64_t seq;
	char *doc;
};

static int tell_offsets(struct req *req, bool terminal, bool *ret_done, struct err *err)
{
	struct events *events = req->state;
	int64_t due_ns = events->told_ns + OUTPUT_EVERY_MS * CLOCK_NS_PER_MS;
	uint64_t bytes[2] = {0};
	int r = execution_offsets(executions_of(req), events->id, bytes, &events->final, err);
	bool moved = bytes[0] != events->told[0] || bytes[1] != events->told[1];

	/* An execution of another moment is not at hand for a while; the next look finds it. */
	if (r == ERR_STORE && !terminal)
		return 0;
	if (r != 0)
		return r;
	events->behind = moved && !terminal && clock_boot_ns() < due_ns;
	if (!moved || events->behind || stream_room(&req->stream) < PIECE_MAX)
		return 0;
	*ret_done = true;
	return put_offsets(req, bytes);
}

static bool is_terminal(struct req *req)
{
	const struct events *events = req->state;
	struct execution_head head;

	return execution_head(executions_of(req), events->id, &head, NULL) == 0 && head.terminal;
}

static int put_held(struct req *req, const struct held *held, bool *ret_done)
{
	struct events *events = req->state;

	events->last = held->seq;
	*ret_done = true;
	return put_event(req, held->seq, held->doc);
}

/*
 * What an execution said last is its end: that is not told before its last offsets. So an event is held until there is
 * one after it, and of the last one the record says whether it may be the end, unless it was terminal before.
 */
static int tell_events(struct req *req, bool terminal, bool *ret_more, bool *ret_ended, bool *ret_done, struct err *err)
{
	struct events *events = req->state;
	struct held held = {.seq = events->last};
	int r = 0;

	*ret_more = true;
	*ret_ended = false;
	while (r == 0 && *ret_more && stream_room(&req->stream) >= PIECE_MAX) {
		struct held next = {0};

		r = execution_next_event(executions_of(req), events->id, held.seq, &next.seq, &next.doc, err);
		if (r != 0)
			break;
		*ret_more = next.doc;
		*ret_ended = held.doc && !next.doc && !terminal && is_terminal(req);
		if (held.doc && !*ret_ended)
			r = put_held(req, &held, ret_done);
		free(held.doc);
		held = next;
	}
	free(held.doc);
	return r;
}

/* The record is looked at first: what was stored with its end is then in the stream. */
static int fill(struct req *req, bool *ret_done, struct err *err)
{
	struct events *events = req->state;
	struct execution_head head;
	bool more = true, ended_meanwhile = false;
	int r = 0;

	if (stream_is_gone(&req->stream))
		return err_set(err, ERR_CANCELLED, "the reader is gone");
	do {
		r = execution_head(executions_of(req), events->id, &head, err);
		if (r == 0 && (head.running || head.terminal))
			r = tell_offsets(req, head.terminal, ret_done, err);
		if (r == 0)
			r = tell_events(req, head.terminal, &more, &ended_meanwhile, ret_done, err);
	} while (r == 0 && ended_meanwhile);
	if (r != 0)
		return r;
	events->running = head.running;
	events->ended = head.terminal && !more;
	if (events->ended)
		stream_write_end(&req->stream, 0);
	else if (!*ret_done && clock_boot_ns() - events->wrote_ns >= BEAT_MS * CLOCK_NS_PER_MS)
		r = put_beat(req);
	*ret_done |= events->ended;
	return r;
}

/* Offsets that are held back need no notice, only their time. */
static int wait_more(struct req *req, struct err *err)
{
	struct events *events = req->state;
	bool outputs = events->running && !events->final && !events->behind;
	char key[64];

	if (outputs)
		output_watch_key(events->id, key);
	else
		execution_watch_key(events->id, key);
	stream_rest(&req->stream);
	return wait_for(req, key,
			clock_after_ms(events->behind ? OUTPUT_EVERY_MS : outputs ? RUNNING_LOOK_MS : BEAT_MS), fill, err);
}

static int pump(struct req *req)
{
	struct events *events = req->state;
	struct err err = {0};

	do {
		bool done = false;
		int r = fill(req, &done, &err);

		if (r == 0 && !done)
			r = wait_more(req, &err);
		if (r == REQ_PARKED)
			return r;
		if (r == 0 && !events->ended && atomic_load(&req->hurried))
			r = ERR_CANCELLED;
		if (r != 0)
			stream_write_end(&req->stream, r);
	} while (stream_pumped(&req->stream));
	return REQ_DONE;
}

/* ---- the head ---- */

static int take_last(const struct req *req, uint64_t *ret, struct err *err)
{
	const char *text = req->head.last_event_id;

	*ret = 0;
	if (!text || !*text)
		return 0;
	return req_place(text, ret) ? 0
				    : err_set(err, ERR_INVALID_REQUEST, "Last-Event-ID is not the id of an event");
}

/* A client that has the terminal event already is told not to come back. */
static int is_over(struct req *req, bool *ret, struct err *err)
{
	struct events *events = req->state;
	struct execution_head head;
	uint64_t seq;
	char *doc = NULL;
	int r = execution_reach(req, events->id, &head, err);

	if (r == 0 && head.terminal && events->last)
		r = execution_next_event(executions_of(req), events->id, events->last, &seq, &doc, err);
	*ret = r == 0 && head.terminal && events->last && !doc;
	free(doc);
	return r;
}

int events_get(struct req *req, struct err *err)
{
	struct events *events = arena_alloc(req->arena, sizeof(*events));
	bool over;
	int r = events ? take_last(req, &events->last, err) : err_set(err, ERR_NOMEM, "out of memory");

	if (r != 0)
		return r;
	snprintf(events->id, sizeof(events->id), "%s", req_param(req, "id"));
	events->wrote_ns = clock_boot_ns();
	req->state = events;
	r = is_over(req, &over, err);
	if (r != 0)
		return r;
	if (over) {
		req_empty(req, 204);
		return REQ_DONE;
	}
	atomic_store(&req->follows, true);
	req_header(req, "Cache-Control", "no-store");
	req_answer_pulled(req, 200, "text/event-stream", UINT64_MAX, pump);
	return REQ_STREAMED;
}
