/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libmicrohttpd's side: takes requests, checks the token, starts the worker, moves bytes between the connection and the
 * request's queues. Its threads never wait: a connection with nothing to do is suspended until req_wake_locked.
 */
#include "server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORKER_STACK ((size_t)512 << 10)
#define BLOCK 8192u
#define CONNECTIONS 65000u
#define CONNECTION_MEMORY (24u << 10)
#define TIMEOUT_DEFAULT_MS 60000
#define STOP_MS 5000

static struct {
	struct MHD_Daemon *daemon;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct list {
		struct list *next, *prev;
		struct req *req;
	} all;
	unsigned workers;
	bool stopping;
} front = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

/* What a connection carries. */
struct carried {
	struct list list; /* first */
};

/* ---- the worker ---- */

static void *worker_main(void *arg)
{
	struct req *req = arg;
	void *inst = engine_of(req->deployment);

	if (inst)
		req->route->fn(req, inst);
	else
		reply_error(req, BERTH_UNAVAILABLE, "engine", "the deployment cannot be served");
	req_unref(req);
	pthread_mutex_lock(&front.lock);
	front.workers--;
	pthread_cond_broadcast(&front.cond);
	pthread_mutex_unlock(&front.lock);
	return NULL;
}

static bool start_worker(struct req *req)
{
	pthread_attr_t attr;
	pthread_t thread;
	bool ok;

	pthread_mutex_lock(&front.lock);
	front.workers++;
	pthread_mutex_unlock(&front.lock);
	req_ref(req);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, WORKER_STACK);
	ok = !pthread_create(&thread, &attr, worker_main, req);
	pthread_attr_destroy(&attr);
	if (ok)
		return true;
	req_unref(req);
	pthread_mutex_lock(&front.lock);
	front.workers--;
	pthread_mutex_unlock(&front.lock);
	return false;
}

/* ---- answers ---- */

static ssize_t read_out(void *ctx, uint64_t pos, char *buf, size_t max)
{
	struct req *req = ctx;
	ssize_t len;

	(void)pos;
	pthread_mutex_lock(&req->lock);
	len = (ssize_t)(req->out.len - req->out_at);
	len = len < (ssize_t)max ? len : (ssize_t)max;
	if (len > 0) {
		memcpy(buf, req->out.ptr + req->out_at, (size_t)len);
		req->out_at += (size_t)len;
		if (req->out_at == req->out.len && req->out.cap > 4 * BLOCK) {
			wire_free(&req->out);
			req->out_at = 0;
		}
		pthread_cond_broadcast(&req->cond);
	} else if (req->out_broken || req->out.lost) {
		len = MHD_CONTENT_READER_END_WITH_ERROR;
	} else if (req->out_end) {
		len = MHD_CONTENT_READER_END_OF_STREAM;
	} else {
		len = 0;
		req->suspended = true;
		MHD_suspend_connection(req->con);
	}
	pthread_mutex_unlock(&req->lock);
	return len;
}

static void out_done(void *ctx)
{
	req_unref(ctx);
}

/* Without the lock: libmicrohttpd holds its own on a response while it reads it. The status is decided, so that what is
 * read here changes no more, but for the body of an answer that has no end yet. */
static enum MHD_Result queue(struct req *req, bool whole)
{
	struct MHD_Response *response;
	enum MHD_Result result;
	char number[24];

	if (whole) {
		response = MHD_create_response_from_buffer(req->out.len, req->out.ptr, MHD_RESPMEM_MUST_COPY);
	} else {
		req_ref(req);
		response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, read_out, req, out_done);
	}
	if (!response)
		return MHD_NO;
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, req->type);
	if (req->retry_after_ms) {
		snprintf(number, sizeof(number), "%lld", (long long)(req->retry_after_ms + 999) / 1000);
		MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, number);
	}
	result = MHD_queue_response(req->con, req->status, response);
	MHD_destroy_response(response);
	return result;
}

static enum MHD_Result answer(struct MHD_Connection *con, unsigned status, int32_t code, const char *reason,
			      const char *text)
{
	struct json_object *json = error_json(code, reason, text, false, 0);
	const char *body = json_object_to_json_string_ext(json, JSON_C_TO_STRING_PLAIN);
	union {
		const char *in;
		void *out;
	} bytes = {.in = body};
	struct MHD_Response *response = MHD_create_response_from_buffer(strlen(body), bytes.out, MHD_RESPMEM_MUST_COPY);
	enum MHD_Result result = response ? MHD_queue_response(con, status, response) : MHD_NO;

	MHD_destroy_response(response);
	json_object_put(json);
	return result;
}

/* ---- requests ---- */

static bool token_fits(struct MHD_Connection *con)
{
	const char *given = MHD_lookup_connection_value(con, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);

	return !options.token || (given && !strncmp(given, "Bearer ", 7) && !strcmp(given + 7, options.token));
}

static int64_t deadline_of(struct MHD_Connection *con)
{
	const char *text = MHD_lookup_connection_value(con, MHD_HEADER_KIND, "X-Timeout-Ms");
	long long ms = text ? strtoll(text, NULL, 10) : 0;

	if (ms <= 0 || ms > 86400000)
		ms = TIMEOUT_DEFAULT_MS;
	return now_ns() + ms * 1000000;
}

/* False: the server stops, and takes nothing that it would have to wait for. */
static bool carry(struct req *req, void **con_cls)
{
	struct list *list = calloc(1, sizeof(struct carried));

	if (!list)
		abort();
	list->req = req;
	pthread_mutex_lock(&front.lock);
	if (front.stopping) {
		pthread_mutex_unlock(&front.lock);
		free(list);
		return false;
	}
	list->next = front.all.next;
	list->prev = &front.all;
	if (list->next)
		list->next->prev = list;
	front.all.next = list;
	pthread_mutex_unlock(&front.lock);
	*con_cls = list;
	return true;
}

static enum MHD_Result begin(struct MHD_Connection *con, const char *url, const char *method, void **con_cls)
{
	bool known = false;
	struct berth_str deployment;
	struct req *req = req_new(con);

	if (!req)
		return MHD_NO;
	if (!carry(req, con_cls)) {
		req_unref(req);
		return answer(con, 503, BERTH_UNAVAILABLE, "stopping", "the server stops");
	}
	req->route = route_find(req, method, url, &known);
	if (!req->route)
		return known ? answer(con, 405, BERTH_INVALID, "method", "the path has no such method")
			     : answer(con, 404, BERTH_INVALID, "route", "there is no such path");
	if (!(req->route->flags & ROUTE_OPEN) && !token_fits(con))
		return answer(con, 401, BERTH_UNAUTHENTICATED, "token", "the token is missing or wrong");
	req_take_query(req);
	deployment = req_query(req, "deployment");
	req->deployment = strndup(deployment.ptr, deployment.len);
	req->deadline_ns = deadline_of(con);
	if (!req->deployment || !start_worker(req))
		return answer(con, 503, BERTH_UNAVAILABLE, "resources", "no thread is left");
	return MHD_YES;
}

/* With the lock: takes what there is room for. */
static void take_upload_locked(struct req *req, const char *data, size_t *size)
{
	size_t room, len;

	if (req->in_done) {
		*size = 0;
		return;
	}
	if (!req->in)
		req->in = malloc(QUEUE_MAX);
	if (!req->in)
		abort();
	if (req->in_at && req->in_len == QUEUE_MAX) {
		memmove(req->in, req->in + req->in_at, req->in_len - req->in_at);
		req->in_len -= req->in_at;
		req->in_at = 0;
	}
	room = QUEUE_MAX - req->in_len;
	len = *size < room ? *size : room;
	memcpy(req->in + req->in_len, data, len);
	req->in_len += len;
	*size -= len;
	pthread_cond_broadcast(&req->cond);
	if (!*size)
		return;
	req->suspended = true;
	MHD_suspend_connection(req->con);
}

static enum MHD_Result on_access(void *cls, struct MHD_Connection *con, const char *url, const char *method,
				 const char *version, const char *data, size_t *size, void **con_cls)
{
	bool decided = false, whole = false;
	struct req *req;

	(void)cls;
	(void)version;
	if (!*con_cls)
		return begin(con, url, method, con_cls);
	req = ((struct list *)*con_cls)->req;
	pthread_mutex_lock(&req->lock);
	if (*size) {
		take_upload_locked(req, data, size);
	} else {
		if (!req->in_end) {
			req->in_end = true;
			pthread_cond_broadcast(&req->cond);
		}
		decided = req->status;
		whole = req->out_end && !req->out_broken && !req->out.lost;
		if (!decided) {
			req->suspended = true;
			MHD_suspend_connection(con);
		}
	}
	pthread_mutex_unlock(&req->lock);
	return decided ? queue(req, whole) : MHD_YES;
}

static void abort_locked(struct req *req)
{
	uint64_t one = 1;

	req->aborted = true;
	pthread_cond_broadcast(&req->cond);
	if (req->cancel_fd >= 0 && write(req->cancel_fd, &one, sizeof(one)) < 0)
		return; /* it is full: readable anyway */
}

static void on_completed(void *cls, struct MHD_Connection *con, void **con_cls, enum MHD_RequestTerminationCode why)
{
	struct list *list = *con_cls;

	(void)cls;
	(void)con;
	(void)why;
	if (!list)
		return;
	*con_cls = NULL;
	pthread_mutex_lock(&list->req->lock);
	list->req->con = NULL;
	abort_locked(list->req);
	pthread_mutex_unlock(&list->req->lock);
	pthread_mutex_lock(&front.lock);
	list->prev->next = list->next;
	if (list->next)
		list->next->prev = list->prev;
	pthread_cond_broadcast(&front.cond);
	pthread_mutex_unlock(&front.lock);
	req_unref(list->req);
	free(list);
}

bool front_start(const char *host, unsigned port, unsigned *ret_port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	const union MHD_DaemonInfo *info;

	if (inet_pton(AF_INET, host, &address.sin_addr) != 1)
		return false;
	front.daemon = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL,
					on_access, NULL, MHD_OPTION_SOCK_ADDR, &address, MHD_OPTION_NOTIFY_COMPLETED,
					on_completed, NULL, MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS,
					MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY,
					MHD_OPTION_LISTEN_BACKLOG_SIZE, 4096u, MHD_OPTION_THREAD_POOL_SIZE,
					options.threads, MHD_OPTION_CONNECTION_TIMEOUT, 300u, MHD_OPTION_END);
	if (!front.daemon)
		return false;
	info = MHD_get_daemon_info(front.daemon, MHD_DAEMON_INFO_BIND_PORT);
	*ret_port = info ? info->port : port;
	return true;
}

static void break_all(void)
{
	pthread_mutex_lock(&front.lock);
	for (struct list *list = front.all.next; list; list = list->next) {
		pthread_mutex_lock(&list->req->lock);
		list->req->out_end = list->req->out_broken = true;
		if (!list->req->status)
			list->req->status = 503;
		list->req->type = list->req->type ? list->req->type : "text/plain";
		abort_locked(list->req);
		req_wake_locked(list->req);
		pthread_mutex_unlock(&list->req->lock);
	}
	pthread_mutex_unlock(&front.lock);
}

/* libmicrohttpd must not be stopped with suspended connections; and not be quiesced with several loops, which it does
 * not survive every time. */
void front_stop(void)
{
	int64_t until_ns = now_ns() + STOP_MS * INT64_C(1000000);
	bool idle = false;

	if (!front.daemon)
		return;
	pthread_mutex_lock(&front.lock);
	front.stopping = true;
	pthread_mutex_unlock(&front.lock);
	while (!idle && now_ns() < until_ns) {
		struct timespec ts;

		break_all();
		clock_gettime(CLOCK_REALTIME, &ts);
		ts.tv_nsec += 20000000;
		ts.tv_sec += ts.tv_nsec / 1000000000;
		ts.tv_nsec %= 1000000000;
		pthread_mutex_lock(&front.lock);
		idle = !front.all.next && !front.workers;
		if (!idle)
			pthread_cond_timedwait(&front.cond, &front.lock, &ts);
		pthread_mutex_unlock(&front.lock);
	}
	if (!idle)
		_exit(0);
	MHD_stop_daemon(front.daemon);
}
