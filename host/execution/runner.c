/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the layer's life: new, start, stop, free, and what a worker does with a run. Main thread, and the runner's
 * workers. Never takes new work while it stops, and leaves running commands running.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/limits.h"
#include "core/log.h"
#include "execution/execution_private.h"

#define DETACH_MS 1000
#define ENDED_BYTES (16 * LIMIT_MIB) /* of ended records in memory: the last ten thousand or so */

/* ---- a worker ---- */

static bool is_stopping(struct executions *e)
{
	bool stopping;

	lock_take(&e->lock);
	stopping = e->stopping;
	lock_drop(&e->lock);
	return stopping;
}

static enum next first_look(struct run *run)
{
	bool cancel, unsure, stuck;

	lock_take(&run->e->lock);
	cancel = run->cancel;
	unsure = run->unsure;
	stuck = run->stuck;
	run->stuck = false;
	run->woken = false; /* whatever comes from here on is not missed: it is looked for below */
	lock_drop(&run->e->lock);
	if (stuck)
		return command_stuck(run);
	if (run->started && !run->hold)
		return finish_failed(run, &run->wait_err); /* its session could not be held */
	if (run->started)
		return NEXT_COMMAND;
	if (cancel && !unsure)
		return finish_cancelled(run);
	return is_stopping(run->e) ? NEXT_LEAVE : take_run(run);
}

/* Ends an OWNED run's turn. */
static void turn_over(struct run *run, enum next next)
{
	if (next == NEXT_PARK && !is_stopping(run->e) && !call_has_moved(run)) {
		queue_park(run);
		return;
	}
	if (next != NEXT_DONE && next != NEXT_FOREIGN && call_has_moved(run)) {
		log_info("another host went on with an execution", KS("execution", run->id));
		finish_hand_back(run); /* the hold, as the claim is not this host's */
		next = NEXT_FOREIGN;
	}
	if (next == NEXT_FOREIGN)
		output_moved(run);
	else if (next != NEXT_DONE)
		finish_hand_back(run);
	queue_end(run);
}

/* The plugin came back to a worker whose run went on without it. */
static void come_back(struct run *run)
{
	struct executions *e = run->e;

	log_info("a stuck command's call came back; what it brought is dropped", KS("execution", run->id));
	run_unref(run);
	pool_take_back(e->pool);
	lock_take(&e->lock);
	e->stuck--;
	cond_wake_all(&e->changed);
	lock_drop(&e->lock);
}

void runner_main(void *arg)
{
	struct run *run = arg;
	enum next next;

	assert(run->magic == RUN_MAGIC);
	log_set_request(run->id);
	log_set_trace(run->facts.traceparent);
	next = first_look(run);
	if (next == NEXT_COMMAND) {
		log_set_trace(run->facts.traceparent); /* it may have been read only now */
		next = command_run(run);
	}
	if (next == NEXT_GIVEN)
		come_back(run);
	else
		turn_over(run, next);
}

enum next runner_at_once(struct run *run, enum next (*end)(struct run *run))
{
	enum next next;

	run->once = true;
	next = end(run);
	run->once = false;
	if (next == NEXT_READY || (next == NEXT_LEAVE && !is_stopping(run->e)))
		queue_ready(run);
	else
		turn_over(run, next);
	return next;
}

/* ---- life ---- */

static void executions_destroy(struct executions *e)
{
	fleet_stop(e);
	if (e->pool)
		pool_free(e->pool);
	map_free(e->runs);
	map_free(e->tasks);
	map_free(e->tenants);
	ended_free(e->ended);
	spool_free(e->spool);
	cond_fini(&e->changed);
	lock_fini(&e->lock);
	free(e);
}

int executions_new(const struct executions_config *config, struct executions **ret, struct err *err)
{
	const struct conf *conf = config->conf;
	struct executions *e = calloc(1, sizeof(*e));
	int rc;

	if (!e)
		return err_set(err, ERR_NOMEM, "no memory for the executions");
	e->config = *config;
	e->roles = conf_roles(conf);
	snprintf(e->store_id, sizeof(e->store_id), "%s", store_id(config->store));
	e->task_concurrency = (unsigned)conf->task_concurrency;
	queue_set_limits_locked(e, (unsigned)conf->runner_concurrency, conf);
	lock_init(&e->lock, LOCK_RUNNER);
	cond_init(&e->changed);
	e->runs = map_new();
	e->tasks = map_new();
	e->tenants = map_new();
	e->ended = ended_new(ENDED_BYTES);
	e->pool = pool_new("run", e->runner_concurrency, e->runner_concurrency);
	rc = spool_new(blob_staging_dir(config->blobs), conf->spool_max_bytes, config->watch, &e->spool, err);
	if (rc == 0 && (!e->runs || !e->tasks || !e->tenants || !e->pool || !e->ended))
		rc = err_set(err, ERR_NOMEM, "no memory for the executions");
	if (rc) {
		executions_destroy(e);
		return rc;
	}
	session_set_capacity(config->sessions, e->runner_concurrency);
	sessions_hook(config->sessions, &(struct session_hooks){.execution_open = recover_is_open,
								.teardown = cancel_task,
								.keep = sweep_keep,
								.sweep = sweep_round,
								.arg = e});
	*ret = e;
	return 0;
}

int executions_start(struct executions *e, struct err *err)
{
	int rc = store_is_exclusive(e->config.store) ? fleet_inherit_all(e, err) : 0;

	if (rc == 0 && runs_commands(e))
		rc = recover_stream(e, err);
	if (rc)
		return rc;
	elsewhere_look(e);
	rc = fleet_start(e, err);
	if (rc)
		return rc;
	lock_take(&e->lock);
	log_info("executions start", KI("in_line", map_count(e->runs)), KI("concurrency", e->runner_concurrency));
	e->started = true;
	queue_dispatch_locked(e);
	lock_drop(&e->lock);
	return 0;
}

static bool detach_one(const char *key, void *value, void *arg)
{
	(void)key;
	(void)arg;
	call_stop_locked(value, BERTH_CANCEL_DETACH);
	return true;
}

static bool count_owned(const char *key, void *value, void *arg)
{
	const struct run *run = value;

	(void)key;
	*(unsigned *)arg += run->state == RUN_OWNED;
	return true;
}

/* Waits until no thread has a run; false when the time is over first. */
static bool wait_idle_locked(struct executions *e, int64_t until)
{
	for (;;) {
		unsigned owned = 0;

		map_each(e->runs, count_owned, &owned);
		if (owned == 0)
			return true;
		if (!cond_wait_until(&e->changed, &e->lock, until))
			return false;
	}
}

static bool any_waiting(const char *key, void *value, void *arg)
{
	struct run *run = value;

	(void)key;
	if (!queue_take_locked(run))
		return true;
	*(struct run **)arg = run;
	return false;
}

/* What waits stays in the store as it is; the claims among it are free for the next process. */
static void leave_waiting(struct executions *e)
{
	for (;;) {
		struct run *run = NULL;

		lock_take(&e->lock);
		map_each(e->runs, any_waiting, &run);
		lock_drop(&e->lock);
		if (!run)
			return;
		finish_hand_back(run);
		queue_end(run);
	}
}

static void detach_locked(struct executions *e)
{
	e->detaching = true;
	map_each(e->runs, detach_one, NULL);
	cond_wake_all(&e->changed);
}

void executions_stop(struct executions *e, int64_t deadline_ns)
{
	int64_t grace = clock_after_ms(e->config.conf->stop_grace_ms);
	int64_t last = deadline_ns - DETACH_MS * CLOCK_NS_PER_MS;

	if (e->stopped)
		return;
	if (grace > last)
		grace = last;
	lock_take(&e->lock);
	e->stopping = true;
	cond_wake_all(&e->changed);
	if (!wait_idle_locked(e, grace)) {
		detach_locked(e);
		wait_idle_locked(e, last > grace ? last : deadline_ns);
	}
	e->detaching = true;
	e->give_up = true; /* who still tries to store an end leaves it in the sandbox, for the next process */
	detach_locked(e);
	wait_idle_locked(e, deadline_ns);
	lock_drop(&e->lock);
	fleet_stop(e);
	leave_waiting(e);
	if (!pool_stop(e->pool, deadline_ns))
		log_error("a command's worker did not come back from its plugin, or from the objects");
	e->stopped = true;
}

/* Without a stop: as if the process had died here. Nothing more is written. */
static void die(struct executions *e)
{
	atomic_store(&e->dead, true);
	fleet_stop(e);
	lock_take(&e->lock);
	e->stopping = e->give_up = true;
	detach_locked(e);
	wait_idle_locked(e, INT64_MAX);
	lock_drop(&e->lock);
	leave_waiting(e);
	(void)pool_stop(e->pool, INT64_MAX);
}

/* A worker that never came back uses its run and e: then nothing of it may go. */
static bool wait_unused(struct executions *e)
{
	size_t left;

	lock_take(&e->lock);
	left = map_count(e->runs) + e->stuck;
	while (left == 0 && e->armed > 0)
		cond_wait_until(&e->changed, &e->lock, INT64_MAX);
	lock_drop(&e->lock);
	if (left > 0)
		log_error("executions are left to a worker that does not return", KI("count", left));
	return left == 0;
}

bool executions_free(struct executions *e)
{
	if (!e)
		return true;
	if (!e->stopped)
		die(e);
	if (!wait_unused(e))
		return false;
	executions_destroy(e);
	return true;
}

void executions_stat(struct executions *e, struct executions_stat *ret)
{
	lock_take(&e->lock);
	*ret = (struct executions_stat){
		.running = e->busy,
		.queued = queue_waiting_locked(e) - e->parked,
		.parked = e->parked,
		.queue_max = e->queue_max,
		.defects = e->defects,
	};
	lock_drop(&e->lock);
}
