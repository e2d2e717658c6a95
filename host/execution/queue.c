/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns who runs next: the runs of this process, a line per task, a ring of the tasks that could go on, and the runner's
 * slots. Any thread enters, under executions.lock; notices and timers enter by queue_fire. Never calls a provider or
 * the store, and never lets one task's line hold up another's.
 */
#include <assert.h>
#include <limits.h>
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

/* ---- ring ---- */

static bool can_go_on(const struct executions *e, const struct run_task *task)
{
	const struct run *first = task->first;

	return first && (first->taken || first->heir || task->taken < e->task_concurrency);
}

static void ring_out(struct executions *e, struct run_task *task)
{
	if (!task->in_ring)
		return;
	task->in_ring = false;
	if (task->next == task)
		e->ring = NULL;
	else if (e->ring == task)
		e->ring = task->next;
	task->next->prev = task->prev;
	task->prev->next = task->next;
}

/* At the end: before the one whose turn it is. */
static void ring_in(struct executions *e, struct run_task *task)
{
	if (task->in_ring)
		return;
	task->in_ring = true;
	if (!e->ring) {
		e->ring = task->next = task->prev = task;
		return;
	}
	task->next = e->ring;
	task->prev = e->ring->prev;
	task->prev->next = task;
	e->ring->prev = task;
}

static void ring_judge(struct executions *e, struct run_task *task)
{
	if (can_go_on(e, task))
		ring_in(e, task);
	else
		ring_out(e, task);
}

/* ---- line ---- */

static void line_in(struct run *run)
{
	struct run_task *task = run->task;
	/* Those that had their turn, here or elsewhere, go before those that wait for it. */
	struct run *before = run->taken || run->heir ? task->first : NULL;

	while (before && (before->taken || before->heir))
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
	bool waited = run->state == RUN_READY || run->state == RUN_PARKED;
	bool waits = state == RUN_READY || state == RUN_PARKED;

	if (waited != waits) {
		e->waiting += waits ? 1u : -1u;
		run->task->waiting += waits ? 1u : -1u;
	}
	e->parked += (state == RUN_PARKED) - (run->state == RUN_PARKED);
	run->state = state;
	if (e->stopping)
		cond_wake_all(&e->changed); /* the stop counts who is left */
}

static void take_slot(struct run *run)
{
	run->slot = true;
	run->e->busy++;
	if (!run->taken) {
		run->taken = true;
		run->task->taken++;
	}
}

static void drop_slot(struct run *run)
{
	if (!run->slot)
		return;
	run->slot = false;
	run->e->busy--;
	cond_wake_all(&run->e->changed);
}

void queue_dispatch_locked(struct executions *e)
{
	while (e->started && !e->stopping && e->busy < e->runner_concurrency && e->ring) {
		struct run_task *task = e->ring;
		struct run *run = task->first;

		line_out(run);
		set_state(run, RUN_OWNED);
		take_slot(run);
		ring_out(e, task);
		ring_judge(e, task);
		if (pool_submit(e->pool, runner_main, run) == 0)
			continue;
		log_error("the runner's pool takes no job", KS("execution", run->id));
		drop_slot(run);
		set_state(run, RUN_READY);
		line_in(run);
		return;
	}
}

static void ready_locked(struct run *run)
{
	set_state(run, RUN_READY);
	run->woken = false;
	run->ready_ns = clock_boot_ns();
	line_in(run);
	ring_judge(run->e, run->task);
}

/* ---- runs come and go ---- */

static struct run_task *task_of(struct executions *e, const struct ident *ident)
{
	char key[IDENT_KEY_MAX + 1];
	struct run_task *task;

	ident_key(ident, key);
	task = map_get(e->tasks, key);
	if (task)
		return task;
	task = calloc(1, sizeof(*task));
	if (!task)
		return NULL;
	memcpy(task->key, key, sizeof(key));
	if (map_put(e->tasks, key, task) == 0)
		return task;
	free(task);
	return NULL;
}

static void task_done(struct executions *e, struct run_task *task)
{
	if (task->open > 0)
		return;
	ring_out(e, task);
	map_remove(e->tasks, task->key);
	free(task);
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
	       task->taken < e->task_concurrency;
}

/* A full line, which may be one task's, keeps nobody from running at once. What began may have to wait, too, for
 * capacity above all: then it holds no slot, and only its number says that there is no end to it. */
static bool is_admitted(const struct executions *e, bool room)
{
	return queue_waiting_locked(e) < e->queue_max || (room && e->parked < e->queue_max);
}

static int add_locked(struct run *run, bool limited, bool *ret_room, struct err *err)
{
	struct executions *e = run->e;
	struct run_task *task;
	bool room;

	if (e->stopping)
		return err_set(err, ERR_SHUTTING_DOWN, "this host is stopping");
	task = task_of(e, &run->ident);
	room = task && limited && has_room(e, task);
	if (limited && !is_admitted(e, room)) {
		if (task)
			task_done(e, task);
		return err_set(err, ERR_QUEUE_FULL, "%u executions are queued already", queue_waiting_locked(e));
	}
	if (!task || map_put(e->runs, run->id, run) != 0) {
		if (task)
			task_done(e, task);
		return err_set(err, ERR_NOMEM, "no memory for one more execution");
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

	queue_deaf(run);
	lock_take(&e->lock);
	assert(run->state == RUN_OWNED);
	task = run->task;
	set_state(run, RUN_ENDED);
	map_remove(e->runs, run->id);
	drop_slot(run);
	task->open--;
	if (run->taken)
		task->taken--;
	run->task = NULL;
	ring_judge(e, task);
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

	lock_take(&e->lock);
	assert(run->state == RUN_OWNED);
	drop_slot(run);
	ready_locked(run);
	queue_dispatch_locked(e);
	lock_drop(&e->lock);
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
	ring_judge(run->e, run->task);
	queue_dispatch_locked(run->e);
}

bool queue_take_locked(struct run *run)
{
	if (run->state != RUN_READY && run->state != RUN_PARKED)
		return false;
	if (run->state == RUN_READY)
		line_out(run);
	set_state(run, RUN_OWNED);
	ring_judge(run->e, run->task);
	return true;
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

void execution_set_limits(struct executions *e, unsigned concurrency, unsigned queue_max)
{
	lock_take(&e->lock);
	e->runner_concurrency = concurrency;
	e->queue_max = queue_max;
	queue_dispatch_locked(e);
	lock_drop(&e->lock);
	session_set_capacity(e->config.sessions, concurrency);
}
