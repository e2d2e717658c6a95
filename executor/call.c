/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's side of the SDK's functions: results become frames of the reply, input comes from the request's body. Each
 * call belongs to one worker. A peer that goes away detaches from its command, never stops it. Must never block longer
 * than the connection's own limits.
 */
#include "call.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "forget.h"
#include "../sdk/lib/supervised_files.h"

/* Silence of a stream after which the peer is told that we live. The SDK asks for a cancel at least every 15 s. */
#define HEARTBEAT_NS INT64_C(5000000000)

int32_t call_fail(struct berth_call *call, int32_t code, const char *reason, bool retryable, const char *text)
{
	struct result *result = &call->result;

	*result = (struct result){.code = code, .retryable = retryable};
	snprintf(result->reason, sizeof(result->reason), "%s", reason ? reason : "");
	snprintf(result->text, sizeof(result->text), "%s", text ? text : "");
	return code;
}

static int32_t host_fail(struct berth_call *call, int32_t code, const char *reason, uint32_t retryable,
			 int64_t retry_after_ms, const char *text)
{
	call_fail(call, code, reason, retryable != 0, text);
	call->result.retry_after_ms = retry_after_ms;
	return code;
}

/* There is no log here: what was left out stands in the answer. */
static void host_log(struct berth_target *target, struct berth_call *call, uint32_t level, const struct berth_str *text,
		     const struct berth_pair *pairs, size_t count)
{
	(void)target, (void)pairs, (void)count;
	if (level >= BERTH_LOG_WARN)
		snprintf(call->result.text, sizeof(call->result.text), "%.*s", (int)text->len, text->ptr);
}

/* No deadline: a client that has had enough closes its connection. */
static void host_info(struct berth_call *call, struct berth_call_info *ret_info)
{
	(void)call;
	ret_info->deadline_ns = 0;
}

static int32_t send_frame(struct berth_call *call, char type, const void *a, size_t a_len, const void *b, size_t b_len)
{
	if (reply_frame(&call->reply, type, a, a_len, b, b_len) == 0)
		return BERTH_OK;
	return call_fail(call, BERTH_CANCELLED, "disconnected", false, "the client went away");
}

static int32_t send_json(struct berth_call *call, char type, struct json_object *json)
{
	size_t len = 0;
	const char *text =
		json_object_to_json_string_length(json, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &len);
	int32_t rc = send_frame(call, type, text, len, NULL, 0);

	json_object_put(json);
	return rc;
}

static void add_string(struct json_object *json, const char *key, const struct berth_str *value)
{
	json_object_object_add(json, key, json_object_new_string_len(value->ptr ? value->ptr : "", (int)value->len));
}

static void add_number(struct json_object *json, const char *key, uint64_t value)
{
	json_object_object_add(json, key, json_object_new_int64(value > INT64_MAX ? INT64_MAX : (int64_t)value));
}

static void add_word(struct json_object *json, const char *key, const char *word)
{
	json_object_object_add(json, key, json_object_new_string(word));
}

static const char *const stream_words[] = {"data", "stdout", "stderr"};
static const char stream_frames[] = {'D', 'O', 'E'};

static int32_t host_sink_write(struct berth_call *call, uint32_t stream, const void *ptr, size_t len)
{
	uint8_t offset[8];
	int32_t rc;

	if (stream > BERTH_STREAM_STDERR)
		return call_fail(call, BERTH_INTERNAL, "stream", false, "an unknown stream");
	for (int i = 0; i < 8; i++)
		offset[i] = (uint8_t)(call->sent[stream] >> (56 - 8 * i));
	rc = send_frame(call, stream_frames[stream], offset, sizeof(offset), ptr, len);
	call->sent[stream] += len;
	if (stream == BERTH_STREAM_DATA)
		return rc;
	/* It goes out when the command is waited for again, or with its ending. */
	call->reply.owed = true;
	siblings_tell(&call->sibling);
	return rc;
}

/* Output of a running command is wanted now. That it runs is news for those who wait longer only: the answer to a short
 * one is sent whole. */
void call_waits(struct berth_call *call, uint32_t is_long)
{
	struct reply *reply = &call->reply;

	forget_others(call);
	if ((is_long || reply->len > call->announced || reply->streaming) && reply_flush(reply) < 0)
		call->peer_gone = true;
}

static int32_t host_gap(struct berth_call *call, uint32_t stream, uint64_t from, uint64_t to)
{
	struct json_object *json = json_object_new_object();

	add_word(json, "stream", stream_words[stream <= BERTH_STREAM_STDERR ? stream : 0]);
	add_number(json, "from", from);
	add_number(json, "to", to);
	call->reply.owed = true;
	return send_json(call, 'G', json);
}

static int32_t host_emit_ending(struct berth_call *call, const struct berth_ending *ending)
{
	static const char *const kinds[] = {"",		 "exit", "signal",	 "timeout",
					    "cancelled", "oom",	 "session_lost", "unknown"};
	static const char *const quiescents[] = {"unknown", "yes", "no"};
	struct json_object *json = json_object_new_object();

	add_word(json, "kind", kinds[ending->kind <= BERTH_ENDING_UNKNOWN ? ending->kind : BERTH_ENDING_UNKNOWN]);
	json_object_object_add(json, "exit_code", json_object_new_int(ending->exit_code));
	json_object_object_add(json, "signal", json_object_new_int(ending->signal));
	add_number(json, "survivors", ending->survivors);
	add_word(json, "quiescent", quiescents[ending->quiescent <= BERTH_QUIESCENT_NO ? ending->quiescent : 0]);
	json_object_object_add(json, "duration_ms", json_object_new_int64(ending->duration_ms));
	add_number(json, "stdout_dropped", ending->stdout_dropped);
	add_number(json, "stderr_dropped", ending->stderr_dropped);
	add_string(json, "reason", &ending->reason);
	return send_json(call, 'X', json);
}

static const char *kind_word(uint32_t kind)
{
	static const char *const kinds[] = {"deleted", "regular", "directory", "symlink", "other"};

	return kinds[kind <= BERTH_FILE_OTHER ? kind : BERTH_FILE_OTHER];
}

static int32_t host_emit_file(struct berth_call *call, const struct berth_file_info *info)
{
	struct json_object *json = json_object_new_object();

	add_string(json, "path", &info->path);
	add_word(json, "kind", kind_word(info->kind));
	add_number(json, "size", info->size);
	json_object_object_add(json, "mtime_ms", json_object_new_int64(info->mtime_ms));
	add_number(json, "mode", info->mode);
	return send_json(call, 'F', json);
}

static int32_t host_emit_change(struct berth_call *call, const struct berth_change *change)
{
	struct json_object *json = json_object_new_object();

	add_string(json, "path", &change->path);
	add_word(json, "kind", kind_word(change->kind));
	add_number(json, "size", change->size);
	add_number(json, "mode", change->mode);
	return send_json(call, 'K', json);
}

static int32_t host_emit_token(struct berth_call *call, const struct berth_str *token)
{
	struct json_object *json = json_object_new_object();

	add_string(json, "token", token);
	return send_json(call, 'T', json);
}

static int32_t host_source_read(struct berth_call *call, void *buf, size_t cap, size_t *ret_len)
{
	int32_t rc = frame_body_data(&call->body, buf, cap, ret_len);

	if (rc)
		call_fail(call, rc, call->body.fault.reason, false, call->body.fault.text);
	return rc;
}

/* Called between two looks at a command, and by anything that takes long. */
static uint32_t host_cancel_state(struct berth_call *call)
{
	struct reply *reply = &call->reply;

	if (call->peer_gone)
		return BERTH_CANCEL_DETACH;
	siblings_heed(&call->sibling);
	if (reply->streaming && sup_now_ns() - reply->sent_ns > HEARTBEAT_NS &&
	    (reply_frame(reply, 'H', NULL, 0, NULL, 0) < 0 || reply_flush(reply) < 0))
		call->peer_gone = true;
	if (http_peer_gone(call->conn))
		call->peer_gone = true;
	return call->peer_gone ? BERTH_CANCEL_DETACH : BERTH_CANCEL_NONE;
}

/* Asked for once a command has been launched, or found, and is about to be followed. */
static int32_t host_cancel_fd(struct berth_call *call)
{
	bool launched = call->announce == 'S';

	if (call->announce && reply_frame(&call->reply, call->announce, "{}", launched ? 2 : 0, NULL, 0) == 0)
		call->announced = call->reply.len;
	call->announce = '\0';
	siblings_join(&call->sibling, call->token.execution_id, call->conn->fd);
	return call->sibling.wait_fd;
}

static void host_random(void *buf, size_t len)
{
	randombytes_buf(buf, len);
}

const struct berth_host call_host = {
	.struct_size = sizeof(call_host),
	.log = host_log,
	.info = host_info,
	.fail = host_fail,
	.emit_ending = host_emit_ending,
	.emit_file = host_emit_file,
	.emit_change = host_emit_change,
	.emit_token = host_emit_token,
	.gap = host_gap,
	.sink_write = host_sink_write,
	.source_read = host_source_read,
	.cancel_state = host_cancel_state,
	.cancel_fd = host_cancel_fd,
	.random = host_random,
};
