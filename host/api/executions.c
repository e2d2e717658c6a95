/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the execution routes: create, read, cancel, list. Entered from workers; a request that waits holds none and is
 * entered again, so each handler keeps what it has done in req->state. Must never run or cancel anything because a
 * client went away.
 */
#include "execution/execution.h"

#include <string.h>

#include "api/auth.h"
#include "api/body.h"
#include "api/create.h"
#include "api/resources.h"
#include "api/signed.h"
#include "api/wait.h"
#include "core/limits.h"

#define PREVIEW_MAX (64 * LIMIT_KIB)

/* What a request that may be entered again knows already. */
struct progress {
	char id[IDENT_ID_MAX + 1];
	bool replayed;
	bool awaited; /* ?wait was given */
	int64_t deadline_ns;
	int64_t revision; /* wait for another one than this; 0 = wait for the end */
};

static struct executions *executions_of(const struct req *req)
{
	return api_of(req)->config.executions;
}

static int no_such(struct err *err)
{
	return err_set(err, ERR_NOT_FOUND, "no such execution");
}

int execution_reach(struct req *req, const char *id, struct execution_head *ret, struct err *err)
{
	if (!ident_is_random(id, "sexec_", 24))
		return no_such(err);

	int r = execution_head(executions_of(req), id, ret, err);

	/* Not known and not allowed must look the same. */
	if (r == 0)
		req_audit(req, ret->ident.workspace, ret->ident.task, id);
	if (r == ERR_NOT_FOUND || (r == 0 && !auth_allows(req->token, ret->ident.workspace)) ||
	    (r == 0 && req->sig && strcmp(req->sig->ident.task, ret->ident.task) != 0))
		return no_such(err);
	return r;
}

static struct progress *new_progress(struct req *req, const char *id, struct err *err)
{
	struct progress *progress = arena_alloc(req->arena, sizeof(*progress));

	if (!progress) {
		err_set(err, ERR_NOMEM, "out of memory");
		return NULL;
	}
	snprintf(progress->id, sizeof(progress->id), "%s", id);
	req->state = progress;
	return progress;
}

static int look(struct req *req, bool *ret_done, struct err *err)
{
	struct progress *progress = req->state;
	struct execution_head head;
	int r;

	if (!progress->revision && execution_runs_here(executions_of(req), progress->id))
		return 0;
	r = execution_head(executions_of(req), progress->id, &head, err);
	if (r == 0)
		*ret_done = head.terminal || (progress->revision && head.revision != progress->revision);
	return r;
}

/* quick: makes the answer of an ended record that is in memory; see wait.h. */
static int wait_until_done(struct req *req, bool (*quick)(struct req *req), struct err *err)
{
	struct progress *progress = req->state;
	char key[64];

	if (!progress->awaited)
		return REQ_DONE;
	execution_watch_key(progress->id, key);
	req->wait.quick = quick;
	return wait_for(req, key, progress->deadline_ns, look, err);
}

/* The record; `open` is the status of an answer that is not about a terminal one. */
static int render(struct req *req, size_t preview, unsigned open, struct err *err)
{
	struct progress *progress = req->state;
	struct execution_head head;

	buf_clear(&req->reply.body);

	int r = execution_render(executions_of(req), progress->id, preview, &req->reply.body, &head, err);

	if (r == 0)
		req_json(req, head.terminal ? 200 : open);
	return r;
}

/* The same of an ended one that is in memory. */
static bool render_ended(struct req *req)
{
	struct progress *progress = req->state;
	struct execution_head head;

	buf_clear(&req->reply.body);
	if (!execution_ended(executions_of(req), progress->id, &head, &req->reply.body)) {
		buf_clear(&req->reply.body);
		return false;
	}
	req_json(req, 200);
	return true;
}

/* ---- create ---- */

static int take_key(const struct req *req, const char **ret, struct err *err)
{
	const char *key = req->head.idempotency_key;

	if (key && (!*key || strlen(key) > LIMIT_LABEL || !ident_utf8_valid(key, strlen(key))))
		return err_set(err, ERR_INVALID_REQUEST, "Idempotency-Key must be 1 to %d bytes of UTF-8", LIMIT_LABEL);
	*ret = key;
	return 0;
}

/* May this token make that? A signed one names task and body, and makes one execution. */
static int check_create(const struct req *req, struct execution_create *in, struct err *err)
{
	const struct signed_token *sig = req->sig;
	int r = sig ? signed_body(sig, in->body_sha256, err) : 0;

	if (r == 0)
		r = auth_workspace(req->token, in->ident.workspace, err);
	if (r != 0 || !sig)
		return r;
	if (strcmp(sig->ident.task, in->ident.task) != 0)
		return err_set(err, ERR_SCOPE_MISMATCH, "the token does not reach this task");
	in->nonce_key = sig->nonce_key;
	in->nonce_expires_ms = sig->expires_ms;
	return 0;
}

/* The command stays in `arena`, which ends before the request does: that may wait for long, with many others. */
static int ask(struct req *req, struct arena *arena, char ret_id[IDENT_ID_MAX + 1], bool *ret_replayed, struct err *err)
{
	struct execution_create in;
	const char *key = NULL;
	int r = take_key(req, &key, err);

	if (r == 0)
		r = create_parse(arena, req->body.ptr, req->body.len, &in, err);
	if (r == 0)
		req_audit(req, in.ident.workspace, in.ident.task, NULL);
	if (r == 0)
		r = check_create(req, &in, err);
	if (r != 0)
		return r;
	in.idempotency_key = key;
	in.traceparent = req->trace;
	return execution_create(executions_of(req), &in, ret_id, ret_replayed, err);
}

static int create(struct req *req, struct err *err)
{
	struct progress *progress;
	struct arena *arena;
	char id[IDENT_ID_MAX + 1];
	bool replayed = false;
	int64_t deadline_ns;
	int r = req_query_wait(req, 0, &deadline_ns, err);

	if (r != 0)
		return r;
	arena = arena_new(LIMIT_REQUEST_ARENA);
	r = arena ? ask(req, arena, id, &replayed, err) : err_set(err, ERR_NOMEM, "out of memory");
	arena_free(arena);
	if (r != 0)
		return r;
	progress = new_progress(req, id, err);
	if (!progress)
		return ERR_NOMEM;
	req_audit(req, NULL, NULL, id);
	progress->replayed = replayed;
	progress->awaited = req_query(req, "wait");
	progress->deadline_ns = deadline_ns;
	return 0;
}

static void put_location(struct req *req)
{
	const struct progress *progress = req->state;
	const char *location = arena_printf(req->arena, "/sandbox/executions/%s", progress->id);

	if (location)
		req_header(req, "Location", location);
}

static bool post_quick(struct req *req)
{
	bool made = render_ended(req);

	if (made)
		put_location(req);
	return made;
}

int execution_post(struct req *req, struct err *err)
{
	int r = req->state ? 0 : create(req, err);

	if (r == 0)
		r = wait_until_done(req, post_quick, err);
	if (r == 0)
		r = render(req, 0, 202, err);
	if (r != 0)
		return r;

	struct progress *progress = req->state;

	/* Without ?wait a new record is always "accepted", however fast it ended. */
	if (!progress->awaited && !progress->replayed)
		req->reply.status = 202;
	put_location(req);
	return REQ_DONE;
}

/* ---- read ---- */

static int begin_get(struct req *req, struct err *err)
{
	struct execution_head head;
	int64_t deadline_ns;
	int64_t revision;
	int r = req_query_wait(req, 0, &deadline_ns, err);

	if (r == 0)
		r = req_query_number(req, "revision", 1, INT64_MAX, 0, &revision, err);
	if (r == 0)
		r = execution_reach(req, req_param(req, "id"), &head, err);
	if (r != 0)
		return r;

	struct progress *progress = new_progress(req, req_param(req, "id"), err);

	if (!progress)
		return ERR_NOMEM;
	progress->awaited = req_query(req, "wait");
	progress->deadline_ns = deadline_ns;
	progress->revision = revision;
	return 0;
}

int execution_get(struct req *req, struct err *err)
{
	int64_t preview;
	int r = req_query_number(req, "preview", 0, (int64_t)PREVIEW_MAX, 0, &preview, err);

	if (r == 0 && !req->state)
		r = begin_get(req, err);
	if (r == 0)
		r = wait_until_done(req, preview ? NULL : render_ended, err);
	return r == 0 ? render(req, (size_t)preview, 200, err) : r;
}

/* An ended record that is in memory and may be shown; everything else is the handler's, also to refuse. */
bool execution_get_quick(struct req *req)
{
	const char *id = req_param(req, "id");
	struct execution_head head;

	if (req_query(req, "wait") || req_query(req, "revision") || req_query(req, "preview") ||
	    !execution_ended(executions_of(req), id, &head, NULL) || !auth_allows(req->token, head.ident.workspace) ||
	    (req->sig && strcmp(req->sig->ident.task, head.ident.task) != 0))
		return false;
	if (!execution_ended(executions_of(req), id, &head, &req->reply.body)) {
		buf_clear(&req->reply.body);
		return false;
	}
	req_json(req, 200);
	return true;
}

/* ---- cancel ---- */

static int begin_cancel(struct req *req, struct err *err)
{
	struct execution_head head;
	const char *id = req_param(req, "id");
	bool done;
	int64_t deadline_ns;
	int r = req_query_wait(req, 0, &deadline_ns, err);

	if (r == 0)
		r = execution_reach(req, id, &head, err);
	if (r == 0 && req->sig)
		r = execution_use_nonce(executions_of(req), req->sig->nonce_key, id, req->sig->expires_ms, err);
	if (r == 0)
		r = execution_cancel(executions_of(req), id, "requested", &done, err);
	if (r != 0)
		return r;

	struct progress *progress = new_progress(req, id, err);

	if (!progress)
		return ERR_NOMEM;
	progress->awaited = req_query(req, "wait");
	progress->deadline_ns = deadline_ns;
	return 0;
}

int execution_delete(struct req *req, struct err *err)
{
	int r = req->state ? 0 : begin_cancel(req, err);

	if (r == 0)
		r = wait_until_done(req, render_ended, err);
	return r == 0 ? render(req, 0, 202, err) : r;
}

/* ---- list ---- */

static int take_status(const struct req *req, const char **ret, struct err *err)
{
	static const char words[] = "queued claimed running completed failed cancelled";
	const char *status = req_query(req, "status");

	if (status && !uri_word_in(words, status, strlen(status)))
		return err_set(err, ERR_INVALID_REQUEST, "query parameter \"status\" is none of %s", words);
	*ret = status;
	return 0;
}

static int take_task(const struct req *req, const char **ret, struct err *err)
{
	const char *task = req_query(req, "task_id");

	if (task && !ident_part_valid(task, strlen(task)))
		return err_set(err, ERR_INVALID_REQUEST, "task_id is not a valid name");
	*ret = task;
	return 0;
}

int execution_get_list(struct req *req, struct err *err)
{
	const char *workspace = NULL, *task = NULL, *status = NULL;
	const char *cursor = req_query(req, "cursor");
	int64_t limit;
	struct buf items;
	size_t count = 0;
	char *next = NULL;
	int r = req_workspace(req, &workspace, err);

	if (r == 0)
		r = take_task(req, &task, err);
	if (r == 0)
		r = take_status(req, &status, err);
	if (r == 0)
		r = req_query_number(req, "limit", 1, LIMIT_PAGE, LIMIT_PAGE_DEFAULT, &limit, err);
	if (r != 0)
		return r;
	buf_init(&items, LIMIT_INLINE_FILE);
	r = execution_list(executions_of(req), workspace, task, status, cursor ? cursor : "", (size_t)limit, &items,
			   &count, &next, err);
	if (r == 0) {
		body_put_list(&req->reply.body, &items, count, next);
		req_json(req, 200);
	}
	free(next);
	buf_fini(&items);
	return r;
}
