/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions as a whole: made from the configuration, started, stopped. The main thread only, but for the accessors. Stop order
 * matters: nothing new begins, the GC ends, jobs end or are let go (their rows are taken over by the next process), and the
 * keeper last, so that nothing is lost while jobs still run.
 */
#include "session/session.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/limits.h"
#include "core/log.h"
#include "plugin/call.h"
#include "session/placement.h"
#include "session/session_private.h"
#include "session/warm.h"

#define WAITING_MAX 1024
#define EXPIRY_MARGIN_MS 30000
#define PROVISIONERS_MAX 4096 /* blocked ones cost a stack each */
#define WORKERS_MAX 256
#define JOBS_QUEUED_MAX 100000
#define FIND_MS 30000
#define STOP_SLACK_MS 2000 /* for jobs that were told to stop */

static struct binding_rules make_rules(const struct conf *conf)
{
	return (struct binding_rules){
		.active_ms = conf->lease_active_ms,
		.idle_ms = conf->lease_idle_ms,
		.op_ttl_ms = conf->operation_ttl_ms,
		.owner_ttl_ms = conf->owner_ttl_ms,
		.max_age_ms = conf->session_max_age_ms,
		.teardown_wait_ms = conf->teardown_wait_ms,
		.retention_ms = conf->task_retention_ms,
		.expiry_margin_ms = EXPIRY_MARGIN_MS,
		.release_retry_max_ms = binding_max(conf->gc_interval_ms, 1000),
		.concurrency = (size_t)conf->task_concurrency,
		.waiting_max = WAITING_MAX,
	};
}

int sessions_new(const struct sessions_config *config, struct sessions **ret, struct err *err)
{
	struct sessions *s = calloc(1, sizeof(*s));

	if (!s)
		return err_set(err, ERR_NOMEM, "no memory is left for sessions");
	s->magic = SESSIONS_MAGIC;
	s->config = *config;
	s->rules = make_rules(config->conf);
	s->find_ms = FIND_MS;
	s->exclusive = store_is_exclusive(config->store);
	s->roles = conf_roles(config->conf);
	s->gc_at_ns = s->fill_at_ns = INT64_MAX;
	s->crowd_ns = INT64_MIN / 2; /* never */
	atomic_init(&s->confirmed_ns, clock_boot_ns());
	lock_init(&s->lock, LOCK_SESSION);
	cond_init(&s->keeper_wake);
	cond_init(&s->gc_wake);
	cond_init(&s->changed);
	s->tasks = map_new();
	s->provisioners = pool_new("provision", PROVISIONERS_MAX, JOBS_QUEUED_MAX);
	s->workers = pool_new("release", WORKERS_MAX, JOBS_QUEUED_MAX);
	s->pools = calloc(config->registry->target_count + 1, sizeof(*s->pools));
	if (!s->tasks || !s->provisioners || !s->workers || !s->pools) {
		sessions_free(s);
		return err_set(err, ERR_NOMEM, "no memory is left for sessions");
	}
	*ret = s;
	return 0;
}

void sessions_hook(struct sessions *s, const struct session_hooks *hooks)
{
	assert(!s->keeper_runs && !s->gc_runs);
	s->hooks = *hooks;
}

/* ---- start ---- */

static int restart_row(struct sessions *s, struct txn *txn, struct row *row, void *arg, struct err *err)
{
	(void)txn;
	(void)arg;
	(void)err;
	binding_restart(&row->b, row->now, &s->rules, s->config.host_id, &row->changed);
	return 0;
}

struct restart {
	struct sessions *s;
	struct buf keys;
};

static bool note_key(const struct store_row *row, void *arg)
{
	struct restart *restart = arg;

	return buf_append(&restart->keys, row->key, strlen(row->key) + 1) == 0;
}

/* Whatever the former process held has its deadline within one time to live. */
static int scan_step(struct txn *txn, void *arg, struct err *err)
{
	struct restart *restart = arg;
	const struct binding_rules *rules = &restart->s->rules;
	int64_t upto = binding_after(txn_now(txn), binding_max(rules->op_ttl_ms, rules->owner_ttl_ms));

	buf_clear(&restart->keys);
	return txn_scan_due(txn, STORE_TASK, upto, SIZE_MAX, note_key, restart, err);
}

static int free_former(struct sessions *s, struct err *err)
{
	struct restart restart = {.s = s};
	int r;

	buf_init(&restart.keys, LIMIT_GC_KEYS);
	r = store_view(s->config.store, scan_step, &restart, err);
	if (r == 0 && restart.keys.error)
		r = err_set(err, restart.keys.error, "no memory is left for the rows of the former process");
	for (size_t at = 0; r == 0 && at < restart.keys.len; at += strlen(restart.keys.ptr + at) + 1) {
		struct ident ident;

		if (split_key(restart.keys.ptr + at, &ident))
			r = row_update(s, &ident, restart_row, NULL, err);
		if (r != ERR_CORRUPT)
			continue;
		log_error("a task's row cannot be read, it is left alone", KS("workspace", ident.workspace),
			  KS("task", ident.task), KS("error", err->msg));
		err_clear(err);
		r = 0;
	}
	buf_fini(&restart.keys);
	return r;
}

int sessions_start(struct sessions *s, struct err *err)
{
	int r = keeper_beat(s, err);

	if (r == 0)
		r = store_now(s->config.store, &s->started_ms, err);
	if (r == 0)
		r = sweep_note_store(s, err);
	if (r == 0 && s->exclusive)
		r = free_former(s, err);
	if (r)
		return r;
	s->keeper_runs = thread_start(&s->keeper, "keeper", keeper_main, s) == 0;
	if (s->keeper_runs && !(s->roles & ROLE_GC))
		return 0;
	s->gc_runs = s->keeper_runs && thread_start(&s->gc, "gc", gc_main, s) == 0;
	if (s->gc_runs)
		return 0;
	sessions_stop(s, clock_after_ms(0));
	return err_set(err, ERR_NOMEM, "the threads of the keeper and the GC cannot be made");
}

/* ---- stop ---- */

static bool wake_waiters(const char *key, void *value, void *arg)
{
	const struct local *local = value;
	struct buf *keys = arg;

	(void)key;
	if (local->kept)
		buf_append(keys, local->key, strlen(local->key) + 1);
	return true;
}

/* Whoever waits for a session is answered now. */
static void answer_waiters(struct sessions *s)
{
	char key[WATCH_KEY_MAX];
	struct buf keys;

	buf_init(&keys, LIMIT_GC_KEYS);
	lock_take(&s->lock);
	map_each(s->tasks, wake_waiters, &keys);
	lock_drop(&s->lock);
	for (size_t at = 0; at < keys.len; at += strlen(keys.ptr + at) + 1) {
		snprintf(key, sizeof(key), "task:%s", keys.ptr + at);
		watch_notify(s->config.watch, key);
	}
	buf_fini(&keys);
}

/* How many are left at the deadline. */
static size_t wait_for_jobs(struct sessions *s, int64_t deadline_ns)
{
	size_t left;

	lock_take(&s->lock);
	while (s->jobs && cond_wait_until(&s->changed, &s->lock, deadline_ns))
		continue;
	left = s->jobs;
	lock_drop(&s->lock);
	return left;
}

static bool cancel_local(const char *key, void *value, void *arg)
{
	const struct local *local = value;

	(void)key;
	(void)arg;
	for (struct job *job = local->jobs; job; job = job->next)
		job_cancel_locked(job, BERTH_CANCEL_DETACH);
	return true;
}

/* Nobody waits for these, and the next process goes on with them. */
static bool cancel_background(const char *key, void *value, void *arg)
{
	return *key != '/' || cancel_local(key, value, arg);
}

static void cancel_jobs(struct sessions *s)
{
	lock_take(&s->lock);
	map_each(s->tasks, cancel_local, NULL);
	lock_drop(&s->lock);
}

static void stop_thread(struct sessions *s, pthread_t thread, bool *runs, bool *stop, struct cond *wake, int64_t deadline_ns,
			const char *name)
{
	lock_take(&s->lock);
	*stop = true;
	cond_wake_all(wake);
	cond_wake_all(&s->changed);
	lock_drop(&s->lock);
	if (*runs && !thread_join_until(thread, deadline_ns))
		log_error("a thread did not end", KS("thread", name));
	else
		*runs = false;
}

void sessions_stop(struct sessions *s, int64_t deadline_ns)
{
	int64_t last_ns;
	size_t left;

	atomic_store(&s->stopping, true);
	answer_waiters(s);
	last_ns = binding_max(deadline_ns, clock_after_ms(STOP_SLACK_MS));
	stop_thread(s, s->gc, &s->gc_runs, &s->gc_stop, &s->gc_wake, last_ns, "gc");
	lock_take(&s->lock);
	map_each(s->tasks, cancel_background, NULL);
	lock_drop(&s->lock);
	if (wait_for_jobs(s, deadline_ns)) {
		cancel_jobs(s);
		last_ns = binding_max(deadline_ns, clock_after_ms(STOP_SLACK_MS));
		left = wait_for_jobs(s, last_ns);
		if (left)
			log_error("work on sessions did not end", KI("jobs", (int64_t)left));
	}
	pool_stop(s->provisioners, last_ns);
	pool_stop(s->workers, last_ns);
	stop_thread(s, s->keeper, &s->keeper_runs, &s->keeper_stop, &s->keeper_wake, clock_after_ms(STOP_SLACK_MS),
		    "keeper");
}

static void sessions_destroy(struct sessions *s)
{
	pool_free(s->provisioners);
	pool_free(s->workers);
	map_free(s->tasks);
	for (size_t i = 0; s->pools && i < s->config.registry->target_count; i++)
		sweep_forget(&s->pools[i]);
	free(s->pools);
	cond_fini(&s->keeper_wake);
	cond_fini(&s->gc_wake);
	cond_fini(&s->changed);
	lock_fini(&s->lock);
	s->magic = 0;
	free(s);
}

bool sessions_free(struct sessions *s)
{
	if (!s)
		return true;
	if (s->keeper_runs || s->gc_runs || wait_for_jobs(s, clock_boot_ns())) {
		log_error("sessions are left as they are: a thread still runs");
		return false;
	}
	sessions_destroy(s);
	return true;
}

/* ---- accessors ---- */

int session_placeable(struct sessions *s, const char *region, struct err *err)
{
	const struct registry *registry = s->config.registry;
	struct placement_target *targets = calloc(registry->target_count + 1, sizeof(*targets));
	size_t pick;
	int r;

	if (!targets)
		return err_set(err, ERR_NOMEM, "no memory is left for placement");
	for (size_t i = 0; i < registry->target_count; i++) {
		const struct conf_target *conf = registry->targets[i]->conf;

		targets[i] = (struct placement_target){
			.name = conf->name,
			.region = conf->region ? conf->region : "",
			.down = !registry->targets[i]->plugin,
			.drained = conf->drained,
		};
	}
	r = placement_pick(targets, registry->target_count, region, s->config.conf->placement_pin, &pick, err);
	free(targets);
	return r;
}
