/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A provisioning that has a warm session reserved: the session becomes the row's before it is assigned, so that a crash
 * leaves no doubt whose it is. Entered by the provisioner's thread. What was, or may have been, assigned never returns
 * to the pool; what an assign did is asked of that session, never of the next candidate.
 */
#include "session/provision.h"

#include <string.h>

#include "core/log.h"
#include "plugin/call.h"
#include "session/warm.h"

#define ASSIGNS_MAX 3

static int op_assign(struct call *call, const void *arg, struct err *err)
{
	const struct provision *p = arg;
	const struct made *made = &p->made;
	const struct berth_session session = {
		.struct_size = sizeof(session),
		.ref = {made->ref, strlen(made->ref)},
		.state = {made->state, made->state_len},
		.root = {made->root, strlen(made->root)},
		.boot_id = {made->boot_id, strlen(made->boot_id)},
	};

	return call_assign(call, &session, p->job->ident.workspace, p->job->ident.task, err);
}

static int send_assign(struct provision *p, struct err *err)
{
	const struct berth_session_info *info;
	struct call *call;
	struct made told;
	size_t count = 0;
	int r = job_call(p->job, p->job->deadline_ns, NULL, op_assign, p, &call, err);

	info = call_sessions(call, &count);
	if (r == 0 && count) {
		r = made_copy(p->job->arena, info, &told, err);
		if (r == 0 && strcmp(told.ref, p->made.ref) == 0)
			made_merge(&p->made, &told);
	}
	job_done(p->job, call);
	return r;
}

static int set_disclaimed(struct sessions *s, struct txn *txn, struct row *row, void *arg, struct err *err)
{
	const struct job *job = arg;

	(void)s;
	(void)txn;
	row->changed = true;
	return binding_disclaim(&row->b, job->fence, err);
}

static bool is_mine(const struct provision *p)
{
	const struct ident *ident = &p->job->ident;

	return strcmp(p->made.workspace, ident->workspace) == 0 && strcmp(p->made.task, ident->task) == 0;
}

/* What became of an assign is asked of the session itself. 0 with have: it may be ours (is_mine) or nobody's. */
static int settle_assign(struct provision *p, struct err *err)
{
	for (int64_t tries = 1;; tries++) {
		struct err last = {0};
		int r = provision_ask(p, call_look, p->job->deadline_ns, &last);

		if (create_is_dead(r, &p->made))
			return provision_supersede(p, err);
		if (r == 0 && *p->made.task && !is_mine(p)) {
			log_error("a warm session belongs to another task; it is left alone", KS("task", p->job->key),
				  KS("ref", p->made.ref));
			p->have = false;
			r = job_update(p->job, set_disclaimed, p->job, err);
			return r ? r : provision_supersede(p, err);
		}
		if (r == 0)
			return 0;
		r = provision_wait_on(p, r, tries, &last, err);
		if (r)
			return r;
	}
}

/* Ends with have, or with the session put aside. The row names it: it never returns to the pool. */
int provision_assign(struct provision *p, struct err *err)
{
	for (int64_t tries = 1;; tries++) {
		struct err last = {0};
		int r = send_assign(p, &last);

		if (r == 0)
			return provision_failpoint("assign.after", err);
		if (job_cancelled(p->job))
			return provision_stopped(err);
		log_warn("a warm session was not assigned", KS("task", p->job->key), KS("ref", p->made.ref),
			 KS("code", err_name(r)), KS("error", last.msg));
		if (create_is_open(r)) {
			r = settle_assign(p, err);
			if (r || !p->have || is_mine(p))
				return r;
		} else if (!create_is_transient(r)) {
			return provision_supersede(p, err);
		}
		if (tries == ASSIGNS_MAX)
			return provision_supersede(p, err);
		r = provision_pause(p->job, tries, POLL_FIRST_MS, POLL_MOST_MS, NULL, err);
		if (r)
			return r;
	}
}

struct reserved {
	struct job *job;
	struct warm_entry entry;
};

static int load_reserved(struct txn *txn, void *arg, struct err *err)
{
	struct reserved *reserved = arg;
	struct store_row stored;
	int r = txn_get(txn, STORE_WARM, reserved->job->row.warm, &stored, err);

	return r ? r
		 : warm_decode(reserved->job->arena, reserved->job->row.warm, stored.doc, stored.doc_len,
			       &reserved->entry, err);
}

/* The reserved session becomes the row's before it is assigned, so that a crash leaves no doubt to whom it belongs. */
int provision_use_reserved(struct provision *p, struct err *err)
{
	struct reserved reserved = {.job = p->job};
	struct made made;
	int r = store_view(p->job->s->config.store, load_reserved, &reserved, err);

	if (r || reserved.entry.state != WARM_RESERVED || reserved.entry.used)
		return r;
	r = warm_open(p->job, &reserved.entry, &made, err);
	if (r == 0)
		r = provision_take(p, &made, true, err);
	if (r == 0)
		r = provision_failpoint("assign.before", err);
	p->warm = r == 0;
	return r ? r : provision_assign(p, err);
}
