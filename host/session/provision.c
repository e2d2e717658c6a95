/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The provisioner of one row: finds or creates the task's session, waits until it answers, publishes it. One job per
 * row on its own pool, detached from every request. What keeps I1: an error never means "absent"; a create whose
 * outcome is not known is looked for until it can no longer appear; only then its token is superseded and one more
 * create sent; and every word to the row carries the fence, so that a provisioner that lost the row changes nothing.
 * Never deletes a session itself: what must go is written to the row, and the GC releases it.
 */
#include "session/provision.h"

#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "plugin/call.h"

/* ---- what a former owner left ---- */

/* The former owner knew a session: is it still there? */
static int recover_known(struct provision *p, struct err *err)
{
	struct berth_session known;
	struct err last = {0};
	int r = job_session(p->job, p->job->row.ref, p->job->row.sealed_state, &known, err);

	if (r)
		return r;
	p->made = (struct made){.ref = p->job->row.ref,
				.state = known.state.ptr ? known.state.ptr : "",
				.state_len = known.state.len,
				.boot_id = p->job->row.boot_id,
				.root = p->job->row.root,
				.intent = p->job->row.intent,
				.workspace = "",
				.task = "",
				.created_ms = p->job->row.created_ms,
				.expires_ms = p->job->row.provider_expires_ms,
				.isolation = isolation_level(p->job->row.isolation)};
	p->have = p->adopted = true;
	for (int64_t tries = 1;; tries++) {
		r = provision_ask(p, call_look, p->job->deadline_ns, &last);
		if (create_is_dead(r, &p->made))
			return provision_supersede(p, err);
		if (r == 0)
			return 0;
		r = provision_wait_on(p, r, tries, &last, err);
		if (r)
			return r;
	}
}

static int recover(struct provision *p, struct err *err)
{
	int r;

	if (*p->job->row.ref)
		return recover_known(p, err);
	r = provision_find(p, false, err);
	if (r == 0 && !p->have && p->job->row.create_until_ms)
		r = provision_settle(p, err);
	return r;
}

/* ---- the whole ---- */

static int set_live(struct sessions *s, struct txn *txn, struct row *row, void *arg, struct err *err)
{
	const struct taken *taken = arg;

	row->changed = row->notify = true;
	return binding_publish(txn_arena(txn), &row->b, row->now, &s->rules, taken->job->fence, taken->session, err);
}

static int publish(struct provision *p, struct err *err)
{
	struct binding_session session;
	struct taken taken = {p->job, &session};
	int r = provision_failpoint("provision.publish.before", err);

	if (r == 0)
		r = made_seal(p->job, &p->made, &session, err);
	if (r == 0)
		r = job_update(p->job, set_live, &taken, err);
	return r;
}

static int provision(struct provision *p, struct err *err)
{
	int r = job_load(p->job, err);

	if (r == 0)
		r = recover(p, err);
	if (r == 0 && *p->job->row.warm && !p->have)
		r = provision_use_reserved(p, err);
	else if (r == 0 && *p->job->row.warm && !*p->made.task && *p->job->row.ref)
		r = provision_assign(p, err); /* the former owner may not have come to it */
	while (r == 0 && !p->ready) {
		if (!p->have)
			r = provision_create(p, err);
		if (r == 0 && p->have)
			r = provision_ready(p, err);
	}
	return r ? r : publish(p, err);
}

/* ---- without a session ---- */

struct failure {
	struct job *job;
	const struct err *why;
};

static int set_failed(struct sessions *s, struct txn *txn, struct row *row, void *arg, struct err *err)
{
	const struct failure *failure = arg;

	(void)s;
	row->changed = row->notify = true;
	return binding_fail(txn_arena(txn), &row->b, row->now, failure->job->fence, failure->why, err);
}

struct let_go {
	struct job *job;
	const struct binding_stray *made;
};

static int set_let_go(struct sessions *s, struct txn *txn, struct row *row, void *arg, struct err *err)
{
	const struct let_go *go = arg;

	(void)err;
	row->changed =
		binding_let_go(txn_arena(txn), &row->b, row->now, go->job->incarnation, s->config.host_id, go->made);
	return 0;
}

/* The row is not ours any more: it learns what we made, and that nothing more comes. */
static void hand_over(struct provision *p)
{
	struct binding_session session = {0};
	struct let_go go = {p->job, NULL};
	struct binding_stray stray;
	struct err err = {0};

	if (p->unrecorded && p->job->target && made_seal(p->job, &p->made, &session, &err) == 0) {
		stray = (struct binding_stray){session.ref, session.sealed_state};
		go.made = &stray;
	}
	if (row_update(p->job->s, &p->job->ident, set_let_go, &go, &err))
		log_warn("a lost provisioning could not be handed over", KS("task", p->job->key), KS("error", err.msg));
	session_kick_gc(p->job->s);
}

static void end_badly(struct provision *p, const struct err *why)
{
	struct failure failure = {p->job, why};
	struct err err = {0};

	if (p->job->refused || job_cancelled(p->job)) {
		/* Stopped with the host: the row stays as it is and the next process takes it over. */
		hand_over(p);
		return;
	}
	log_warn("a provisioning failed", KS("task", p->job->key), KS("target", p->job->row.target),
		 KS("code", err_name(why->code)), KS("reason", why->reason), KS("error", why->msg));
	p->job->deadline_ns = clock_after_ms(p->job->s->rules.owner_ttl_ms);
	if (job_update(p->job, set_failed, &failure, &err))
		log_warn("a failed provisioning could not be recorded", KS("task", p->job->key), KS("error", err.msg));
	if (p->job->refused)
		hand_over(p);
}

void provision_run(struct job *job)
{
	const struct conf *conf = job->s->config.conf;
	struct provision p = {.job = job, .scheduling_ns = clock_after_ms(conf->scheduling_ms)};
	int64_t began_ns = clock_boot_ns();
	struct err err = {0};

	job->deadline_ns = clock_after_ms(conf->scheduling_ms + conf->starting_ms);
	if (provision(&p, &err)) {
		end_badly(&p, &err);
		return;
	}
	log_info("a session is live", KS("task", job->key), KS("target", job->row.target), KS("ref", p.made.ref),
		 KI("incarnation", job->incarnation),
		 KS("how", p.warm      ? "warm"
			   : p.adopted ? "adopted"
				       : "created"),
		 KI("ms", (clock_boot_ns() - began_ns) / CLOCK_NS_PER_MS));
}
