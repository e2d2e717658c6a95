/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the way of an execution to its session: claim, begin, started, each try one store step. Workers enter with a run
 * they own; create uses the parts that run inside a step. Holds no thread while it waits, and never writes `running`
 * without the session's operation in the same step.
 */
#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/failpoint.h"
#include "core/log.h"
#include "execution/execution_private.h"
#include "obs/metrics.h"
#include "session/binding.h"

#define POLL_FIRST_MS 100
#define POLL_MOST_MS 1000
#define POLL_SHARE_MS 2 /* per waiting run: all of them together look at most 500 times a second */

enum take_result {
	TAKE_LIVE,    /* started, the session is there */
	TAKE_WAIT,    /* claimed, the session is not there yet */
	TAKE_RESUME,  /* a former runner may have started it */
	TAKE_CANCEL,  /* a cancel was asked of a former runner */
	TAKE_EXPIRED, /* it waited too long */
	TAKE_ENDED,   /* the record is terminal */
	TAKE_FOREIGN, /* another host has it */
	TAKE_LATER,   /* nothing is over, and nothing may be begun */
};

struct take {
	struct run *run;
	char claimed_event[IDENT_ID_MAX + 1], started_event[IDENT_ID_MAX + 1];
	bool hold; /* nobody's claim is over now */
	/* Out of the step. */
	enum take_result result;
	bool claimed_now;
	bool begin_failed;
	bool poison; /* ended, as a dead letter */
	int64_t now_ms;
	struct run_facts facts;
};

void take_prepare(struct run *run)
{
	if (run->begin_prepared)
		return;
	run->begin = (struct session_begin){
		.ident = run->ident,
		.region = run->facts.region,
		.op_id = run->id,
		.op_kind = "execution",
		.lasts_ms = run->facts.lasts_ms,
	};
	session_begin_prepare(run->e->config.sessions, &run->begin);
	run->begin_prepared = true;
}

/* The next try asks anew: it must not be answered with the failure that this one waited for. */
void take_unprepare(struct run *run)
{
	if (run->begin_prepared)
		session_begin_fini(&run->begin);
	run->begin_prepared = false;
	run->waited = false;
}

/* Half of what is left of this host's claim: clocks differ a little. */
static int64_t sure_until_ns(const struct executions *e, int64_t now_ms, const struct claim *c)
{
	int64_t left_ms = c->claim_until_ms - now_ms;

	if (!c->runner || strcmp(c->runner, e->config.host_id) != 0 || left_ms <= 0)
		return 0;
	return clock_after_ms(left_ms / 2);
}

void take_facts(struct executions *e, int64_t now_ms, const struct record *r, const struct claim *c,
		struct run_facts *ret)
{
	*ret = (struct run_facts){
		.attempt = r->attempt,
		.sent_attempt = c->sent_attempt,
		.lasts_ms = r->command.timeout_seconds * 1000 + e->config.conf->completion_grace_ms,
		.queue_expires_ms = r->queue_expires_ms,
		.expires_ms = r->execution_expires_ms,
		.incarnation = r->incarnation,
		.sure_ns = sure_until_ns(e, now_ms, c),
	};
	snprintf(ret->cancel, sizeof(ret->cancel), "%s", claim_cancel(c));
	snprintf(ret->region, sizeof(ret->region), "%s", r->runtime.region ? r->runtime.region : "");
	snprintf(ret->traceparent, sizeof(ret->traceparent), "%s", r->traceparent ? r->traceparent : "");
}

void take_set_facts(struct run *run, const struct run_facts *facts)
{
	run->facts = *facts;
	lock_take(&run->e->lock);
	run->queue_expires_ms = facts->queue_expires_ms;
	run->claimed = facts->attempt;
	run->sure_ns = facts->sure_ns;
	if (facts->cancel[0] && !run->cancel) {
		run->cancel = true;
		memcpy(run->cancel_reason, facts->cancel, sizeof(run->cancel_reason));
	}
	lock_drop(&run->e->lock);
}

/* ---- parts of a step ---- */

int take_claimed_step(struct run *run, struct txn *txn, struct record *r, struct claim *c, enum record_event event,
		      const char *event_id, struct err *err)
{
	struct record_change change = {.attempt = r->attempt + 1};
	bool replay;
	int rc = steps_move(run->e, txn, r, event, &change, event_id, &replay, err);

	if (rc)
		return rc;
	c->runner = run->e->config.host_id;
	c->attempt = r->attempt;
	c->claim_until_ms = txn_now(txn) + run->e->config.conf->claim_ttl_ms;
	return 0;
}

/* What the two above and below changed: once, however many of them were in the step. */
int take_put_step(struct run *run, struct txn *txn, const struct record *r, const struct claim *c, struct err *err)
{
	int rc = steps_put_record(run->e, txn, r, err);

	return rc ? rc : steps_put_claim(txn, r->id, c, err);
}

static int load_binding(struct run *run, struct txn *txn, struct binding *ret, struct err *err)
{
	char key[IDENT_KEY_MAX + 1];
	struct store_row row;
	int rc;

	ident_key(&run->ident, key);
	rc = txn_get(txn, STORE_TASK, key, &row, err);
	return rc ? rc : binding_decode(txn_arena(txn), &run->ident, row.doc, row.doc_len, ret, err);
}

int take_started_step(struct run *run, struct txn *txn, struct record *r, struct claim *c, enum record_event event,
		      const char *event_id, struct err *err)
{
	struct binding b;
	struct record_change change = {.attempt = r->attempt, .grace_ms = run->e->config.conf->completion_grace_ms};
	bool replay;
	int rc = load_binding(run, txn, &b, err);

	if (rc)
		return rc;
	change.incarnation = b.incarnation;
	change.target = b.target;
	rc = steps_move(run->e, txn, r, event, &change, event_id, &replay, err);
	if (rc)
		return rc;
	c->sent_attempt = r->attempt;
	c->deliveries = 0;
	c->target = b.target;
	c->incarnation = b.incarnation;
	c->fence = b.fence;
	return 0;
}

/* Until its sandbox was asked, neither a cancel nor a teardown may end it as one that only waits. */
static void set_unsure(struct run *run)
{
	lock_take(&run->e->lock);
	run->has_session = run->unsure = true;
	lock_drop(&run->e->lock);
}

/* ---- the step of a worker ---- */

bool take_is_ours(const struct run *run, const struct claim *c)
{
	return c->runner && strcmp(c->runner, run->e->config.host_id) == 0 && c->claim_until_ms != 0;
}

/* An attempt that ended after nothing but its own claim counts; one handed back at a stop does not. */
static bool is_poison(const struct run *run, const struct record *r, struct claim *c)
{
	if (r->status != RECORD_CLAIMED || c->claim_until_ms == 0)
		return false;
	return ++c->deliveries >= run->e->config.conf->max_deliveries;
}

static int end_poison(struct take *take, struct txn *txn, struct record *r, struct err *err)
{
	struct run *run = take->run;
	struct record_change change = {.reason = "max_deliveries",
				       .error = "its runners died again and again before it could start"};
	struct ident ident;
	bool replay;
	int rc = steps_apply(run->e, txn, r, EVENT_FAILED, &change, take->claimed_event, &replay, err);

	if (rc == 0)
		rc = steps_dead_letter(txn, "max_deliveries", r->id, 0, "", 0, err);
	if (rc == 0)
		rc = steps_close(run->e, txn, r, &ident, err);
	take->result = TAKE_ENDED;
	take->poison = rc == 0;
	return rc;
}

/* Claims what is not claimed by this process. From then on its claim leads to it, and no message has to. */
static int claim_part(struct take *take, struct txn *txn, struct record *r, struct claim *c, struct err *err)
{
	struct run *run = take->run;
	bool queued = r->status == RECORD_QUEUED;
	int rc;

	if (!queued && take_is_ours(run, c))
		return 0;
	take->claimed_now = true;
	rc = take_claimed_step(run, txn, r, c, queued ? EVENT_CLAIMED : EVENT_RECLAIMED, take->claimed_event, err);
	return rc || !queued ? rc : txn_ack_subject(txn, STREAM_REQUESTS, run->id, err);
}

static int begin_part(struct take *take, struct txn *txn, struct record *r, struct claim *c, struct err *err)
{
	struct run *run = take->run;
	int rc = session_begin_step(run->e->config.sessions, txn, &run->begin, err);
	bool starts;

	take->begin_failed = rc != 0;
	if (rc == 0)
		rc = claim_part(take, txn, r, c, err);
	if (rc)
		return rc;
	take->result = run->begin.outcome == BEGIN_LIVE ? TAKE_LIVE : TAKE_WAIT;
	starts = take->result == TAKE_LIVE && r->status != RECORD_RUNNING;
	if (starts)
		rc = take_started_step(run, txn, r, c, EVENT_STARTED, take->started_event, err);
	if (rc == 0 && (starts || take->claimed_now))
		rc = take_put_step(run, txn, r, c, err);
	return rc || !starts ? rc : lost_keep_step(run, txn, err);
}

/* A claimed one may wait beyond its time in the queue: as long as a session may take to come up, but not for capacity.
 */
int64_t take_wait_ends_ms(const struct run *run, bool claimed, int64_t queue_expires_ms)
{
	const struct conf *conf = run->e->config.conf;
	bool capacity = run->wait == WAIT_CAPACITY || run->wait == WAIT_RATE;

	return queue_expires_ms + (claimed && !capacity ? conf->scheduling_ms + conf->starting_ms : 0);
}

static bool is_expired(const struct run *run, const struct record *r, int64_t now_ms)
{
	return r->status != RECORD_RUNNING &&
	       now_ms >= take_wait_ends_ms(run, r->status == RECORD_CLAIMED, r->queue_expires_ms);
}

static int take_step(struct txn *txn, void *arg, struct err *err)
{
	struct take *take = arg;
	struct run *run = take->run;
	struct record r;
	struct claim c;
	int rc = steps_load(txn, run->id, &r, &c, err);

	take->begin_failed = take->claimed_now = take->poison = false;
	take->now_ms = txn_now(txn);
	if (rc)
		return rc;
	if (record_status_terminal(r.status)) {
		take->result = TAKE_ENDED;
		return txn_ack_subject(txn, STREAM_REQUESTS, run->id, err);
	}
	if (fleet_is_foreign(run->e, &c, txn_now(txn), take->hold)) {
		take->result = TAKE_FOREIGN;
		return 0;
	}
	if (run->once && !is_expired(run, &r, txn_now(txn))) {
		take->result = TAKE_LATER;
		return 0;
	}
	if (r.status != RECORD_QUEUED && !take_is_ours(run, &c) && is_poison(run, &r, &c))
		return end_poison(take, txn, &r, err);
	if (r.status == RECORD_RUNNING && (run->resume || !take_is_ours(run, &c) || c.sent_attempt != r.attempt)) {
		take->result = TAKE_RESUME;
		rc = claim_part(take, txn, &r, &c, err);
		if (rc == 0 && take->claimed_now)
			rc = take_put_step(run, txn, &r, &c, err);
		if (rc == 0)
			rc = lost_keep_step(run, txn, err);
	} else if (c.cancel_requested_ms) {
		take->result = TAKE_CANCEL;
	} else if (is_expired(run, &r, txn_now(txn))) {
		take->result = TAKE_EXPIRED;
	} else {
		rc = begin_part(take, txn, &r, &c, err);
	}
	take_facts(run->e, txn_now(txn), &r, &c, &take->facts);
	return rc;
}

/* ---- after the step ---- */

int take_begun(struct run *run, struct err *err)
{
	struct session_hold *hold = NULL;
	int rc = session_begin_done(run->e->config.sessions, &run->begin, &hold, err);

	if (hold) {
		run->hold = hold;
		session_hold_on_lost(hold, call_on_lost, run);
	}
	return rc;
}

void take_set_started(struct run *run)
{
	run->started = true;
	run->tries = 0;
	lock_take(&run->e->lock);
	run->has_session = true;
	lost_kept_locked(run);
	lock_drop(&run->e->lock);
}

static void set_timer(struct run *run, int64_t ms_from_now)
{
	queue_timer(run, clock_after_ms(ms_from_now > 1 ? ms_from_now : 1));
}

/* Parks until the task's row changes, the session layer's time comes, or the time in the queue is over. */
static enum next wait_session(struct run *run, const struct take *take)
{
	const struct conf *conf = run->e->config.conf;
	int64_t until = run->facts.queue_expires_ms + conf->scheduling_ms + conf->starting_ms;

	if (run->begin.retry_at_ms && run->begin.retry_at_ms < until)
		until = run->begin.retry_at_ms;
	run->waited = true;
	run->tries = 0;
	run->wait = WAIT_SESSION;
	set_timer(run, until - take->now_ms);
	return NEXT_PARK;
}

static enum next live(struct run *run, const struct take *take)
{
	struct err err = {0};
	int rc;

	if (take->claimed_now)
		(void)FAILPOINT("exec.claimed");
	(void)FAILPOINT("exec.begin.after");
	rc = take_begun(run, &err);
	queue_deaf(run);
	take_set_started(run);
	steps_changed(run->e, run->id);
	return rc || !run->hold ? finish_failed(run, &err) : NEXT_COMMAND;
}

static enum next waiting(struct run *run, const struct take *take)
{
	struct err err = {0};

	if (take->claimed_now) {
		(void)FAILPOINT("exec.claimed");
		steps_changed(run->e, run->id);
	}
	if (take_begun(run, &err))
		return take_begin_failed(run, &err);
	return wait_session(run, take);
}

/* Asking costs a store step but no provider call; only a rate limit's own time is waited for in full, and spread. */
static int64_t poll_ms(struct run *run, enum run_wait wait, const struct err *why)
{
	int64_t ms = POLL_FIRST_MS << (run->tries < 10 ? run->tries : 10);
	int64_t share;

	lock_take(&run->e->lock);
	share = (int64_t)run->e->waiting * POLL_SHARE_MS;
	lock_drop(&run->e->lock);
	run->tries++;
	if (ms > POLL_MOST_MS)
		ms = POLL_MOST_MS;
	if (ms < share)
		ms = share;
	if ((wait == WAIT_RATE || wait == WAIT_PROVIDER) && why->retry_after_ms > ms)
		ms = clock_spread_ms(why->retry_after_ms, (uint64_t)clock_boot_ns());
	return ms;
}

/* The hold of a running command could not be had. */
static enum next not_resumed(struct run *run, const struct err *why)
{
	bool gone = why->code == ERR_SESSION_GONE || why->code == ERR_NOT_FOUND;
	struct record_ending ending = {.kind = gone ? "session_lost" : "unknown"};
	struct finish f = {.event = EVENT_FAILED,
			   .reason = gone ? "session_lost" : "interrupted",
			   .error = gone ? "the session was lost while no runner watched the command" : why->msg,
			   .ending = &ending,
			   .end.lost = gone};
	int64_t now = clock_boot_ns();

	if (!run->first_try_ns)
		run->first_try_ns = now;
	/* A target that this process does not have will not come back to it. */
	if (why->code != ERR_STORE && (gone || !why->retryable || strcmp(why->reason, "target_gone") == 0 ||
				       now - run->first_try_ns > run->e->config.conf->starting_ms * CLOCK_NS_PER_MS))
		return finish_run(run, &f);
	set_timer(run, poll_ms(run, WAIT_STORE, why));
	return NEXT_PARK;
}

static enum next resumed(struct run *run)
{
	struct err err = {0};

	run->resume = true;
	steps_changed(run->e, run->id);
	if (session_resume(run->e->config.sessions, &run->ident, run->id, &run->hold, &err))
		return not_resumed(run, &err);
	session_hold_on_lost(run->hold, call_on_lost, run);
	queue_deaf(run);
	take_set_started(run);
	run->first_try_ns = 0;
	return NEXT_COMMAND;
}

/* Whoever ended it here may not have heard that it was stored, and so told nobody. */
static enum next ended(struct run *run, const struct take *take)
{
	if (take->poison) {
		log_warn("an execution whose runners died again and again became a dead letter",
			 KS("execution", run->id));
		metric_add(METRIC_DEAD_LETTERS, 0, 0, 1);
		steps_closed(run->e, &run->ident, run->id);
		return NEXT_DONE;
	}
	session_unwait_done(run->e->config.sessions, &run->ident);
	steps_changed(run->e, run->id);
	return NEXT_DONE;
}

static enum next take_done(struct run *run, const struct take *take)
{
	if (take->result != TAKE_ENDED && take->result != TAKE_FOREIGN && take->result != TAKE_LATER) {
		take_set_facts(run, &take->facts);
		if (!store_is_exclusive(run->e->config.store)) /* only there another host can have had it */
			call_is_back(run);
	}
	switch (take->result) {
	case TAKE_LIVE:
		return live(run, take);
	case TAKE_WAIT:
		return waiting(run, take);
	case TAKE_RESUME:
		return resumed(run);
	case TAKE_CANCEL:
		return finish_cancelled(run);
	case TAKE_EXPIRED:
		return finish_expired(run);
	case TAKE_FOREIGN:
		return NEXT_FOREIGN;
	case TAKE_LATER:
		return NEXT_READY;
	case TAKE_ENDED:
		break;
	}
	return ended(run, take);
}

/* ---- when begin fails ---- */

static const struct {
	int code;
	enum run_wait wait;
} waits[] = {
	{ERR_CAPACITY, WAIT_CAPACITY}, {ERR_RATE_LIMITED, WAIT_RATE}, {ERR_QUOTA, WAIT_RATE},
	{ERR_SESSION_BUSY, WAIT_BUSY}, {ERR_STORE, WAIT_STORE},
};

static enum run_wait wait_of(const struct run *run, const struct err *why)
{
	for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
		if (waits[i].code == why->code)
			return waits[i].wait;
	}
	/* The teardown cancelled what it found; this one came after it and has a right to the next incarnation. */
	if (why->code == ERR_SESSION_GONE && strcmp(why->reason, "teardown") == 0)
		return WAIT_BUSY;
	/* Another operation's provisioning failed a moment ago: wait for its back-off, then try once for this one. */
	return why->retryable && why->retry_after_ms > 0 && !run->waited ? WAIT_PROVIDER : WAIT_NOTHING;
}

enum next take_begin_failed(struct run *run, const struct err *why)
{
	enum run_wait wait = wait_of(run, why);
	int64_t left, ms;

	if (why->code == ERR_SHUTTING_DOWN)
		return NEXT_LEAVE;
	if (wait == WAIT_NOTHING)
		return finish_failed(run, why);
	run->wait = wait;
	run->wait_err = *why;
	take_unprepare(run);
	left = take_wait_ends_ms(run, run->facts.attempt > 0, run->facts.queue_expires_ms) - steps_now(run->e);
	/* With no time left the next look ends it: that does not wait for what the provider asked for. */
	ms = poll_ms(run, left > 0 ? wait : WAIT_NOTHING, why);
	set_timer(run, left > 0 && left < ms ? left : ms);
	return NEXT_PARK;
}

static enum next take_failed(struct run *run, const struct take *take, struct err *err)
{
	if (err->code == ERR_SHUTTING_DOWN)
		return NEXT_LEAVE;
	if (err->code == ERR_NOT_FOUND && !take->begin_failed) {
		log_warn("a queued execution has no record", KS("execution", run->id));
		return NEXT_DONE;
	}
	if (err->code == ERR_CORRUPT && !take->begin_failed) {
		log_error("a queued execution's record cannot be read, it is left alone", KS("execution", run->id),
			  KS("error", err->msg));
		return NEXT_DONE;
	}
	if (err->code == ERR_EXECUTION_CONFLICT) {
		steps_defect(run->e, run->id, err);
		return NEXT_DONE;
	}
	return take_begin_failed(run, err);
}

/* ---- */

static int load_facts_step(struct txn *txn, void *arg, struct err *err)
{
	struct take *take = arg;
	struct record r;
	struct claim c;
	int rc = steps_load(txn, take->run->id, &r, &c, err);

	if (rc)
		return rc;
	take->result = r.status == RECORD_RUNNING ? TAKE_RESUME : TAKE_WAIT;
	take_facts(take->run->e, txn_now(txn), &r, &c, &take->facts);
	return 0;
}

enum next take_run(struct run *run)
{
	struct executions *e = run->e;
	struct take take = {.run = run, .hold = store_hold_ms(e->config.store) > 0};
	struct err err = {0};
	int rc = 0;

	if (!run->facts.lasts_ms) {
		rc = store_view(e->config.store, load_facts_step, &take, &err);
		if (rc)
			return take_failed(run, &take, &err);
		take_set_facts(run, &take.facts);
		if (take.result == TAKE_RESUME)
			set_unsure(run);
	}
	if (!session_may_act(e->config.sessions)) {
		err_set(&err, ERR_STORE, "this host's heartbeat is not confirmed");
		return take_begin_failed(run, &err);
	}
	queue_listen(run);
	take_prepare(run);
	steps_event_id(take.claimed_event);
	steps_event_id(take.started_event);
	rc = steps_update(e, take_step, &take, &err);
	if (take.result == TAKE_RESUME)
		set_unsure(run); /* also when nobody knows whether it was written */
	return rc ? take_failed(run, &take, &err) : take_done(run, &take);
}
