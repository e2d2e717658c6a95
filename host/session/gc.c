/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GC: one thread that looks at rows that are due — every gc_interval, when kicked, and first at start — decides each in a
 * step of its own and hands the provider's part to a job. Never calls a provider itself and never judges by memory alone: what
 * this process holds is only told to the step, which decides by the row.
 */
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/failpoint.h"
#include "core/limits.h"
#include "core/log.h"
#include "session/session_private.h"
#include "session/warm.h"

void session_kick_gc(struct sessions *s)
{
	lock_take(&s->lock);
	s->gc_kicked = true;
	cond_wake_all(&s->gc_wake);
	lock_drop(&s->lock);
}

void gc_wake_at(struct sessions *s, int64_t at_ns)
{
	lock_take(&s->lock);
	if (at_ns < s->gc_at_ns) {
		s->gc_at_ns = at_ns;
		cond_wake_all(&s->gc_wake);
	}
	lock_drop(&s->lock);
}

void gc_fill_at(struct sessions *s, int64_t at_ns)
{
	lock_take(&s->lock);
	if (at_ns < s->fill_at_ns) {
		s->fill_at_ns = at_ns;
		cond_wake_all(&s->gc_wake);
	}
	lock_drop(&s->lock);
}

/* ---- one row ---- */

struct collect {
	struct sessions *s;
	/* What this process holds of the row, as of before the step. */
	char (*held)[IDENT_ID_MAX + 1];
	const char **held_ptrs;
	size_t held_count;
	int64_t *working; /* incarnations that jobs work on */
	size_t working_count;
	struct txn *txn;
	bool hold; /* as of before the step */
	/* Results. */
	enum gc_action action;
	int64_t fence, incarnation;
};

static bool is_dead(void *arg, const char *host)
{
	struct collect *collect = arg;

	return host_is_dead(collect->s, collect->txn, host);
}

static bool is_open(void *arg, const struct binding_op *op)
{
	struct collect *collect = arg;
	const struct session_hooks *hooks = &collect->s->hooks;

	return hooks->execution_open && hooks->execution_open(collect->txn, op->id, hooks->arg);
}

static bool works_on(const struct collect *collect, int64_t incarnation)
{
	for (size_t i = 0; i < collect->working_count; i++) {
		if (collect->working[i] == incarnation)
			return true;
	}
	return false;
}

static int collect_row(struct sessions *s, struct txn *txn, struct row *row, void *arg, struct err *err)
{
	struct collect *collect = arg;
	struct binding_gc in = {
		.host = s->config.host_id,
		.owned = works_on(collect, row->b.incarnation),
		.certain = s->exclusive,
		.hold = collect->hold,
		.held = collect->held_ptrs,
		.held_count = collect->held_count,
		.dead = is_dead,
		.open = is_open,
		.arg = collect,
	};
	int r = row->existed && row->b.state != BINDING_GONE ? row_next_fence(txn, row, &in.fence, err) : 0;

	collect->txn = txn;
	collect->action = GC_NOTHING;
	if (r || !row->existed)
		return r;
	collect->action = binding_gc(&row->b, row->now, &s->rules, &in, &row->changed);
	row->delete = collect->action == GC_DELETE_ROW;
	row->notify = row->changed; /* a reaped operation may have given its turn to a waiting one */
	collect->fence = row->b.fence;
	collect->incarnation = row->b.incarnation;
	return 0;
}

static int look_at_local(struct sessions *s, const struct ident *ident, struct collect *collect)
{
	char key[IDENT_KEY_MAX + 1];
	size_t kept_count = 0, job_count = 0;
	struct local *local;

	ident_key(ident, key);
	lock_take(&s->lock);
	local = local_get_locked(s, key);
	for (struct kept *kept = local ? local->kept : NULL; kept; kept = kept->next)
		kept_count++;
	for (struct job *job = local ? local->jobs : NULL; job; job = job->next)
		job_count++;
	collect->held = calloc(kept_count + 1, sizeof(*collect->held));
	collect->held_ptrs = calloc(kept_count + 1, sizeof(*collect->held_ptrs));
	collect->working = calloc(job_count + 1, sizeof(*collect->working));
	if (!collect->held || !collect->held_ptrs || !collect->working) {
		lock_drop(&s->lock);
		return ERR_NOMEM;
	}
	for (struct kept *kept = local ? local->kept : NULL; kept; kept = kept->next) {
		memcpy(collect->held[collect->held_count], kept->op_id, sizeof(kept->op_id));
		collect->held_ptrs[collect->held_count] = collect->held[collect->held_count];
		collect->held_count++;
	}
	for (struct job *job = local ? local->jobs : NULL; job; job = job->next) {
		if (job->kind == JOB_PROVISION || job->kind == JOB_RELEASE)
			collect->working[collect->working_count++] = job->incarnation;
	}
	lock_drop(&s->lock);
	return 0;
}

static void start_work(struct sessions *s, const struct ident *ident, const struct collect *collect)
{
	static const enum job_kind kinds[] = {
		[GC_TAKE_OVER] = JOB_PROVISION, [GC_RELEASE] = JOB_RELEASE, [GC_STRAYS] = JOB_STRAYS};
	struct err err = {0};

	if (collect->action == GC_NOTHING || collect->action == GC_DELETE_ROW)
		return;
	/* Not started: the row's owner_until passes, and a later round takes it again. */
	if (job_start(s, kinds[collect->action], ident, collect->fence, collect->incarnation, &err))
		log_warn("work on a session could not be started", KS("task", ident->task), KS("error", err.msg));
}

static void gc_row(struct sessions *s, const struct ident *ident)
{
	struct collect collect = {.s = s, .hold = store_hold_ms(s->config.store) > 0};
	struct err err = {0};
	int r = look_at_local(s, ident, &collect);

	if (r == 0 && FAILPOINT("gc.reclaim.before"))
		r = err_set(&err, ERR_INTERNAL, "failpoint gc.reclaim.before");
	if (r == 0)
		r = row_update(s, ident, collect_row, &collect, &err);
	if (r == 0)
		start_work(s, ident, &collect);
	else
		log_warn("a task could not be collected", KS("workspace", ident->workspace), KS("task", ident->task),
			 KS("error", err.msg));
	free(collect.held);
	free(collect.held_ptrs);
	free(collect.working);
}

/* ---- a round ---- */

struct due {
	struct buf keys; /* NUL-terminated, one after the other */
};

static bool note_key(const struct store_row *row, void *arg)
{
	struct due *due = arg;

	return buf_append(&due->keys, row->key, strlen(row->key) + 1) == 0;
}

static int scan_step(struct txn *txn, void *arg, struct err *err)
{
	struct due *due = arg;

	buf_clear(&due->keys);
	return txn_scan_due(txn, STORE_TASK, txn_now(txn), SIZE_MAX, note_key, due, err);
}

static bool must_stop(struct sessions *s)
{
	bool stop;

	lock_take(&s->lock);
	stop = s->gc_stop;
	lock_drop(&s->lock);
	return stop;
}

static void gc_round(struct sessions *s)
{
	struct due due = {0};
	struct err err = {0};

	buf_init(&due.keys, LIMIT_GC_KEYS);
	if (store_view(s->config.store, scan_step, &due, &err))
		log_warn("the rows that are due could not be read", KS("error", err.msg));
	for (size_t at = 0; at < due.keys.len && !must_stop(s); at += strlen(due.keys.ptr + at) + 1) {
		struct ident ident;

		if (split_key(due.keys.ptr + at, &ident))
			gc_row(s, &ident);
		else
			log_error("a row has a key that is no task", KS("key", due.keys.ptr + at));
	}
	buf_fini(&due.keys);
}

/* ---- hosts that are gone ---- */

static bool note_host(const struct store_row *row, void *arg)
{
	return note_key(row, arg);
}

static int forget_hosts_step(struct txn *txn, void *arg, struct err *err)
{
	struct sessions *s = arg;
	struct due due = {0};
	int r;

	buf_init(&due.keys, LIMIT_GC_KEYS);
	/* Of an exclusive store every other host is gone. */
	r = s->exclusive ? txn_scan(txn, STORE_HOST, NULL, "", false, LIMIT_PAGE, note_host, &due, err)
			 : txn_scan_due(txn, STORE_HOST, txn_now(txn) - s->rules.retention_ms, LIMIT_PAGE, note_host, &due, err);
	for (size_t at = 0; r == 0 && at < due.keys.len; at += strlen(due.keys.ptr + at) + 1) {
		if (strcmp(due.keys.ptr + at, s->config.host_id) != 0)
			r = txn_delete(txn, STORE_HOST, due.keys.ptr + at, err);
	}
	buf_fini(&due.keys);
	return r;
}

static void forget_hosts(struct sessions *s)
{
	struct err err = {0};

	if (store_update(s->config.store, forget_hosts_step, s, &err))
		log_warn("hosts that are gone could not be forgotten", KS("error", err.msg));
}

/* ---- the thread ---- */

static bool take_due(int64_t *at_ns, int64_t now_ns)
{
	bool due = now_ns >= *at_ns;

	if (due)
		*at_ns = INT64_MAX;
	return due;
}

/* False: the thread is to end. *ret_all: a whole round is due, else the pools alone are: *ret_fill, or only a look for hints. */
static bool gc_wait(struct sessions *s, int64_t next_ns, bool *ret_all, bool *ret_fill)
{
	int64_t look_ns = warm_look_ns(s), first_ns = binding_min(next_ns, look_ns), now = 0;
	bool stop;

	*ret_all = *ret_fill = false;
	lock_take(&s->lock);
	while (!(stop = s->gc_stop) && !*ret_all && !*ret_fill && now < look_ns) {
		int64_t until = binding_min(binding_min(first_ns, s->gc_at_ns), s->fill_at_ns);

		if (!s->gc_kicked)
			cond_wait_until(&s->gc_wake, &s->lock, until);
		now = clock_boot_ns();
		*ret_all = s->gc_kicked | take_due(&s->gc_at_ns, now) | (now >= next_ns);
		*ret_fill = take_due(&s->fill_at_ns, now);
		s->gc_kicked = false;
	}
	lock_drop(&s->lock);
	return !stop;
}

void *gc_main(void *arg)
{
	struct sessions *s = arg;
	int64_t next_ns = 0;
	bool all = true, fill = true;

	if (s->exclusive)
		forget_hosts(s);
	do {
		if (!all) {
			warm_sweep(s);
			if (fill)
				warm_fill(s);
			continue;
		}
		/* Hosts that only serve or run commands come and go for as long as this one lives. */
		if (!s->exclusive)
			forget_hosts(s);
		next_ns = clock_after_ms(s->config.conf->gc_interval_ms);
		gc_round(s);
		warm_round(s);
		if (s->hooks.sweep && s->hooks.sweep(s->hooks.arg))
			next_ns = clock_boot_ns();
	} while (gc_wait(s, next_ns, &all, &fill));
	return NULL;
}
