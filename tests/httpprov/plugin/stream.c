/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a command says, frame by frame, as it comes in: bytes go to the host at once and are counted, so that a stream
 * which is cut anywhere can be resumed there. The thread of the call. Must never make an ending of a stream's end.
 */
#include "httpprov.h"

#include <string.h>

void stream_restart(struct stream *stream)
{
	stream->head_len = 0;
	stream->left = 0;
	stream->note.len = 0;
	stream->moved = false;
}

void stream_fini(struct stream *stream)
{
	wire_free(&stream->note);
}

static int32_t refuse(struct stream *stream, const char *text)
{
	stream->failed = true;
	return stream->code = prov_fail(stream->call, BERTH_UNKNOWN, "foreign_answer", text);
}

/* What the host answers to what it was given. */
static int32_t host_said(struct stream *stream, int32_t rc)
{
	if (rc) {
		stream->refused = true;
		stream->code = rc;
	}
	return rc;
}

static int32_t take_gap(struct stream *stream, struct json_object *json)
{
	uint32_t number = (uint32_t)wire_number(json, "stream");
	uint64_t from = (uint64_t)wire_number(json, "from"), to = (uint64_t)wire_number(json, "to");

	if ((number != BERTH_STREAM_STDOUT && number != BERTH_STREAM_STDERR) || to <= from)
		return refuse(stream, "a gap of the stream cannot be read");
	stream->offset[number == BERTH_STREAM_STDERR] = to;
	return host_said(stream, prov_host->gap(stream->call, number, from, to));
}

static int32_t take_ending(struct stream *stream, struct json_object *json)
{
	struct berth_ending ending = {
		.struct_size = sizeof(ending),
		.kind = (uint32_t)wire_number(json, "kind"),
		.exit_code = (int32_t)wire_number(json, "exit_code"),
		.signal = (int32_t)wire_number(json, "signal"),
		.survivors = (uint32_t)wire_number(json, "survivors"),
		.quiescent = (uint32_t)wire_number(json, "quiescent"),
		.duration_ms = wire_number(json, "duration_ms"),
		.stdout_dropped = (uint64_t)wire_number(json, "stdout_dropped"),
		.stderr_dropped = (uint64_t)wire_number(json, "stderr_dropped"),
		.reason = wire_str(wire_text(json, "reason")),
	};

	if (ending.kind < BERTH_ENDING_EXIT || ending.kind > BERTH_ENDING_UNKNOWN)
		return refuse(stream, "the ending cannot be read");
	stream->ended = true;
	return host_said(stream, prov_host->emit_ending(stream->call, &ending));
}

static int32_t take_note(struct stream *stream)
{
	struct json_object *json = wire_parse(stream->note.ptr, stream->note.len);
	int32_t rc = BERTH_OK;

	if (!json)
		return refuse(stream, "a frame of the stream is no JSON");
	if (stream->head[0] == WIRE_GAP) {
		rc = take_gap(stream, json);
	} else if (stream->head[0] == WIRE_ENDING) {
		rc = take_ending(stream, json);
	} else {
		stream->failed = true;
		stream->code = prov_fail_document(stream->p, stream->call, stream->note.ptr, stream->note.len, 0);
		rc = stream->code ? stream->code : refuse(stream, "a failure of the stream cannot be read");
	}
	json_object_put(json);
	return rc;
}

static int32_t frame_complete(struct stream *stream)
{
	int32_t rc = BERTH_OK;

	stream->head_len = 0;
	if (stream->head[0] == WIRE_STARTED && stream->tell_started) {
		struct berth_str handle = {stream->note.ptr, stream->note.len};

		stream->tell_started = false;
		rc = host_said(stream, prov_host->started(stream->call, &handle));
	} else if (stream->head[0] == WIRE_GAP || stream->head[0] == WIRE_ENDING || stream->head[0] == WIRE_FAILURE) {
		rc = take_note(stream);
	}
	stream->note.len = 0;
	return rc;
}

static int32_t take_payload(struct stream *stream, const char *ptr, size_t len)
{
	bool is_error = stream->head[0] == WIRE_STDERR;
	int32_t rc;

	stream->left -= (uint32_t)len;
	if (stream->head[0] != WIRE_STDOUT && !is_error) {
		wire_put(&stream->note, ptr, len);
		return stream->note.lost ? refuse(stream, "memory is out") : BERTH_OK;
	}
	rc = prov_host->sink_write(stream->call, is_error ? BERTH_STREAM_STDERR : BERTH_STREAM_STDOUT, ptr, len);
	if (!rc)
		stream->offset[is_error] += len;
	return host_said(stream, rc);
}

static int32_t begin_frame(struct stream *stream)
{
	const unsigned char *head = stream->head;

	stream->left = (uint32_t)head[1] << 24 | (uint32_t)head[2] << 16 | (uint32_t)head[3] << 8 | head[4];
	if (head[0] < WIRE_STDOUT || head[0] > WIRE_ALIVE || stream->left > WIRE_FRAME_MAX)
		return refuse(stream, "the stream holds what is no frame");
	if (head[0] != WIRE_ALIVE)
		stream->sign = stream->sign || head[0] != WIRE_FAILURE;
	return BERTH_OK;
}

int32_t stream_take(void *ctx, const void *bytes, size_t len)
{
	struct stream *stream = ctx;
	const char *ptr = bytes, *end = ptr + len;
	int32_t rc = BERTH_OK;

	stream->moved = stream->moved || len;
	while (!rc && ptr < end) {
		size_t part;

		if (stream->ended)
			return refuse(stream, "bytes after the ending");
		if (stream->head_len < WIRE_FRAME_HEAD) {
			stream->head[stream->head_len++] = (unsigned char)*ptr++;
			if (stream->head_len < WIRE_FRAME_HEAD)
				continue;
			rc = begin_frame(stream);
		}
		part = (size_t)(end - ptr) < stream->left ? (size_t)(end - ptr) : stream->left;
		if (!rc && part)
			rc = take_payload(stream, ptr, part);
		ptr += part;
		if (!rc && !stream->left)
			rc = frame_complete(stream);
	}
	return rc;
}
