/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the life of a request on its loop thread: head, body, hand-over, answer, end. Entered only by libmicrohttpd's
 * callbacks for one connection at a time. Must never wait; what waits is handed to a worker while the connection is
 * suspended.
 */
#include "api/intake.h"

#include <assert.h>
#include <string.h>

#include "api/conn.h"
#include "api/forwarded.h"
#include "api/signed.h"
#include "core/clock.h"
#include "core/ident.h"
#include "core/limits.h"
#include "core/log.h"
#include "obs/metrics.h"

void *intake_target(void *cls, const char *uri, struct MHD_Connection *conn)
{
	struct conn *owner = conn_of(conn);
	struct req *req = owner ? req_new(cls, uri) : NULL;

	if (!req)
		return NULL;
	req->conn = owner;
	req->target_begin = uri;
	req->target_end = uri + strlen(uri);
	stream_guard(&req->stream, &owner->guard);
	stream_bind(&req->stream, conn, NULL, false);
	server_link(cls, req);
	return req;
}

/* ---- head ---- */

static bool id_is_good(const char *id)
{
	static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
	size_t len = id ? strlen(id) : 0;

	return len >= 1 && len <= REQ_ID_MAX && strspn(id, set) == len;
}

/* Between a name and its value stand the colon, now a NUL, and white space. libmicrohttpd puts the value of a folded
 * line elsewhere, its parts joined without the space that another reader sees between them: "chun" and "ked" become
 * one. */
static bool is_of_one_line(const char *name, size_t name_len, const char *value)
{
	const char *c = name + name_len;

	while (c < value && (*c == '\0' || *c == ' ' || *c == '\t'))
		c++;
	return c == value;
}

static enum MHD_Result add_header(void *cls, enum MHD_ValueKind kind, const char *name, size_t name_len,
				  const char *value, size_t value_len)
{
	struct req *req = cls;

	(void)kind;
	/* libmicrohttpd ends lines in place, CR and LF becoming NULs, and hands out a value up to its first NUL: one
	 * of the client's own, or a bare LF, shows in the byte after. The blank line that ended the head is always
	 * behind it. */
	if (value && value[value_len + 1] != '\0')
		head_fault(&req->head, "a header holds a NUL or does not end with CRLF");
	if (value && !is_of_one_line(name, name_len, value))
		head_fault(&req->head, "a header is folded over several lines");
	head_add(&req->head, req->arena, name, name_len, value, value_len);
	return MHD_YES;
}

static int read_head(struct req *req, struct MHD_Connection *conn, const char *method, const char *version,
		     struct err *err)
{
	MHD_get_connection_values_n(conn, MHD_HEADER_KIND, add_header, req);
	if (id_is_good(req->head.request_id))
		memcpy(req->id, req->head.request_id, strlen(req->head.request_id) + 1);
	else
		ident_random(req->id, "req_", 24);
	/* A copy: a worker may tell of it when the connection is gone. */
	req->client = arena_strdup(req->arena, forwarded_client(req->arena, &req->server->config.proxies,
								req->conn->peer, req->head.forwarded_for));
	trace_make(req->head.traceparent, req->trace);
	log_set_request(req->id);
	/* libmicrohttpd ends method and target in place: with anything between the three words there was a NUL, or
	 * more than one space. */
	if (version != req->target_end + 1 || method + strlen(method) + 1 != req->target_begin)
		head_fault(&req->head, "the request line holds a byte that is not allowed there");
	return head_finish(&req->head, version, err);
}

static int check_room(struct req *req, struct err *err)
{
	struct server *server = req->server;

	if (atomic_load(&server->stopping) && !(req->route->flags & ROUTE_ALWAYS))
		return err_set(err, ERR_SHUTTING_DOWN, "the server is stopping");
	if (!(req->route->flags & ROUTE_ALWAYS) && guard_busy(server->guard) > server->config.limits.connections) {
		req->reply.close = true;
		return err_set(err, ERR_QUEUE_FULL, "too many connections");
	}
	return 0;
}

/* Other hosts of the store serve it: a balancer sent it to the wrong one. */
static int check_role(const struct req *req, struct err *err)
{
	const struct server_config *config = &req->server->config;

	if (req->route->flags & ROUTE_EVERY_HOST)
		return 0;
	if (config->closed && config->closed(config->ctx)) {
		err_set(err, ERR_STORE, "the state was lost; hosts tell a new store what they run");
		err->retry_after_ms = 1000;
		return ERR_STORE;
	}
	if (!config->narrow)
		return 0;
	return err_set(err, ERR_MISDIRECTED, "this host has not the role api: it serves health, readiness and metrics only");
}

static int find_route(struct req *req, size_t path_len, struct route_match *match, struct err *err)
{
	if (strlen(req->target) > LIMIT_URI)
		return err_set(err, ERR_URI_TOO_LONG, "the request target is longer than %d bytes", LIMIT_URI);
	if (strcmp(req->target, "*") == 0 && strcmp(req->method, "OPTIONS") == 0) {
		snprintf(match->allow, sizeof(match->allow), "GET, HEAD, POST, PUT, DELETE, OPTIONS");
		return err_set(err, ERR_METHOD_NOT_ALLOWED, "it is asked what is allowed");
	}

	int r = router_find(req->server->config.routes, req->method, req->target, path_len, match, err);

	if (r == 0)
		req->route = match->route;
	return r;
}

static int take_params(struct req *req, const struct route_match *match, struct err *err)
{
	for (size_t i = 0; i < match->param_count; i++) {
		const char *name = arena_strndup(req->arena, match->params[i].name, match->params[i].name_len);

		if (!name)
			return err_set(err, ERR_NOMEM, "out of memory");

		int r = uri_decode(req->arena, name, URI_PATH, match->params[i].ptr, match->params[i].len,
				   &req->params[i].value, err);

		if (r != 0)
			return r;
		req->params[i].name = name;
		req->param_count++;
	}
	return 0;
}

static int check_body(struct req *req, struct err *err)
{
	const struct route *route = req->route;

	if (route->flags & ROUTE_STREAM_IN)
		return 0;
	if (route->body_max == 0 && head_has_body(&req->head))
		return err_set(err, ERR_INVALID_REQUEST, "this route takes no body");
	if (req->head.length > (int64_t)route->body_max)
		return err_set(err, ERR_PAYLOAD_TOO_LARGE, "the body is larger than %zu bytes", route->body_max);
	req->body.max = route->body_max;
	return 0;
}

static int check_token(struct req *req, struct err *err)
{
	const struct auth *auth = &(req->auth = server_auth(req->server))->auth;
	const char *header = req->head.authorizations == 1 ? req->head.authorization : NULL;
	struct signed_token *sig = NULL;
	int64_t now_ms = clock_wall_ms();
	int r = auth_check(auth, header, req->route->scope, now_ms, &req->token, err);

	if (r != ERR_UNAUTHORIZED || !auth->control)
		return r;
	r = signed_check(auth->control, header, req->route->scope, now_ms, req->arena, &sig, err);
	if (r == 0) {
		req->token = &sig->token;
		req->sig = sig;
	}
	return r;
}

/* Everything that can be told from the head alone, cheapest and safest first. */
static int admit(struct req *req, struct MHD_Connection *conn, const char *method, const char *version,
		 struct route_match *match, struct err *err)
{
	int r = read_head(req, conn, method, version, err);

	req->target = uri_origin(req->target);

	size_t path_len = strcspn(req->target, "?");
	const char *query = req->target[path_len] ? req->target + path_len + 1 : NULL;

	if (r == 0)
		r = find_route(req, path_len, match, err);
	if (r == 0)
		r = check_room(req, err);
	if (r == 0)
		r = check_role(req, err);
	if (r == 0 && req->route->scope != SCOPE_OPEN)
		r = check_token(req, err);
	if (r == 0)
		r = take_params(req, match, err);
	if (r == 0 && req->sig)
		r = signed_fits(req->sig, &req->head, req->param_count ? req->params[0].value : NULL, err);
	if (r == 0)
		r = uri_query_parse(req->arena, query, req->route->query, &req->query, err);
	if (r == 0)
		r = head_check(&req->head, req->method, version, req->route->body_max > 0, err);
	if (r == 0)
		r = check_body(req, err);
	if (r == 0 && req->route->check)
		r = req->route->check(req, err);
	return r;
}

/* Answers in place of the body that would follow. */
static enum MHD_Result refuse_body(struct req *req, struct MHD_Connection *conn)
{
	req->phase = REQ_LINGER;
	guard_set(&req->conn->guard, GUARD_LINGER);
	reply_raw(req, conn);
	return MHD_YES;
}

static enum MHD_Result refuse(struct req *req, struct MHD_Connection *conn, const char *allow, struct err *err)
{
	const struct head *head = &req->head;

	req_error(req, err);
	if (err->code == ERR_METHOD_NOT_ALLOWED && strcmp(req->method, "OPTIONS") == 0)
		req_empty(req, 204);
	audit_log(req);
	if (err->code == ERR_METHOD_NOT_ALLOWED)
		req_header(req, "Allow", allow);
	stream_answer(&req->stream);
	/* One that waits for our word before it sends its body is not told to send it. */
	if (head->fault || head->chunked || head->length > (int64_t)INTAKE_DISCARD_MAX ||
	    (head->expect && head->length > 0))
		return refuse_body(req, conn);
	req->phase = REQ_DISCARD;
	return MHD_YES;
}

static void watch_connection(struct req *req, struct MHD_Connection *conn)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);

	req->hangup.fd = info ? info->connect_fd : -1;
	stream_bind(&req->stream, conn, info ? &req->hangup : NULL, req->route->flags & ROUTE_STREAM_IN);
}

static enum MHD_Result take_head(struct req *req, struct MHD_Connection *conn, const char *method, const char *version)
{
	struct route_match match = {0};
	struct err err = {0};

	req->method = arena_strdup(req->arena, method);
	if (!req->method)
		return MHD_NO;
	req->phase = REQ_BODY;
	guard_set(&req->conn->guard, GUARD_BODY);
	if (admit(req, conn, method, version, &match, &err) != 0)
		return refuse(req, conn, match.allow, &err);
	watch_connection(req, conn);
	if (req->route->flags & ROUTE_STREAM_IN && server_submit(req->server, req) != 0) {
		err_set(&err, ERR_QUEUE_FULL, "too many transfers at once");
		return refuse(req, conn, NULL, &err);
	}
	return MHD_YES;
}

/* ---- body ---- */

static int keep_body(struct req *req, const char *ptr, size_t len, struct err *err)
{
	size_t total = atomic_fetch_add(&req->server->body_bytes, len) + len;

	req->body_charged += len;
	if (total > INTAKE_BODIES_MAX)
		return err_set(err, ERR_QUEUE_FULL, "too many large bodies at once");
	if (buf_append(&req->body, ptr, len) == ERR_PAYLOAD_TOO_LARGE)
		return err_set(err, ERR_PAYLOAD_TOO_LARGE, "the body is larger than %zu bytes", req->body.max);
	return req->body.error ? err_set(err, req->body.error, "out of memory") : 0;
}

static enum MHD_Result linger(struct req *req, size_t *len)
{
	req->lingered += *len;
	*len = 0;
	return req->lingered > INTAKE_LINGER_BYTES ? MHD_NO : MHD_YES;
}

static enum MHD_Result feed_body(struct req *req, struct MHD_Connection *conn, const char *ptr, size_t *len)
{
	bool ready = false;

	/* The worker hears of it and makes the answer, which goes out with the byte after. */
	if (atomic_load(&req->conn->guard.late))
		stream_feed_fail(&req->stream, ERR_REQUEST_TIMEOUT);

	size_t taken = stream_feed(&req->stream, ptr, *len, &ready);

	atomic_fetch_add(&req->conn->guard.received, taken);
	*len -= taken;
	if (!ready)
		return MHD_YES;
	*len = 0;
	return refuse_body(req, conn);
}

static enum MHD_Result take_body(struct req *req, struct MHD_Connection *conn, const char *ptr, size_t *len)
{
	struct guard_entry *guard = &req->conn->guard;
	struct err err = {0};
	int r = 0;

	if (req->phase == REQ_LINGER)
		return linger(req, len);
	if (req->phase == REQ_BODY && req->route->flags & ROUTE_STREAM_IN)
		return feed_body(req, conn, ptr, len);
	atomic_fetch_add(&guard->received, *len);
	if (req->phase == REQ_BODY)
		r = atomic_load(&guard->late) ? err_set(&err, ERR_REQUEST_TIMEOUT, "the body came too slowly")
					      : keep_body(req, ptr, *len, &err);
	*len = 0;
	if (r != 0) {
		req_error(req, &err);
		audit_log(req);
		stream_answer(&req->stream);
		return refuse_body(req, conn);
	}
	/* A refused body that is read for its connection's sake: its answer is there already. */
	return req->phase == REQ_DISCARD && atomic_load(&guard->late) ? refuse_body(req, conn) : MHD_YES;
}

/* ---- the rest ---- */

static enum MHD_Result send_answer(struct req *req, struct MHD_Connection *conn)
{
	req->phase = REQ_SENT;
	guard_set(&req->conn->guard, GUARD_ANSWER);
	return reply_queue(req, conn);
}

static enum MHD_Result await_worker(struct req *req, struct MHD_Connection *conn)
{
	req->phase = REQ_WORK;
	return stream_await_answer(&req->stream) ? MHD_YES : send_answer(req, conn);
}

static enum MHD_Result run_inline(struct req *req, struct MHD_Connection *conn)
{
	struct err err = {0};

	if (req->route->handler(req, &err) != REQ_DONE)
		req_error(req, &err);
	stream_answer(&req->stream);
	return send_answer(req, conn);
}

static enum MHD_Result dispatch(struct req *req, struct MHD_Connection *conn)
{
	struct err err = {0};

	if (req->route->flags & ROUTE_INLINE)
		return run_inline(req, conn);
	if (req->route->quick && req->route->quick(req)) {
		stream_answer(&req->stream);
		return send_answer(req, conn);
	}

	/* Suspend first: the worker may be done before submit returns. */
	enum MHD_Result result = await_worker(req, conn);
	int r = server_submit(req->server, req);

	if (r != 0) {
		err_set(&err, r, r == ERR_SHUTTING_DOWN ? "the server is stopping" : "too many requests wait");
		req_error(req, &err);
		audit_log(req);
		stream_answer(&req->stream);
	}
	return result;
}

static enum MHD_Result take_end(struct req *req, struct MHD_Connection *conn)
{
	if (req->phase == REQ_BODY)
		guard_set(&req->conn->guard, GUARD_WORK);
	switch (req->phase) {
	case REQ_BODY:
		if (!(req->route->flags & ROUTE_STREAM_IN))
			return dispatch(req, conn);
		stream_feed_end(&req->stream);
		return await_worker(req, conn);
	case REQ_WORK:
		return await_worker(req, conn);
	case REQ_DISCARD:
		return send_answer(req, conn);
	default: /* lingering: the answer is out, nothing more may come on this connection */
		return MHD_NO;
	}
}

enum MHD_Result intake_request(void *cls, struct MHD_Connection *conn, const char *url, const char *method,
			       const char *version, const char *upload, size_t *upload_len, void **con_cls)
{
	struct req *req = *con_cls;
	enum MHD_Result result;

	(void)cls;
	(void)url; /* unescaped by libmicrohttpd's lax rules; req->target is what came */
	if (!req)
		return MHD_NO;
	log_set_request(req->id);
	if (req->phase == REQ_HEAD)
		result = take_head(req, conn, method, version);
	else if (*upload_len)
		result = take_body(req, conn, upload, upload_len);
	else
		result = take_end(req, conn);
	log_set_request(NULL);
	return result;
}

static void count_request(const struct req *req, bool answered)
{
	unsigned route = req->route ? (unsigned)(req->route - req->server->config.routes) + 1 : 0;
	uint64_t sent = atomic_load(&req->sent);

	metric_add(METRIC_HTTP_REQUESTS, route, metric_status(answered ? req->reply.status : 0), 1);
	metric_observe_ns(METRIC_HTTP_SECONDS, route, clock_boot_ns() - req->begun_ns);
	metric_add(METRIC_HTTP_BYTES, 0, 0, sent);
}

static void log_request_line(struct req *req, bool answered, bool delivered)
{
	int64_t ms = (clock_boot_ns() - req->begun_ns) / CLOCK_NS_PER_MS;

	log_set_request(req->id);
	const struct log_field fields[] = {
		KS("method", req->method),
		KS("route", req->route ? req->route->pattern : "-"),
		KI("status", answered ? req->reply.status : 0),
		KI("ms", ms),
		KI("bytes", atomic_load(&req->sent)),
		KS("identity", req->token ? req->token->name : "-"),
		KS("client", req->client),
		KS("end", delivered ? "sent" : "cut"),
		{0},
	};

	log_emit_later(LOG_INFO, "request", fields);
	log_set_request(NULL);
}

void intake_completed(void *cls, struct MHD_Connection *conn, void **con_cls, enum MHD_RequestTerminationCode code)
{
	struct req *req = *con_cls;

	(void)conn;
	if (!req)
		return;
	*con_cls = NULL;
	/* Without a method libmicrohttpd refused the head by itself. */
	if (req->method) {
		bool answered = stream_is_ready(&req->stream);

		count_request(req, answered);
		log_request_line(req, answered,
				 code == MHD_REQUEST_TERMINATED_COMPLETED_OK || req->phase == REQ_LINGER);
	}
	guard_set(&req->conn->guard, GUARD_IDLE);
	atomic_store(&req->conn->guard.late, false);
	stream_over(&req->stream);
	server_unlink(cls, req);
	req_unref(req);
}
