/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the form of answers: heads, chunks, frames, results. One worker at a time. Must never send a byte of a second
 * answer, nor end a stream with R before everything in front of it went out.
 */
#include "reply.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../sdk/lib/codes.h"
#include "../sdk/lib/supervised_files.h"
#include "frame.h"

#define BUF_CAP 32768u
/* Payloads from here on are sent from where they are. */
#define COPY_MAX 8192u
#define FRAMES_TYPE "application/vnd.berth.frames"
#define JSON_TYPE "application/json"

static const struct {
	const char *word;
	unsigned status;
} codes[] = {
#define ROW(name, word, status) [BERTH_##name] = {word, status},
	CODES(ROW)
#undef ROW
};

static const struct {
	unsigned status;
	const char *text;
} texts[] = {
	{200, "OK"},
	{400, "Bad Request"},
	{401, "Unauthorized"},
	{403, "Forbidden"},
	{404, "Not Found"},
	{405, "Method Not Allowed"},
	{409, "Conflict"},
	{410, "Gone"},
	{429, "Too Many Requests"},
	{431, "Request Header Fields Too Large"},
	{499, "Client Closed Request"},
	{500, "Internal Server Error"},
	{501, "Not Implemented"},
	{503, "Service Unavailable"},
	{504, "Gateway Timeout"},
	{505, "HTTP Version Not Supported"},
	{507, "Insufficient Storage"},
};

static unsigned status_of(int32_t code)
{
	return codes[code >= 0 && code <= BERTH_CODE_MAX ? code : BERTH_INTERNAL].status;
}

static const char *status_text(unsigned status)
{
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (texts[i].status == status)
			return texts[i].text;
	return "Error";
}

void reply_init(struct reply *reply, struct http_conn *conn, const struct reply_facts *facts)
{
	*reply = (struct reply){.conn = conn, .facts = *facts};
}

void reply_fini(struct reply *reply)
{
	free(reply->buf);
	reply->buf = NULL;
}

/* length < 0: chunked. Everything in it has a known bound. */
static int format_head(const struct reply *reply, unsigned status, const char *type, int64_t length, char *head,
		       size_t cap)
{
	const struct reply_facts *facts = &reply->facts;
	int n = snprintf(head, cap,
			 "HTTP/1.1 %u %s\r\nBerth-Executor: 1\r\nBerth-Pod-Uid: %s\r\nBerth-Instance: %s\r\n"
			 "Content-Type: %s\r\n",
			 status, status_text(status), facts->pod_uid, facts->instance, type);

	if (facts->nonce && facts->workspace_id && *facts->workspace_id)
		n += snprintf(head + n, cap - (size_t)n, "Berth-Workspace-Id: %s\r\nBerth-Task-Id: %s\r\n",
			      facts->workspace_id, facts->task_id);
	if (facts->nonce)
		n += snprintf(head + n, cap - (size_t)n, "Berth-Nonce: %s\r\n", facts->nonce);
	if (length < 0)
		n += snprintf(head + n, cap - (size_t)n, "Transfer-Encoding: chunked\r\n");
	else
		n += snprintf(head + n, cap - (size_t)n, "Content-Length: %lld\r\n", (long long)length);
	n += snprintf(head + n, cap - (size_t)n, "%s%s\r\n", status == 503 ? "Retry-After: 1\r\n" : "",
		      reply->close ? "Connection: close\r\n" : "");
	return n;
}

void reply_plain(struct reply *reply, unsigned status, const char *type, const char *body, size_t len)
{
	char head[1024];
	struct iovec iov[2] = {{head, 0}, {(void *)(uintptr_t)body, reply->head_only ? 0 : len}};

	iov[0].iov_len = (size_t)format_head(reply, status, type, (int64_t)len, head, sizeof(head));
	http_send(reply->conn, iov, 2);
	reply->done = true;
}

static struct json_object *result_json(const struct reply *reply, const struct result *result, int64_t now_ms)
{
	int32_t code = result->code >= 0 && result->code <= BERTH_CODE_MAX ? result->code : BERTH_INTERNAL;
	struct json_object *json = json_object_new_object();

	json_object_object_add(json, "code", json_object_new_string(codes[code].word));
	json_object_object_add(json, "reason", json_object_new_string(result->reason));
	json_object_object_add(json, "retryable", json_object_new_boolean(result->retryable));
	json_object_object_add(json, "retry_after_ms", json_object_new_int64(result->retry_after_ms));
	json_object_object_add(json, "text", json_object_new_string(result->text));
	json_object_object_add(json, "now_ms", json_object_new_int64(now_ms));
	if (reply->tells_forgotten)
		json_object_object_add(json, "forgotten", json_object_new_int64(reply->forgotten));
	return json;
}

static const char *json_text(struct json_object *json, size_t *ret_len)
{
	return json_object_to_json_string_length(json, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE,
						 ret_len);
}

void reply_error(struct reply *reply, unsigned status, const struct result *result, int64_t now_ms)
{
	struct json_object *json = result_json(reply, result, now_ms);
	size_t len = 0;
	const char *text = json_text(json, &len);

	reply_plain(reply, status, JSON_TYPE, text, len);
	json_object_put(json);
}

#define CHUNK_END "\r\n"
#define LAST_CHUNK "0\r\n\r\n"

/* What has gathered and the extra bytes behind it, as one chunk that ends with `end`. */
static int send_chunk(struct reply *reply, const void *extra, size_t extra_len, const char *end)
{
	char head[1024], size[24];
	struct iovec iov[5] = {{head, 0},
			       {size, 0},
			       {reply->buf, reply->len},
			       {(void *)(uintptr_t)extra, extra_len},
			       {(void *)(uintptr_t)end, strlen(end)}};

	if (reply->len + extra_len == 0)
		return 0;
	if (!reply->streaming)
		iov[0].iov_len = (size_t)format_head(reply, 200, FRAMES_TYPE, -1, head, sizeof(head));
	iov[1].iov_len = (size_t)snprintf(size, sizeof(size), "%zx\r\n", reply->len + extra_len);
	reply->streaming = true;
	reply->len = 0;
	reply->sent_ns = sup_now_ns();
	return http_send(reply->conn, iov, 5) < 0 ? -1 : 0;
}

int reply_flush(struct reply *reply)
{
	return reply->conn->failed ? -1 : send_chunk(reply, NULL, 0, CHUNK_END);
}

/* Room for len more bytes, sending what is there if need be. */
static int make_room(struct reply *reply, size_t len)
{
	if (reply->len + len > BUF_CAP && reply_flush(reply) < 0)
		return -1;
	if (!reply->buf) {
		reply->cap = len > BUF_CAP ? len : BUF_CAP;
		reply->buf = malloc(reply->cap);
	} else if (reply->len + len > reply->cap) {
		char *grown = realloc(reply->buf, reply->len + len);

		if (!grown)
			return -1;
		reply->cap = reply->len + len;
		reply->buf = grown;
	}
	return reply->buf ? 0 : -1;
}

static void append(struct reply *reply, const void *ptr, size_t len)
{
	if (len)
		memcpy(reply->buf + reply->len, ptr, len);
	reply->len += len;
}

int reply_frame(struct reply *reply, char type, const void *a, size_t a_len, const void *b, size_t b_len)
{
	uint8_t header[FRAME_HEADER];
	size_t copied = b_len > COPY_MAX ? 0 : b_len;

	if (reply->conn->failed || make_room(reply, sizeof(header) + a_len + copied) < 0)
		return -1;
	frame_header_write(header, type, a_len + b_len);
	append(reply, header, sizeof(header));
	append(reply, a, a_len);
	append(reply, b, copied);
	return copied == b_len ? 0 : send_chunk(reply, b, b_len, CHUNK_END);
}

void reply_end(struct reply *reply, const struct result *result, int64_t now_ms)
{
	struct json_object *json;
	const char *text;
	size_t len = 0;

	if (!reply->streaming && !reply->owed && result->code != BERTH_OK) {
		/* Frames that were never sent are not missed: an error has no result. */
		reply_error(reply, status_of(result->code), result, now_ms);
		return;
	}
	json = result_json(reply, result, now_ms);
	text = json_text(json, &len);
	if (reply_frame(reply, 'R', text, len, NULL, 0) < 0)
		reply->conn->failed = true;
	json_object_put(json);
	/* R stands in front of it at least. */
	if (reply->streaming && !reply->conn->failed)
		send_chunk(reply, NULL, 0, CHUNK_END LAST_CHUNK);
	else if (!reply->conn->failed)
		reply_plain(reply, 200, FRAMES_TYPE, reply->buf, reply->len);
	reply->done = true;
}
