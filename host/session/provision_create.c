/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The create of a provisioning: at most three, each under a token of its own, and the next only when what became of the
 * one before is known or cannot show any more. Entered by the provisioner's thread. Never repeats a create whose
 * outcome is open, and never takes an error for an absence.
 */
#include "session/provision.h"

#include "core/clock.h"
#include "core/log.h"
#include "plugin/call.h"

#define CREATES_MAX 3
#define CALL_GRACE_MS 2000 /* a call may return that much after its deadline */

struct creating {
	struct job *job;
	int64_t for_ms;
};

static int set_creating(struct sessions *s, struct txn *txn, struct row *row, void *arg, struct err *err)
{
	const struct creating *creating = arg;
	int64_t until_ms = creating->for_ms < 0 ? 0 : row->now + creating->for_ms;

	(void)s;
	(void)txn;
	row->changed = true;
	return binding_creating(&row->b, creating->job->fence, until_ms, err);
}

#define NEVER_SENT (-1)

/* A create may be sent for so long from now; 0: none from now on; NEVER_SENT: certainly none was. */
static int mark_create(struct job *job, int64_t for_ms, struct err *err)
{
	struct creating creating = {job, for_ms};
	int r = job_update(job, set_creating, &creating, err);

	return r ? r : job_load(job, err);
}

/* No more looking or creating: the create's own answer says most. */
static int lost(const struct provision *p, const struct err *last, struct err *err)
{
	if (p->lost.code)
		*err = p->lost;
	else if (last)
		*err = *last;
	else
		err_set(err, ERR_PROVIDER_TIMEOUT, "it is not known what became of the create");
	return err->code;
}

/* A create may have been sent, and nobody knows what became of it: looked for until it is found, or could not appear
 * any more. Then p->have is false and the token superseded. */
int provision_settle(struct provision *p, struct err *err)
{
	struct job *job = p->job;
	struct err last = {0};
	int64_t now = 0;
	int r;

	for (int64_t tries = 1;; tries++) {
		r = store_now(job->s->config.store, &now, err);
		if (r)
			return r;
		bool final = now >= job->row.create_until_ms + job->row.settle_ms;

		r = provision_find(p, true, &last);
		if (p->have)
			return 0;
		if (r == 0 && final)
			return provision_supersede(p, err);
		if (r && !create_is_transient(r)) {
			*err = last;
			return r;
		}
		if (clock_left_ms(job->deadline_ns) == 0)
			return lost(p, r ? &last : NULL, err);
		r = provision_pause(job, tries, POLL_FIRST_MS, POLL_MOST_MS, r ? &last : NULL, err);
		if (r)
			return r;
	}
}

static int on_created(void *arg, const struct berth_session_info *info)
{
	struct provision *p = arg;
	struct err err = {0};
	struct made made;
	int r = made_copy(p->job->arena, info, &made, &err);

	if (r == 0)
		r = provision_take(p, &made, false, &err);
	p->unrecorded = r != 0;
	if (r == 0)
		r = provision_failpoint("provision.created", &err);
	if (r)
		log_warn("a created session could not be recorded", KS("task", p->job->key), KS("error", err.msg));
	return r;
}

/* One create at most. Leaves p->have false when it was lost and the next may be sent. */
int provision_create(struct provision *p, struct err *err)
{
	struct job *job = p->job;
	int64_t starting_ms = job->s->config.conf->starting_ms;
	int64_t left_ms = clock_left_ms(job->deadline_ns);
	int64_t for_ms = left_ms < starting_ms ? left_ms : starting_ms;
	const struct call_sink sink = {.created = on_created, .arg = p};
	int r;

	if (p->creates++ == CREATES_MAX) {
		lost(p, NULL, err);
		err_prefix(err, "%d creates were lost", CREATES_MAX);
		if (err->code == ERR_OUTCOME_UNKNOWN)
			err->code = ERR_PROVIDER; /* what is left open is looked for by the release */
		return err->code;
	}
	r = provision_failpoint("provision.before", err);
	if (r == 0)
		r = mark_create(job, for_ms + CALL_GRACE_MS, err);
	if (r)
		return r;
	if (!session_may_act(job->s)) {
		mark_create(job, NEVER_SENT, NULL);
		return err_set(err, ERR_STORE, "the store has not confirmed this host for too long");
	}
	r = create_send(job, &job->ident, job->row.intent, &sink, clock_after_ms(for_ms), err);
	if (job->refused)
		return err_set(err, ERR_CONFLICT, "the session is no longer provisioned under this fence");
	if (p->have)
		return 0;
	if (r && !create_is_open(r) && !p->unrecorded) {
		struct err why = *err;

		mark_create(job, NEVER_SENT, err);
		*err = why;
		return r;
	}
	if (job_cancelled(job))
		return provision_stopped(err);
	if (r)
		p->lost = *err;
	else
		err_set(&p->lost, ERR_OUTCOME_UNKNOWN, "the provider named no session that it created");
	/* Nothing is sent any more from here on. */
	if (r == ERR_CONFLICT) {
		r = provision_find(p, false, err);
		if (r || p->have)
			return r;
	}
	r = mark_create(job, 0, err);
	return r ? r : provision_settle(p, err);
}
