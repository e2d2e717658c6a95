/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the frame of every file operation: a session is acquired, calls run on it under one deadline, the hold is given
 * back. The session keeper renews the lease for as long as the hold lives, so a transfer may outlast it. Entered from
 * workers of the long pool. Must never leave a hold behind, nor hand a provider's own words to a caller.
 */
#include "api/filework.h"

#include <string.h>

#include "api/auth.h"
#include "api/resources.h"
#include "core/clock.h"
#include "core/log.h"

int filework_place_named(struct req *req, const char *workspace, const char *task, const char *region,
			 struct file_place *ret, struct err *err)
{
	int r = ident_make(&ret->ident, workspace, task, err);

	if (r == 0)
		req_audit(req, workspace, task, req_query(req, "path"));
	if (r == 0)
		r = auth_workspace(req->token, workspace, err);
	ret->region = region;
	ret->ensure = true;
	return r;
}

int filework_place(struct req *req, struct file_place *ret, struct err *err)
{
	const char *workspace;
	const char *task;
	int r = req_workspace(req, &workspace, err);

	if (r == 0)
		r = req_query_need(req, "task_id", &task, err);
	if (r == 0)
		r = filework_place_named(req, workspace, task, req_query(req, "region"), ret, err);
	if (r == 0)
		r = req_query_bool(req, "ensure", true, &ret->ensure, err);
	return r;
}

/* Less than a session's whole life, so that a short session.max_age does not refuse every file operation. */
static int64_t bounded(int64_t lasts_ms, const struct conf *conf)
{
	int64_t half = conf->session_max_age_ms / 2;

	return lasts_ms < half ? lasts_ms : half;
}

int filework_begin(struct req *req, const struct file_place *place, int64_t lasts_ms, struct filework *work,
		   struct err *err)
{
	struct api *api = api_of(req);
	const struct conf *conf = api->config.conf;
	char id[IDENT_ID_MAX + 1];
	struct session_begin begin = {
		.ident = place->ident,
		.region = place->region,
		.op_id = id,
		.op_kind = "file",
		.lasts_ms = bounded(lasts_ms, conf),
		.only_live = !place->ensure,
		.only_known = strcmp(req->method, "PUT") != 0, /* only a write makes a task */
	};

	*work = (struct filework){0};
	ident_random(id, "op_", 24);

	/* Long enough for a cold start; a provider that waits for capacity is told by its own error earlier or by
	 * this one. */
	int64_t until = clock_after_ms(conf->begin_wait_ms + conf->starting_ms);
	int r = session_acquire(api->config.sessions, &begin, until, &work->hold, err);

	if (r != 0)
		return r;
	work->session = &work->hold->session;
	work->deadline_ns = clock_after_ms(begin.lasts_ms);
	work->stall_ms = conf->file_stall_ms;
	return 0;
}

/* The keeper's thread: the ceiling, a forced teardown or a newer fence took the session away. */
static void stop_call(void *arg, const char *reason)
{
	(void)reason;
	call_cancel(arg, BERTH_CANCEL_STOP);
}

static void drop_call(struct filework *work)
{
	if (!work->call)
		return;
	session_hold_on_lost(work->hold, NULL, NULL);
	work->unproven |= call_given_up(work->call);
	call_free(work->call);
	work->call = NULL;
}

struct call *filework_call(struct filework *work, const struct call_sink *sink)
{
	static const struct call_sink collect; /* results stay with the call */
	int64_t deadline = work->deadline_ns, soon = clock_after_ms(FILEWORK_SHORT_MS);

	drop_call(work);
	if (!sink && soon < deadline)
		deadline = soon;
	work->call = call_new(work->hold->target, deadline, sink ? sink : &collect);
	if (!work->call)
		return NULL;
	if (sink)
		call_set_patience(work->call, work->stall_ms);
	call_set_apart(work->call); /* the caller gets an answer, also from a plugin that does not come back */
	session_hold_on_lost(work->hold, stop_call, work->call);
	return work->call;
}

/* A provider's words for what the caller did. */
static const struct {
	int from;
	const char *reason;
	int code;
	const char *says;
} reasons[] = {
	{ERR_PROVIDER, "path_escapes", ERR_INVALID_REQUEST, "the path leads out of the workspace"},
	{ERR_PROVIDER, "path_too_long", ERR_INVALID_REQUEST, "a path is longer than 1024 bytes"},
	{ERR_PROVIDER, "size_mismatch", ERR_INVALID_REQUEST, "the content has another size than was said"},
	{ERR_PROVIDER, "digest_mismatch", ERR_INVALID_REQUEST, "the content has another digest than was said"},
	{ERR_PROVIDER, "not_regular", ERR_INVALID_REQUEST, "the path is not a regular file"},
	{ERR_PROVIDER, "is_directory", ERR_INVALID_REQUEST, "the path is a directory"},
	{ERR_PROVIDER, "not_directory", ERR_INVALID_REQUEST, "a component of the path is not a directory"},
	/* The sandbox's own files refused it, not the provider. */
	{ERR_PROVIDER_AUTH, "access", ERR_INVALID_REQUEST, "the mode of a file or folder does not allow that"},
	{ERR_PROVIDER_AUTH, "read_only", ERR_INVALID_REQUEST, "the path is on a file system that is only read"},
};

static int say(struct err *err, int code, const char *text)
{
	char reason[sizeof(err->reason)];
	int64_t retry = err->retry_after_ms;

	memcpy(reason, err->reason, sizeof(reason));
	err_set(err, code, "%s", text);
	memcpy(err->reason, reason, sizeof(reason));
	err->retry_after_ms = retry;
	return code;
}

int filework_result(struct filework *work, int code, struct err *err)
{
	const char *lost;

	if (code == 0)
		return 0;
	log_info("file operation failed", KS("code", err_name(code)), KS("reason", err->reason), KS("text", err->msg));
	if (session_hold_lost(work->hold, &lost))
		return err_set(err, ERR_SESSION_GONE, "the session was taken away: %s", lost);
	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
		if (code == reasons[i].from && strcmp(err->reason, reasons[i].reason) == 0)
			return say(err, reasons[i].code, reasons[i].says);
	}
	if (code == ERR_NOT_FOUND)
		return say(err, code, "no such file");
	if (code == ERR_CONFLICT)
		return say(err, code, "something else is at the path");
	if (code == ERR_UNSUPPORTED)
		return say(err, code, "this target cannot do that");
	if (code == ERR_QUEUE_FULL)
		return say(err, code, "too many operations run at the target");
	return code;
}

void filework_end(struct req *req, struct filework *work, int code)
{
	const char *lost;

	if (!work->hold)
		return;
	drop_call(work);

	/* No process is started by a file operation, so quiescence is certain; unless a change may still come, from a
	 * call that was given up. */
	struct session_end end = {
		.proven = !work->unproven || strcmp(req->route->method, "GET") == 0,
		.lost = code == ERR_SESSION_GONE && !session_hold_lost(work->hold, &lost),
	};

	session_release(api_of(req)->config.sessions, work->hold, &end);
	work->hold = NULL;
}
