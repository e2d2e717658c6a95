/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns who runs next: the runs of this process, a line per task, rings of the tenants and of each one's tasks that could
 * go on, and the runner's slots. Any thread enters, under executions.lock; notices and timers enter by queue_fire. Never
 * calls a provider or the store, and never lets one task's line hold up another's, nor one tenant's tasks another's.
 */
#include <assert.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "execution/execution_private.h"

struct run *run_ref(struct run *run)
{
	atomic_fetch_add(&run->refs, 1);
	return run;
}

void run_unref(struct run *run)
{
	if (!run || atomic_fetch_sub(&run->refs, 1) != 1)
		return;
	assert(run->magic == RUN_MAGIC && !run->hold);
	if (run->begin_prepared)
		session_begin_fini(&run->begin);
	lost_forget(run);
	arena_free(run->plan.arena);
	spool_output_unref(run->out);
	run->magic = 0;
	free(run);
}

/* ---- rings ---- */

static struct run_task *task_at(struct run_turn *turn)
{
	return (struct run_task *)((char *)turn - offsetof(struct run_task, turn));
}

static struct run_tenant *tenant_at(struct run_turn *turn)
{
	return (struct run_tenant *)((char *)turn - offsetof(struct run_tenant, turn));
}

static void turn_out(struct run_turn *turn)
{
	if (!turn->ring)
		return;
	if (turn->next == turn)
		*turn->ring = NULL;
	else if (*turn->ring == turn)
		*turn->ring = turn->next;
	turn->next->prev = turn->prev;
	turn->prev->next = turn->next;
	turn->ring = NULL;
}

/* At the end, before the one whose turn it is, unless it is in that ring; NULL: in none. */
static void turn_in(struct run_turn *turn, struct run_turn **ring)
{
	if (turn->ring == ring)
		return;
	turn_out(turn);
	if (!ring)
		return;
	turn->ring = ring;
	if (!*ring) {
		*ring = turn->next = turn->prev = turn;
		return;
	}
	turn->next = *ring;
	turn->prev = turn->next->prev;
	turn->prev->next = turn;
	turn->next->prev = turn;
}

static bool had_turn(const struct run *run)
{
	return run->taken || run->heir;
}

static bool may_take(const struct executions *e, const struct run_tenant *tenant)
{
	return !e->tenant_concurrency || tenant->taken < e->tenant_concurrency;
}

static void tenant_judge(struct executions *e, struct run_tenant *tenant)
{
	bool goes_on = tenant->again || (tenant->fresh && may_take(e, tenant));

	turn_in(&tenant->turn, goes_on ? &e->ring : NULL);
}

static void task_judge(struct executions *e, struct run_task *task)
{
	struct run_tenant *tenant = task->tenant;
	struct run_turn **ring = NULL;

	if (task->first && had_turn(task->first))
		ring = &tenant->again;
	else if (task->first && task->taken < e->task_concurrency)
		ring = &tenant->fresh;
	turn_in(&task->turn, ring);
	tenant_judge(e, tenant);
}

/* Of the tenant whose turn it is. Those that had their turn and those that wait for it do not hold up each other. */
static struct run_task *next_task(struct executions *e)
{
	struct run_tenant *tenant = tenant_at(e->ring);

	tenant->was_fresh = tenant->fresh && may_take(e, tenant) && !(tenant->again && tenant->was_fresh);
	return task_at(tenant->was_fresh ? tenant->fresh : tenant->again);
}

/* Others of the tenant, and other tenants, are before it now. */
static void turn_past(struct executions *e, struct run_task *task)
{
	turn_out(&task->turn);
	turn_out(&task->tenant->turn);
	task_judge(e, task);
}

/* ---- line ---- */

static void line_in(struct run *run)
{
	struct run_task *task = run->task;
	/* Those that had their turn, here or elsewhere, go before those that wait for it. */
	struct run *before = had_turn(run) ? task->first : NULL;

	while (before && had_turn(before))
		before = before->next;
	run->next = before;
	run->prev = before ? before->prev : task->last;
	*(run->prev ? &run->prev->next : &task->first) = run;
	*(before ? &before->prev : &task->last) = run;
}

static void line_out(struct run *run)
{
	struct run_task *task = run->task;

	*(run->prev ? &run->prev->next : &task->first) = run->next;
	*(run->next ? &run->next->prev : &task->last) = run->prev;
	run->next = run->prev = NULL;
}

/* Keeps the counts beside the state. */
static void set_state(struct run *run, enum run_state state)
{
	struct executions *e = run->e;
	struct run_tenant *tenant = run->task->tenant;
	bool waited = run->state == RUN_READY || run->state == RUN_PARKED;
	bool waits = state == RUN_READY || state == RUN_PARKED;
	int parks = (state == RUN_PARKED) - (run->state == RUN_PARKED);

	if (waited != waits) {
		e->waiting += waits ? 1u : -1u;
		tenant->waiting += waits ? 1u : -1u;
		run->task->waiting += waits ? 1u : -1u;
	}
	e->parked += (unsigned)parks;
	tenant->parked += (unsigned)parks;
	run->state = state;
	if (e->stopping)
		cond_wake_all(&e->changed); /* the stop counts who is left */
}

static void take_slot(struct run *run)
{
	struct run_tenant *tenant = run->task->tenant;

	run->slot = true;
	run->e->busy++;
	if (run->taken)
		return;
	run->taken = true;
	run->task->taken++;
	tenant->taken++;
	tenant_judge(run->e, tenant); /* it may be at its limit */
}

static void drop_slot(struct run *run)
{
	if (!run->slot)
		return;
	run->slot = false;
	run->e->busy--;
	cond_wake_all(&run->e->changed);
}

static void ready_locked(struct run *run)
{
	set_state(run, RUN_READY);
	run->woken = false;
	run->ready_ns = clock_boot_ns();
	line_in(run);
	task_judge(run->e, run->task);
}

void queue_dispatch_locked(struct executions *e)
{
	while (e->started && !e->stopping && e->busy < e->runner_concurrency && e->ring) {
		struct run *run = next_task(e)->first;

		line_out(run);
		set_state(run, RUN_OWNED);
		take_slot(run);
		turn_past(e, run->task);
		if (pool_submit(e->pool, runner_main, run) == 0)
			continue;
		log_error("the runner's pool takes no job", KS("execution", run->id));
		drop_slot(run);
		ready_locked(run);
		return;
	}
}

/* ---- runs come and go ---- */

static struct run_tenant *tenant_of(struct executions *e, const char *workspace)
{
	struct run_tenant *tenant = map_get(e->tenants, workspace);

	if (tenant)
		return tenant;
	tenant = calloc(1, sizeof(*tenant));
	if (!tenant)
		return NULL;
	snprintf(tenant->workspace, sizeof(tenant->workspace), "%s", workspace);
	if (map_put(e->tenants, workspace, tenant) == 0)
		return tenant;
	free(tenant);
	return NULL;
}

static void tenant_done(struct executions *e, struct run_tenant *tenant)
{
	if (tenant->tasks > 0)
		return;
	assert(!tenant->turn.ring && tenant->taken == 0 && tenant->waiting == 0);
	map_remove(e->tenants, tenant->workspace);
	free(tenant);
}

static struct run_task *task_new(struct executions *e, const char *key, struct run_tenant *tenant)
{
	struct run_task *task = calloc(1, sizeof(*task));

	if (!task || map_put(e->tasks, key, task) != 0) {
		free(task);
		return NULL;
	}
	snprintf(task->key, sizeof(task->key), "%s", key);
	task->tenant = tenant;
	tenant->tasks++;
	return task;
}

static struct run_task *task_of(struct executions *e, const struct ident *ident)
{
	char key[IDENT_KEY_MAX + 1];
	struct run_tenant *tenant;
	struct run_task *task;

	ident_key(ident, key);
	task = map_get(e->tasks, key);
	if (task)
		return task;
	tenant = tenant_of(e, ident->workspace);
	if (!tenant)
		return NULL;
	task = task_new(e, key, tenant);
	tenant_done(e, tenant);
	return task;
}

static void task_done(struct executions *e, struct run_task *task)
{
	struct run_tenant *tenant = task->tenant;

	if (task->open > 0)
		return;
	assert(!task->turn.ring);
	map_remove(e->tasks, task->key);
	free(task);
	tenant->tasks--;
	tenant_done(e, tenant);
}

static struct run *run_new(struct executions *e, const struct ident *ident, const char *id)
{
	struct run *run = calloc(1, sizeof(*run));
	char key[IDENT_KEY_MAX + 1];

	if (!run)
		return NULL;
	run->magic = RUN_MAGIC;
	atomic_init(&run->refs, 1);
	run->e = e;
	run->ident = *ident;
	snprintf(run->id, sizeof(run->id), "%s", id);
	ident_key(ident, key);
	snprintf(run->notice.key, sizeof(run->notice.key), "task:%s", key);
	snprintf(run->timer.key, sizeof(run->timer.key), "run:%s", id);
	run->notice.run = run->timer.run = run;
	run->out = spool_output_new(e->spool, id);
	if (run->out)
		return run;
	free(run);
	return NULL;
}

/* Those that are open, less what the others can run at once. */
unsigned queue_waiting_locked(const struct executions *e)
{
	uint64_t open = e->open_elsewhere + e->accepted_since, waiting;

	if (runs_commands(e))
		return e->waiting;
	waiting = open > e->room_elsewhere ? open - e->room_elsewhere : 0;
	return waiting < UINT_MAX ? (unsigned)waiting : UINT_MAX;
}

/* A worker can begin with it at once: nothing of its task is before it. */
static bool has_room(const struct executions *e, const struct run_task *task)
{
	return e->started && runs_commands(e) && e->busy < e->runner_concurrency && task->waiting == 0 &&
	       task->taken < e->task_concurrency && may_take(e, task->tenant);
}

/* A full line, which may be one task's, keeps nobody from running at once. What began may have to wait, too, for
 * capacity above all: then it holds no slot, and only its number says that there is no end to it. */
static bool is_full(unsigned waiting, unsigned parked, unsigned max, bool room)
{
	return waiting >= max && (!room || parked >= max);
}

static int check_full(const struct executions *e, const struct run_tenant *tenant, bool room, struct err *err)
{
	unsigned share = e->tenant_queue_max;

	if (is_full(queue_waiting_locked(e), e->parked, e->queue_max, room))
		return err_set(err, ERR_QUEUE_FULL, "%u executions are queued already", queue_waiting_locked(e));
	if (share && is_full(tenant->waiting, tenant->parked, share, room))
		return err_set(err, ERR_QUEUE_FULL, "%u executions of workspace \"%s\" are queued already, and "
			       "runner.workspace_queue_max is %u", tenant->waiting, tenant->workspace, share);
	return 0;
}

static int add_locked(struct run *run, bool limited, bool *ret_room, struct err *err)
{
	struct executions *e = run->e;
	struct run_task *task;
	bool room;
	int rc = 0;

	if (e->stopping)
		return err_set(err, ERR_SHUTTING_DOWN, "this host is stopping");
	if (queue_find_locked(e, run->id))
		return err_set(err, ERR_CONFLICT, "this host has the execution already");
	task = task_of(e, &run->ident);
	if (!task)
		return err_set(err, ERR_NOMEM, "no memory for one more execution");
	room = limited && has_room(e, task);
	if (limited)
		rc = check_full(e, task->tenant, room, err);
	if (rc == 0 && map_put(e->runs, run->id, run) != 0)
		rc = err_set(err, ERR_NOMEM, "no memory for one more execution");
	if (rc) {
		task_done(e, task);
		return rc;
	}
	run->task = task;
	task->open++;
	e->accepted_since += limited;
	*ret_room = room;
	if (room)
		take_slot(run);
	return 0;
}

int queue_add(struct executions *e, const struct ident *ident, const char *id, bool limited, bool *ret_room,
	      struct run **ret, struct err *err)
{
	struct run *run = run_new(e, ident, id);
	int r;

	if (!run)
		return err_set(err, ERR_NOMEM, "no memory for one more execution");
	lock_take(&e->lock);
	r = add_locked(run, limited, ret_room, err);
	lock_drop(&e->lock);
	if (r)
		run_unref(run);
	else
		*ret = run;
	return r;
}

void queue_end(struct run *run)
{
	struct executions *e = run->e;
	struct run_task *task;
	struct run *known;

	queue_deaf(run);
	lock_take(&e->lock);
	assert(run->state == RUN_OWNED);
	task = run->task;
	set_state(run, RUN_ENDED);
	known = map_remove(e->runs, run->id);
	assert(known == run);
	drop_slot(run);
	task->open--;
	task->taken -= run->taken;
	task->tenant->taken -= run->taken;
	run->task = NULL;
	task_judge(e, task);
	task_done(e, task);
	queue_dispatch_locked(e);
	lock_drop(&e->lock);
	run_unref(run);
}

struct run *queue_find_locked(struct executions *e, const char *id)
{
	return map_get(e->runs, id);
}

/* ---- changes of state ---- */

void queue_ready(struct run *run)
{
	struct executions *e = run->e;
	bool passed;

	lock_take(&e->lock);
	assert(run->state == RUN_OWNED);
	drop_slot(run);
	ready_locked(run);
	passed = queue_pass_locked(run);
	queue_dispatch_locked(e);
	lock_drop(&e->lock);
	if (passed)
		queue_leave(run);
}

void queue_submit(struct run *run)
{
	if (pool_submit(run->e->pool, runner_main, run) == 0)
		return;
	queue_ready(run); /* the pool stops: it stays in line for the next process */
}

void queue_park(struct run *run)
{
	struct executions *e = run->e;

	lock_take(&e->lock);
	assert(run->state == RUN_OWNED);
	drop_slot(run);
	/* A cancel ends what waits; what may run is tried again by its timer, unless it came just now (woken). */
	if (run->woken || (run->cancel && !run->unsure) || run->lost[0])
		ready_locked(run);
	else
		set_state(run, RUN_PARKED);
	queue_dispatch_locked(e);
	lock_drop(&e->lock);
}

void queue_inherit_locked(struct run *run, bool running)
{
	bool waits = run->state == RUN_READY;

	if (waits)
		line_out(run);
	run->heir = true;
	run->has_session = run->unsure = running;
	if (!waits)
		return;
	line_in(run);
	task_judge(run->e, run->task);
	queue_dispatch_locked(run->e);
}

bool queue_take_locked(struct run *run)
{
	if (run->state != RUN_READY && run->state != RUN_PARKED)
		return false;
	if (run->state == RUN_READY)
		line_out(run);
	set_state(run, RUN_OWNED);
	task_judge(run->e, run->task);
	return true;
}

bool queue_pass_locked(struct run *run)
{
	return run->passed && !had_turn(run) && !run->claimed && !run->cancel && queue_take_locked(run);
}

void queue_leave(struct run *run)
{
	output_moved(run);
	queue_end(run);
}

void queue_wake_locked(struct run *run)
{
	run->woken = true;
	if (run->call && (run->cancel || run->lost[0]))
		call_stop_locked(run, BERTH_CANCEL_STOP);
	if (run->state != RUN_PARKED)
		return;
	ready_locked(run);
	queue_dispatch_locked(run->e);
}

/* ---- notices and timers ---- */

static void set_armed(struct run_waiter *w, bool armed)
{
	struct executions *e = w->run->e;

	w->armed = armed;
	e->armed += armed ? 1u : -1u;
	if (e->armed == 0)
		cond_wake_all(&e->changed);
}

void queue_fire(struct watch_waiter *waiter, bool timed_out)
{
	struct run_waiter *w = waiter->arg;
	struct run *run = w->run;
	struct executions *e = run->e;

	(void)timed_out;
	assert(run->magic == RUN_MAGIC);
	lock_take(&e->lock);
	set_armed(w, false);
	queue_wake_locked(run);
	run_unref(run); /* under the lock: e is there until no waiter is armed */
	lock_drop(&e->lock);
}

static void arm(struct run_waiter *w, int64_t deadline_ns)
{
	struct executions *e = w->run->e;

	lock_take(&e->lock);
	if (!w->armed) {
		set_armed(w, true);
		w->waiter =
			(struct watch_waiter){.key = w->key, .fire = queue_fire, .arg = w, .deadline_ns = deadline_ns};
		run_ref(w->run);
		watch_add(e->config.watch, &w->waiter);
	}
	lock_drop(&e->lock);
}

static void disarm(struct run_waiter *w)
{
	struct executions *e = w->run->e;
	bool off;

	lock_take(&e->lock);
	off = w->armed && watch_cancel(e->config.watch, &w->waiter);
	if (off)
		set_armed(w, false);
	lock_drop(&e->lock);
	if (off)
		run_unref(w->run); /* never the last one: the owner has its own */
}

void queue_listen(struct run *run)
{
	arm(&run->notice, INT64_MAX);
}

void queue_timer(struct run *run, int64_t deadline_ns)
{
	disarm(&run->timer);
	arm(&run->timer, deadline_ns);
}

void queue_deaf(struct run *run)
{
	disarm(&run->notice);
	disarm(&run->timer);
}

/* ---- limits ---- */

static bool judge_one(const char *key, void *value, void *arg)
{
	(void)key;
	tenant_judge(arg, value);
	return true;
}

void queue_set_limits_locked(struct executions *e, unsigned concurrency, const struct conf *conf)
{
	e->runner_concurrency = concurrency;
	e->queue_max = (unsigned)conf->queue_max;
	e->tenant_concurrency = (unsigned)conf->workspace_concurrency;
	e->tenant_queue_max = (unsigned)conf->workspace_queue_max;
}

void execution_set_limits(struct executions *e, unsigned concurrency, const struct conf *conf)
{
	lock_take(&e->lock);
	queue_set_limits_locked(e, concurrency, conf);
	map_each(e->tenants, judge_one, e);
	queue_dispatch_locked(e);
	lock_drop(&e->lock);
	session_set_capacity(e->config.sessions, concurrency);
}
