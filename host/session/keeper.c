/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper: one thread that, every third of the shortest time to live, renews what this process holds — operations, waiting
 * operations, rows that its jobs own — and with that proves that the host is alive. It tells holders whose session was lost.
 * Never holds a lock over the store or a callback: it works on a copy and finds the originals again by serial number.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/limits.h"
#include "core/log.h"
#include "plugin/call.h"
#include "session/session_private.h"

#define ROWS_PER_STEP 64
#define ROUND_ARENA (256 * LIMIT_MIB)
#define PERIOD_LEAST_MS 20
#define LATE_PAUSE_MS 500

struct keep_op {
	uint64_t serial;
	const char *op_id;
	int64_t incarnation; /* 0: any */
	bool gone, moved;    /* results; moved: to another host, where it goes on */
};

struct keep_job {
	int64_t fence, incarnation;
	bool lost; /* result */
};

struct keep_row {
	struct keep_row *next;
	struct ident ident;
	const char *key;
	struct keep_op *ops;
	struct keep_job *jobs;
	size_t op_count, job_count;
	/* Results. */
	int64_t incarnation, ceiling_ms, expires_ms, now;
	enum binding_cause cause;
	const char *target;
	bool live;
	bool damaged; /* the row cannot be read: nothing is known, and nothing renewed */
};

struct round {
	struct sessions *s;
	struct arena *arena;
	struct keep_row *rows, **end;
	bool full; /* memory was out; the rest waits for the next round */
};

/* ---- the copy ---- */

static bool copy_ops(struct round *round, const struct local *local, struct keep_row *row)
{
	size_t count = 0;

	for (const struct kept *kept = local->kept; kept; kept = kept->next)
		count++;
	row->ops = arena_alloc(round->arena, (count + 1) * sizeof(*row->ops));
	for (const struct kept *kept = local->kept; row->ops && kept; kept = kept->next) {
		struct keep_op *op = &row->ops[row->op_count];

		if (kept->lost)
			continue;
		*op = (struct keep_op){.serial = kept->serial, .incarnation = kept->incarnation};
		op->op_id = arena_strdup(round->arena, kept->op_id);
		if (!op->op_id)
			return false;
		row->op_count++;
	}
	return row->ops != NULL;
}

static bool copy_jobs(struct round *round, const struct local *local, struct keep_row *row)
{
	size_t count = 0;

	for (const struct job *job = local->jobs; job; job = job->next)
		count++;
	row->jobs = arena_alloc(round->arena, (count + 1) * sizeof(*row->jobs));
	for (const struct job *job = local->jobs; row->jobs && job; job = job->next) {
		if (job->kind != JOB_PROVISION && job->kind != JOB_RELEASE)
			continue;
		row->jobs[row->job_count++] = (struct keep_job){.fence = job->fence, .incarnation = job->incarnation};
	}
	return row->jobs != NULL;
}

static bool copy_local(const char *key, void *value, void *arg)
{
	struct round *round = arg;
	const struct local *local = value;
	struct keep_row *row = arena_alloc(round->arena, sizeof(*row));

	if (row)
		row->key = arena_strdup(round->arena, key);
	if (!row || !row->key || !copy_ops(round, local, row) || !copy_jobs(round, local, row)) {
		round->full = true;
		return false;
	}
	if (row->op_count == 0 && row->job_count == 0)
		return true;
	row->ident = local->ident;
	*round->end = row;
	round->end = &row->next;
	return true;
}

/* ---- the step ---- */

struct batch {
	struct round *round;
	struct keep_row *first, *after; /* [first, after) */
};

static void keep_ops(struct sessions *s, struct row *row, struct keep_row *keep)
{
	for (size_t i = 0; i < keep->op_count; i++) {
		struct keep_op *op = &keep->ops[i];
		bool current = !op->incarnation || op->incarnation == row->b.incarnation;

		op->gone = !current || !binding_renew(&row->b, row->now, &s->rules, op->op_id, s->config.host_id);
		op->moved = current && binding_op_moved(&row->b, op->op_id, s->config.host_id);
		row->changed |= !op->gone;
	}
}

static void keep_jobs(struct sessions *s, struct row *row, struct keep_row *keep)
{
	for (size_t i = 0; i < keep->job_count; i++) {
		struct keep_job *job = &keep->jobs[i];

		job->lost = !binding_renew_owner(&row->b, row->now, &s->rules, job->fence, s->config.host_id);
		row->changed |= !job->lost;
	}
}

static int keep_row(struct sessions *s, struct txn *txn, struct keep_row *keep, struct err *err)
{
	struct session_effect effect;
	struct row row;
	int r = row_get(s, txn, &keep->ident, &row, err);
	const struct target *target;

	keep->damaged = r == ERR_CORRUPT;
	if (r)
		return keep->damaged ? 0 : r; /* the others of the step are not its matter */
	keep_ops(s, &row, keep);
	keep_jobs(s, &row, keep);
	target = registry_find(s->config.registry, row.b.target);
	keep->target = target ? target->conf->name : "";
	keep->incarnation = row.b.incarnation;
	keep->cause = row.b.cause;
	keep->live = row.b.state == BINDING_LIVE && binding_active_ops(&row.b) > 0;
	keep->ceiling_ms = row.b.ceiling_ms;
	keep->expires_ms = row.b.provider_expires_ms;
	keep->now = row.now;
	return row_put(s, txn, &row, &effect, err);
}

static int keep_step(struct txn *txn, void *arg, struct err *err)
{
	struct batch *batch = arg;
	int r = atomic_load(&batch->round->s->lost)
			? err_set(err, ERR_STORE, "the store was lost, and does not know yet what this host holds")
			: 0;

	for (struct keep_row *keep = batch->first; r == 0 && keep != batch->after; keep = keep->next)
		r = keep_row(batch->round->s, txn, keep, err);
	return r;
}

/* ---- the results ---- */

static void lose_op_locked(struct sessions *s, struct local *local, const struct keep_row *keep, const struct keep_op *op)
{
	const char *reason = keep->incarnation == op->incarnation ? binding_cause_word(keep->cause) : NULL;

	for (struct kept *kept = local->kept; kept; kept = kept->next) {
		/* A waiting operation is gone whenever its provisioning failed; its waiter begins anew. */
		if (kept->serial == op->serial && kept->hold)
			kept_lose_locked(s, kept, op->moved ? SESSION_MOVED : reason);
	}
}

static void apply(struct sessions *s, const struct keep_row *keep)
{
	struct local *local;

	if (keep->damaged) {
		log_error("a task's row cannot be read; what this host holds of it is not renewed",
			  KS("task", keep->key));
		return;
	}
	lock_take(&s->lock);
	local = local_get_locked(s, keep->key);
	for (size_t i = 0; local && i < keep->op_count; i++) {
		if (keep->ops[i].gone)
			lose_op_locked(s, local, keep, &keep->ops[i]);
	}
	for (struct job *job = local ? local->jobs : NULL; job; job = job->next) {
		for (size_t i = 0; i < keep->job_count; i++) {
			if (keep->jobs[i].lost && keep->jobs[i].fence == job->fence && job->kind == JOB_PROVISION)
				job_cancel_locked(job, BERTH_CANCEL_STOP);
		}
	}
	lock_drop(&s->lock);
}

static void extend_if_due(struct sessions *s, const struct keep_row *keep)
{
	const struct target *target = registry_find(s->config.registry, keep->target);

	if (keep->live && target && extend_is_due(s, target, keep->now, keep->ceiling_ms, keep->expires_ms))
		extend_start(s, &keep->ident, keep->incarnation);
}

/* ---- heartbeat ---- */

/* This host's own row says until when it is to be taken for living, and what it does. */
static int beat_step(struct txn *txn, void *arg, struct err *err)
{
	struct sessions *s = arg;
	char doc[HOST_DOC_MAX];
	const struct store_row row = {
		.key = s->config.host_id,
		.group = "",
		.due_ms = txn_now(txn) + binding_max(s->rules.op_ttl_ms, s->rules.owner_ttl_ms),
		.doc = doc,
		.doc_len = host_doc(s, doc),
	};

	return txn_put(txn, STORE_HOST, &row, err);
}

int keeper_beat(struct sessions *s, struct err *err)
{
	int64_t sent_ns = clock_boot_ns();
	int r = store_update(s->config.store, beat_step, s, err);

	if (r == 0)
		atomic_store(&s->confirmed_ns, sent_ns);
	return r;
}

static bool is_confirmed(struct sessions *s)
{
	int64_t ttl_ns = binding_min(s->rules.op_ttl_ms, s->rules.owner_ttl_ms) * CLOCK_NS_PER_MS;

	return clock_boot_ns() - atomic_load(&s->confirmed_ns) < ttl_ns / 5 * 4;
}

bool session_may_act(struct sessions *s)
{
	bool may = is_confirmed(s);

	if (!may) {
		/* After a freeze the heartbeat is only late. */
		lock_take(&s->lock);
		s->keeper_late = true;
		cond_wake_all(&s->keeper_wake);
		lock_drop(&s->lock);
	}
	return may;
}

/* ---- the thread ---- */

static int keep_batch(struct round *round, struct keep_row **at, struct err *err)
{
	struct batch batch = {.round = round, .first = *at, .after = *at};
	int64_t sent_ns = clock_boot_ns();
	int r;

	for (size_t i = 0; i < ROWS_PER_STEP && batch.after; i++)
		batch.after = batch.after->next;
	*at = batch.after;
	r = store_update(round->s->config.store, keep_step, &batch, err);
	if (r)
		return r;
	atomic_store(&round->s->confirmed_ns, sent_ns);
	for (const struct keep_row *keep = batch.first; keep != batch.after; keep = keep->next) {
		apply(round->s, keep);
		if (!keep->damaged)
			extend_if_due(round->s, keep);
	}
	return 0;
}

/* The first of several failures in a row is told, and when they end. */
static void tell_kept(int code, const struct err *err, bool *failing)
{
	if (code && !*failing)
		log_warn("what this host holds could not be renewed; it is tried again", KS("error", err->msg));
	else if (!code && *failing)
		log_info("what this host holds is renewed again");
	*failing = code != 0;
}

static void keep_round(struct sessions *s, bool *failing)
{
	struct round round = {.s = s, .arena = arena_new(ROUND_ARENA), .end = &round.rows};
	struct err err = {0};
	int r = keeper_beat(s, &err);

	lock_take(&s->lock);
	if (round.arena)
		map_each(s->tasks, copy_local, &round);
	lock_drop(&s->lock);
	for (struct keep_row *at = round.rows; at;) {
		int failed = keep_batch(&round, &at, &err);

		r = r ? r : failed;
	}
	tell_kept(r, &err, failing);
	if (!round.arena || round.full)
		log_error("no memory was left to renew everything this host holds");
	arena_free(round.arena);
}

static int64_t period_ms(const struct sessions *s)
{
	int64_t least = binding_min(s->rules.op_ttl_ms, s->rules.owner_ttl_ms);

	if (s->config.conf->claim_ttl_ms > 0)
		least = binding_min(least, s->config.conf->claim_ttl_ms);
	return binding_max(least / 3, PERIOD_LEAST_MS);
}

/*
 * Waits for the next round or a reason to look; true when the round is due. Whoever finds the heartbeat late has it tried at
 * once, but not again before a moment has passed: while the store is away that is everybody, all the time.
 */
static bool keeper_wait(struct sessions *s, int64_t begun_ns, int64_t until_ns, bool *ret_stop)
{
	int64_t again_ns = begun_ns + LATE_PAUSE_MS * CLOCK_NS_PER_MS;
	bool late;

	lock_take(&s->lock);
	for (;;) {
		int64_t wake_ns = s->keeper_late ? binding_min(again_ns, until_ns) : until_ns;

		if (s->keeper_stop || s->keeper_kicked || clock_boot_ns() >= wake_ns)
			break;
		cond_wait_until(&s->keeper_wake, &s->lock, wake_ns);
	}
	late = s->keeper_late && clock_boot_ns() >= again_ns;
	s->keeper_late &= !late;
	s->keeper_kicked = false;
	*ret_stop = s->keeper_stop;
	lock_drop(&s->lock);
	return clock_boot_ns() >= until_ns || (late && !is_confirmed(s));
}

void *keeper_main(void *arg)
{
	struct sessions *s = arg;
	bool stop = false, failing = false;

	while (!stop) {
		int64_t begun_ns = clock_boot_ns(), next_ns = clock_after_ms(period_ms(s));

		keep_round(s, &failing);
		if (s->hooks.keep)
			s->hooks.keep(s->hooks.arg);
		holds_tell_lost(s);
		while (!keeper_wait(s, begun_ns, next_ns, &stop) && !stop)
			holds_tell_lost(s);
	}
	return NULL;
}
