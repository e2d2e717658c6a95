/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns one command from `running` to its ending: inputs, execute, reattach until its outcome is known or cannot be. The
 * worker that owns the run enters, holding its session. Never starts a command twice: after a start that may have
 * happened, only a proof of the opposite leads to another.
 */
#include <string.h>

#include "core/clock.h"
#include "core/failpoint.h"
#include "core/log.h"
#include "execution/execution_private.h"

#define STUCK "provider_stuck"
#define FORGOTTEN "forgotten" /* provider.h: reattach */
#define AGAIN_FIRST_MS 50
#define AGAIN_MOST_MS 2000
#define STEADY_NS (10 * CLOCK_NS_PER_S)
#define DOUBTS_MAX 3 /* answers of "I do not know" before it is believed */

static int64_t backoff_ms(unsigned tries)
{
	int64_t ms = AGAIN_FIRST_MS << (tries < 10 ? tries : 10);

	return ms < AGAIN_MOST_MS ? ms : AGAIN_MOST_MS;
}

/* The same provider call is tried again for as long as a session may take to start. */
static bool budget_left(struct run *run)
{
	int64_t now = clock_boot_ns();

	if (!run->first_try_ns)
		run->first_try_ns = now;
	return now - run->first_try_ns < run->e->config.conf->starting_ms * CLOCK_NS_PER_MS;
}

/* Without the store nothing could be said of the command's end either. */
static bool may_repeat(struct run *run, const struct err *why)
{
	return why->code == ERR_STORE || budget_left(run);
}

static enum next later(struct run *run, const struct err *why)
{
	int64_t ms = backoff_ms(run->tries++);

	if (why->retry_after_ms > ms)
		ms = why->retry_after_ms;
	queue_timer(run, clock_after_ms(clock_spread_ms(ms, (uint64_t)clock_boot_ns())));
	return NEXT_PARK;
}

/* Nothing runs. */
static enum next again(struct run *run, const struct err *why)
{
	return may_repeat(run, why) ? later(run, why) : finish_failed(run, why);
}

/* ---- endings ---- */

static const struct {
	const char *word;
	enum record_event event;
} kinds[] = {
	[BERTH_ENDING_EXIT] = {"exit", EVENT_COMPLETED},
	[BERTH_ENDING_SIGNAL] = {"signal", EVENT_COMPLETED},
	[BERTH_ENDING_TIMEOUT] = {"timeout", EVENT_COMPLETED},
	[BERTH_ENDING_CANCELLED] = {"cancelled", EVENT_CANCELLED},
	[BERTH_ENDING_OOM] = {"oom", EVENT_FAILED},
	[BERTH_ENDING_SESSION_LOST] = {"session_lost", EVENT_FAILED},
	[BERTH_ENDING_UNKNOWN] = {"unknown", EVENT_FAILED},
};

/* Why a command was stopped: the caller's wish, the task's end, or its session's. */
static void explain_stop(struct run *run, struct finish *f, struct record_ending *ending)
{
	lock_take(&run->e->lock);
	if (run->lost[0] && strcmp(run->lost, "teardown") == 0) {
		f->reason = "task_deleted";
	} else if (run->lost[0] && !run->cancel) {
		f->event = EVENT_FAILED;
		f->reason = run->lost;
		f->error = "the session was taken from the command";
		ending->kind = "session_lost";
	} else {
		f->reason = run->cancel ? run->cancel_reason : "provider";
	}
	lock_drop(&run->e->lock);
}

static bool is_proven(const struct run *run, const struct berth_ending *ending)
{
	if (ending->quiescent == BERTH_QUIESCENT_YES)
		return true;
	return run->plan.keep_descendants && ending->survivors > 0; /* they were asked to stay */
}

static enum next ended(struct run *run, const struct attempt *a)
{
	const struct berth_ending *e = &a->ending;
	struct record_ending ending = {
		.kind = kinds[e->kind].word,
		.exit_code = e->kind == BERTH_ENDING_EXIT ? e->exit_code : 0,
		.signal = e->kind == BERTH_ENDING_SIGNAL ? e->signal : 0,
	};
	struct finish f = {
		.event = kinds[e->kind].event,
		.ending = &ending,
		.timed = true,
		.duration_ms = e->duration_ms,
		.survivors = e->survivors,
		.dropped = {e->stdout_dropped, e->stderr_dropped},
		.end.proven = is_proven(run, e),
	};

	if (e->kind == BERTH_ENDING_CANCELLED)
		explain_stop(run, &f, &ending);
	else if (f.event == EVENT_FAILED)
		f.reason = ending.kind;
	else if (a->reason[0])
		f.reason = a->reason; /* what the provider saw beside the exit, as a limit that was hit */
	if (!f.end.proven)
		call_kill(run);
	return finish_run(run, &f);
}

static bool was_stopped(struct run *run)
{
	bool stopped;

	lock_take(&run->e->lock);
	stopped = run->cancel || run->lost[0];
	lock_drop(&run->e->lock);
	return stopped;
}

static enum next session_lost(struct run *run, const struct attempt *a)
{
	struct record_ending ending = {.kind = "session_lost"};
	struct finish f = {.event = EVENT_FAILED,
			   .reason = "session_lost",
			   .error = a->err.msg[0] ? a->err.msg : "the session is gone",
			   .ending = &ending,
			   .end.lost = true};

	if (was_stopped(run)) {
		f.event = EVENT_CANCELLED;
		ending.kind = "cancelled";
		explain_stop(run, &f, &ending);
	}
	return finish_run(run, &f);
}

static const char *unknown_reason(const struct run *run, const struct attempt *a)
{
	if (strcmp(a->err.reason, STUCK) == 0)
		return a->err.reason;
	return run->resume ? "interrupted" : "unknown";
}

static enum next outcome_unknown(struct run *run, const struct attempt *a)
{
	struct record_ending ending = {.kind = "unknown"};
	struct finish f = {.event = EVENT_FAILED,
			   .reason = unknown_reason(run, a),
			   .error = a->err.msg[0] ? a->err.msg : "the provider does not know how the command ended",
			   .ending = &ending};

	log_warn("the outcome of a command is not known", KS("execution", run->id), KS("error", f.error));
	call_kill(run);
	return finish_run(run, &f);
}

/* The store has gone back to a state before the end, as a restored copy has or a Redis that lost its last second. What ended
 * is known to have ended: the session and what else runs there stay. */
static enum next forgotten(struct run *run, const struct attempt *a)
{
	struct record_ending ending = {.kind = "unknown"};
	struct finish f = {.event = EVENT_FAILED,
			   .reason = FORGOTTEN,
			   .error = a->err.msg[0] ? a->err.msg : "the command ended and its output was dropped",
			   .ending = &ending,
			   .end.proven = true};

	return finish_run(run, &f);
}

/* The call was not made. */
static enum next held_back(struct run *run)
{
	struct record_ending ending = {.kind = "cancelled"};
	struct finish f = {.event = EVENT_CANCELLED, .ending = &ending, .end.proven = true};

	if (!was_stopped(run))
		return NEXT_LEAVE; /* the process stops */
	explain_stop(run, &f, &ending);
	return finish_run(run, &f);
}

/* ---- between calls ---- */

struct restart_step {
	struct run *run;
	char events[2][IDENT_ID_MAX + 1];
	struct run_facts facts;
};

/* The proof that nothing runs is about the attempt that this run knows. Another one is of a host that took over
 * meanwhile, and died. */
static bool is_as_known(const struct run *run, const struct record *r, const struct claim *c)
{
	return r->attempt == run->facts.attempt && c->sent_attempt == run->facts.sent_attempt;
}

/* A repeated step finds what it did when nobody could say so. */
static bool is_restarted(const struct run *run, const struct record *r, const struct claim *c)
{
	return r->attempt == c->sent_attempt && take_is_ours(run, c);
}

/* The next attempt is claimed unless it was already, and started. */
static int restart_parts(struct restart_step *in, struct txn *txn, struct record *r, struct claim *c, struct err *err)
{
	struct run *run = in->run;
	int rc = 0;

	if (r->status == RECORD_RUNNING && r->attempt == c->sent_attempt)
		rc = take_claimed_step(run, txn, r, c, EVENT_RECLAIMED, in->events[0], err);
	if (rc == 0)
		rc = take_started_step(run, txn, r, c, EVENT_RESTARTED, in->events[1], err);
	if (rc == 0)
		rc = take_put_step(run, txn, r, c, err);
	return rc ? rc : lost_keep_step(run, txn, err);
}

/* Certainly nothing runs under a former attempt. */
static int restart_step(struct txn *txn, void *arg, struct err *err)
{
	struct restart_step *in = arg;
	struct run *run = in->run;
	struct record r;
	struct claim c;
	int rc = steps_load(txn, run->id, &r, &c, err);

	if (rc)
		return rc;
	if (record_status_terminal(r.status) || fleet_is_foreign(run->e, &c, txn_now(txn), false))
		return steps_overtaken(run, err);
	if (is_as_known(run, &r, &c))
		rc = restart_parts(in, txn, &r, &c, err);
	else if (!is_restarted(run, &r, &c))
		return steps_overtaken(run, err);
	take_facts(run->e, txn_now(txn), &r, &c, &in->facts);
	return rc;
}

static int restart(struct run *run, struct err *err)
{
	struct restart_step in = {.run = run};
	int rc;

	steps_event_id(in.events[0]);
	steps_event_id(in.events[1]);
	rc = steps_update_surely(run->e, restart_step, &in, err);
	if (rc)
		return rc;
	take_set_facts(run, &in.facts);
	steps_changed(run->e, run->id);
	run->resume = run->touched = run->ran = false;
	lock_take(&run->e->lock);
	run->unsure = false;
	lock_drop(&run->e->lock);
	run->tries = 0;
	run->first_try_ns = 0;
	(void)FAILPOINT("exec.started");
	return 0;
}

/* Between two calls of one kind; false when the session was lost meanwhile. *ret_detaching: the process leaves it. */
static bool wait_between(struct run *run, unsigned tries, bool *ret_detaching)
{
	struct executions *e = run->e;
	int64_t until = clock_after_ms(tries ? backoff_ms(tries) : 0);
	bool go;

	lock_take(&e->lock);
	while (!e->detaching && !run->lost[0] && cond_wait_until(&e->changed, &e->lock, until))
		;
	go = !run->lost[0];
	*ret_detaching = e->detaching;
	lock_drop(&e->lock);
	return go;
}

/* Before another reattach; false when there is none to be made. */
static bool wait_before_reattach(struct run *run)
{
	bool detaching;

	return wait_between(run, run->tries++, &detaching) && (detaching || budget_left(run));
}

static int prepare(struct run *run, struct inputs *in, struct err *err)
{
	int rc = plan_load(run, err);

	if (rc == 0) {
		lock_take(&run->e->lock);
		run->has_plan = true;
		lock_drop(&run->e->lock);
	}
	return rc || run->resume ? rc : inputs_load(run, in, err);
}

/* Its end was told when it was first to start, and nobody expects it to begin after that. It never ran. */
static enum next expired(struct run *run)
{
	struct err err = {0};

	run->ran = false;
	if (strcmp(run->wait_err.reason, STUCK) == 0)
		return finish_failed(run, &run->wait_err);
	err_set(&err, ERR_NOT_STARTED, "it could not be started before its time was over%s%s",
		run->wait_err.msg[0] ? ": " : "", run->wait_err.msg);
	err_reason(&err, "execution_expired");
	return finish_failed(run, &err);
}

/* A provider that fails every start must not be asked for ever. What a former process sent is no start of this one. */
static bool may_restart(struct run *run)
{
	bool detaching;

	if (run->resume)
		return true;
	return ++run->restarts < run->e->config.conf->max_deliveries &&
	       wait_between(run, run->restarts - 1, &detaching);
}

static enum next not_started(struct run *run)
{
	struct err err = {0};
	bool again = may_restart(run);

	if (call_unwanted(run))
		return held_back(run);
	if (call_time_left(run) <= 0)
		return expired(run);
	if (!again) {
		run->ran = false;
		return finish_failed(run, &run->wait_err);
	}
	if (restart(run, &err) == 0)
		return NEXT_COMMAND;
	if (err.code == ERR_EXECUTION_CONFLICT)
		steps_defect(run->e, run->id, &err);
	if (strcmp(err.reason, "taken_over") != 0)
		return NEXT_LEAVE;
	finish_hand_back(run); /* the hold, as the claim is not this host's */
	return NEXT_FOREIGN;
}

static enum next no_answer(struct run *run, const struct attempt *a)
{
	bool lost;

	lock_take(&run->e->lock);
	lost = run->lost[0] != '\0';
	lock_drop(&run->e->lock);
	return lost ? session_lost(run, a) : outcome_unknown(run, a);
}

/* *ret_ask: the command has to be asked for (again). */
static enum next act(struct run *run, const struct attempt *a, enum verdict verdict, bool *ret_ask)
{
	*ret_ask = false;
	switch (verdict) {
	case VERDICT_ENDED:
		return ended(run, a);
	case VERDICT_REFUSED:
		run->ran = false;
		return finish_failed(run, &a->err);
	case VERDICT_AGAIN:
		run->ran = false;
		return again(run, &a->err);
	case VERDICT_NOT_STARTED:
		return not_started(run);
	case VERDICT_LOST:
		return session_lost(run, a);
	case VERDICT_FORGOTTEN:
		return forgotten(run, a);
	case VERDICT_DETACHED:
		return NEXT_LEAVE;
	case VERDICT_DOUBT:
	case VERDICT_REATTACH:
		*ret_ask = target_can(run->hold->target, BERTH_CAP_REATTACH) && wait_before_reattach(run);
		break;
	case VERDICT_GIVE_UP:
		break;
	}
	return *ret_ask ? NEXT_COMMAND : no_answer(run, a);
}

/* One call; true, and the budget of the next ones starts anew, when it brought something. */
static bool ask(struct run *run, const struct inputs *in, bool reattach, struct attempt *ret)
{
	uint64_t seen = spool_seen(run->out, BERTH_STREAM_STDOUT) + spool_seen(run->out, BERTH_STREAM_STDERR);
	int64_t begun = clock_boot_ns();

	run->ran = true;
	call_perform(run, in, reattach, ret);
	if (ret->given || (spool_seen(run->out, BERTH_STREAM_STDOUT) + spool_seen(run->out, BERTH_STREAM_STDERR) == seen &&
			   clock_boot_ns() - begun <= STEADY_NS))
		return false;
	run->first_try_ns = 0;
	run->tries = 0;
	return true;
}

static enum verdict judge(const struct run *run, const struct attempt *a, bool reattach)
{
	if (reattach && a->code == ERR_NOT_FOUND && strcmp(a->err.reason, FORGOTTEN) == 0)
		return VERDICT_FORGOTTEN;
	return verdict_of(a->code, a->has_ending ? a->ending.kind : 0, reattach, run->touched);
}

static enum next loop(struct run *run, const struct inputs *in, bool reattach)
{
	bool once_more = true;
	enum next next = NEXT_LEAVE;
	unsigned doubts = 0;

	if (reattach && !target_can(run->hold->target, BERTH_CAP_REATTACH))
		return outcome_unknown(run, &(struct attempt){0}); /* nothing of its output is here either */
	if (!reattach && !call_unwanted(run) && call_time_left(run) <= 0)
		return expired(run);
	while (once_more) {
		struct attempt a;
		enum verdict verdict;

		if (ask(run, in, reattach, &a))
			doubts = 0;
		if (a.given)
			return NEXT_GIVEN;
		if (a.held_back && reattach)
			return NEXT_LEAVE;
		if (a.held_back) {
			run->ran = false;
			return held_back(run);
		}
		if (!reattach)
			run->wait_err = a.err;
		verdict = judge(run, &a, reattach);
		if (verdict == VERDICT_DOUBT && ++doubts >= DOUBTS_MAX)
			verdict = VERDICT_GIVE_UP;
		if (verdict == VERDICT_REATTACH || verdict == VERDICT_DOUBT)
			log_info("a command has to be asked for", KS("execution", run->id), KS("error", a.err.msg));
		next = act(run, &a, verdict, &once_more);
		reattach = true;
	}
	return next;
}

/* Under a former attempt it may run: it ends by what its sandbox says, whether or not its text can be read here. To ask
 * for it, and to stop it, takes none. */
static enum next unread(struct run *run, const struct inputs *in, const struct err *err)
{
	bool for_good = err->code == ERR_CORRUPT || err->code == ERR_NOT_FOUND;

	if (!for_good && !was_stopped(run) && may_repeat(run, err))
		return later(run, err);
	log_warn("a command that may run is asked for without its text, which cannot be read", KS("execution", run->id),
		 KS("error", err->msg));
	run->tries = 0;
	run->first_try_ns = 0;
	return loop(run, in, true);
}

static enum next unprepared(struct run *run, const struct inputs *in, const struct err *err)
{
	enum verdict verdict = verdict_of(err->code, 0, false, false);

	if (run->resume)
		return unread(run, in, err);
	if (call_unwanted(run))
		return held_back(run);
	if (verdict == VERDICT_LOST)
		return session_lost(run, &(struct attempt){.err = *err});
	if (verdict == VERDICT_REFUSED || err->code == ERR_CORRUPT)
		return finish_failed(run, err);
	return again(run, err); /* a file read is harmless to repeat */
}

enum next command_run(struct run *run)
{
	enum next next;

	do {
		struct inputs in;
		struct err err = {0};

		inputs_init(&in);
		next = prepare(run, &in, &err) ? unprepared(run, &in, &err) : loop(run, &in, run->resume);
		inputs_fini(&in);
	} while (next == NEXT_COMMAND);
	return next;
}

/* Its time was over a second ago. What became of it can be asked for once, by another call; that also keeps the stuck
 * one from starting it yet. */
enum next command_stuck(struct run *run)
{
	struct attempt a = {.code = ERR_PROVIDER_TIMEOUT};

	err_set(&a.err, a.code, "target %s: the plugin did not come back from the command by its deadline",
		run->hold->target->conf->name);
	err_reason(&a.err, STUCK);
	run->wait_err = a.err;
	log_warn("a command goes on without the plugin's call, which is stuck", KS("execution", run->id),
		 KS("target", run->hold->target->conf->name), KI("asks", !run->asking));
	if (run->asking || !target_can(run->hold->target, BERTH_CAP_REATTACH))
		return no_answer(run, &a);
	return loop(run, NULL, true);
}
