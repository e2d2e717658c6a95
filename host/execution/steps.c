/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns how this layer's rows are read and written inside store steps, and how steps are run. Worker and request threads
 * enter. The parts that run inside a step are pure but for their transaction; record and event are never written one
 * without the other.
 */
#include <string.h>

#include "core/clock.h"
#include "core/limits.h"
#include "core/log.h"
#include "execution/execution_private.h"
#include "obs/metrics.h"

#define BACKOFF_FIRST_MS 50
#define BACKOFF_MOST_MS 2000

static int refuse_lost(struct err *err)
{
	err_set(err, ERR_STORE, "the state was lost; a new store is being told what runs");
	err_reason(err, "store_lost");
	return ERR_STORE;
}

int steps_update(struct executions *e, store_step step, void *arg, struct err *err)
{
	int rc;

	if (atomic_load(&e->dead))
		return err_set(err, ERR_SHUTTING_DOWN, "this host has stopped");
	if (atomic_load(&e->lost))
		return refuse_lost(err);
	rc = store_update(e->config.store, step, arg, err);
	/* It went just now: what is not there may only not have been told yet. */
	return rc == ERR_NOT_FOUND && atomic_load(&e->lost) ? refuse_lost(err) : rc;
}

bool steps_wait(struct executions *e, int64_t ms)
{
	int64_t until = clock_after_ms(ms);
	bool go_on;

	lock_take(&e->lock);
	while (!e->give_up && cond_wait_until(&e->changed, &e->lock, until))
		;
	go_on = !e->give_up;
	lock_drop(&e->lock);
	return go_on;
}

bool steps_may_pass(int code)
{
	return code == ERR_STORE || code == ERR_IO || code == ERR_NOMEM;
}

int steps_update_surely(struct executions *e, store_step step, void *arg, struct err *err)
{
	int64_t backoff = BACKOFF_FIRST_MS;
	struct err local;
	int r;

	err = err ? err : &local;
	for (;;) {
		r = steps_update(e, step, arg, err);
		if (!steps_may_pass(r))
			return r;
		log_warn("the store did not take a step, trying again", KS("error", err->msg), KI("after_ms", backoff));
		if (!steps_wait(e, backoff))
			return r;
		backoff = backoff * 2 < BACKOFF_MOST_MS ? backoff * 2 : BACKOFF_MOST_MS;
	}
}

/* Without a private part that can be read nobody holds the record, and each of its attempts may have been sent: it ends
 * by asking the sandbox, and does not stay open for ever. */
static int claim_lost(const struct record *r, struct claim *ret, struct err *err)
{
	err_clear(err);
	*ret = (struct claim){.sent_attempt = r->status == RECORD_RUNNING ? r->attempt : 0};
	return 0;
}

int steps_load(struct txn *txn, const char *id, struct record *ret_record, struct claim *ret_claim, struct err *err)
{
	struct store_row row;
	int r = txn_get(txn, STORE_EXECUTION, id, &row, err);

	if (r)
		return r;
	if (!row.doc)
		return err_set(err, ERR_NOT_FOUND, "there is no execution %.48s", id);
	r = record_decode(txn_arena(txn), id, row.doc, row.doc_len, ret_record, err);
	if (r || !ret_claim)
		return r;
	r = txn_get(txn, STORE_CLAIM, id, &row, err);
	if (r == 0)
		r = claim_decode(txn_arena(txn), id, row.doc, row.doc_len, ret_claim, err);
	if (r == ERR_CORRUPT || (r == 0 && !row.doc))
		r = claim_lost(ret_record, ret_claim, err);
	return r;
}

/* When the sweep must look at the record. */
static int64_t due_of(const struct executions *e, const struct record *r)
{
	if (record_status_terminal(r->status))
		return r->completed_ms + e->config.conf->exec_retention_ms;
	return r->status == RECORD_RUNNING ? 0 : r->queue_expires_ms;
}

int steps_put_record(struct executions *e, struct txn *txn, const struct record *r, struct err *err)
{
	char group[IDENT_KEY_MAX + 1];
	struct ident ident;
	struct buf buf;
	int rc;

	buf_init(&buf, LIMIT_ROW);
	rc = ident_make(&ident, r->workspace_id, r->task_id, err);
	if (rc == 0)
		rc = record_encode(r, &buf, err);
	if (rc == 0) {
		ident_key(&ident, group);
		rc = txn_put(txn, STORE_EXECUTION,
			     &(struct store_row){.key = r->id,
						 .group = group,
						 .due_ms = due_of(e, r),
						 .doc = buf.ptr,
						 .doc_len = buf.len},
			     err);
	}
	buf_fini(&buf);
	return rc;
}

static int append_event(struct txn *txn, enum store_stream stream, const struct record *r, enum record_event event,
			const char *event_id, struct err *err)
{
	struct buf buf;
	int rc;

	buf_init(&buf, LIMIT_ROW);
	rc = event_render(r, event, event_id, txn_now(txn), &buf);
	if (rc == 0)
		rc = txn_append(txn, stream, r->id, buf.ptr, buf.len, err);
	else
		err_set(err, rc, "the event of %s does not fit", r->id);
	buf_fini(&buf);
	return rc;
}

int steps_move(struct executions *e, struct txn *txn, struct record *r, enum record_event event,
	       const struct record_change *change, const char *event_id, bool *ret_replay, struct err *err)
{
	int rc = transition_apply(r, event, change, txn_now(txn), ret_replay, err);

	if (rc || *ret_replay)
		return rc;
	if (event == EVENT_REQUESTED)
		r->queue_expires_ms = r->created_ms + e->config.conf->exec_queue_ms;
	rc = append_event(txn, STREAM_EVENTS, r, event, event_id, err);
	/* Nobody watches what is new; of what waits a change says that it does not wait any more. */
	return rc || event == EVENT_REQUESTED ? rc : fleet_notify_changed(txn, r->id, err);
}

int steps_apply(struct executions *e, struct txn *txn, struct record *r, enum record_event event,
		const struct record_change *change, const char *event_id, bool *ret_replay, struct err *err)
{
	int rc = steps_move(e, txn, r, event, change, event_id, ret_replay, err);

	return rc || *ret_replay ? rc : steps_put_record(e, txn, r, err);
}

int steps_request(struct txn *txn, const struct record *r, const char *event_id, struct err *err)
{
	int rc = append_event(txn, STREAM_REQUESTS, r, EVENT_REQUESTED, event_id, err);

	return rc ? rc : txn_notify(txn, FLEET_REQUESTS, err);
}

/* One that was handed back is due at once: it has no message any more. */
static int64_t claim_due_ms(const struct claim *c)
{
	return c->runner && c->claim_until_ms == 0 ? CLAIM_GIVEN_MS : c->claim_until_ms;
}

int steps_put_claim(struct txn *txn, const char *id, const struct claim *c, struct err *err)
{
	struct buf buf;
	int rc;

	buf_init(&buf, LIMIT_ROW);
	rc = claim_encode(c, &buf);
	if (rc == 0)
		rc = txn_put(txn, STORE_CLAIM,
			     &(struct store_row){.key = id,
						 .group = "",
						 .due_ms = claim_due_ms(c),
						 .doc = buf.ptr,
						 .doc_len = buf.len},
			     err);
	else
		err_set(err, rc, "the claim of %s does not fit", id);
	buf_fini(&buf);
	return rc;
}

int steps_hand_back(struct executions *e, struct txn *txn, const char *id, struct claim *c, struct err *err)
{
	int rc;

	if (!c->runner || strcmp(c->runner, e->config.host_id) != 0)
		return 0;
	c->claim_until_ms = 0;
	rc = steps_put_claim(txn, id, c, err);
	return rc ? rc : txn_notify(txn, FLEET_GIVEN, err);
}

int steps_dead_letter(struct txn *txn, const char *why, const char *subject, uint64_t seq, const char *doc, size_t len,
		      struct err *err)
{
	struct buf buf;
	int rc;

	buf_init(&buf, LIMIT_ROW);
	rc = event_render_dead(why, subject, seq, doc, len, &buf);
	if (rc == 0)
		rc = txn_append(txn, STREAM_DEAD, subject, buf.ptr, buf.len, err);
	else
		err_set(err, rc, "a dead letter does not fit");
	/* Letters are looked for by number; who deletes their stream would leave what finds them by subject. */
	if (rc == 0 && *subject)
		rc = txn_forget_subject(txn, STREAM_DEAD, subject, err);
	buf_fini(&buf);
	return rc;
}

int steps_close(struct executions *e, struct txn *txn, const struct record *r, struct ident *ret_ident, struct err *err)
{
	int rc = txn_delete(txn, STORE_CLAIM, r->id, err);

	if (rc == 0)
		rc = txn_ack_subject(txn, STREAM_REQUESTS, r->id, err);
	if (rc == 0)
		rc = ident_make(ret_ident, r->workspace_id, r->task_id, err);
	return rc ? rc : session_unwait_step(e->config.sessions, txn, ret_ident, r->id, err);
}

void steps_closed(struct executions *e, const struct ident *ident, const char *id)
{
	metric_add(METRIC_EXEC_ENDED, metric_place(METRIC_DIM_ENDING, "not_run"), 0, 1);
	session_unwait_done(e->config.sessions, ident);
	steps_changed(e, id);
}

void steps_event_id(char ret_id[IDENT_ID_MAX + 1])
{
	ident_random(ret_id, "evt_", 24);
}

void steps_changed(struct executions *e, const char *id)
{
	char key[64];

	execution_watch_key(id, key);
	watch_notify(e->config.watch, key);
}

int steps_overtaken(const struct run *run, struct err *err)
{
	int rc = err_set(err, ERR_EXECUTION_CONFLICT, "execution %s is not at attempt %lld any more", run->id,
			 (long long)run->facts.attempt);

	if (!store_is_exclusive(run->e->config.store))
		err_reason(err, "taken_over");
	return rc;
}

void steps_defect(struct executions *e, const char *id, const struct err *err)
{
	if (strcmp(err->reason, "taken_over") == 0) {
		log_info("another host went on with an execution", KS("execution", id));
		return;
	}
	log_error("illegal transition", KS("execution", id), KS("error", err->msg));
	lock_take(&e->lock);
	e->defects++;
	lock_drop(&e->lock);
}

int64_t steps_now(struct executions *e)
{
	int64_t now;

	return store_now(e->config.store, &now, NULL) == 0 ? now : clock_wall_ms();
}
