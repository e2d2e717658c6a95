/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the wish to end an execution early, from a caller or a teardown. Any thread enters. Whoever waits is ended here;
 * whoever runs is told, and its worker writes what became of it. Never writes an end over a command that may be
 * running.
 */
#include <stdio.h>
#include <string.h>

#include "core/limits.h"
#include "core/log.h"
#include "execution/execution_private.h"
#include "execution/nonce.h"

struct cancel_step {
	struct executions *e;
	const char *id, *reason;
	bool unowned; /* no run of this process has it: the end is written here */
	bool hold;    /* nobody's claim is over now */
	bool waiting; /* a running one is left alone */
	char event_id[IDENT_ID_MAX + 1];
	/* Out of the step. */
	bool terminal, written;
	struct ident ident;
};

/* The wish survives this process. */
static int mark(struct cancel_step *in, struct txn *txn, const struct record *r, struct claim *c, struct err *err)
{
	if (c->cancel_requested_ms)
		return 0;
	c->cancel_requested_ms = txn_now(txn);
	c->cancel_reason = in->reason;
	if (fleet_notify_cancel(txn, r->id, err))
		return err->code;
	return steps_put_claim(txn, r->id, c, err);
}

static int end_unowned(struct cancel_step *in, struct txn *txn, struct record *r, struct err *err)
{
	struct record_ending ending = {.kind = "cancelled"};
	struct record_change change = {.reason = in->reason, .ending = &ending};
	bool replay;
	int rc = steps_apply(in->e, txn, r, EVENT_CANCELLED, &change, in->event_id, &replay, err);

	if (rc == 0)
		rc = steps_close(in->e, txn, r, &in->ident, err);
	in->written = in->terminal = rc == 0;
	return rc;
}

static int cancel_step(struct txn *txn, void *arg, struct err *err)
{
	struct cancel_step *in = arg;
	struct record r;
	struct claim c;
	int rc = steps_load(txn, in->id, &r, &c, err);

	in->terminal = in->written = false;
	if (rc)
		return rc;
	in->terminal = record_status_terminal(r.status);
	if (in->terminal || (in->waiting && r.status == RECORD_RUNNING))
		return 0;
	/* A running one without a run is taken up by the next look at the stream; it then finds the mark. So does another
	 * host that has it. */
	if (in->unowned && r.status != RECORD_RUNNING && !fleet_is_foreign(in->e, &c, txn_now(txn), in->hold))
		return end_unowned(in, txn, &r, err);
	return mark(in, txn, &r, &c, err);
}

/* Leaves the wish with the run. True: the caller owns it now and has to end it. */
static bool ask_locked(struct run *run, const char *reason)
{
	if (!run->cancel) {
		run->cancel = true;
		snprintf(run->cancel_reason, sizeof(run->cancel_reason), "%s", reason);
	}
	/* Taken over after a restart: only its worker can tell what runs. */
	if (run->unsure)
		queue_wake_locked(run);
	else if (queue_take_locked(run))
		return true;
	call_stop_locked(run, BERTH_CANCEL_STOP);
	return false;
}

void cancel_local(struct executions *e, const char *id, const char *reason)
{
	struct run *run;
	bool owned;

	lock_take(&e->lock);
	run = queue_find_locked(e, id);
	owned = run && !run->cancel && ask_locked(run, reason);
	lock_drop(&e->lock);
	if (owned)
		runner_at_once(run, finish_cancelled);
}

/* The wish into the store; the end, too, where nobody has it. */
static int cancel_stored(struct cancel_step *step, struct err *err)
{
	int rc;

	step->hold = store_hold_ms(step->e->config.store) > 0;
	steps_event_id(step->event_id);
	rc = steps_update(step->e, cancel_step, step, err);
	if (step->written) /* also when nobody knows whether it was: a repetition finds an end that was told */
		steps_closed(step->e, &step->ident, step->id);
	return rc;
}

int execution_cancel(struct executions *e, const char *id, const char *reason, bool *ret_done, struct err *err)
{
	struct cancel_step step = {.e = e, .id = id, .reason = reason};
	struct run *run;
	enum next next = NEXT_LEAVE;
	bool owned = false;
	int rc;

	if (!record_id_valid(id))
		return err_set(err, ERR_NOT_FOUND, "there is no execution %.48s", id);
	lock_take(&e->lock);
	run = queue_find_locked(e, id);
	if (run)
		owned = ask_locked(run, reason);
	lock_drop(&e->lock);
	if (owned)
		next = runner_at_once(run, finish_cancelled);
	if (next != NEXT_LEAVE && next != NEXT_FOREIGN) {
		*ret_done = true;
		return 0;
	}
	step.unowned = !run || next == NEXT_FOREIGN;
	rc = cancel_stored(&step, err);
	if (rc == 0)
		*ret_done = step.terminal;
	return rc;
}

/* ---- teardown ---- */

struct collect {
	const struct ident *ident;
	bool force;
	struct run **runs; /* owned by the collector now */
	size_t count, cap;
};

static bool collect_one(const char *key, void *value, void *arg)
{
	struct collect *c = arg;
	struct run *run = value;

	(void)key;
	if (!ident_equal(&run->ident, c->ident) || (!c->force && run->has_session))
		return true;
	if (c->count < c->cap && ask_locked(run, "task_deleted"))
		c->runs[c->count++] = run;
	return true;
}

/* ---- a task's executions that other hosts have, or nobody ---- */

#define OTHERS_PAGE 100

struct others {
	const char *group;
	bool force;
	struct arena *arena;
	char after[IDENT_ID_MAX + 1];
	char ids[OTHERS_PAGE][IDENT_ID_MAX + 1];
	size_t count, seen;
};

static bool others_one(const struct store_row *row, void *arg)
{
	struct others *others = arg;
	enum record_status status;

	others->seen++;
	snprintf(others->after, sizeof(others->after), "%s", row->key);
	arena_reset(others->arena);
	if (record_decode_status(others->arena, row->key, row->doc, row->doc_len, &status, NULL) == 0 &&
	    !record_status_terminal(status) && (others->force || status != RECORD_RUNNING))
		snprintf(others->ids[others->count++], sizeof(others->ids[0]), "%s", row->key);
	return true;
}

static int others_step(struct txn *txn, void *arg, struct err *err)
{
	struct others *others = arg;
	char after[IDENT_ID_MAX + 1];

	memcpy(after, others->after, sizeof(after));
	others->count = others->seen = 0;
	return txn_scan(txn, STORE_EXECUTION, others->group, after, true, OTHERS_PAGE, others_one, others, err);
}

static int cancel_other(struct executions *e, const char *id, bool force, struct err *err)
{
	struct cancel_step step = {.e = e, .id = id, .reason = "task_deleted", .unowned = true, .waiting = !force};
	bool here;
	int rc;

	lock_take(&e->lock);
	here = queue_find_locked(e, id) != NULL;
	lock_drop(&e->lock);
	rc = here ? 0 : cancel_stored(&step, err); /* a run of this host was asked already */
	return rc == ERR_NOT_FOUND || rc == ERR_CORRUPT ? 0 : rc;
}

static void cancel_others(struct executions *e, const char *group, bool force)
{
	struct others *others = calloc(1, sizeof(*others));
	struct err err = {0};
	int rc = 0;

	if (others)
		others->arena = arena_new(4 * LIMIT_ROW);
	if (!others || !others->arena)
		rc = err_set(&err, ERR_NOMEM, "no memory");
	else
		others->group = group, others->force = force;
	while (rc == 0) {
		rc = store_view(e->config.store, others_step, others, &err);
		for (size_t i = 0; rc == 0 && i < others->count; i++)
			rc = cancel_other(e, others->ids[i], force, &err);
		if (others->seen < OTHERS_PAGE)
			break;
	}
	if (rc && rc != ERR_SHUTTING_DOWN)
		log_warn("a task's executions on other hosts were not all cancelled", KS("task", group),
			 KS("error", err.msg));
	if (others)
		arena_free(others->arena);
	free(others);
}

void cancel_task(const struct ident *ident, bool force, void *arg)
{
	struct executions *e = arg;
	struct collect c = {.ident = ident, .force = force};
	char key[IDENT_KEY_MAX + 1];
	struct run_task *task;

	ident_key(ident, key);
	lock_take(&e->lock);
	task = map_get(e->tasks, key);
	c.cap = task ? task->open : 0;
	c.runs = c.cap ? calloc(c.cap, sizeof(*c.runs)) : NULL;
	if (c.runs)
		map_each(e->runs, collect_one, &c);
	lock_drop(&e->lock);
	if (c.cap && !c.runs)
		log_error("no memory to cancel a task's executions", KS("task", ident->task));
	for (size_t i = 0; i < c.count; i++)
		runner_at_once(c.runs[i], finish_cancelled);
	free(c.runs);
	if (!store_is_exclusive(e->config.store))
		cancel_others(e, key, force);
}

/* ---- nonces ---- */

struct use {
	const char *key, *id;
	int64_t expires_ms;
};

/* The cancel is another step: where that one fails, or its answer is lost, the same is asked again, and may be. */
static int use_step(struct txn *txn, void *arg, struct err *err)
{
	const struct use *use = arg;
	char id[IDENT_ID_MAX + 1];
	bool used;
	int rc = nonce_look_step(txn, use->key, NONCE_CANCEL, &used, id, err);

	if (rc || used)
		return rc ? rc : strcmp(id, use->id) == 0 ? 0 : nonce_refuse(err);
	return nonce_put_step(txn, use->key, use->expires_ms, use->id, NONCE_CANCEL, err);
}

int execution_use_nonce(struct executions *e, const char *key, const char *id, int64_t expires_ms, struct err *err)
{
	return steps_update(e, use_step, &(struct use){.key = key, .id = id, .expires_ms = expires_ms}, err);
}
