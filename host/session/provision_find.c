/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a provisioning finds at the provider and puts into its row: sessions of the task are adopted, all others become
 * strays, and a token whose create is lost is superseded. Entered by the provisioner's thread. Every word to the row
 * carries the job's fence; an error of a look-up never means that there is nothing.
 */
#include "session/provision.h"

#include <string.h>

#include "core/clock.h"
#include "core/failpoint.h"
#include "core/log.h"
#include "session/warm.h"

int provision_failpoint(const char *name, struct err *err)
{
	return FAILPOINT(name) ? err_set(err, ERR_INTERNAL, "failpoint %s", name) : 0;
}

int provision_stopped(struct err *err)
{
	return err_set(err, ERR_CANCELLED, "the provisioning was stopped");
}

/* Waits before the next try; the provider's own word about when counts. */
int provision_pause(struct job *job, int64_t tries, int64_t first_ms, int64_t most_ms, const struct err *last,
		    struct err *err)
{
	int64_t wait = binding_backoff(tries, first_ms, most_ms, (uint64_t)(job->fence + tries));

	if (last && last->retry_after_ms > wait)
		wait = clock_spread_ms(last->retry_after_ms, (uint64_t)(job->fence + tries));
	return job_wait(job, wait) ? 0 : provision_stopped(err);
}

/* ---- changes of the row ---- */

static int set_created(struct sessions *s, struct txn *txn, struct row *row, void *arg, struct err *err)
{
	const struct taken *taken = arg;
	int r = binding_created(txn_arena(txn), &row->b, taken->job->fence, taken->session, err);

	(void)s;
	row->changed = true;
	return r ? r : warm_bound(txn, &row->b, taken->session->ref, err);
}

struct others {
	struct job *job;
	const struct made *found, *kept;
	size_t count;
	const char *const *boxes;
};

static int set_strays(struct sessions *s, struct txn *txn, struct row *row, void *arg, struct err *err)
{
	const struct others *others = arg;
	int r = 0;

	(void)s;
	row->changed = true;
	for (size_t i = 0; r == 0 && i < others->count; i++) {
		const struct binding_stray stray = {others->found[i].ref, others->boxes[i]};

		if (&others->found[i] != others->kept)
			r = binding_add_stray(txn_arena(txn), &row->b, others->job->fence, &stray, err);
	}
	return r;
}

struct retoken {
	struct job *job;
	char intent[IDENT_ID_MAX + 1];
};

static int set_token(struct sessions *s, struct txn *txn, struct row *row, void *arg, struct err *err)
{
	const struct retoken *retoken = arg;

	(void)s;
	row->changed = true;
	return binding_retoken(txn_arena(txn), &row->b, retoken->job->fence, retoken->intent, err);
}

/* ---- find and adopt ---- */

int provision_take(struct provision *p, const struct made *made, bool adopted, struct err *err)
{
	struct binding_session session;
	struct taken taken = {p->job, &session};
	int r = made_seal(p->job, made, &session, err);

	p->made = *made;
	if (r == 0)
		r = job_update(p->job, set_created, &taken, err);
	p->have = r == 0;
	p->adopted = adopted;
	return r;
}

/* Every other session of the task is to be deleted. With `ours`, only those that can be told to be of our making. */
static int put_aside(struct provision *p, const struct made *found, size_t count, const struct made *kept,
		     struct err *err)
{
	const char **boxes = arena_alloc(p->job->arena, (count + 1) * sizeof(*boxes));
	struct others others = {p->job, found, kept, count, boxes};
	int r = boxes ? 0 : err_set(err, ERR_NOMEM, "no memory is left for strays");

	if (count == (kept ? 1 : 0))
		return 0;
	for (size_t i = 0; r == 0 && i < count; i++) {
		struct binding_session session;

		r = made_seal(p->job, &found[i], &session, err);
		boxes[i] = session.sealed_state;
		if (&found[i] != kept)
			log_warn("a second session of a task will be deleted", KS("task", p->job->key),
				 KS("ref", found[i].ref));
	}
	return r ? r : job_update(p->job, set_strays, &others, err);
}

/* One look has a time of its own, so that one that hangs is given up. That it took longer says nothing about the task,
 * and many tasks may be waiting for a busy provider: then it is asked again for as long as the job has time. What the
 * provider says itself is told at once. */
static int look(struct job *job, struct made **ret, size_t *ret_count, struct err *err)
{
	for (int64_t tries = 1;; tries++) {
		int64_t until_ns = clock_after_ms(job->s->find_ms);
		bool last = until_ns >= job->deadline_ns;
		struct err why = {0};
		int r = lookup_find(job, last ? job->deadline_ns : until_ns, ret, ret_count, &why);

		if (r != ERR_PROVIDER_TIMEOUT || last || clock_left_ms(until_ns) > 0) {
			*err = r ? why : *err;
			return r;
		}
		log_warn("a look for a task's sessions took too long; it is repeated", KS("task", job->key),
			 KI("tries", tries));
		r = provision_pause(job, tries, POLL_FIRST_MS, POLL_MOST_MS, &why, err);
		if (r)
			return r;
	}
}

/* Takes what is there, if anything; everything else becomes a stray. */
int provision_find(struct provision *p, bool ours, struct err *err)
{
	const struct made *pick;
	struct made *found;
	size_t count;
	int r = look(p->job, &found, &count, err);

	if (r)
		return r;
	pick = lookup_pick(found, count, &p->job->row, ours);
	r = put_aside(p, found, count, pick, err);
	if (r == 0 && pick)
		r = provision_take(p, pick, true, err);
	return r;
}

int provision_supersede(struct provision *p, struct err *err)
{
	struct retoken retoken = {.job = p->job};
	int r;

	ident_random(retoken.intent, "", 32);
	p->have = p->adopted = p->warm = false;
	r = job_update(p->job, set_token, &retoken, err);
	return r ? r : job_load(p->job, err);
}
