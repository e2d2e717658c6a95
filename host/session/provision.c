/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The provisioner of one row: finds or creates the task's session, waits until it answers, publishes it. One job per row on
 * its own pool, detached from every request. What keeps I1: an error never means "absent"; a create whose outcome is not
 * known is looked for until it can no longer appear; only then its token is superseded and one more create sent; and every
 * word to the row carries the fence, so that a provisioner that lost the row changes nothing. Never deletes a session itself:
 * what must go is written to the row, and the GC releases it.
 */
#include <assert.h>
#include <string.h>

#include "core/clock.h"
#include "core/failpoint.h"
#include "core/log.h"
#include "plugin/call.h"
#include "session/lookup.h"
#include "session/warm.h"

#define CREATES_MAX 3
#define ASSIGNS_MAX 3
#define CALL_GRACE_MS 2000 /* a call may return that much after its deadline */
#define FIND_MS 30000
#define POLL_FIRST_MS 50
#define POLL_MOST_MS 2000
#define CAPACITY_FIRST_MS 250
#define CAPACITY_MOST_MS 10000
#define PHASE_EVERY_MS 1000

struct provision {
	struct job *job;
	int64_t scheduling_ns; /* CAPACITY is waited for until then */
	int64_t phase_ns;      /* when the phase was last written */
	unsigned creates;
	struct err lost; /* what the last create ended with, of which nobody knows whether it made anything */
	struct made made;
	bool have;       /* made is the task's session, and in the row */
	bool adopted;    /* found, not made by this run */
	bool unrecorded; /* made was created and the row would not take it */
	bool ready;
	bool warm; /* made is a warm session that was, or may have been, assigned */
};

static int failpoint(const char *name, struct err *err)
{
	return FAILPOINT(name) ? err_set(err, ERR_INTERNAL, "failpoint %s", name) : 0;
}

/* ---- changes of the row, each under the job's fence ---- */

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
	return binding_creating(&row->b, row->now, creating->job->fence, until_ms, err);
}

#define NEVER_SENT (-1)

/* A create may be sent for so long from now; 0: none from now on; NEVER_SENT: certainly none was. */
static int mark_create(struct job *job, int64_t for_ms, struct err *err)
{
	struct creating creating = {job, for_ms};
	int r = job_update(job, set_creating, &creating, err);

	return r ? r : job_load(job, err);
}

struct taken {
	struct job *job;
	const struct binding_session *session;
};

static int set_created(struct sessions *s, struct txn *txn, struct row *row, void *arg, struct err *err)
{
	const struct taken *taken = arg;
	int r = binding_created(txn_arena(txn), &row->b, row->now, taken->job->fence, taken->session, err);

	(void)s;
	row->changed = true;
	return r ? r : warm_bound(txn, &row->b, taken->session->ref, err);
}

static int set_live(struct sessions *s, struct txn *txn, struct row *row, void *arg, struct err *err)
{
	const struct taken *taken = arg;

	row->changed = row->notify = true;
	return binding_publish(txn_arena(txn), &row->b, row->now, &s->rules, taken->job->fence, taken->session, err);
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
	return binding_retoken(txn_arena(txn), &row->b, row->now, retoken->job->fence, retoken->intent, err);
}

struct failure {
	struct job *job;
	const struct err *why;
};

static int set_failed(struct sessions *s, struct txn *txn, struct row *row, void *arg, struct err *err)
{
	const struct failure *failure = arg;

	row->changed = row->notify = true;
	return binding_fail(txn_arena(txn), &row->b, row->now, &s->rules, failure->job->fence, failure->why, err);
}

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

/* ---- find and adopt ---- */

static int take(struct provision *p, const struct made *made, bool adopted, struct err *err)
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
static int put_aside(struct provision *p, const struct made *found, size_t count, const struct made *kept, struct err *err)
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

/* Takes what is there, if anything; everything else becomes a stray. */
static int find_and_take(struct provision *p, bool ours, struct err *err)
{
	int64_t deadline_ns = clock_after_ms(FIND_MS);
	const struct made *pick;
	struct made *found;
	size_t count;
	int r;

	r = lookup_find(p->job, deadline_ns < p->job->deadline_ns ? deadline_ns : p->job->deadline_ns, &found, &count, err);
	if (r)
		return r;
	pick = lookup_pick(found, count, &p->job->row, ours);
	r = put_aside(p, found, count, pick, err);
	if (r == 0 && pick)
		r = take(p, pick, true, err);
	return r;
}

static int supersede(struct provision *p, struct err *err)
{
	struct retoken retoken = {.job = p->job};
	int r;

	ident_random(retoken.intent, "", 32);
	p->have = p->adopted = p->warm = false;
	r = job_update(p->job, set_token, &retoken, err);
	return r ? r : job_load(p->job, err);
}

static int stopped(struct err *err)
{
	return err_set(err, ERR_CANCELLED, "the provisioning was stopped");
}

/* Waits before the next try; the provider's own word about when counts. */
static int pause_between(struct job *job, int64_t tries, int64_t first_ms, int64_t most_ms, const struct err *last,
			 struct err *err)
{
	int64_t wait = binding_backoff(tries, first_ms, most_ms, (uint64_t)(job->fence + tries));

	if (last && last->retry_after_ms > wait)
		wait = last->retry_after_ms;
	return job_wait(job, wait) ? 0 : stopped(err);
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

/* A create may have been sent, and nobody knows what became of it: looked for until it is found, or could not appear any more.
 * Then p->have is false and the token superseded. */
static int settle(struct provision *p, struct err *err)
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

		r = find_and_take(p, true, &last);
		if (p->have)
			return 0;
		if (r == 0 && final)
			return supersede(p, err);
		if (r && !create_is_transient(r)) {
			*err = last;
			return r;
		}
		if (clock_left_ms(job->deadline_ns) == 0)
			return lost(p, r ? &last : NULL, err);
		r = pause_between(job, tries, POLL_FIRST_MS, POLL_MOST_MS, r ? &last : NULL, err);
		if (r)
			return r;
	}
}

/* ---- create ---- */

static int on_created(void *arg, const struct berth_session_info *info)
{
	struct provision *p = arg;
	struct err err = {0};
	struct made made;
	int r = made_copy(p->job->arena, info, &made, &err);

	if (r == 0)
		r = take(p, &made, false, &err);
	p->unrecorded = r != 0;
	if (r == 0)
		r = failpoint("provision.created", &err);
	if (r)
		log_warn("a created session could not be recorded", KS("task", p->job->key), KS("error", err.msg));
	return r;
}

/* One create at most. Leaves p->have false when it was lost and the next may be sent. */
static int create(struct provision *p, struct err *err)
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
	r = failpoint("provision.before", err);
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
		return stopped(err);
	if (r)
		p->lost = *err;
	else
		err_set(&p->lost, ERR_OUTCOME_UNKNOWN, "the provider named no session that it created");
	/* Nothing is sent any more from here on. */
	if (r == ERR_CONFLICT) {
		r = find_and_take(p, false, err);
		if (r || p->have)
			return r;
	}
	r = mark_create(job, 0, err);
	return r ? r : settle(p, err);
}

/* ---- until it answers ---- */

static void on_progress(void *arg, unsigned phase, const char *text)
{
	static const char *const words[] = {
		[BERTH_PHASE_QUEUED] = "queued",     [BERTH_PHASE_UNSCHEDULABLE] = "unschedulable",
		[BERTH_PHASE_PULLING] = "pulling",   [BERTH_PHASE_STARTING] = "starting",
		[BERTH_PHASE_READY] = "ready",
	};
	struct provision *p = arg;
	struct phase change = {p->job, "starting"};
	struct err err = {0};

	(void)text;
	if (clock_boot_ns() < p->phase_ns)
		return;
	p->phase_ns = clock_after_ms(PHASE_EVERY_MS);
	if (phase > 0 && phase < sizeof(words) / sizeof(*words))
		change.text = words[phase];
	/* For people only: a store that is away is no reason to fail. */
	if (row_update(p->job->s, &p->job->ident, set_phase, &change, &err))
		log_debug("a phase was not stored", KS("task", p->job->key), KS("error", err.msg));
}

/* Asks about p->made; what is answered is merged into it. */
static int ask(struct provision *p, int (*op)(struct call *, const void *, struct err *), int64_t deadline_ns,
	       struct err *err)
{
	const struct call_sink sink = {.progress = on_progress, .arg = p};

	return create_ask(p->job, &p->made, op, &sink, deadline_ns, err);
}

/* May the wait go on? 0 after a pause, else the error. */
static int wait_on(struct provision *p, int code, int64_t tries, const struct err *last, struct err *err)
{
	int64_t until_ns = code == ERR_CAPACITY ? p->scheduling_ns : p->job->deadline_ns;
	bool again = code == ERR_CAPACITY || (create_is_transient(code) && code != ERR_PROVIDER_TIMEOUT);

	if (again && clock_left_ms(until_ns) > 0)
		return pause_between(p->job, tries, code == ERR_CAPACITY ? CAPACITY_FIRST_MS : POLL_FIRST_MS,
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

static int make_ready(struct provision *p, struct err *err)
{
	struct err last;
	int r = 0;

	for (int64_t tries = 1;; tries++) {
		memset(&last, 0, sizeof(last));
		r = ask(p, call_await, p->job->deadline_ns, &last);
		if (create_is_dead(r, &p->made) && p->adopted)
			return supersede(p, err);
		if (create_is_dead(r, &p->made) && r != ERR_SESSION_GONE)
			r = err_set(&last, ERR_SESSION_GONE, "the session died before it was ready");
		if (r == 0)
			break;
		r = wait_on(p, r, tries, &last, err);
		if (r)
			return r;
	}
	r = failpoint("provision.ready", err);
	p->ready = r == 0;
	return r ? r : check_isolation(p, err);
}

/* ---- the whole ---- */

/* The former owner knew a session: is it still there? */
static int recover_known(struct provision *p, struct err *err)
{
	struct berth_session known;
	struct err last = {0};
	int r = job_session(p->job, p->job->row.ref, p->job->row.sealed_state, &known, err);

	if (r)
		return r;
	p->made = (struct made){.ref = p->job->row.ref, .state = known.state.ptr ? known.state.ptr : "",
				.state_len = known.state.len, .boot_id = p->job->row.boot_id, .root = p->job->row.root,
				.intent = p->job->row.intent, .workspace = "", .task = "", .created_ms = p->job->row.created_ms,
				.expires_ms = p->job->row.provider_expires_ms};
	p->have = p->adopted = true;
	for (int64_t tries = 1;; tries++) {
		r = ask(p, call_look, p->job->deadline_ns, &last);
		if (create_is_dead(r, &p->made))
			return supersede(p, err);
		if (r == 0)
			return 0;
		r = wait_on(p, r, tries, &last, err);
		if (r)
			return r;
	}
}

static int recover(struct provision *p, struct err *err)
{
	int r;

	if (*p->job->row.ref)
		return recover_known(p, err);
	r = find_and_take(p, false, err);
	if (r == 0 && !p->have && p->job->row.create_until_ms)
		r = settle(p, err);
	return r;
}

/* ---- a warm session ---- */

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
			p->made = told;
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
	return binding_disclaim(&row->b, row->now, job->fence, err);
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
		int r = ask(p, call_look, p->job->deadline_ns, &last);

		if (create_is_dead(r, &p->made))
			return supersede(p, err);
		if (r == 0 && *p->made.task && !is_mine(p)) {
			log_error("a warm session belongs to another task; it is left alone", KS("task", p->job->key),
				  KS("ref", p->made.ref));
			p->have = false;
			r = job_update(p->job, set_disclaimed, p->job, err);
			return r ? r : supersede(p, err);
		}
		if (r == 0)
			return 0;
		r = wait_on(p, r, tries, &last, err);
		if (r)
			return r;
	}
}

/* Ends with have, or with the session put aside. The row names it: it never returns to the pool. */
static int assign(struct provision *p, struct err *err)
{
	for (int64_t tries = 1;; tries++) {
		struct err last = {0};
		int r = send_assign(p, &last);

		if (r == 0)
			return failpoint("assign.after", err);
		if (job_cancelled(p->job))
			return stopped(err);
		log_warn("a warm session was not assigned", KS("task", p->job->key), KS("ref", p->made.ref),
			 KS("code", err_name(r)), KS("error", last.msg));
		if (create_is_open(r)) {
			r = settle_assign(p, err);
			if (r || !p->have || is_mine(p))
				return r;
		} else if (!create_is_transient(r)) {
			return supersede(p, err);
		}
		if (tries == ASSIGNS_MAX)
			return supersede(p, err);
		r = pause_between(p->job, tries, POLL_FIRST_MS, POLL_MOST_MS, NULL, err);
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
		 : warm_decode(reserved->job->arena, reserved->job->row.warm, stored.doc, stored.doc_len, &reserved->entry,
			       err);
}

/* The reserved session becomes the row's before it is assigned, so that a crash leaves no doubt to whom it belongs. */
static int use_reserved(struct provision *p, struct err *err)
{
	struct reserved reserved = {.job = p->job};
	struct made made;
	int r = store_view(p->job->s->config.store, load_reserved, &reserved, err);

	if (r || reserved.entry.state != WARM_RESERVED || reserved.entry.used)
		return r;
	r = warm_open(p->job, &reserved.entry, &made, err);
	if (r == 0)
		r = take(p, &made, true, err);
	if (r == 0)
		r = failpoint("assign.before", err);
	p->warm = r == 0;
	return r ? r : assign(p, err);
}

static int publish(struct provision *p, struct err *err)
{
	struct binding_session session;
	struct taken taken = {p->job, &session};
	int r = failpoint("provision.publish.before", err);

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
		r = use_reserved(p, err);
	else if (r == 0 && *p->job->row.warm && !*p->made.task && *p->job->row.ref)
		r = assign(p, err); /* the former owner may not have come to it */
	while (r == 0 && !p->ready) {
		if (!p->have)
			r = create(p, err);
		if (r == 0 && p->have)
			r = make_ready(p, err);
	}
	return r ? r : publish(p, err);
}

struct let_go {
	struct job *job;
	const struct binding_stray *made;
};

static int set_let_go(struct sessions *s, struct txn *txn, struct row *row, void *arg, struct err *err)
{
	const struct let_go *go = arg;

	(void)err;
	row->changed = binding_let_go(txn_arena(txn), &row->b, row->now, go->job->incarnation, s->config.host_id, go->made);
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
		 KI("incarnation", job->incarnation), KS("how", p.warm ? "warm" : p.adopted ? "adopted" : "created"),
		 KI("ms", (clock_boot_ns() - began_ns) / CLOCK_NS_PER_MS));
}
