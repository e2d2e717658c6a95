/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the end of an execution: outputs stored first, then record, event, message, claim and the session's operation in
 * one step, then the waiters. The run's owner enters. Never tells an end that is not durable, and never gives up on one
 * while the process may go on.
 */
#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/failpoint.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/secret.h"
#include "execution/execution_private.h"
#include "obs/metrics.h"

#define FORGET_MS 5000
#define STORE_FIRST_MS 100
#define STORE_MOST_MS 5000
#define EXPIRED_RETRY_MS 1000 /* when nobody said how long capacity may take */

static const char *const stream_names[2] = {"stdout", "stderr"};

struct finish_step {
	struct run *run;
	const struct finish *finish;
	char event_id[IDENT_ID_MAX + 1];
	char keys[2][RECORD_OUTPUT_KEY_MAX];
	struct spool_summary sums[2];
	struct record_lost lost[RUN_LOST_MAX + 2];
	struct record_change change;
	struct record_result result;
	struct record_artifact *artifacts;
	const char *refs[2];
	struct buf shown; /* the public record, for those who wait for it; empty without the command's body */
	struct execution_head head;
};

/* ---- whose it is ---- */

/* Another host has it, or had it and is gone: what this one knows of its end is not the truth any more. */
static bool is_taken_over(const struct run *run, const struct record *r, const struct claim *c, int64_t now_ms)
{
	if (store_is_exclusive(run->e->config.store))
		return false;
	return r->attempt != run->facts.attempt || fleet_is_foreign(run->e, c, now_ms, false);
}

static int owner_step(struct txn *txn, void *arg, struct err *err)
{
	const struct run *run = arg;
	struct record r;
	struct claim c;
	int rc = steps_load(txn, run->id, &r, &c, err);

	if (rc == 0 && (record_status_terminal(r.status) || is_taken_over(run, &r, &c, txn_now(txn))))
		return steps_overtaken(run, err);
	return rc;
}

/* 0: a moment ago nobody else had it. A store that is away is waited for, as the end will have to wait for it, too. */
static int check_owner(struct run *run, struct err *err)
{
	return store_is_exclusive(run->e->config.store) ? 0 : steps_update_surely(run->e, owner_step, run, err);
}

/* ---- outputs ---- */

static int put_object(struct run *run, const char *key, const struct spool_summary *sum, struct err *err)
{
	struct blob_info info = {.size = sum->bytes};

	if (FAILPOINT("exec.stored.before"))
		return err_set(err, ERR_IO, "the failpoint exec.stored.before says so");
	if (atomic_load(&run->e->dead))
		return err_set(err, ERR_SHUTTING_DOWN, "this host has stopped");
	memcpy(info.sha256, sum->sha256, sizeof(info.sha256));
	return blob_put_file(run->e->config.blobs, key, sum->path, &info, err);
}

/* A full disk is waited for as long as it takes, as it is while the command runs; not for one that was stopped. */
static bool may_wait_longer(struct run *run, const struct err *why)
{
	bool stopped;

	lock_take(&run->e->lock);
	stopped = run->cancel || run->lost[0];
	lock_drop(&run->e->lock);
	return !stopped && strcmp(why->reason, "disk_full") == 0;
}

/* The record says so. */
static void lose_output(struct finish_step *f, unsigned i)
{
	struct spool_summary *sum = &f->sums[i];

	log_error("an output could not be stored and is lost", KS("execution", f->run->id),
		  KS("stream", stream_names[i]));
	f->lost[f->change.lost_count++] =
		(struct record_lost){.stream = stream_names[i], .from = 0, .to = (int64_t)sum->bytes};
	*sum = (struct spool_summary){.dropped = sum->bytes + sum->dropped, .cut_by = "storage_error"};
	secret_sha256_hex("", 0, sum->sha256);
}

/* An object store that stays away longer than the grace costs the output, not the ending. Before each try: who was
 * overtaken meanwhile leaves nothing beside what its successor stored. */
static int store_object(struct finish_step *f, unsigned i, struct err *err)
{
	struct run *run = f->run;
	int64_t ms = STORE_FIRST_MS;
	int64_t until = clock_after_ms(run->e->config.conf->completion_grace_ms);

	for (;;) {
		int64_t asked = clock_boot_ns();
		int rc = check_owner(run, err);

		if (rc)
			return rc;
		until += clock_boot_ns() - asked; /* a state store that was away is not the objects' fault */
		rc = put_object(run, f->keys[i], &f->sums[i], err);
		if (rc == 0) {
			spool_taken(run->out, i + 1);
			return 0;
		}
		log_warn("cannot store an output, trying again", KS("execution", run->id), KS("error", err->msg));
		if (rc == ERR_SHUTTING_DOWN || !steps_wait(run->e, ms))
			return ERR_SHUTTING_DOWN;
		if (clock_boot_ns() > until && !may_wait_longer(run, err))
			break;
		ms = ms * 2 < STORE_MOST_MS ? ms * 2 : STORE_MOST_MS;
	}
	lose_output(f, i);
	return 0;
}

static int store_outputs(struct finish_step *f, struct err *err)
{
	struct run *run = f->run;
	int rc = 0;

	memcpy(f->lost, run->lost_ranges, run->lost_count * sizeof(f->lost[0]));
	f->change.lost_count = run->lost_count;
	f->change.lost = f->lost;
	for (unsigned i = 0; rc == 0 && i < 2; i++) {
		record_output_key(run->id, run->facts.attempt, i + 1, f->keys[i]);
		spool_summary(run->out, i + 1, &f->sums[i]);
		if (f->sums[i].bytes > LIMIT_INLINE_OBJECT)
			rc = store_object(f, i, err);
	}
	return rc;
}

/* Who reads here is told that this was all only while nobody else can have more of it. */
static int end_outputs(struct finish_step *f, struct err *err)
{
	struct run *run = f->run;
	int rc = run->ran && clock_boot_ns() >= run->facts.sure_ns ? check_owner(run, err) : 0;

	if (rc)
		return rc;
	spool_finish(run->out);
	return run->ran ? store_outputs(f, err) : 0;
}

/* ---- the result ---- */

static int64_t exit_code_of(const struct record_ending *ending)
{
	if (!ending || !ending->kind)
		return 0;
	if (strcmp(ending->kind, "signal") == 0)
		return 128 + ending->signal;
	return strcmp(ending->kind, "timeout") == 0 ? 124 : ending->exit_code;
}

static void set_artifacts(struct finish_step *f)
{
	const struct run_plan *plan = &f->run->plan;

	if (!plan->arena || plan->artifact_count == 0)
		return;
	f->artifacts = arena_alloc(plan->arena, plan->artifact_count * sizeof(*f->artifacts));
	if (!f->artifacts)
		return;
	for (size_t i = 0; i < plan->artifact_count; i++)
		f->artifacts[i] = (struct record_artifact){.path = plan->artifact_paths[i],
							   .error = "this host does not collect artifacts"};
	f->result.artifacts = f->artifacts;
	f->result.artifact_count = plan->artifact_count;
}

static void set_result(struct finish_step *f)
{
	const struct finish *in = f->finish;
	int64_t dropped[2];

	for (unsigned i = 0; i < 2; i++) {
		dropped[i] = (int64_t)(f->sums[i].dropped + in->dropped[i]);
		f->refs[i] = f->keys[i];
	}
	f->result = (struct record_result){
		.stdout_ref = f->keys[0],
		.stderr_ref = f->keys[1],
		.stdout_bytes = (int64_t)f->sums[0].bytes,
		.stderr_bytes = (int64_t)f->sums[1].bytes,
		.stdout_sha256 = f->sums[0].sha256,
		.stderr_sha256 = f->sums[1].sha256,
		.stdout_truncated = dropped[0] > 0,
		.stderr_truncated = dropped[1] > 0,
		.stdout_dropped = dropped[0],
		.stderr_dropped = dropped[1],
		.truncated_reason = f->sums[0].cut_by	       ? f->sums[0].cut_by
				    : f->sums[1].cut_by	       ? f->sums[1].cut_by
				    : dropped[0] || dropped[1] ? "limit"
							       : NULL,
		.exit_code = exit_code_of(in->ending),
		.execution_time_ms = in->duration_ms,
	};
	set_artifacts(f);
	f->change.result = &f->result;
	f->change.output_refs = f->refs;
	f->change.output_ref_count = 2;
}

static void set_change(struct finish_step *f)
{
	const struct finish *in = f->finish;

	f->change.attempt = f->run->facts.attempt;
	f->change.ending = in->ending;
	f->change.reason = in->reason;
	f->change.error = in->error;
	f->change.retry_after_ms = in->retry_after_ms;
	f->change.survivors = in->survivors;
	if (f->run->ran)
		set_result(f);
}

/* ---- the step ---- */

static int put_small_outputs(const struct finish_step *f, struct txn *txn, struct err *err)
{
	int rc = 0;

	for (unsigned i = 0; rc == 0 && f->run->ran && i < 2; i++) {
		const struct spool_summary *sum = &f->sums[i];

		if (sum->bytes == 0 || sum->bytes > LIMIT_INLINE_OBJECT)
			continue;
		rc = txn_put(txn, STORE_OBJECT,
			     &(struct store_row){
				     .key = f->keys[i], .group = "", .doc = sum->ptr, .doc_len = (size_t)sum->bytes},
			     err);
	}
	return rc;
}

/* Readers come as soon as the end is told: they need not decode again what is at hand here. */
static void show(struct finish_step *f, struct record *r)
{
	const struct run *run = f->run;
	struct err err;

	buf_clear(&f->shown);
	if (!run->plan.body)
		return;
	f->head = (struct execution_head){.ident = run->ident, .revision = r->revision, .terminal = true};
	r->command.command_body = run->plan.body;
	if (record_encode_public(r, &f->shown, &err))
		buf_clear(&f->shown);
}

/* On other hosts they wait for more output. */
static int tell_readers(struct txn *txn, const char *id, struct err *err)
{
	char key[64];

	output_watch_key(id, key);
	return txn_notify(txn, key, err);
}

/* Of what has ended only the transition table can say whether that was this end, told by a try before this one. */
static int apply_end(struct finish_step *f, struct txn *txn, struct record *r, const struct claim *c, struct err *err)
{
	struct run *run = f->run;
	bool ended = record_status_terminal(r->status), replay;
	int rc;

	if (is_taken_over(run, r, c, txn_now(txn)))
		return steps_overtaken(run, err);
	if (!ended && !f->finish->timed && r->started_ms > 0 && txn_now(txn) > r->started_ms)
		f->result.execution_time_ms = txn_now(txn) - r->started_ms;
	rc = steps_apply(run->e, txn, r, f->finish->event, &f->change, f->event_id, &replay, err);
	return rc && ended && !store_is_exclusive(run->e->config.store) ? steps_overtaken(run, err) : rc;
}

static int finish_step(struct txn *txn, void *arg, struct err *err)
{
	struct finish_step *f = arg;
	struct run *run = f->run;
	struct sessions *sessions = run->e->config.sessions;
	struct record r;
	struct claim c;
	int rc = steps_load(txn, run->id, &r, &c, err);

	if (rc == 0)
		rc = apply_end(f, txn, &r, &c, err);
	if (rc == 0)
		show(f, &r);
	if (rc == 0)
		rc = put_small_outputs(f, txn, err);
	if (rc == 0)
		rc = tell_readers(txn, run->id, err);
	if (rc == 0)
		rc = txn_delete(txn, STORE_CLAIM, run->id, err);
	if (rc == 0)
		rc = txn_ack_subject(txn, STREAM_REQUESTS, run->id, err);
	if (rc)
		return rc;
	if (run->hold)
		return session_end_step(sessions, txn, run->hold, &f->finish->end, err);
	/* An operation that may still have a command is left to be reaped as what it is: unproven. */
	return run->resume ? 0 : session_unwait_step(sessions, txn, &run->ident, run->id, err);
}

/* ---- forget ---- */

/* What a call needs after the hold is gone. */
struct forget {
	struct target *target; /* NULL: nothing is to be forgotten */
	struct kept_session kept;
};

static void forget_prepare(const struct run *run, bool wanted, struct forget *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (wanted && run->hold && target_can(run->hold->target, BERTH_CAP_REATTACH) &&
	    call_keep_session(&run->hold->session, &ret->kept))
		ret->target = run->hold->target;
}

/* What is left behind goes with the session; a failure only costs room there. */
static void forget(const struct run *run, struct forget *f)
{
	const struct berth_execution execution = call_execution(run);
	struct err err = {0};
	struct call *call = NULL;

	if (f->target && !FAILPOINT("exec.forget.before"))
		call = call_new(f->target, clock_after_ms(FORGET_MS), NULL);
	if (call)
		call_set_apart(call);
	if (call && call_forget(call, &f->kept.session, &execution, &err) && err.code != ERR_NOT_FOUND)
		log_info("the session did not forget a command", KS("execution", run->id), KS("error", err.msg));
	call_free(call);
	call_drop_session(&f->kept);
}

/* ---- */

static void drop_hold(struct run *run, const struct session_end *end, bool done)
{
	struct session_hold *hold = run->hold;

	if (!hold)
		return;
	session_hold_on_lost(hold, NULL, NULL);
	run->hold = NULL;
	if (done)
		session_end_done(run->e->config.sessions, hold);
	else
		session_release(run->e->config.sessions, hold, end);
}

/* Nothing is said of the operation: it is the other host's now. */
static enum next taken_over(struct run *run)
{
	if (run->hold) {
		session_hold_on_lost(run->hold, NULL, NULL);
		session_detach(run->e->config.sessions, run->hold);
		run->hold = NULL;
	}
	log_info("another host went on with an execution", KS("execution", run->id));
	return NEXT_FOREIGN;
}

/* The record was changed by somebody else, or is not there to be changed; or it could not be asked. */
static enum next not_ended(struct run *run, const struct finish *in, int rc, const struct err *err)
{
	if (steps_may_pass(rc) || rc == ERR_SHUTTING_DOWN)
		return NEXT_LEAVE;
	if (strcmp(err->reason, "taken_over") == 0)
		return taken_over(run);
	if (err->code == ERR_EXECUTION_CONFLICT)
		steps_defect(run->e, run->id, err);
	else
		log_error("an execution's end cannot be stored", KS("execution", run->id), KS("error", err->msg));
	drop_hold(run, &in->end, false);
	return NEXT_DONE;
}

static int write_end(struct finish_step *f, struct err *err)
{
	int64_t ms = STORE_FIRST_MS;

	while (FAILPOINT("exec.terminal.before")) {
		if (!steps_wait(f->run->e, ms))
			return err_set(err, ERR_SHUTTING_DOWN, "the failpoint exec.terminal.before says so");
	}
	return f->run->once ? steps_update(f->run->e, finish_step, f, err)
			    : steps_update_surely(f->run->e, finish_step, f, err);
}

/* Before anybody is notified; see execution_runs_here. */
static void set_told(struct run *run)
{
	lock_take(&run->e->lock);
	run->told = true;
	lock_drop(&run->e->lock);
}

static void count_end(const struct finish_step *f)
{
	const struct run *run = f->run;
	const struct finish *in = f->finish;
	const char *kind = in->ending ? in->ending->kind : NULL;

	metric_add(METRIC_EXEC_ENDED, metric_place(METRIC_DIM_ENDING, run->ran ? kind : "not_run"), 0, 1);
	if (run->ran)
		metric_observe_ns(METRIC_EXEC_SECONDS, 0, f->result.execution_time_ms * CLOCK_NS_PER_MS);
}

enum next finish_run(struct run *run, const struct finish *in)
{
	struct finish_step f = {.run = run, .finish = in};
	struct forget late;
	struct err err = {0};
	int rc;

	(void)FAILPOINT("exec.ended");
	rc = end_outputs(&f, &err);
	if (rc)
		return not_ended(run, in, rc, &err);
	set_change(&f);
	steps_event_id(f.event_id);
	buf_init(&f.shown, LIMIT_ROW);
	rc = write_end(&f, &err);
	set_told(run);
	if (rc == 0)
		ended_put(run->e->ended, run->id, &f.head, run->e->config.conf->exec_retention_ms, f.shown.ptr,
			  f.shown.len);
	buf_fini(&f.shown);
	if (rc)
		return not_ended(run, in, rc, &err);
	count_end(&f);
	forget_prepare(run, run->ran && !in->end.lost, &late);
	if (!run->hold)
		session_unwait_done(run->e->config.sessions, &run->ident);
	drop_hold(run, &in->end, true);
	steps_changed(run->e, run->id);
	segment_drop(run);
	(void)FAILPOINT("exec.terminal.after");
	forget(run, &late);
	return NEXT_DONE;
}

enum next finish_cancelled(struct run *run)
{
	char reason[REASON_MAX + 1];

	lock_take(&run->e->lock);
	memcpy(reason, run->cancel_reason, sizeof(reason));
	lock_drop(&run->e->lock);
	return finish_run(run, &(struct finish){.event = EVENT_CANCELLED,
						.reason = reason,
						.ending = &(struct record_ending){.kind = "cancelled"},
						.end.proven = true});
}

enum next finish_failed(struct run *run, const struct err *why)
{
	const char *reason = why->reason[0] ? why->reason : err_word(why->code);

	return finish_run(run, &(struct finish){.event = EVENT_FAILED,
						.reason = reason,
						.error = why->msg,
						.retry_after_ms = why->retry_after_ms,
						.end.proven = true});
}

enum next finish_expired(struct run *run)
{
	struct finish f = {.event = EVENT_FAILED, .error = run->wait_err.msg, .end.proven = true};

	if (run->wait == WAIT_CAPACITY || run->wait == WAIT_RATE) {
		f.reason = err_word(run->wait_err.code);
		f.retry_after_ms = run->wait_err.retry_after_ms > 0 ? run->wait_err.retry_after_ms : EXPIRED_RETRY_MS;
	} else if (run->facts.attempt == 0) {
		f.event = EVENT_CANCELLED;
		f.reason = "queue_expired";
		f.error = "it was not started before its time in the queue was over";
	} else {
		f.reason = err_word(ERR_SESSION_BUSY);
		f.error = "the task's session did not become ready for it in time";
	}
	return finish_run(run, &f);
}

/* ---- stop ---- */

static int hand_back_step(struct txn *txn, void *arg, struct err *err)
{
	struct run *run = arg;
	struct record r;
	struct claim c;
	int rc = steps_load(txn, run->id, &r, &c, err);

	return rc || record_status_terminal(r.status) ? rc : steps_hand_back(run->e, txn, run->id, &c, err);
}

void finish_hand_back(struct run *run)
{
	struct err err = {0};

	if (run->facts.attempt > 0 && steps_update(run->e, hand_back_step, run, &err) && err.code != ERR_SHUTTING_DOWN)
		log_warn("a claim was not handed back", KS("execution", run->id), KS("error", err.msg));
	if (!run->hold)
		return;
	session_hold_on_lost(run->hold, NULL, NULL);
	session_detach(run->e->config.sessions, run->hold);
	run->hold = NULL;
}
