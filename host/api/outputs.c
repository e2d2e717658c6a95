/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the output routes: a record's stdout and stderr as bytes, whole, in part, or live. Entered from workers: once to
 * answer the head, then whenever the window is empty (the pump). A reader that is slow, or waits for a silent command,
 * holds no thread. Must never answer bytes of another offset than asked for.
 */
#include <string.h>

#include "api/range.h"
#include "api/resources.h"
#include "api/wait.h"
#include "core/clock.h"
#include "core/limits.h"
#include "execution/execution.h"

#define PIECE (32 * LIMIT_KIB)
/* A follower looks again after this time even when nobody told it to; only a safety net. */
#define FOLLOW_LOOK_MS 5000

struct output {
	struct output_reader *reader;
	uint64_t offset; /* next byte */
	uint64_t until;	 /* past the last byte to send */
	bool follow;
	char id[IDENT_ID_MAX + 1];
};

static void output_fini(void *state)
{
	struct output *output = state;

	if (output->reader)
		output_close(output->reader);
}

/* ---- the bytes ---- */

/* Moves what is there into the window. *ret_done: something was moved, or the stream has ended one way or the other. */
static int fill(struct req *req, bool *ret_done, struct err *err)
{
	struct output *output = req->state;
	char piece[PIECE];
	bool end = false;
	size_t room;

	if (stream_is_gone(&req->stream))
		return err_set(err, ERR_CANCELLED, "the reader is gone");
	while (!end && output->offset < output->until && (room = stream_room(&req->stream)) > 0) {
		uint64_t left = output->until - output->offset;
		size_t cap = room < sizeof(piece) ? room : sizeof(piece);
		size_t len = 0;
		int r = output_read(output->reader, output->offset, piece, cap < left ? cap : (size_t)left, &len, &end,
				    err);

		if (r == 0 && len)
			r = stream_write(&req->stream, piece, len);
		if (r != 0)
			return r;
		output->offset += len;
		*ret_done |= len > 0;
		if (len == 0 && !end)
			break;
	}
	if (end || output->offset >= output->until)
		stream_write_end(&req->stream, 0);
	*ret_done |= end || output->offset >= output->until;
	return 0;
}

static int follow(struct req *req, struct err *err)
{
	struct output *output = req->state;
	char key[64];

	output_watch_key(output->id, key);
	stream_rest(&req->stream);
	return wait_for(req, key, clock_after_ms(FOLLOW_LOOK_MS), fill, err);
}

static int pump(struct req *req)
{
	struct output *output = req->state;
	struct err err = {0};

	do {
		bool done = false;
		int r = fill(req, &done, &err);

		if (r == 0 && !done && output->follow)
			r = follow(req, &err);
		if (r == REQ_PARKED)
			return r;
		if (r == 0 && !done && !output->follow)
			stream_write_end(&req->stream, 0); /* what was there when the reader came to the end */
		if (r == 0 && output->follow && atomic_load(&req->hurried))
			r = ERR_CANCELLED;
		if (r != 0)
			stream_write_end(&req->stream, r);
	} while (stream_pumped(&req->stream));
	return REQ_DONE;
}

/* ---- the head ---- */

static int open_output(struct req *req, unsigned stream, struct err *err)
{
	struct execution_head head;
	struct output *output = arena_alloc(req->arena, sizeof(*output));
	const char *id = req_param(req, "id");
	int r = output ? execution_reach(req, id, &head, err) : err_set(err, ERR_NOMEM, "out of memory");

	if (r != 0)
		return r;
	snprintf(output->id, sizeof(output->id), "%s", id);
	req->state = output;
	req->state_fini = output_fini;
	return output_open(api_of(req)->config.executions, id, stream, &output->reader, err);
}

static int refuse_range(struct req *req, uint64_t size, struct err *err)
{
	req_error(req, &(struct err){.code = ERR_RANGE, .msg = "the output ends before this range"});

	const char *text = arena_printf(req->arena, "bytes */%llu", (unsigned long long)size);

	if (text)
		req_header(req, "Content-Range", text);
	(void)err;
	return REQ_DONE;
}

/* The output is final: its length is known and it can be cut. */
static int answer_final(struct req *req, uint64_t size, bool asked_offset, struct err *err)
{
	struct output *output = req->state;
	struct range range = {.from = output->offset, .until = size};
	/* If-Range names a validator, and none that we gave. */
	enum range_kind kind = asked_offset || req->head.if_range ? RANGE_NONE : range_parse(req->head.range, size, &range);

	if (output->offset > size || kind == RANGE_UNSATISFIABLE)
		return refuse_range(req, size, err);
	if (kind == RANGE_PART) {
		const char *text = arena_printf(req->arena, "bytes %llu-%llu/%llu", (unsigned long long)range.from,
						(unsigned long long)range.until - 1, (unsigned long long)size);

		if (!text)
			return err_set(err, ERR_NOMEM, "out of memory");
		req_header(req, "Content-Range", text);
	}
	output->offset = range.from;
	output->until = range.until;
	req_header(req, "Accept-Ranges", "bytes");
	req_answer_pulled(req, kind == RANGE_PART ? 206 : 200, "application/octet-stream", range.until - range.from,
			  pump);
	return REQ_STREAMED;
}

static int answer(struct req *req, unsigned stream, struct err *err)
{
	int64_t offset;
	bool live;
	uint64_t size;
	int r = req_query_number(req, "offset", 0, INT64_MAX, 0, &offset, err);

	if (r == 0)
		r = req_query_bool(req, "follow", false, &live, err);
	if (r == 0 && live && req->head.range)
		r = err_set(err, ERR_INVALID_REQUEST, "Range and follow exclude each other; use offset");
	if (r == 0)
		r = open_output(req, stream, err);
	if (r != 0)
		return r;

	struct output *output = req->state;

	output->offset = (uint64_t)offset;
	r = output_size(output->reader, &size, err);
	if (r == 0)
		return answer_final(req, size, req_query(req, "offset"), err);
	if (r != ERR_NOT_FOUND)
		return r;
	/* Still growing: no length and no ranges; without follow the answer ends at what is there. */
	output->until = UINT64_MAX;
	output->follow = live;
	atomic_store(&req->follows, live);
	req_answer_pulled(req, 200, "application/octet-stream", UINT64_MAX, pump);
	return REQ_STREAMED;
}

int output_get_stdout(struct req *req, struct err *err)
{
	return answer(req, 1, err);
}

int output_get_stderr(struct req *req, struct err *err)
{
	return answer(req, 2, err);
}
