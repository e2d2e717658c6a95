/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the session and task routes. Entered from workers; a teardown that waits for its confirmation holds none. Reads
 * never renew a lease.
 */
#include "session/session.h"

#include <stdlib.h>
#include <string.h>

#include "api/auth.h"
#include "api/body.h"
#include "api/resources.h"
#include "api/wait.h"
#include "core/clock.h"
#include "core/limits.h"

#define TEARDOWN_WAIT_MS 10000

/* ---- list ---- */

/* NULL = all of them, for an operator's token only. */
static int take_scope(const struct req *req, const char **ret, struct err *err)
{
	bool is_operator = req->token && !req->token->workspaces && req->token->scopes & SCOPE_ADMIN;

	*ret = NULL;
	if (is_operator && !req_query(req, "workspace_id"))
		return 0;
	return req_workspace(req, ret, err);
}

int session_get_list(struct req *req, struct err *err)
{
	const char *workspace;
	const char *cursor = req_query(req, "cursor");
	int64_t limit;
	struct buf items;
	size_t count = 0;
	char *next = NULL;
	int r = take_scope(req, &workspace, err);

	if (r == 0)
		r = req_query_number(req, "limit", 1, LIMIT_PAGE, LIMIT_PAGE, &limit, err);
	if (r != 0)
		return r;
	buf_init(&items, LIMIT_INLINE_FILE);
	r = session_list(api_of(req)->config.sessions, workspace, cursor ? cursor : "", (size_t)limit, &items, &count,
			 &next, err);
	if (r == 0) {
		body_put_list(&req->reply.body, &items, count, next);
		req_json(req, 200);
	}
	free(next);
	buf_fini(&items);
	return r;
}

/* ---- one task ---- */

static int no_such(struct err *err)
{
	return err_set(err, ERR_NOT_FOUND, "no such task");
}

/* The identity that ":id" and the optional workspace_id name. Without workspace_id: the token's only workspace, or
 * for a token that reaches all of them the only one that holds a task of this name. */
static int take_ident(const struct req *req, struct ident *ret, struct err *err)
{
	char found[IDENT_PART_MAX + 1];
	const char *task = req_param(req, "id");
	const char *workspace = NULL;
	int r;

	if (!ident_part_valid(task, strlen(task)))
		return err_set(err, ERR_INVALID_REQUEST, "id is not a valid task id");
	if (req_query(req, "workspace_id") || req->token->workspaces) {
		r = req_workspace(req, &workspace, err);
	} else {
		r = session_find_workspace(api_of(req)->config.sessions, task, found, err);
		workspace = found;
	}
	if (r == ERR_NOT_FOUND)
		return no_such(err);
	return r == 0 ? ident_make(ret, workspace, task, err) : r;
}

int task_get(struct req *req, struct err *err)
{
	struct ident ident;
	int r = take_ident(req, &ident, err);

	if (r == 0)
		r = session_describe(api_of(req)->config.sessions, &ident, &req->reply.body, err);
	if (r == ERR_NOT_FOUND)
		return no_such(err);
	if (r == 0)
		req_json(req, 200);
	return r;
}

/* ---- teardown ---- */

struct teardown {
	struct ident ident;
	bool force;
	bool gone;
	int64_t deadline_ns;
};

static int begin_teardown(struct req *req, struct err *err)
{
	struct teardown *teardown = arena_alloc(req->arena, sizeof(*teardown));
	int r = teardown ? req_query_wait(req, TEARDOWN_WAIT_MS, &teardown->deadline_ns, err)
			 : err_set(err, ERR_NOMEM, "out of memory");

	if (r == 0)
		r = req_query_bool(req, "force", false, &teardown->force, err);
	if (r == 0)
		r = take_ident(req, &teardown->ident, err);
	if (r == 0)
		req_audit(req, teardown->ident.workspace, teardown->ident.task, NULL);
	if (r == 0)
		req->state = teardown;
	return r;
}

/* Asking again is the way to look: it is idempotent, and a deadline of now does not block. */
static int look(struct req *req, bool *ret_done, struct err *err)
{
	struct teardown *teardown = req->state;
	int r = session_teardown(api_of(req)->config.sessions, &teardown->ident, teardown->force, clock_boot_ns(),
				 &teardown->gone, err);

	*ret_done = teardown->gone;
	return r;
}

int task_delete(struct req *req, struct err *err)
{
	char key[REQ_KEY_MAX] = "task:";
	char ident[IDENT_KEY_MAX + 1];
	int r = req->state ? 0 : begin_teardown(req, err);

	/* A task nobody knows (any more) is a task that is gone. */
	if (r == ERR_NOT_FOUND && !req_query(req, "workspace_id")) {
		req_empty(req, 204);
		return REQ_DONE;
	}
	if (r != 0)
		return r;

	struct teardown *teardown = req->state;

	ident_key(&teardown->ident, ident);
	snprintf(key, sizeof(key), "task:%s", ident);
	r = wait_for(req, key, teardown->deadline_ns, look, err);
	if (r != 0)
		return r;
	if (teardown->gone) {
		req_empty(req, 204);
		return REQ_DONE;
	}
	buf_puts(&req->reply.body, "{\"workspace_id\":");
	json_put_string(&req->reply.body, teardown->ident.workspace, strlen(teardown->ident.workspace));
	buf_puts(&req->reply.body, ",\"task_id\":");
	json_put_string(&req->reply.body, teardown->ident.task, strlen(teardown->ident.task));
	buf_puts(&req->reply.body, ",\"status\":\"deleting\"}\n");
	req_json(req, 202);
	return REQ_DONE;
}
