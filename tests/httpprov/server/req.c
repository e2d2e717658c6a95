/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request's two queues, and who may wait where. libmicrohttpd's threads suspend the connection instead of waiting;
 * workers wait on the condition. Its lock is the last that is taken, but for libmicrohttpd's own.
 */
#include "server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

struct req *req_new(struct MHD_Connection *con)
{
	struct req *req = calloc(1, sizeof(*req));

	if (!req)
		return NULL;
	pthread_mutex_init(&req->lock, NULL);
	pthread_cond_init(&req->cond, NULL);
	req->refs = 1;
	req->con = con;
	req->cancel_fd = -1;
	req->wrote_ns = now_ns();
	return req;
}

void req_ref(struct req *req)
{
	pthread_mutex_lock(&req->lock);
	req->refs++;
	pthread_mutex_unlock(&req->lock);
}

void req_unref(struct req *req)
{
	unsigned left;

	pthread_mutex_lock(&req->lock);
	left = --req->refs;
	pthread_mutex_unlock(&req->lock);
	if (left)
		return;
	if (req->cancel_fd >= 0)
		close(req->cancel_fd);
	wire_free(&req->out);
	free(req->in);
	for (unsigned i = 0; i < req->arg_count; i++) {
		free(req->args[i].name);
		free(req->args[i].value);
	}
	free(req->ref);
	free(req->id);
	free(req->deployment);
	pthread_cond_destroy(&req->cond);
	pthread_mutex_destroy(&req->lock);
	free(req);
}

void req_wake_locked(struct req *req)
{
	if (!req->suspended || !req->con)
		return;
	req->suspended = false;
	MHD_resume_connection(req->con);
}

static void put_locked(struct req *req, const void *ptr, size_t len)
{
	if (req->out_at && req->out_at == req->out.len)
		req->out_at = req->out.len = 0;
	wire_put(&req->out, ptr, len);
	req->wrote_ns = now_ns();
}

bool req_write(struct req *req, const void *ptr, size_t len)
{
	bool alive;

	pthread_mutex_lock(&req->lock);
	while (!req->aborted && req->out.len - req->out_at > QUEUE_MAX)
		pthread_cond_wait(&req->cond, &req->lock);
	alive = !req->aborted;
	if (alive)
		put_locked(req, ptr, len);
	req_wake_locked(req);
	pthread_mutex_unlock(&req->lock);
	return alive;
}

static void put_frame_locked(struct req *req, enum wire_frame type, const void *ptr, size_t len)
{
	unsigned char head[WIRE_FRAME_HEAD] = {(unsigned char)type, (unsigned char)(len >> 24),
					       (unsigned char)(len >> 16), (unsigned char)(len >> 8),
					       (unsigned char)len};

	put_locked(req, head, sizeof(head));
	put_locked(req, ptr, len);
}

bool req_frame(struct req *req, enum wire_frame type, const void *ptr, size_t len)
{
	const char *at = ptr;
	bool alive;

	do {
		size_t part = len < WIRE_FRAME_MAX ? len : WIRE_FRAME_MAX;

		pthread_mutex_lock(&req->lock);
		while (!req->aborted && req->out.len - req->out_at > QUEUE_MAX)
			pthread_cond_wait(&req->cond, &req->lock);
		alive = !req->aborted;
		if (alive)
			put_frame_locked(req, type, at, part);
		req_wake_locked(req);
		pthread_mutex_unlock(&req->lock);
		at += part;
		len -= part;
	} while (alive && len);
	return alive;
}

void req_frame_now(struct req *req, enum wire_frame type, const void *ptr, size_t len)
{
	pthread_mutex_lock(&req->lock);
	if (!req->aborted)
		put_frame_locked(req, type, ptr, len);
	req_wake_locked(req);
	pthread_mutex_unlock(&req->lock);
}

long req_read(struct req *req, void *buf, size_t cap)
{
	size_t len;

	pthread_mutex_lock(&req->lock);
	while (!req->aborted && !req->in_end && req->in_at == req->in_len)
		pthread_cond_wait(&req->cond, &req->lock);
	len = req->in_len - req->in_at;
	if (!len && !req->in_end) {
		pthread_mutex_unlock(&req->lock);
		return -1;
	}
	len = len < cap ? len : cap;
	if (len)
		memcpy(buf, req->in + req->in_at, len);
	req->in_at += len;
	if (req->in_at == req->in_len)
		req->in_at = req->in_len = 0;
	req_wake_locked(req);
	pthread_mutex_unlock(&req->lock);
	return (long)len;
}

bool req_read_all(struct req *req, struct wire_buf *ret, size_t max)
{
	char block[8192];
	long len;

	ret->max = max;
	while ((len = req_read(req, block, sizeof(block))) > 0)
		wire_put(ret, block, (size_t)len);
	return len == 0 && !ret->lost;
}

void req_head(struct req *req, unsigned status, const char *type)
{
	pthread_mutex_lock(&req->lock);
	if (!req->status) {
		req->status = status;
		req->type = type;
		req->in_done = true;
		req_wake_locked(req);
	}
	pthread_mutex_unlock(&req->lock);
}

void req_end(struct req *req)
{
	pthread_mutex_lock(&req->lock);
	req->out_end = true;
	req_wake_locked(req);
	pthread_mutex_unlock(&req->lock);
}

void req_break(struct req *req)
{
	pthread_mutex_lock(&req->lock);
	req->out_end = req->out_broken = true;
	req_wake_locked(req);
	pthread_mutex_unlock(&req->lock);
}

/* Body, end and head in one step: such an answer is sent with its length. */
void req_reply(struct req *req, unsigned status, struct json_object *json)
{
	const char *text = json ? json_object_to_json_string_ext(json, JSON_C_TO_STRING_PLAIN) : "";

	pthread_mutex_lock(&req->lock);
	if (!req->status) {
		req->status = status;
		req->type = "application/json";
		req->in_done = true;
		put_locked(req, text, strlen(text));
	}
	req->out_end = true;
	req_wake_locked(req);
	pthread_mutex_unlock(&req->lock);
	json_object_put(json);
}

static enum MHD_Result take_arg(void *ctx, enum MHD_ValueKind kind, const char *name, size_t name_len,
				const char *value, size_t len)
{
	struct req *req = ctx;
	struct arg *arg = &req->args[req->arg_count];

	(void)kind;
	if (req->arg_count == ARGS_MAX)
		return MHD_NO;
	arg->name = strndup(name, name_len);
	arg->value = malloc(len + 1);
	if (!arg->name || !arg->value) {
		free(arg->name);
		free(arg->value);
		return MHD_NO;
	}
	if (len)
		memcpy(arg->value, value, len);
	arg->value[len] = '\0';
	arg->len = len;
	req->arg_count++;
	return MHD_YES;
}

void req_take_query(struct req *req)
{
	MHD_get_connection_values_n(req->con, MHD_GET_ARGUMENT_KIND, take_arg, req);
}

struct berth_str req_query(const struct req *req, const char *name)
{
	for (unsigned i = 0; i < req->arg_count; i++)
		if (!strcmp(req->args[i].name, name))
			return (struct berth_str){req->args[i].value, req->args[i].len};
	return (struct berth_str){"", 0};
}

int64_t req_query_number(const struct req *req, const char *name, int64_t otherwise)
{
	struct berth_str text = req_query(req, name);
	char *end;
	long long number;

	if (!text.len)
		return otherwise;
	errno = 0;
	number = strtoll(text.ptr, &end, 10);
	return errno || *end || number < 0 ? otherwise : number;
}
