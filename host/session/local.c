/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this process holds of its tasks: operations that the keeper renews and jobs that work on rows. Nothing is kept here of
 * a binding that merely exists. Any thread; everything under sessions.lock, which is never held over a callback.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/limits.h"
#include "plugin/call.h"
#include "session/session_private.h"

struct local *local_get_locked(struct sessions *s, const char *key)
{
	return map_get(s->tasks, key);
}

static struct local *local_make_locked(struct sessions *s, const struct ident *ident)
{
	char key[IDENT_KEY_MAX + 1];
	struct local *local;

	ident_key(ident, key);
	local = local_get_locked(s, key);
	if (local)
		return local;
	local = calloc(1, sizeof(*local));
	if (!local)
		return NULL;
	local->ident = *ident;
	memcpy(local->key, key, sizeof(key));
	if (map_put(s->tasks, key, local)) {
		free(local);
		return NULL;
	}
	return local;
}

static void local_drop_locked(struct sessions *s, struct local *local)
{
	if (local->kept || local->jobs)
		return;
	map_remove(s->tasks, local->key);
	free(local);
}

int kept_add(struct sessions *s, struct kept *kept, const struct ident *ident, const char *op_id)
{
	struct local *local;

	snprintf(kept->op_id, sizeof(kept->op_id), "%s", op_id);
	lock_take(&s->lock);
	local = local_make_locked(s, ident);
	if (local) {
		kept->serial = ++s->serial;
		kept->local = local;
		kept->next = local->kept;
		local->kept = kept;
	}
	lock_drop(&s->lock);
	return local ? 0 : ERR_NOMEM;
}

void kept_remove(struct sessions *s, struct kept *kept)
{
	struct kept **at;

	lock_take(&s->lock);
	if (kept->local) {
		for (at = &kept->local->kept; *at != kept; at = &(*at)->next)
			assert(*at);
		*at = kept->next;
		local_drop_locked(s, kept->local);
		kept->local = NULL;
	}
	while (kept->hold && kept->hold->firing && !pthread_equal(pthread_self(), s->teller))
		cond_wait_until(&s->changed, &s->lock, INT64_MAX);
	lock_drop(&s->lock);
}

void kept_lose_locked(struct sessions *s, struct kept *kept, const char *reason)
{
	lock_assert(&s->lock);
	if (kept->lost)
		return;
	kept->lost = true;
	snprintf(kept->reason, sizeof(kept->reason), "%s", reason && *reason ? reason : "session_lost");
	s->keeper_kicked = true;
	cond_wake_all(&s->keeper_wake);
}

void local_ended(struct sessions *s, const struct ident *ident, int64_t incarnation, enum binding_cause cause)
{
	char key[IDENT_KEY_MAX + 1];
	struct local *local;

	ident_key(ident, key);
	lock_take(&s->lock);
	local = local_get_locked(s, key);
	for (struct kept *kept = local ? local->kept : NULL; kept; kept = kept->next) {
		if (kept->hold && kept->incarnation == incarnation)
			kept_lose_locked(s, kept, binding_cause_word(cause));
	}
	for (struct job *job = local ? local->jobs : NULL; job; job = job->next) {
		if (job->kind == JOB_PROVISION && job->incarnation == incarnation)
			job_cancel_locked(job, BERTH_CANCEL_STOP);
	}
	lock_drop(&s->lock);
}

/* ---- jobs ---- */

static void job_free(struct job *job)
{
	arena_free(job->arena);
	cond_fini(&job->wake);
	free(job);
}

/* Fewer at once do not feel what the making of sessions for a pool takes from them. */
#define CROWD 8

int64_t local_crowd_ns_locked(struct sessions *s)
{
	lock_assert(&s->lock);
	if (s->provisioning >= CROWD)
		s->crowd_ns = clock_boot_ns();
	return s->crowd_ns;
}

static void job_remove(struct job *job)
{
	struct sessions *s = job->s;
	struct job **at;

	lock_take(&s->lock);
	for (at = &job->local->jobs; *at != job; at = &(*at)->next)
		assert(*at);
	*at = job->next;
	local_drop_locked(s, job->local);
	s->jobs--;
	s->provisioning -= job->kind == JOB_PROVISION;
	cond_wake_all(&s->changed);
	lock_drop(&s->lock);
}

static void job_main(void *arg)
{
	struct job *job = arg;

	job->run(job);
	job_remove(job);
	job_free(job);
}

static struct job *job_new(struct sessions *s, enum job_kind kind, const struct ident *ident, int64_t fence,
			   int64_t incarnation)
{
	static void (*const runs[])(struct job *) = {
		[JOB_PROVISION] = provision_run,
		[JOB_RELEASE] = release_run,
		[JOB_STRAYS] = strays_run,
		[JOB_EXTEND] = extend_run,
		[JOB_WARM] = warm_make_run,
		[JOB_DROP] = warm_drop_run,
		[JOB_SWEEP] = sweep_run,
	};
	struct job *job = calloc(1, sizeof(*job));

	if (!job)
		return NULL;
	job->arena = arena_new(LIMIT_JOB_ARENA);
	if (!job->arena) {
		free(job);
		return NULL;
	}
	job->s = s;
	job->kind = kind;
	job->run = runs[kind];
	job->ident = *ident;
	ident_key(ident, job->key);
	job->fence = fence;
	job->incarnation = incarnation;
	cond_init(&job->wake);
	return job;
}

/* An extension is single-flight per task, and background work by its name. */
static bool job_add_locked(struct sessions *s, struct job *job, bool *ret_twice)
{
	struct local *local = local_make_locked(s, &job->ident);

	*ret_twice = false;
	if (!local)
		return false;
	for (struct job *other = local->jobs; other; other = other->next)
		*ret_twice |= job->kind >= JOB_EXTEND && other->kind == job->kind;
	if (*ret_twice)
		return true;
	job->local = local;
	job->next = local->jobs;
	local->jobs = job;
	s->jobs++;
	s->provisioning += job->kind == JOB_PROVISION;
	local_crowd_ns_locked(s);
	return true;
}

/* Frees the job when it is not started. */
static int job_run(struct sessions *s, struct job *job, bool *ret_started, struct err *err)
{
	bool added = false;
	bool twice = false;
	int r;

	*ret_started = false;
	if (job) {
		lock_take(&s->lock);
		added = job_add_locked(s, job, &twice);
		lock_drop(&s->lock);
	}
	if (!added || twice) {
		if (job)
			job_free(job);
		return twice ? 0 : err_set(err, ERR_NOMEM, "no memory is left to work on a session");
	}
	r = pool_submit(job->kind == JOB_PROVISION || job->kind == JOB_WARM ? s->provisioners : s->workers, job_main, job);
	if (r) {
		job_remove(job);
		job_free(job);
		return err_set(err, r, "too many sessions are being worked on");
	}
	*ret_started = true;
	return 0;
}

int job_start(struct sessions *s, enum job_kind kind, const struct ident *ident, int64_t fence, int64_t incarnation,
	      struct err *err)
{
	bool started;

	return job_run(s, job_new(s, kind, ident, fence, incarnation), &started, err);
}

int job_start_background(struct sessions *s, enum job_kind kind, struct target *target, const char *name, bool *ret_started,
			 struct err *err)
{
	struct ident ident = {.workspace = ""}; /* no task's */
	struct job *job;

	snprintf(ident.task, sizeof(ident.task), "%s", name);
	job = job_new(s, kind, &ident, 0, 0);
	if (job)
		job->target = target;
	return job_run(s, job, ret_started, err);
}

bool job_background_runs(struct sessions *s, const char *name)
{
	struct ident ident = {.workspace = ""};
	char key[IDENT_KEY_MAX + 1];
	bool runs;

	snprintf(ident.task, sizeof(ident.task), "%s", name);
	ident_key(&ident, key);
	lock_take(&s->lock);
	runs = local_get_locked(s, key) != NULL;
	lock_drop(&s->lock);
	return runs;
}
