/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns struct req: its birth and end, and what handlers ask of it. Entered from the loop threads and from the one
 * worker that runs the request's handler. Must never tell a caller what a provider, the store or the host said in its
 * own words.
 */
#include "api/req.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "api/auth.h"
#include "api/intake.h"
#include "api/wait.h"
#include "core/clock.h"
#include "core/ident.h"
#include "core/json.h"
#include "core/limits.h"

static struct req *req_of(struct hangup_entry *entry)
{
	return (struct req *)((char *)entry - offsetof(struct req, hangup));
}

static void hold_hangup(struct hangup_entry *entry)
{
	req_ref(req_of(entry));
}

static void drop_hangup(struct hangup_entry *entry)
{
	req_unref(req_of(entry));
}

static bool fire_hangup(struct hangup_entry *entry)
{
	struct req *req = req_of(entry);

	/* An execution goes on; only what this client alone is for ends. */
	if (atomic_load(&req->follows))
		stream_abort(&req->stream);
	wait_hurry(req);
	/* A client may close its sending side after a complete body; an upload that is not complete never will be. */
	return req->route->flags & ROUTE_STREAM_IN && !stream_is_fed(&req->stream);
}

struct req *req_new(struct server *server, const char *target)
{
	struct req *req = calloc(1, sizeof(*req));

	if (!req)
		return NULL;
	req->arena = arena_new(LIMIT_REQUEST_ARENA);
	req->target = req->arena ? arena_strndup(req->arena, target, strnlen(target, LIMIT_URI + 1)) : NULL;
	if (!req->target) {
		arena_free(req->arena);
		free(req);
		return NULL;
	}
	req->server = server;
	req->ctx = server->config.ctx;
	req->begun_ns = clock_boot_ns();
	atomic_init(&req->refs, 1);
	head_init(&req->head);
	buf_init(&req->body, 0);
	buf_init(&req->reply.body, 2 * LIMIT_INLINE_FILE);
	req->hangup.hold = hold_hangup;
	req->hangup.fire = fire_hangup;
	req->hangup.drop = drop_hangup;
	stream_init(&req->stream, server->hangup);
	return req;
}

void req_ref(struct req *req)
{
	atomic_fetch_add(&req->refs, 1);
}

void req_drop_body(struct req *req)
{
	atomic_fetch_sub(&req->server->body_bytes, req->body_charged);
	req->body_charged = 0;
	buf_fini(&req->body);
}

void req_unref(struct req *req)
{
	if (atomic_fetch_sub(&req->refs, 1) != 1)
		return;
	if (req->state_fini && req->state)
		req->state_fini(req->state);
	auth_set_unref(req->auth);
	stream_fini(&req->stream);
	req_drop_body(req);
	buf_fini(&req->reply.body);
	arena_free(req->arena);
	free(req);
}

const char *req_param(const struct req *req, const char *name)
{
	for (size_t i = 0; i < req->param_count; i++) {
		if (strcmp(req->params[i].name, name) == 0)
			return req->params[i].value;
	}
	assert(!"a parameter that is not in the pattern");
	return "";
}

const char *req_query(const struct req *req, const char *name)
{
	return uri_query_get(&req->query, name);
}

int req_query_need(const struct req *req, const char *name, const char **ret, struct err *err)
{
	const char *value = req_query(req, name);

	if (!value || !*value)
		return err_set(err, ERR_INVALID_REQUEST, "query parameter \"%s\" is missing", name);
	*ret = value;
	return 0;
}

int req_query_bool(const struct req *req, const char *name, bool absent, bool *ret, struct err *err)
{
	const char *value = req_query(req, name);

	if (value && strcmp(value, "true") != 0 && strcmp(value, "1") != 0 && strcmp(value, "false") != 0 &&
	    strcmp(value, "0") != 0)
		return err_set(err, ERR_INVALID_REQUEST, "query parameter \"%s\" is neither true nor false", name);
	*ret = value ? value[0] == 't' || value[0] == '1' : absent;
	return 0;
}

int req_query_number(const struct req *req, const char *name, int64_t min, int64_t max, int64_t absent, int64_t *ret,
		     struct err *err)
{
	const char *value = req_query(req, name);
	int64_t number = 0;
	bool good = value && *value;

	if (!value) {
		*ret = absent;
		return 0;
	}
	for (const char *c = value; good && *c; c++)
		good = *c >= '0' && *c <= '9' && !__builtin_mul_overflow(number, 10, &number) &&
		       !__builtin_add_overflow(number, *c - '0', &number);
	if (!good || number < min || number > max)
		return err_set(err, ERR_INVALID_REQUEST, "query parameter \"%s\" is not a number from %lld to %lld",
			       name, (long long)min, (long long)max);
	*ret = number;
	return 0;
}

bool req_place(const char *text, uint64_t *ret)
{
	uint64_t number = 0;
	bool good = *text != '\0';

	for (; good && *text; text++)
		good = *text >= '0' && *text <= '9' && !__builtin_mul_overflow(number, 10, &number) &&
		       !__builtin_add_overflow(number, (uint64_t)(*text - '0'), &number);
	if (good)
		*ret = number;
	return good;
}

int req_query_wait(const struct req *req, int64_t absent_ms, int64_t *ret_deadline_ns, struct err *err)
{
	const char *value = req_query(req, "wait");
	int64_t ms = absent_ms;

	if (value && clock_parse_duration(value, &ms) != 0)
		return err_set(err, ERR_INVALID_REQUEST, "query parameter \"wait\" is not a duration such as \"30s\"");
	if (ms > LIMIT_WAIT_MS)
		return err_set(err, ERR_INVALID_REQUEST, "query parameter \"wait\" is longer than %d s",
			       LIMIT_WAIT_MS / 1000);
	*ret_deadline_ns = req->begun_ns + ms * CLOCK_NS_PER_MS;
	return 0;
}

int req_workspace(const struct req *req, const char **ret, struct err *err)
{
	const char *workspace = req_query(req, "workspace_id");

	if (!workspace)
		workspace = auth_only_workspace(req->token);
	if (!workspace)
		return err_set(err, ERR_INVALID_REQUEST, "query parameter \"workspace_id\" is missing");
	if (!ident_part_valid(workspace, strlen(workspace)))
		return err_set(err, ERR_INVALID_REQUEST, "workspace_id is not a valid name");
	*ret = workspace;
	return auth_workspace(req->token, workspace, err);
}

static void keep(struct req *req, const char **slot, const char *text)
{
	if (text)
		*slot = arena_strdup(req->arena, text);
}

void req_audit(struct req *req, const char *workspace, const char *task, const char *object)
{
	keep(req, &req->audit.workspace, workspace);
	keep(req, &req->audit.task, task);
	keep(req, &req->audit.object, object);
}

void req_header(struct req *req, const char *name, const char *value)
{
	struct reply *reply = &req->reply;

	assert(reply->header_count < REPLY_HEADERS);
	reply->headers[reply->header_count].name = name;
	reply->headers[reply->header_count].value = arena_strdup(req->arena, value);
	if (reply->headers[reply->header_count].value)
		reply->header_count++;
}

void req_json(struct req *req, unsigned status)
{
	req->reply.status = status;
	req->reply.content_type = "application/json";
	if (req->reply.body.error) {
		struct err err;

		err_set(&err, req->reply.body.error, "the answer is too large");
		req_error(req, &err);
	}
}

void req_empty(struct req *req, unsigned status)
{
	buf_clear(&req->reply.body);
	req->reply.status = status;
	req->reply.content_type = NULL;
}

static void answer_head(struct req *req, unsigned status, const char *content_type, uint64_t size)
{
	req->reply.status = status;
	req->reply.content_type = content_type;
	req->reply.stream = true;
	req->reply.size = size;
}

void req_answer_stream(struct req *req, unsigned status, const char *content_type, uint64_t size)
{
	answer_head(req, status, content_type, size);
	stream_answer(&req->stream);
}

void req_answer_pulled(struct req *req, unsigned status, const char *content_type, uint64_t size,
		       int (*pump)(struct req *req))
{
	req->pump = pump;
	answer_head(req, status, content_type, size);
	stream_answer(&req->stream);
}
