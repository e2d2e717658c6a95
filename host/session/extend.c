/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The provider's own expiry, a backstop that must not end a session in use: moved forward when an operation begins and while it
 * runs, single-flight per session, in jobs, never on the way of a command. Less than was asked for becomes the session's ceiling.
 */
#include "core/clock.h"
#include "core/log.h"
#include "plugin/call.h"
#include "session/session_private.h"

#define RENEW_CALL_MS 30000

/* How far ahead a renewable session is kept: an idle lease always fits into half of it. */
static int64_t span(const struct sessions *s)
{
	int64_t lease = binding_max(s->rules.active_ms, binding_after(s->rules.idle_ms, s->rules.idle_ms));

	return binding_after(binding_after(lease, 2 * s->config.conf->gc_interval_ms), 2 * s->rules.expiry_margin_ms);
}

int64_t extend_wanted(const struct sessions *s, const struct target *target, int64_t now, int64_t ceiling_ms)
{
	int64_t last = binding_after(ceiling_ms, s->rules.expiry_margin_ms);

	if (!target_can(target, BERTH_CAP_RENEW))
		return last;
	return binding_min(binding_after(now, span(s)), last);
}

bool extend_is_due(const struct sessions *s, const struct target *target, int64_t now, int64_t ceiling_ms,
		   int64_t expires_ms)
{
	int64_t wanted = extend_wanted(s, target, now, ceiling_ms);

	return expires_ms && target_can(target, BERTH_CAP_RENEW) && wanted > expires_ms &&
	       expires_ms - now < span(s) / 2;
}

void extend_start(struct sessions *s, const struct ident *ident, int64_t incarnation)
{
	char key[IDENT_KEY_MAX + 1];
	struct err err = {0};

	if (job_start(s, JOB_EXTEND, ident, 0, incarnation, &err) == 0)
		return;
	ident_key(ident, key);
	log_warn("a session's expiry was not looked after", KS("task", key), KS("error", err.msg));
}

struct renew {
	struct berth_session session;
	int64_t until_ms;
};

static int op_renew(struct call *call, const void *arg, struct err *err)
{
	const struct renew *renew = arg;

	return call_renew(call, &renew->session, renew->until_ms, err);
}

struct extended {
	struct job *job;
	int64_t asked_ms, effective_ms;
};

static int set_extended(struct sessions *s, struct txn *txn, struct row *row, void *arg, struct err *err)
{
	const struct extended *extended = arg;

	(void)txn;
	(void)err;
	if (row->b.incarnation != extended->job->incarnation || row->b.state != BINDING_LIVE)
		return 0;
	row->changed = true;
	binding_extended(&row->b, &s->rules, extended->asked_ms, extended->effective_ms);
	return 0;
}

void extend_run(struct job *job)
{
	struct extended extended = {.job = job};
	struct renew renew;
	struct call *call = NULL;
	struct err err = {0};
	int64_t now = 0;
	int r = job_load(job, &err);

	job->deadline_ns = clock_after_ms(RENEW_CALL_MS);
	if (r == 0 && (job->row.incarnation != job->incarnation || job->row.state != BINDING_LIVE))
		return;
	if (r == 0)
		r = store_now(job->s->config.store, &now, &err);
	if (r == 0)
		r = job_session(job, job->row.ref, job->row.sealed_state, &renew.session, &err);
	if (r == 0) {
		renew.until_ms = extend_wanted(job->s, job->target, now, job->row.ceiling_ms);
		r = job_call(job, job->deadline_ns, NULL, op_renew, &renew, &call, &err);
	}
	if (r == 0) {
		extended.asked_ms = renew.until_ms;
		extended.effective_ms = call_expiry(call);
		r = job_update(job, set_extended, &extended, &err);
	}
	job_done(job, call);
	if (r)
		log_warn("a session's expiry could not be moved; it is tried again", KS("task", job->key),
			 KS("error", err.msg));
}
