/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the pools of warm sessions filled: reserves slots in a step, and for each one job provisions a session without
 * a task, waits until it answers and makes the entry ready; others delete what is to be replaced. Entered by the GC's
 * thread (warm_round) and by jobs. Never creates for a slot that was not written before, and never forgets an entry
 * whose session may exist: what a job leaves behind in "making" is looked for by its token (sweep.c).
 */
#include "session/warm.h"

#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/failpoint.h"
#include "core/limits.h"
#include "core/log.h"

#define CALL_GRACE_MS 2000
#define DROP_FIRST_MS INT64_C(10000) /* as in release.c */
#define DROP_MOST_MS 60000
#define FAIL_FIRST_MS 1000
#define FAIL_MOST_MS 60000
#define POLL_FIRST_MS 50
#define POLL_MOST_MS 2000
#define CAPACITY_MOST_MS 10000
#define STORE_TRIES 10

struct warm_pool *warm_pool_of(struct sessions *s, const struct target *target)
{
	const struct registry *registry = s->config.registry;

	for (size_t i = 0; i < registry->target_count; i++) {
		if (registry->targets[i] == target)
			return &s->pools[i];
	}
	return NULL;
}

int warm_open(struct job *job, const struct warm_entry *entry, struct made *ret, struct err *err)
{
	char *state = NULL;
	size_t len = 0;

	*ret = (struct made){.ref = entry->ref,
			     .state = "",
			     .boot_id = entry->boot_id,
			     .root = entry->root,
			     .intent = entry->intent,
			     .workspace = "",
			     .task = "",
			     .created_ms = entry->created_ms,
			     .expires_ms = entry->expires_ms,
			     .isolation = isolation_level(entry->isolation)};
	if (!*entry->sealed_state)
		return 0;
	if (seal_open_box(job->s->config.seal, entry->key, entry->sealed_state, &state, &len, err)) {
		log_error("a warm session's state cannot be opened", KS("ref", entry->ref), KS("error", err->msg));
		return 0; /* the ref alone mostly suffices, and if not, it is put aside */
	}
	ret->state = arena_strndup(job->arena, state, len);
	ret->state_len = len;
	secret_wipe(state, len);
	free(state);
	return ret->state ? 0 : err_set(err, ERR_NOMEM, "no memory is left for a session's state");
}

/* ---- one entry, by the job that works on it ---- */

struct work {
	struct job *job;
	struct made made;
	bool have;	 /* made is in the entry */
	bool unrecorded; /* made exists, and the entry would not take it */
	int64_t create_until_ms;
};

struct change {
	struct job *job;
	int (*fn)(struct txn *txn, struct warm_entry *entry, void *arg, struct err *err);
	void *arg;
};

static int set_ready(struct txn *txn, struct warm_entry *entry, void *arg, struct err *err);

/* The step was applied before, and nobody heard: a task may have taken the session since. */
static bool is_ready_already(const struct change *change, const struct warm_entry *entry)
{
	const struct binding_session *session = change->arg;

	return change->fn == set_ready && (entry->state == WARM_READY || entry->state == WARM_RESERVED) &&
	       strcmp(entry->ref, session->ref) == 0;
}

/* The entry is this job's while it is in making and names this host as its owner. */
static int change_step(struct txn *txn, void *arg, struct err *err)
{
	struct change *change = arg;
	struct warm_entry entry;
	enum warm_state was;
	int r = warm_get(txn, change->job->key, &entry, err);

	if (r || is_ready_already(change, &entry))
		return r;
	if (entry.state != WARM_MAKING || strcmp(entry.owner, change->job->s->config.host_id) != 0)
		return err_set(err, ERR_CONFLICT, "the warm entry is no longer this host's");
	was = entry.state;
	r = change->fn(txn, &entry, change->arg, err);
	return r ? r : warm_put(txn, &entry, was, err);
}

static int change_entry(struct job *job, int (*fn)(struct txn *, struct warm_entry *, void *, struct err *), void *arg,
			struct err *err)
{
	struct change change = {job, fn, arg};
	int r = store_update(job->s->config.store, change_step, &change, err);

	for (int64_t tries = 1; r == ERR_STORE && tries < STORE_TRIES; tries++) {
		if (!job_wait(job, binding_backoff(tries, POLL_FIRST_MS, POLL_MOST_MS,
						   (uint64_t)clock_boot_ns())))
			break;
		r = store_update(job->s->config.store, change_step, &change, err);
	}
	return r;
}

static int copy_session(struct txn *txn, struct warm_entry *entry, const struct binding_session *session,
			struct err *err)
{
	struct arena *a = txn_arena(txn);

	entry->ref = arena_strdup(a, session->ref);
	entry->sealed_state = arena_strdup(a, session->sealed_state);
	entry->boot_id = arena_strdup(a, session->boot_id);
	entry->root = arena_strdup(a, session->root);
	entry->isolation = arena_strdup(a, session->isolation);
	entry->created_ms = session->created_ms;
	entry->expires_ms = binding_expiry(session->provider_expires_ms);
	if (!entry->ref || !entry->sealed_state || !entry->boot_id || !entry->root || !entry->isolation)
		return err_set(err, ERR_NOMEM, "no memory is left for a warm session");
	return 0;
}

static int set_made(struct txn *txn, struct warm_entry *entry, void *arg, struct err *err)
{
	return copy_session(txn, entry, arg, err);
}

static int set_ready(struct txn *txn, struct warm_entry *entry, void *arg, struct err *err)
{
	int r = copy_session(txn, entry, arg, err);

	warm_to_ready(entry, txn_now(txn));
	return r;
}

/* Nothing usable came of it. What exists, or may, is deleted; else the slot is free at once. */
static int set_failed(struct txn *txn, struct warm_entry *entry, void *arg, struct err *err)
{
	const bool *never_sent = arg;

	(void)err;
	if (*entry->ref)
		warm_to_releasing(entry, txn_now(txn));
	else if (*never_sent)
		entry->state = WARM_ABSENT;
	else
		entry->owner = ""; /* looked for by its token until it can no longer appear */
	entry->create_until_ms = binding_min(entry->create_until_ms, txn_now(txn)); /* nothing is sent any more */
	return 0;
}

static int record(struct work *work, int (*fn)(struct txn *, struct warm_entry *, void *, struct err *),
		  struct err *err)
{
	struct binding_session session;
	int r = made_seal(work->job, &work->made, &session, err);

	return r ? r : change_entry(work->job, fn, &session, err);
}

static int on_created(void *arg, const struct berth_session_info *info)
{
	struct work *work = arg;
	struct err err = {0};
	int r = made_copy(work->job->arena, info, &work->made, &err);

	if (r == 0)
		r = record(work, set_made, &err);
	work->have = r == 0;
	work->unrecorded = r != 0;
	if (r == 0 && FAILPOINT("warm.created"))
		r = err_set(&err, ERR_INTERNAL, "failpoint warm.created");
	return r;
}

static int until_ready(struct work *work, struct err *err)
{
	struct job *job = work->job;
	int r;

	for (int64_t tries = 1;; tries++) {
		r = create_ask(job, &work->made, call_await, NULL, job->deadline_ns, err);
		if (create_is_dead(r, &work->made))
			return err_set(err, ERR_SESSION_GONE, "the warm session died before it was ready");
		if (r != ERR_CAPACITY && (r == ERR_PROVIDER_TIMEOUT || !create_is_transient(r)))
			break;
		if (clock_left_ms(job->deadline_ns) == 0 ||
		    !job_wait(job,
			      binding_backoff(tries, POLL_FIRST_MS, r == ERR_CAPACITY ? CAPACITY_MOST_MS : POLL_MOST_MS,
					      (uint64_t)clock_boot_ns())))
			break;
	}
	if (r == 0 && work->made.isolation < job->target->isolation_wanted)
		r = err_set(err, ERR_PROVIDER,
			    "the warm session's isolation is weaker than the target's configuration demands");
	return r;
}

struct loaded {
	struct job *job;
	struct warm_entry entry;
	int64_t now;
};

static int load_step(struct txn *txn, void *arg, struct err *err)
{
	struct loaded *loaded = arg;
	struct store_row stored;
	int r = txn_get(txn, STORE_WARM, loaded->job->key, &stored, err);

	loaded->now = txn_now(txn);
	return r ? r
		 : warm_decode(loaded->job->arena, loaded->job->key, stored.doc, stored.doc_len, &loaded->entry, err);
}

static int load_entry(struct job *job, struct loaded *ret, struct err *err)
{
	char key[WARM_KEY_MAX + 1];

	/* From here on the job's key is its row's, to which what it seals is bound. */
	warm_key(job->target->conf->name, job->ident.task, key);
	memcpy(job->key, key, sizeof(key));
	*ret = (struct loaded){.job = job};
	return store_view(job->s->config.store, load_step, ret, err);
}

static int make(struct work *work, bool *ret_sent, struct err *err)
{
	const struct call_sink sink = {.created = on_created, .arg = work};
	struct job *job = work->job;
	struct loaded loaded;
	int64_t for_ms;
	int r = load_entry(job, &loaded, err);

	*ret_sent = true;
	if (r)
		return r;
	if (loaded.entry.state != WARM_MAKING)
		return err_set(err, ERR_CONFLICT, "the warm entry is not being made any more");
	if (*loaded.entry.ref) {
		work->have = true;
		r = warm_open(job, &loaded.entry, &work->made, err);
		return r ? r : until_ready(work, err);
	}
	/* Only within the time that its row says a create may be on its way. */
	for_ms = loaded.entry.create_until_ms - CALL_GRACE_MS - loaded.now;
	if (for_ms <= 0 || !session_may_act(job->s)) {
		*ret_sent = false;
		return err_set(err, ERR_STORE, "the store has not confirmed this host for too long");
	}
	r = create_send(job, NULL, loaded.entry.intent, &sink, clock_after_ms(for_ms), err);
	if (!work->have) {
		*ret_sent = create_is_open(r) || work->unrecorded;
		return r ? r : err_set(err, ERR_OUTCOME_UNKNOWN, "the provider named no warm session");
	}
	return until_ready(work, err);
}

static void pool_done(struct job *job, bool failed, int64_t retry_after_ms)
{
	struct sessions *s = job->s;
	struct warm_pool *pool = warm_pool_of(s, job->target);
	int64_t wait;

	lock_take(&s->lock);
	pool->making--;
	if (!failed) {
		pool->fails = 0;
		warm_pace_made(pool, warm_pace_is_crowd(local_crowd_ns_locked(s), clock_boot_ns()));
	} else if (clock_boot_ns() >= pool->next_ns) { /* those that failed together count once */
		pool->fails++;
		wait = binding_backoff(pool->fails, FAIL_FIRST_MS, FAIL_MOST_MS, (uint64_t)pool->fails);
		pool->next_ns = clock_after_ms(binding_max(wait, binding_min(retry_after_ms, FAIL_MOST_MS)));
	}
	wait = pool->next_ns;
	lock_drop(&s->lock);
	if (!failed) {
		gc_fill_at(s, clock_after_ms(GC_FILL_SOON_MS));
		return;
	}
	gc_wake_at(s, wait);
	session_kick_gc(s); /* what came of it may have to be deleted */
}

void warm_make_run(struct job *job)
{
	const struct conf *conf = job->s->config.conf;
	struct work work = {.job = job};
	struct err err = {0}, ignored = {0};
	bool sent, never;
	int r;

	job->deadline_ns = clock_after_ms(conf->scheduling_ms + conf->starting_ms);
	r = make(&work, &sent, &err);
	if (r == 0)
		r = record(&work, set_ready, &err);
	never = !sent;
	/* Stopped with the host: the entry stays in making, and the next process goes on with it. */
	if (r && !job_cancelled(job)) {
		log_warn("a warm session could not be made", KS("target", job->target->conf->name),
			 KS("code", err_name(r)), KS("reason", err.reason), KS("error", err.msg));
		if (r != ERR_CONFLICT)
			change_entry(job, set_failed, &never, &ignored);
	}
	if (r == 0)
		log_info("a warm session is ready", KS("target", job->target->conf->name), KS("ref", work.made.ref));
	pool_done(job, r != 0, err.retry_after_ms);
}

/* ---- deleting ---- */

struct dropped {
	struct job *job;
	const char *why; /* NULL: confirmed gone */
	int64_t next_ms, now;
};

static int drop_step(struct txn *txn, void *arg, struct err *err)
{
	struct dropped *dropped = arg;
	struct warm_entry entry;
	int r = warm_get(txn, dropped->job->key, &entry, err);

	if (r || entry.state != WARM_RELEASING)
		return r;
	dropped->now = txn_now(txn);
	if (dropped->why)
		warm_release_failed(&entry, dropped->now, dropped->job->s->rules.release_retry_max_ms, dropped->why);
	else
		entry.state = WARM_ABSENT;
	dropped->next_ms = entry.next_ms;
	return warm_put(txn, &entry, WARM_RELEASING, err);
}

static int64_t drop_ms(const struct warm_entry *entry)
{
	return binding_min(DROP_FIRST_MS << binding_min(entry->tries, 10), DROP_MOST_MS);
}

void warm_drop_run(struct job *job)
{
	struct dropped dropped = {.job = job};
	struct berth_session session = {.struct_size = sizeof(session)};
	struct loaded loaded;
	struct call *call = NULL;
	struct made made;
	struct err err = {0};
	int r = load_entry(job, &loaded, &err);

	if (r == 0 && loaded.entry.state != WARM_RELEASING)
		return;
	if (r == 0)
		r = warm_open(job, &loaded.entry, &made, &err);
	if (r == 0) {
		session.ref = (struct berth_str){made.ref, strlen(made.ref)};
		session.state = (struct berth_str){made.state, made.state_len};
		r = job_call(job, clock_after_ms(drop_ms(&loaded.entry)), NULL, call_let_go, &session, &call, &err);
		job_done(job, call);
	}
	if (r == ERR_NOT_FOUND)
		r = 0;
	if (r && job_cancelled(job))
		return;
	dropped.why = r ? err.msg : NULL;
	if (r)
		log_warn("a warm session could not be released; it is tried again",
			 KS("target", job->target->conf->name), KS("error", err.msg));
	if (store_update(job->s->config.store, drop_step, &dropped, &err))
		log_warn("the release of a warm session could not be recorded", KS("error", err.msg));
	else if (r)
		gc_wake_at(job->s, clock_after_ms(binding_max(dropped.next_ms - dropped.now, 0)));
	else
		session_kick_gc(job->s);
}

struct retire {
	const struct warm_entry *seen;
};

static int retire_step(struct txn *txn, void *arg, struct err *err)
{
	const struct retire *retire = arg;
	struct warm_entry entry;
	int r = warm_get(txn, retire->seen->key, &entry, err);

	if (r || entry.state != retire->seen->state || entry.state != WARM_READY)
		return r;
	warm_to_releasing(&entry, txn_now(txn));
	return warm_put(txn, &entry, WARM_READY, err);
}

int warm_retire(struct sessions *s, const struct warm_entry *entry, struct err *err)
{
	struct retire retire = {entry};

	return store_update(s->config.store, retire_step, &retire, err);
}

/* ---- the GC's part ---- */

static void start_making(struct sessions *s, struct target *target, const char *intent)
{
	struct warm_pool *pool = warm_pool_of(s, target);
	struct err err = {0};
	bool started = false;

	lock_take(&s->lock);
	pool->making++;
	lock_drop(&s->lock);
	if (job_start_background(s, JOB_WARM, target, intent, &started, &err))
		log_warn("a warm session is not made now", KS("target", target->conf->name), KS("error", err.msg));
	if (started)
		return;
	lock_take(&s->lock);
	pool->making--;
	lock_drop(&s->lock);
}

void warm_resume(struct sessions *s, struct target *target, const char *intent)
{
	start_making(s, target, intent);
}

struct refill {
	struct sessions *s;
	const struct target *target;
	char intents[WARM_MAKING_MAX][IDENT_ID_MAX + 1];
	size_t most, made;
};

static int add_slot(struct refill *refill, struct txn *txn, const char *intent, struct err *err)
{
	const struct sessions *s = refill->s;
	char key[WARM_KEY_MAX + 1], pool_key[65];
	struct warm_entry entry;
	int r;

	warm_key(refill->target->conf->name, intent, key);
	warm_pool_key(refill->target, pool_key);
	r = warm_decode(txn_arena(txn), key, NULL, 0, &entry, err);
	if (r)
		return r;
	entry.state = WARM_MAKING;
	entry.state_word = "making";
	entry.intent = intent;
	entry.pool_key = pool_key;
	entry.owner = s->config.host_id;
	entry.create_until_ms = txn_now(txn) + s->config.conf->starting_ms + CALL_GRACE_MS;
	return warm_put(txn, &entry, WARM_ABSENT, err);
}

static int refill_step(struct txn *txn, void *arg, struct err *err)
{
	struct refill *refill = arg;
	const struct conf_target *conf = refill->target->conf;
	char *counter = arena_printf(txn_arena(txn), "sessions:%s", conf->name);
	int64_t warm = 0, sessions = 0, room;
	bool drained = false;
	int r = counter ? warm_count(txn, conf->name, &warm, err) : ERR_NOMEM;

	refill->made = 0;
	if (r == 0)
		r = txn_count_get(txn, counter, &sessions, err);
	if (r == 0)
		r = target_drained(txn, refill->target, &drained, err);
	if (r)
		return r;
	room = drained ? 0 : conf->warm - warm;
	if (conf->max_sessions)
		room = binding_min(room, conf->max_sessions - sessions - warm);
	while (r == 0 && refill->made < refill->most && (int64_t)refill->made < room)
		r = add_slot(refill, txn, refill->intents[refill->made++], err);
	return r;
}

static void refill(struct sessions *s, struct target *target)
{
	struct warm_pool *pool = warm_pool_of(s, target);
	struct refill refill = {.s = s, .target = target};
	struct err err = {0};
	int64_t again_ns;

	lock_take(&s->lock);
	refill.most = warm_pace(pool, local_crowd_ns_locked(s), clock_boot_ns(), &again_ns);
	lock_drop(&s->lock);
	gc_fill_at(s, again_ns);
	if (refill.most == 0 || !session_may_act(s))
		return;
	for (size_t i = 0; i < refill.most; i++)
		ident_random(refill.intents[i], "", 32);
	if (store_update(s->config.store, refill_step, &refill, &err)) {
		log_warn("a pool of warm sessions could not be filled", KS("target", target->conf->name),
			 KS("error", err.msg));
		return;
	}
	for (size_t i = 0; i < refill.made; i++)
		start_making(s, target, refill.intents[i]);
	if (refill.made == refill.most)
		return;
	lock_take(&s->lock);
	pool->put_off_ns = 0;
	lock_drop(&s->lock);
}

void warm_fill(struct sessions *s)
{
	const struct registry *registry = s->config.registry;

	for (size_t i = 0; i < registry->target_count; i++) {
		struct target *target = registry->targets[i];

		if (target->plugin && target->conf->warm > 0)
			refill(s, target);
	}
}

struct due {
	struct buf keys; /* NUL-terminated, one after the other */
};

static bool note_due(const struct store_row *row, void *arg)
{
	struct due *due = arg;

	return buf_append(&due->keys, row->key, strlen(row->key) + 1) == 0;
}

static int due_step(struct txn *txn, void *arg, struct err *err)
{
	struct due *due = arg;

	buf_clear(&due->keys);
	return txn_scan_due(txn, STORE_WARM, txn_now(txn), SIZE_MAX, note_due, due, err);
}

static void start_drop(struct sessions *s, char *key)
{
	char *slash = strrchr(key, '/');
	struct target *target;
	struct err err = {0};
	bool started;

	if (!slash)
		return;
	*slash = '\0';
	target = registry_find(s->config.registry, key);
	if (target && target->plugin && job_start_background(s, JOB_DROP, target, slash + 1, &started, &err))
		log_warn("a warm session is not released now", KS("target", key), KS("error", err.msg));
}

static void drop_due(struct sessions *s)
{
	struct due due = {0};
	struct err err = {0};

	buf_init(&due.keys, LIMIT_GC_KEYS);
	if (store_view(s->config.store, due_step, &due, &err))
		log_warn("the warm sessions that are to go could not be read", KS("error", err.msg));
	for (size_t at = 0; at < due.keys.len;) {
		size_t len = strlen(due.keys.ptr + at) + 1;

		start_drop(s, due.keys.ptr + at);
		at += len;
	}
	buf_fini(&due.keys);
}

/* A provider hints at what this host and others deleted, too, and a sweep lists all sessions. So one is heard within seconds,
 * and one that hints all the time less and less often; who was quiet for a gap is new again. */
#define LOOK_MS 5000
#define HEAR_FIRST_NS (5 * CLOCK_NS_PER_S)
#define HEAR_MOST_NS (60 * CLOCK_NS_PER_S)

static bool is_hinted(struct warm_pool *pool, const struct target *target, int64_t now_ns)
{
	bool hinted = target_changes(target) != pool->heard;

	if (target->conf->warm == 0 || now_ns < pool->hear_ns)
		return false;
	if (!hinted)
		pool->hear_gap_ns = 0;
	return hinted;
}

static void put_off_hints(struct warm_pool *pool, int64_t now_ns)
{
	pool->hear_gap_ns = pool->hear_gap_ns ? binding_min(2 * pool->hear_gap_ns, HEAR_MOST_NS) : HEAR_FIRST_NS;
	pool->hear_ns = now_ns + pool->hear_gap_ns;
}

static void sweep_if_due(struct sessions *s, struct warm_pool *pool, struct target *target, int64_t now_ns)
{
	uint64_t changes = target_changes(target);
	bool hinted = is_hinted(pool, target, now_ns), started = false;
	struct err err = {0};

	if (!hinted && now_ns < pool->sweep_ns)
		return;
	pool->sweep_ns = clock_after_ms(s->config.conf->gc_interval_ms);
	if (job_start_background(s, JOB_SWEEP, target, target->conf->name, &started, &err))
		log_warn("a target is not swept now", KS("target", target->conf->name), KS("error", err.msg));
	if (!started) /* one that runs may have listed before the hint */
		return;
	pool->heard = changes;
	if (hinted)
		put_off_hints(pool, now_ns);
}

void warm_sweep(struct sessions *s)
{
	const struct registry *registry = s->config.registry;

	for (size_t i = 0; i < registry->target_count; i++) {
		if (registry->targets[i]->plugin)
			sweep_if_due(s, &s->pools[i], registry->targets[i], clock_boot_ns());
	}
}

int64_t warm_look_ns(const struct sessions *s)
{
	const struct registry *registry = s->config.registry;

	for (size_t i = 0; i < registry->target_count; i++) {
		if (registry->targets[i]->plugin && registry->targets[i]->conf->warm > 0)
			return clock_after_ms(LOOK_MS);
	}
	return INT64_MAX;
}

void warm_round(struct sessions *s)
{
	drop_due(s);
	warm_sweep(s);
	warm_fill(s);
}
