/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every job does: read its row, change it under its fence, call its target so that the call can be cancelled, wait.
 * Entered by the pools' threads, one per job; cancel comes from any thread. Holds no lock while calling out.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "plugin/call.h"
#include "session/session_private.h"

#define STORE_RETRY_FIRST_MS 50
#define STORE_RETRY_MOST_MS 1000
#define BUSY_RETRY_FIRST_MS 20
#define BUSY_RETRY_MOST_MS 500

void job_cancel_locked(struct job *job, uint32_t how)
{
	lock_assert(&job->s->lock);
	job->cancelled = true;
	if (job->call)
		call_cancel(job->call, how);
	cond_wake_all(&job->wake);
}

bool job_cancelled(struct job *job)
{
	bool cancelled;

	lock_take(&job->s->lock);
	cancelled = job->cancelled;
	lock_drop(&job->s->lock);
	return cancelled;
}

bool job_wait(struct job *job, int64_t ms)
{
	int64_t until = clock_after_ms(ms);
	bool cancelled;

	lock_take(&job->s->lock);
	while (!job->cancelled && cond_wait_until(&job->wake, &job->s->lock, until))
		continue;
	cancelled = job->cancelled;
	lock_drop(&job->s->lock);
	return !cancelled;
}

/* ---- the row ---- */

static int load_step(struct txn *txn, void *arg, struct err *err)
{
	struct job *job = arg;
	struct store_row stored;
	int r = txn_get(txn, STORE_TASK, job->key, &stored, err);

	if (r == 0)
		r = binding_decode(job->arena, &job->ident, stored.doc, stored.doc_len, &job->row, err);
	return r;
}

int job_load(struct job *job, struct err *err)
{
	int r = store_view(job->s->config.store, load_step, job, err);

	if (r)
		return r;
	job->target = registry_find(job->s->config.registry, job->row.target);
	if (!job->target || !job->target->plugin)
		return err_set(err, ERR_PROVIDER_UNAVAILABLE, "target %.64s is %s", job->row.target,
			       job->target ? "not available: its plugin was refused" : "not configured any more");
	return 0;
}

int job_update(struct job *job, row_change fn, void *arg, struct err *err)
{
	int r = row_update(job->s, &job->ident, fn, arg, err);

	for (int64_t tries = 1; r == ERR_STORE && clock_left_ms(job->deadline_ns) > 0; tries++) {
		if (!job_wait(job, binding_backoff(tries, STORE_RETRY_FIRST_MS, STORE_RETRY_MOST_MS,
						   (uint64_t)(job->incarnation + tries))))
			break;
		r = row_update(job->s, &job->ident, fn, arg, err);
	}
	job->refused |= r == ERR_CONFLICT;
	return r;
}

/* ---- calls ---- */

static void job_set_call(struct job *job, struct call *call)
{
	lock_take(&job->s->lock);
	job->call = call;
	if (call && job->cancelled)
		call_cancel(call, BERTH_CANCEL_STOP);
	lock_drop(&job->s->lock);
}

void job_done(struct job *job, struct call *call)
{
	if (!call)
		return;
	job_set_call(job, NULL);
	call_free(call);
}

static bool is_busy(int r, const struct err *err)
{
	return r == ERR_QUEUE_FULL && strcmp(err->reason, "target_busy") == 0;
}

int job_call(struct job *job, int64_t deadline_ns, const struct call_sink *sink,
	     int (*op)(struct call *call, const void *arg, struct err *err), const void *arg, struct call **ret,
	     struct err *err)
{
	*ret = NULL;
	for (int64_t tries = 1;; tries++) {
		struct call *call = call_new(job->target, deadline_ns, sink);
		int r;

		if (!call)
			return err_set(err, ERR_NOMEM, "no memory is left for a provider call");
		call_set_apart(call); /* a plugin that does not come back costs the call, not the job and its row */
		job_set_call(job, call);
		r = op(call, arg, err);
		if (!is_busy(r, err) || clock_left_ms(deadline_ns) == 0 ||
		    !job_wait(job, binding_backoff(tries, BUSY_RETRY_FIRST_MS, BUSY_RETRY_MOST_MS, (uint64_t)job->fence))) {
			*ret = call;
			return r;
		}
		job_done(job, call);
	}
}

int job_session(struct job *job, const char *ref, const char *sealed, struct berth_session *ret, struct err *err)
{
	char *state = NULL;
	size_t len = 0;
	int r = 0;

	*ret = (struct berth_session){.struct_size = sizeof(*ret), .ref = {ref, strlen(ref)}};
	if (strcmp(ref, job->row.ref) == 0) {
		ret->root = (struct berth_str){job->row.root, strlen(job->row.root)};
		ret->boot_id = (struct berth_str){job->row.boot_id, strlen(job->row.boot_id)};
	}
	if (!*sealed)
		return 0;
	r = seal_open_box(job->s->config.seal, job->key, sealed, &state, &len, err);
	if (r)
		return r;
	ret->state.ptr = arena_strndup(job->arena, state, len);
	ret->state.len = len;
	secret_wipe(state, len);
	free(state);
	return ret->state.ptr ? 0 : err_set(err, ERR_NOMEM, "no memory is left for a session's state");
}

int call_find_task(struct call *call, const void *arg, struct err *err)
{
	const struct ident *ident = arg;

	return call_find(call, ident->workspace, ident->task, err);
}
