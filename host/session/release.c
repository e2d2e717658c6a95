/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Releases what a row names until the provider confirmed it: the session, its strays, and what a lost create may still have
 * made. One job per claim of a row, on its own thread; owned like a provisioning, so that two hosts do not work on one row. A
 * failure is written to the row and tried again for ever; nothing is reported gone that was not confirmed.
 */
#include <string.h>

#include "core/clock.h"
#include "core/failpoint.h"
#include "core/log.h"
#include "plugin/call.h"
#include "session/lookup.h"

#define CALL_FIRST_MS                                                                                                  \
	INT64_C(10000) /* a delete that hangs must not hold its task for a minute; one that is slow gets it later */
#define CALL_MOST_MS 60000
#define POLL_FIRST_MS 50
#define POLL_MOST_MS 2000

static int op_release(struct call *call, const void *arg, struct err *err)
{
	return call_release(call, arg, err);
}

/* Each try has twice the time of the one before. */
static int64_t call_ms(const struct job *job)
{
	int64_t tries = binding_min(job->row.release_tries, 10);

	return binding_min(CALL_FIRST_MS << tries, CALL_MOST_MS);
}

static int release_session(struct job *job, const struct berth_session *session, struct err *err)
{
	struct call *call;
	int r;

	if (FAILPOINT("release.before"))
		return err_set(err, ERR_INTERNAL, "failpoint release.before");
	r = job_call(job, clock_after_ms(call_ms(job)), NULL, op_release, session, &call, err);
	job_done(job, call);
	if (r == ERR_NOT_FOUND)
		r = 0;
	if (r == 0 && FAILPOINT("release.after"))
		r = err_set(err, ERR_INTERNAL, "failpoint release.after");
	return r;
}

static int release_ref(struct job *job, const char *ref, const char *sealed, struct err *err)
{
	struct berth_session session;
	struct err seal_err = {0};

	if (job_session(job, ref, sealed, &session, &seal_err)) {
		/* The ref alone mostly suffices; a row whose box cannot be opened must not hold its session for ever. */
		log_error("a session's state cannot be opened; it is released by its ref alone", KS("task", job->key),
			  KS("ref", ref), KS("error", seal_err.msg));
		job_session(job, ref, "", &session, &seal_err);
	}
	return release_session(job, &session, err);
}

static int release_known(struct job *job, struct err *err)
{
	int r = *job->row.ref ? release_ref(job, job->row.ref, job->row.sealed_state, err) : 0;

	for (size_t i = 0; r == 0 && i < job->row.stray_count; i++)
		r = release_ref(job, job->row.strays[i].ref, job->row.strays[i].state, err);
	return r;
}

static bool is_ours(const struct binding *row, const struct made *made)
{
	return strcmp(made->intent, row->intent) == 0 || lookup_superseded(row, made->intent);
}

/* Releases what carries one of the row's tokens; tells whether the current one was among it. */
static int release_found(struct job *job, bool *ret_current, struct err *err)
{
	struct made *found;
	size_t count;
	int r = lookup_find(job, clock_after_ms(job->s->find_ms), &found, &count, err);

	*ret_current = false;
	for (size_t i = 0; r == 0 && i < count; i++) {
		const struct berth_session session = {
			.struct_size = sizeof(session),
			.ref = {found[i].ref, strlen(found[i].ref)},
			.state = {found[i].state, found[i].state_len},
		};

		if (!is_ours(&job->row, &found[i]))
			continue;
		*ret_current |= strcmp(found[i].intent, job->row.intent) == 0;
		r = release_session(job, &session, err);
	}
	return r;
}

/* A create may have been sent whose session nobody saw. It made at most one. */
static int release_lost(struct job *job, struct err *err)
{
	bool unseen = !*job->row.ref && job->row.create_until_ms;

	if (!unseen && !job->row.superseded_count)
		return 0;
	for (int64_t tries = 1;; tries++) {
		bool found = false;
		int64_t now = 0;
		int r = store_now(job->s->config.store, &now, err);
		bool final = !unseen || now >= job->row.create_until_ms + job->row.settle_ms;

		if (r == 0)
			r = release_found(job, &found, err);
		if (r || found || final)
			return r;
		if (!job_wait(job, binding_backoff(tries, POLL_FIRST_MS, POLL_MOST_MS, (uint64_t)job->fence)))
			return err_set(err, ERR_CANCELLED, "the release was stopped");
	}
}

struct released {
	struct job *job;
	const struct err *why; /* NULL: confirmed */
	int64_t next_ms, now;
};

static int set_released(struct sessions *s, struct txn *txn, struct row *row, void *arg, struct err *err)
{
	struct released *released = arg;
	int r;

	row->changed = row->notify = true;
	r = binding_released(txn_arena(txn), &row->b, row->now, &s->rules, released->job->fence, !released->why, released->why,
			     err);
	released->next_ms = row->b.release_next_ms;
	released->now = row->now;
	return r;
}

static void record(struct job *job, const struct err *why)
{
	struct released released = {.job = job, .why = why};
	struct err err = {0};

	job->deadline_ns = clock_after_ms(job->s->rules.owner_ttl_ms);
	if (job_update(job, set_released, &released, &err)) {
		log_warn("a release could not be recorded", KS("task", job->key), KS("error", err.msg));
		return;
	}
	if (why)
		gc_wake_at(job->s, clock_after_ms(released.next_ms > released.now ? released.next_ms - released.now : 0));
}

void release_run(struct job *job)
{
	struct err err = {0};
	int r = job_load(job, &err);

	if (job->row.fence != job->fence || job->row.state != BINDING_RELEASING) {
		if (r == 0)
			return; /* another one has it */
	}
	if (r == 0)
		r = release_known(job, &err);
	if (r == 0)
		r = release_lost(job, &err);
	if (r == 0 && FAILPOINT("release.confirmed.before"))
		r = err_set(&err, ERR_INTERNAL, "failpoint release.confirmed.before");
	if (r && job_cancelled(job))
		return; /* the host stops; the next process goes on */
	if (r)
		log_warn("a session could not be released; it is tried again", KS("task", job->key),
			 KS("ref", job->row.ref), KI("tries", job->row.release_tries + 1), KS("error", err.msg));
	else
		log_info("a session is released", KS("task", job->key), KS("ref", job->row.ref),
			 KS("cause", job->row.cause_word), KI("incarnation", job->incarnation));
	record(job, r ? &err : NULL);
}

/* ---- strays of a live session ---- */

struct stray_gone {
	const char *ref;
	int64_t incarnation;
};

static int set_stray_gone(struct sessions *s, struct txn *txn, struct row *row, void *arg, struct err *err)
{
	const struct stray_gone *gone = arg;

	(void)txn;
	(void)err;
	if (row->b.incarnation != gone->incarnation)
		return 0;
	row->changed = true;
	binding_stray_tried(&row->b, row->now, &s->rules, gone->ref);
	return 0;
}

void strays_run(struct job *job)
{
	struct err err = {0};
	int r = job_load(job, &err);

	job->deadline_ns = clock_after_ms(job->s->rules.owner_ttl_ms);
	for (size_t i = 0; r == 0 && i < job->row.stray_count && job->row.incarnation == job->incarnation; i++) {
		struct stray_gone gone = {job->row.strays[i].ref, job->incarnation};

		r = release_ref(job, job->row.strays[i].ref, job->row.strays[i].state, &err);
		if (r == 0)
			r = job_update(job, set_stray_gone, &gone, &err);
	}
	if (r)
		log_warn("a second session of a task could not be deleted; it is tried again", KS("task", job->key),
			 KS("error", err.msg));
}
