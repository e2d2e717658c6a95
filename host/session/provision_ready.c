/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A provisioning waits until its session answers. Entered by the provisioner's thread; progress comes on the call's
 * own. Capacity is waited for while it may still come; a session that died is never published. One that died on its
 * way is made anew once: the place that refused or lost it need not be the next one's.
 */
#include "session/provision.h"

#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "plugin/call.h"

#define CAPACITY_FIRST_MS 250
#define CAPACITY_MOST_MS 10000
#define PHASE_EVERY_MS 1000

struct phase {
	struct job *job;
	const char *text;
};

static int set_phase(struct sessions *s, struct txn *txn, struct row *row, void *arg, struct err *err)
{
	const struct phase *phase = arg;

	(void)s;
	(void)txn;
	if (row->b.fence != phase->job->fence || !*row->b.owner)
		return err_set(err, ERR_CONFLICT, "the fence is old");
	row->changed = strcmp(row->b.phase, phase->text) != 0;
	row->b.phase = phase->text;
	return 0;
}

static void on_progress(void *arg, unsigned phase, const char *text)
{
	static const char *const words[] = {
		[BERTH_PHASE_QUEUED] = "queued",   [BERTH_PHASE_UNSCHEDULABLE] = "unschedulable",
		[BERTH_PHASE_PULLING] = "pulling", [BERTH_PHASE_STARTING] = "starting",
		[BERTH_PHASE_READY] = "ready",	   [BERTH_PHASE_PAUSED] = "paused",
	};
	struct provision *p = arg;
	struct phase change = {p->job, "starting"};
	struct err err = {0};

	(void)text;
	if (clock_boot_ns() < p->phase_ns)
		return;
	p->phase_ns = clock_after_ms(PHASE_EVERY_MS);
	if (phase < sizeof(words) / sizeof(*words) && words[phase])
		change.text = words[phase];
	/* For people only: a store that is away is no reason to fail. */
	if (row_update(p->job->s, &p->job->ident, set_phase, &change, &err))
		log_debug("a phase was not stored", KS("task", p->job->key), KS("error", err.msg));
}

/* Asks about p->made; what is answered is merged into it. */
int provision_ask(struct provision *p, int (*op)(struct call *, const void *, struct err *), int64_t deadline_ns,
		  struct err *err)
{
	const struct call_sink sink = {.progress = on_progress, .arg = p};

	return create_ask(p->job, &p->made, op, &sink, deadline_ns, err);
}

/* May the wait go on? 0 after a pause, else the error. */
int provision_wait_on(struct provision *p, int code, int64_t tries, const struct err *last, struct err *err)
{
	int64_t until_ns = code == ERR_CAPACITY ? p->scheduling_ns : p->job->deadline_ns;
	bool again = code == ERR_CAPACITY || (create_is_transient(code) && code != ERR_PROVIDER_TIMEOUT);

	if (again && clock_left_ms(until_ns) > 0)
		return provision_pause(p->job, tries, code == ERR_CAPACITY ? CAPACITY_FIRST_MS : POLL_FIRST_MS,
				       code == ERR_CAPACITY ? CAPACITY_MOST_MS : POLL_MOST_MS, last, err);
	*err = *last;
	return code;
}

static int check_isolation(const struct provision *p, struct err *err)
{
	if (p->made.isolation >= p->job->target->isolation_wanted)
		return 0;
	err_set(err, ERR_PROVIDER, "the session's isolation is weaker than the target's configuration demands");
	err_reason(err, "isolation");
	return ERR_PROVIDER;
}

int provision_ready(struct provision *p, struct err *err)
{
	struct err last;
	int r = 0;

	for (int64_t tries = 1;; tries++) {
		memset(&last, 0, sizeof(last));
		r = provision_ask(p, call_await, p->job->deadline_ns, &last);
		if (create_is_dead(r, &p->made) && (p->adopted || !p->remade)) {
			if (!p->adopted)
				log_warn("a session died before it was ready; another is made", KS("task", p->job->key),
					 KS("ref", p->made.ref), KS("reason", last.reason), KS("error", last.msg));
			p->remade = p->remade || !p->adopted;
			return provision_supersede(p, err);
		}
		if (create_is_dead(r, &p->made) && r != ERR_SESSION_GONE)
			r = err_set(&last, ERR_SESSION_GONE, "the session died before it was ready");
		if (r == 0)
			break;
		r = provision_wait_on(p, r, tries, &last, err);
		if (r)
			return r;
	}
	r = provision_failpoint("provision.ready", err);
	p->ready = r == 0;
	return r ? r : check_isolation(p, err);
}
