/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Judges requests: form, route, token, room, identity, body, attempt, and only then the operation. Any worker. Must
 * never let an operation begin for a request that was not signed for exactly this executor, these arguments and this
 * moment.
 */
#include "request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops.h"

#define HEALTH "/v1/health"
#define JSON_TYPE "application/json"

static void base_facts(const struct executor *executor, struct reply_facts *facts)
{
	*facts = (struct reply_facts){.pod_uid = executor->options.pod_uid, .instance = executor->state.instance};
}

static void refuse(struct executor *executor, struct reply *reply, unsigned status, const char *reason,
		   const char *text)
{
	struct result result = {.code = BERTH_INVALID};

	snprintf(result.reason, sizeof(result.reason), "%s", reason);
	snprintf(result.text, sizeof(result.text), "%s", text);
	reply_error(reply, status, &result, executor_now_ms(executor));
}

static void refuse_closing(struct executor *executor, struct http_conn *conn, unsigned status, const char *reason,
			   const char *text)
{
	struct reply_facts facts;
	struct reply reply;

	base_facts(executor, &facts);
	reply_init(&reply, conn, &facts);
	reply.close = true;
	refuse(executor, &reply, status, reason, text);
	reply_fini(&reply);
}

void request_refuse_head(struct executor *executor, struct http_conn *conn)
{
	refuse_closing(executor, conn, 431, "limit", "the request's head is larger than 16 KiB");
}

static void answer_health(struct executor *executor, struct reply *reply)
{
	bool ready;
	char *text = executor_health(executor, &ready);

	if (text)
		reply_plain(reply, ready ? 200 : 503, JSON_TYPE, text, strlen(text));
	else
		refuse(executor, reply, 503, "memory", "no memory");
	free(text);
}

static int32_t unauthenticated(struct berth_call *call, const char *reason, const char *text)
{
	return call_fail(call, BERTH_UNAUTHENTICATED, reason, false, text);
}

/* The nonce is taken last: a token that was refused may be shown again. */
static int32_t take_nonce(struct berth_call *call, int64_t now_ms)
{
	int rc = replay_take(&call->executor->replay, call->token.nonce, call->token.expires_ms, now_ms);

	if (rc == -EEXIST)
		return unauthenticated(call, "replayed", "this token has served before");
	if (rc < 0)
		return call_fail(call, BERTH_UNAVAILABLE, "replay_memory", true, "too many tokens are still valid");
	return BERTH_OK;
}

static int32_t check_token(struct berth_call *call, const struct http_request *request)
{
	const struct executor *executor = call->executor;
	struct token *token = &call->token;
	struct token_facts facts = {executor->options.pod_uid, executor->state.instance, request->method, request->path,
				    executor_now_ms(executor)};
	const char *reason;
	int rc;

	if (!request->token || token_parse(request->token, request->token_len, token) < 0)
		return unauthenticated(call, "token", "the header Berth-Token is missing or malformed");
	rc = keys_verify(&call->executor->keys, token->key_id, token->signature, token->message, token->message_len);
	if (rc == -ENOKEY)
		return unauthenticated(call, "key", "the token's key id is not known");
	if (rc < 0)
		return unauthenticated(call, "signature", "the token's signature does not fit");
	reason = token_judge(token, &facts);
	if (reason)
		return unauthenticated(call, reason, "the token was made for another request, executor or time");
	return take_nonce(call, facts.now_ms);
}

static int32_t check_identity(struct berth_call *call, const struct ops_route *route)
{
	struct token *token = &call->token;
	int rc;

	if (!token->workspace_id[0])
		return route->anonymous ? BERTH_OK
					: call_fail(call, BERTH_FORBIDDEN, "identity_missing", false,
						    "the token names no workspace and task");
	rc = state_pin(&call->executor->state, token->workspace_id, token->task_id);
	if (rc == -EACCES)
		return call_fail(call, BERTH_FORBIDDEN, "identity", false, "this executor serves another task");
	if (rc == -ENOSPC || rc == -EDQUOT)
		return call_fail(call, BERTH_STORAGE_FULL, "storage_full", false, "no room to pin the identity");
	return rc < 0 ? call_fail(call, BERTH_UNAVAILABLE, "run_dir", true, "the identity cannot be pinned") : BERTH_OK;
}

static int32_t check_alive(struct berth_call *call, const struct ops_route *route)
{
	const char *lost = state_lost(&call->executor->state);

	if (lost && !route->anonymous)
		return call_fail(call, BERTH_SESSION_LOST, lost, false, "a directory of this session was removed");
	if (atomic_load(&call->executor->draining))
		return call_fail(call, BERTH_UNAVAILABLE, "draining", true, "the executor is ending");
	return BERTH_OK;
}

/* The identity is told once it is pinned, so that a wrong caller learns that it is wrong. */
static void tell_identity(struct berth_call *call)
{
	struct state *state = &call->executor->state;

	call->reply.facts.nonce = call->token.nonce_hex;
	if (!state_pinned(state))
		return;
	call->reply.facts.workspace_id = state->workspace_id;
	call->reply.facts.task_id = state->task_id;
}

static int32_t check_args(struct berth_call *call, const struct ops_route *route)
{
	const struct frame_blob *text = &call->body.args;
	const struct token *token = &call->token;
	struct args *args = &call->args;
	char why[128];
	bool same;

	if (args_parse(text->ptr, text->len, route->keys, args, why, sizeof(why)) < 0)
		return call_fail(call, BERTH_INVALID, "arguments", false, why);
	same = args->execution_id.len == strlen(token->execution_id) &&
	       (args->execution_id.len == 0 ||
		memcmp(args->execution_id.ptr, token->execution_id, args->execution_id.len) == 0);
	if (!same || args->attempt != token->attempt)
		return unauthenticated(call, "arguments", "the token was made for another execution or attempt");
	if (route->execution && args->execution_id.len == 0)
		return call_fail(call, BERTH_INVALID, "execution_id", false, "the execution id is empty");
	return BERTH_OK;
}

static int32_t body_fault(struct berth_call *call)
{
	const struct frame_fault *fault = &call->body.fault;

	return call_fail(call, fault->code, fault->reason, false, fault->text);
}

static int32_t read_body(struct berth_call *call, const struct ops_route *route)
{
	int32_t rc = frame_body_begin(&call->body, route->blobs, route->data);

	if (rc)
		return body_fault(call);
	rc = check_args(call, route);
	if (rc == BERTH_OK && route->stream && !call->body.verified && !call->args.has_stdin)
		rc = call_fail(call, BERTH_INVALID, "frame", false, "there is data, but has_stdin is not true");
	return rc;
}

static int32_t check_attempt(struct berth_call *call, const struct ops_route *route)
{
	int rc;

	if (!route->execution || call->token.attempt == 0)
		return BERTH_OK;
	rc = state_attempt(&call->executor->state, call->token.execution_id, call->token.attempt);
	if (rc == -ESTALE)
		return call_fail(call, BERTH_CONFLICT, "stale_attempt", false,
				 "a later attempt of this execution has asked before");
	if (rc == -EBADMSG && route->ends)
		return BERTH_OK;
	if (rc == -EBADMSG)
		return call_fail(call, BERTH_UNKNOWN, "mark_damaged", false,
				 "a mark of this execution is damaged: which attempts there were is not known");
	if (rc == -ENOSPC || rc == -EDQUOT)
		return call_fail(call, BERTH_STORAGE_FULL, "storage_full", false, "no room to note the attempt");
	return rc < 0 ? call_fail(call, BERTH_UNAVAILABLE, "run_dir", true, "the run directory cannot be used")
		      : BERTH_OK;
}

static int send_continue(struct http_conn *conn)
{
	static char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
	struct iovec iov = {text, sizeof(text) - 1};

	return http_send(conn, &iov, 1);
}

static int32_t run(struct berth_call *call, const struct ops_route *route, const struct http_request *request)
{
	int32_t rc = check_alive(call, route);

	if (rc == BERTH_OK && request->expect_continue && send_continue(call->conn) < 0)
		rc = call_fail(call, BERTH_CANCELLED, "disconnected", false, "the client went away");
	if (rc == BERTH_OK)
		rc = read_body(call, route);
	if (rc == BERTH_OK)
		rc = check_attempt(call, route);
	return rc ? rc : route->run(call);
}

/* An eighth of the operations is kept for those that a waiting client needs to end the others, and so is the last thread:
 * in a storm of processes there is no other one to be had. */
static bool admit(struct executor *executor, const struct ops_route *route, const struct request_room *room)
{
	uint32_t max = executor->options.max_operations;
	uint32_t most = route->stream ? max - (max + 7) / 8 : max;
	bool ends_others = route->execution && !route->stream;
	bool ok = atomic_fetch_add(&executor->operations, 1) < max;

	if (route->stream)
		ok = atomic_fetch_add(&executor->streams, 1) < (most ? most : 1) && ok;
	return ok && (ends_others || room->spare(room->ctx));
}

static void leave(struct executor *executor, const struct ops_route *route)
{
	atomic_fetch_sub(&executor->operations, 1);
	if (route->stream)
		atomic_fetch_sub(&executor->streams, 1);
}

static int32_t judge_and_run(struct berth_call *call, const struct ops_route *route, const struct http_request *request,
			     const struct request_room *room)
{
	int32_t rc = check_token(call, request);

	if (rc)
		return rc;
	call->conn->patient = call->conn->trusted = true;
	tell_identity(call);
	rc = check_identity(call, route);
	if (rc)
		return rc;
	tell_identity(call);
	if (admit(call->executor, route, room))
		rc = run(call, route, request);
	else
		rc = call_fail(call, BERTH_UNAVAILABLE, "busy", true, "no operation or thread is free");
	leave(call->executor, route);
	return rc;
}

/* A request whose body was not read to its end would be taken for the next one. */
static void settle_body(struct berth_call *call, const struct http_request *request)
{
	if (request->expect_continue && call->result.code && !call->body.args.ptr)
		call->reply.close = true; /* the client may not send it at all */
	else if (http_body_drain(call->conn) < 0)
		call->reply.close = true;
}

static bool serve_call(struct berth_call *call, const struct ops_route *route, const struct http_request *request,
		       const struct request_room *room)
{
	int32_t rc;
	bool keep;

	frame_body_init(&call->body, call->conn, &call->token, &call->executor->keys);
	call->sibling.wait_fd = call->sibling.told = -1;
	rc = judge_and_run(call, route, request, room);
	siblings_leave(&call->sibling);
	if (rc && call->result.code != rc)
		call_fail(call, rc, "", false, "");
	if (!call->reply.streaming && !call->reply.done)
		settle_body(call, request);
	if (call->peer_gone)
		call->conn->failed = true;
	if (!call->reply.done && !call->conn->failed)
		reply_end(&call->reply, &call->result, executor_now_ms(call->executor));
	keep = !call->reply.close && !call->conn->failed && call->conn->ended;
	reply_fini(&call->reply);
	frame_body_fini(&call->body);
	args_fini(&call->args);
	return keep;
}

static bool serve_route(struct executor *executor, struct http_conn *conn, const struct http_request *request,
			const struct ops_route *route, const struct request_room *room)
{
	struct berth_call call;
	struct reply_facts facts;

	/* The token is large and is filled whole. */
	memset(&call, 0, offsetof(struct berth_call, token));
	memset((char *)&call + offsetof(struct berth_call, reply), 0,
	       sizeof(call) - offsetof(struct berth_call, reply));
	call.executor = executor;
	call.conn = conn;
	base_facts(executor, &facts);
	reply_init(&call.reply, conn, &facts);
	call.reply.close = !request->keep_alive;
	return serve_call(&call, route, request, room);
}

/* Health, and what has no operation. */
static bool serve_plain(struct executor *executor, struct http_conn *conn, const struct http_request *request,
			bool known)
{
	bool get = strcmp(request->method, "GET") == 0, head = strcmp(request->method, "HEAD") == 0;
	struct reply_facts facts;
	struct reply reply;
	bool keep;

	base_facts(executor, &facts);
	reply_init(&reply, conn, &facts);
	reply.close = !request->keep_alive || http_body_drain(conn) < 0;
	reply.head_only = head;
	if (strcmp(request->path, HEALTH) == 0 && (get || head))
		answer_health(executor, &reply);
	else if (known || strcmp(request->path, HEALTH) == 0)
		refuse(executor, &reply, 405, "method", "this path takes another method");
	else
		refuse(executor, &reply, 404, "route", "there is no such path");
	keep = !reply.close && !conn->failed;
	reply_fini(&reply);
	return keep;
}

bool request_serve(struct executor *executor, struct http_conn *conn, const struct request_room *room)
{
	struct http_request request;
	unsigned status = http_head_parse(conn, &request);
	const struct ops_route *route;

	if (status) {
		refuse_closing(executor, conn, status, "http", "the request is not well-formed HTTP/1.1");
		return false;
	}
	route = ops_find(request.path);
	if (route && strcmp(request.method, "POST") == 0)
		return serve_route(executor, conn, &request, route, room);
	return serve_plain(executor, conn, &request, route != NULL);
}
