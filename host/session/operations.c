/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Begin and end of operations: the parts that callers put into their own steps, and the blocking forms made of them. Any
 * thread; the *_step functions run on the store's thread, take no lock and may run again. A lost reply of the store is
 * harmless here: begin and end are repeated under the same operation id.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/failpoint.h"
#include "core/limits.h"
#include "core/log.h"
#include "session/placement.h"
#include "session/session_private.h"
#include "session/warm.h"

#define RETRY_FIRST_MS 50
#define RETRY_MOST_MS 2000
#define LOOK_MS 4000 /* who waits for another host, whose notice can be lost, looks by itself */

/* ---- begin ---- */

void session_begin_prepare(struct sessions *s, struct session_begin *begin)
{
	assert(s->magic == SESSIONS_MAGIC && strlen(begin->op_id) <= IDENT_ID_MAX);
	begin->outcome = BEGIN_WAIT;
	begin->retry_at_ms = begin->seen_fence = begin->waits_fence = 0;
	begin->doc = NULL;
	memset(&begin->effect, 0, sizeof(begin->effect));
	ident_random(begin->intent, "", 32);
}

void session_begin_fini(struct session_begin *begin)
{
	free(begin->doc);
	begin->doc = NULL;
}

int target_drained(struct txn *txn, const struct target *target, bool *ret, struct err *err)
{
	struct store_row row;
	struct json_object *json = NULL, *value = NULL;
	int r = txn_get(txn, STORE_TARGET, target->conf->name, &row, err);

	*ret = target->conf->drained;
	if (r || !row.doc)
		return r;
	r = json_parse(row.doc, row.doc_len, &json, err);
	if (r == 0 && json_object_object_get_ex(json, "drained", &value))
		*ret |= json_object_get_boolean(value);
	json_object_put(json);
	return r;
}

static int look_at_target(struct txn *txn, const struct target *target, struct placement_target *ret, struct err *err)
{
	char *counter = arena_printf(txn_arena(txn), "sessions:%s", target->conf->name);
	int r;

	*ret = (struct placement_target){
		.name = target->conf->name,
		.region = target->conf->region ? target->conf->region : "",
		.down = !target->plugin,
		.degraded = target_is_stuck(target),
		.max_sessions = target->conf->max_sessions,
	};
	if (!counter)
		return err_set(err, ERR_NOMEM, "no memory is left for placement");
	r = target_drained(txn, target, &ret->drained, err);
	return r ? r : txn_count_get(txn, counter, &ret->sessions, err);
}

/* Warm sessions take their target's room too, but the one that is taken now needs none. */
static int look_at_pool(struct sessions *s, struct txn *txn, const struct target *target, int64_t lasts_ms,
			struct placement_target *at, struct warm_entry *ret, struct err *err)
{
	int64_t warm = 0;
	int r = warm_pick(s, txn, target, lasts_ms, ret, err);

	if (r == 0 && at->max_sessions)
		r = warm_count(txn, target->conf->name, &warm, err);
	at->sessions += warm - (warm > 0 && ret->state == WARM_READY);
	return r;
}

/* Placement's answer goes into in; only a store that fails is an error here. */
static int place(struct sessions *s, struct txn *txn, const char *region, struct binding_begin *in, struct err *place_err,
		 struct warm_entry *ret_warm, struct err *err)
{
	const struct registry *registry = s->config.registry;
	struct placement_target *targets = arena_alloc(txn_arena(txn), (registry->target_count + 1) * sizeof(*targets));
	struct warm_entry *warm = arena_alloc(txn_arena(txn), (registry->target_count + 1) * sizeof(*warm));
	size_t pick = 0;

	if (!targets || !warm)
		return err_set(err, ERR_NOMEM, "no memory is left for placement");
	for (size_t i = 0; i < registry->target_count; i++) {
		int r = look_at_target(txn, registry->targets[i], &targets[i], err);

		if (r == 0)
			r = look_at_pool(s, txn, registry->targets[i], in->lasts_ms, &targets[i], &warm[i], err);

		if (r)
			return r;
	}
	if (placement_pick(targets, registry->target_count, region, s->config.conf->placement_pin, &pick, place_err)) {
		in->place_err = place_err;
		return 0;
	}
	in->target = targets[pick].name;
	in->target_region = targets[pick].region;
	in->settle_ms = registry->targets[pick]->create_settle_ms;
	*ret_warm = warm[pick];
	in->warm = warm[pick].state == WARM_READY ? warm[pick].key : NULL;
	return 0;
}

static int fresh_numbers(struct txn *txn, const struct row *row, struct binding_begin *in, struct err *err)
{
	int r = row_next_fence(txn, row, &in->fence, err);

	return r ? r : txn_next(txn, &in->incarnation, err);
}

static bool is_reachable(const struct binding *b)
{
	return b->state == BINDING_LIVE || (b->state == BINDING_CAPTURING && b->cause == CAUSE_EXPIRED);
}

static int check_known(const struct row *row, struct err *err)
{
	return row->existed ? 0 : err_set(err, ERR_NOT_FOUND, "the task is not known");
}

static int check_only_live(const struct row *row, struct err *err)
{
	if (!is_reachable(&row->b) || row->b.doom != CAUSE_NONE)
		return err_set(err, ERR_SANDBOX_EXPIRED, "the task has no live session");
	return 0;
}

static int check_target(struct sessions *s, const struct binding *b, struct err *err)
{
	const struct target *target = registry_find(s->config.registry, b->target);

	if (!target || !target->plugin)
		return err_set(err, ERR_PROVIDER_UNAVAILABLE,
			       "the task's session is on target %.64s, which is not available", b->target);
	if (!target_is_stuck(target))
		return 0;
	err_set(err, ERR_PROVIDER_UNAVAILABLE,
		"the task's session is on target %.64s, which does not come back from its calls", b->target);
	err_reason(err, "target_degraded");
	return ERR_PROVIDER_UNAVAILABLE;
}

static int decide(struct sessions *s, struct txn *txn, struct row *row, struct session_begin *begin, struct err *err)
{
	struct err place_err = {0};
	struct warm_entry warm = {0};
	struct binding_begin in = {
		.host = s->config.host_id,
		.op_id = begin->op_id,
		.op_kind = begin->op_kind,
		.region = begin->region ? begin->region : "",
		.lasts_ms = begin->lasts_ms,
		.seen_fence = begin->seen_fence,
		.intent = begin->intent,
	};
	int r = 0;

	if (begin->only_known || begin->only_live)
		r = check_known(row, err);
	if (r == 0 && begin->only_live)
		r = check_only_live(row, err);
	if (r == 0 && is_reachable(&row->b))
		r = check_target(s, &row->b, err);
	if (r == 0 && row->b.state == BINDING_GONE)
		r = place(s, txn, in.region, &in, &place_err, &warm, err);
	if (r == 0 && in.target)
		r = fresh_numbers(txn, row, &in, err);
	if (r == 0)
		r = binding_begin(txn_arena(txn), &row->b, row->now, &s->rules, &in, &begin->outcome, &begin->retry_at_ms,
				  &row->changed, err);
	if (r == 0 && row->was == BINDING_GONE && begin->outcome == BEGIN_PROVISION && in.warm)
		r = warm_reserve(txn, &warm, row->key, err);
	if (r == 0 && begin->only_live && begin->outcome == BEGIN_WAIT)
		r = err_set(err, row->b.state == BINDING_LIVE ? ERR_SESSION_BUSY : ERR_SANDBOX_EXPIRED,
			    "the task's session takes no operation now");
	return r;
}

static int check_may_begin(struct sessions *s, struct err *err)
{
	if (atomic_load(&s->stopping))
		return err_set(err, ERR_SHUTTING_DOWN, "the host is stopping");
	if (!session_may_act(s))
		return err_set(err, ERR_STORE, "the store has not confirmed this host for too long");
	/* A task without a row may have a session that its host has not told the new store of. */
	if (atomic_load(&s->lost)) {
		err_set(err, ERR_STORE, "the state was lost, and a new store is being told what runs");
		err_reason(err, "store_lost");
		return ERR_STORE;
	}
	return 0;
}

static int64_t look_ms(const struct sessions *s)
{
	return store_is_exclusive(s->config.store) ? s->rules.op_ttl_ms : binding_min(LOOK_MS, s->rules.op_ttl_ms);
}

/* A session that another host makes or removes comes to nothing when that host is dead: whoever collects looks as soon as the
 * owner's time is over, not in its next round, and this begin asks again then. */
static int wait_for_owner(struct sessions *s, struct txn *txn, const struct row *row, struct session_begin *begin, struct err *err)
{
	int64_t left = row->b.owner_until_ms - row->now;

	if (begin->outcome != BEGIN_WAIT)
		return 0;
	begin->retry_at_ms = binding_min(begin->retry_at_ms, row->now + look_ms(s));
	if (row->b.state == BINDING_LIVE || !*row->b.owner || strcmp(row->b.owner, s->config.host_id) == 0)
		return 0;
	begin->over_in_ms = left > 0 ? left : 0;
	if (left > 0 && row->b.owner_until_ms < begin->retry_at_ms)
		begin->retry_at_ms = row->b.owner_until_ms;
	return left > 0 || (s->roles & ROLE_GC) ? 0 : txn_notify(txn, SESSION_NOTICE_GC, err);
}

/* The keeper sees only what is held when it comes by, which short commands never are. */
static bool is_to_extend(struct sessions *s, const struct row *row)
{
	const struct target *target = registry_find(s->config.registry, row->b.target);

	return target && extend_is_due(s, target, row->now, row->b.ceiling_ms, row->b.provider_expires_ms);
}

int session_begin_step(struct sessions *s, struct txn *txn, struct session_begin *begin, struct err *err)
{
	struct row row;
	bool refill;
	int r;

	session_begin_fini(begin);
	begin->outcome = BEGIN_WAIT;
	begin->waits_fence = begin->retry_at_ms = 0;
	begin->over_in_ms = -1;
	r = check_may_begin(s, err);
	if (r == 0)
		r = row_get(s, txn, &begin->ident, &row, err);
	if (r == 0)
		r = decide(s, txn, &row, begin, err);
	if (r == 0)
		r = row_put(s, txn, &row, &begin->effect, err);
	if (r == 0)
		r = wait_for_owner(s, txn, &row, begin, err);
	refill = r == 0 && begin->outcome == BEGIN_PROVISION && *row.b.warm; /* the pool, by whoever collects */
	if (refill && !(s->roles & ROLE_GC))
		r = txn_notify(txn, SESSION_NOTICE_GC, err);
	if (r)
		return r;
	if (row.b.state == BINDING_PROVISIONING || row.b.state == BINDING_HYDRATING)
		begin->waits_fence = row.b.fence;
	begin->effect.refill = refill;
	begin->extends = begin->outcome == BEGIN_LIVE && is_to_extend(s, &row);
	if (begin->outcome == BEGIN_WAIT)
		return 0;
	return row_text(&row.b, &begin->doc, err);
}

/* The operation is in the row and cannot be used after all. */
static void take_back(struct sessions *s, const struct ident *ident, const char *op_id);

static int begin_live(struct sessions *s, struct session_begin *begin, struct session_hold **ret_hold, struct err *err)
{
	int r = hold_make(s, &begin->ident, begin->op_id, begin->doc, ret_hold, err);

	if (r)
		take_back(s, &begin->ident, begin->op_id);
	else if (begin->extends)
		extend_start(s, &begin->ident, (*ret_hold)->incarnation);
	return r;
}

struct start_failed {
	int64_t fence;
	const struct err *why;
};

static int set_start_failed(struct sessions *s, struct txn *txn, struct row *row, void *arg, struct err *err)
{
	const struct start_failed *failed = arg;

	(void)s;
	row->changed = row->notify = true;
	return binding_fail(txn_arena(txn), &row->b, row->now, failed->fence, failed->why, err);
}

static int begin_provision(struct sessions *s, struct session_begin *begin, struct err *err)
{
	struct start_failed failed = {.why = err};
	struct arena *arena = arena_new(LIMIT_ROW * 4);
	struct err ignored;
	struct binding b;
	int r = arena ? 0 : err_set(err, ERR_NOMEM, "no memory is left to provision a session");

	if (r == 0)
		r = binding_decode(arena, &begin->ident, begin->doc, strlen(begin->doc), &b, err);
	if (r == 0) {
		failed.fence = b.fence;
		if (*b.warm && FAILPOINT("warm.reserved"))
			r = err_set(err, ERR_INTERNAL, "failpoint warm.reserved");
		else
			r = job_start(s, JOB_PROVISION, &begin->ident, b.fence, b.incarnation, err);
		if (r)
			row_update(s, &begin->ident, set_start_failed, &failed, &ignored);
	}
	arena_free(arena);
	/* The next provisioning of this caller is another one. */
	ident_random(begin->intent, "", 32);
	begin->outcome = BEGIN_WAIT;
	return r;
}

int session_begin_done(struct sessions *s, struct session_begin *begin, struct session_hold **ret_hold, struct err *err)
{
	int r = 0;

	*ret_hold = NULL;
	if (begin->waits_fence)
		begin->seen_fence = begin->waits_fence;
	row_effect(s, &begin->ident, &begin->effect);
	memset(&begin->effect, 0, sizeof(begin->effect));
	if (begin->over_in_ms >= 0)
		gc_wake_at(s, clock_after_ms(binding_max(begin->over_in_ms, store_hold_ms(s->config.store))));
	if (begin->outcome == BEGIN_LIVE)
		r = begin_live(s, begin, ret_hold, err);
	else if (begin->outcome == BEGIN_PROVISION)
		r = begin_provision(s, begin, err);
	session_begin_fini(begin);
	return r;
}

/* ---- giving up a wait ---- */

static int set_unwaited(struct sessions *s, struct txn *txn, struct row *row, void *arg, struct err *err)
{
	(void)txn;
	(void)err;
	binding_end(&row->b, row->now, &s->rules, arg, true, false, &row->changed);
	row->notify = row->changed;
	return 0;
}

int session_unwait_step(struct sessions *s, struct txn *txn, const struct ident *ident, const char *op_id, struct err *err)
{
	struct session_effect effect;
	struct row row;
	int r = row_get(s, txn, ident, &row, err);

	if (r)
		return r;
	binding_end(&row.b, row.now, &s->rules, op_id, true, false, &row.changed);
	row.notify = row.changed; /* the next one's turn may have come, and it may wait on another host */
	return row_put(s, txn, &row, &effect, err);
}

void session_unwait_done(struct sessions *s, const struct ident *ident)
{
	const struct session_effect effect = {.notify = true, .kick = true};

	row_effect(s, ident, &effect);
}

static void take_back(struct sessions *s, const struct ident *ident, const char *op_id)
{
	char id[IDENT_ID_MAX + 1];
	struct err err = {0};

	memcpy(id, op_id, strlen(op_id) + 1);
	if (row_update(s, ident, set_unwaited, id, &err))
		log_warn("an operation that gave up waiting could not be taken back", KS("task", ident->task),
			 KS("operation", op_id), KS("error", err.msg)); /* its time to live ends it */
}

/* ---- acquire ---- */

struct acquire {
	struct sessions *s;
	struct session_begin *begin;
	struct session_hold *hold;
	struct kept wait; /* renewed while it waits */
	bool waits;
	int code;
	struct err err;
};

static int acquire_step(struct txn *txn, void *arg, struct err *err)
{
	struct acquire *acquire = arg;

	return session_begin_step(acquire->s, txn, acquire->begin, err);
}

static bool acquire_try(void *arg)
{
	struct acquire *acquire = arg;
	struct sessions *s = acquire->s;

	memset(&acquire->err, 0, sizeof(acquire->err));
	acquire->code = store_update(s->config.store, acquire_step, acquire, &acquire->err);
	if (acquire->code == 0)
		acquire->code = session_begin_done(s, acquire->begin, &acquire->hold, &acquire->err);
	if (acquire->code || acquire->hold)
		return true;
	if (!acquire->waits && kept_add(s, &acquire->wait, &acquire->begin->ident, acquire->begin->op_id) == 0)
		acquire->waits = true;
	return false;
}

int session_acquire(struct sessions *s, struct session_begin *begin, int64_t deadline_ns, struct session_hold **ret,
		    struct err *err)
{
	struct acquire acquire = {.s = s, .begin = begin};
	char key[WATCH_KEY_MAX];
	bool done = false;

	session_begin_prepare(s, begin);
	task_watch_key(&begin->ident, key);
	while (!done) {
		/* Also looks without being told. */
		int64_t until = binding_min(clock_after_ms(look_ms(s)), deadline_ns);

		done = watch_block(s->config.watch, key, acquire_try, &acquire, until);
		if (!done && until >= deadline_ns)
			break;
	}
	if (acquire.waits)
		kept_remove(s, &acquire.wait);
	if (!acquire.hold && (acquire.waits || acquire.code == ERR_STORE))
		take_back(s, &begin->ident, begin->op_id);
	if (!done)
		acquire.code = err_set(&acquire.err, ERR_SESSION_BUSY, "the task's session was not ready in time");
	if (acquire.code && err)
		*err = acquire.err;
	*ret = acquire.hold;
	return acquire.code;
}

/* ---- end ---- */

int session_end_step(struct sessions *s, struct txn *txn, const struct session_hold *hold, const struct session_end *end,
		     struct err *err)
{
	struct session_effect *effect = &hold->private->effect;
	struct row row;
	int r = row_get(s, txn, &hold->ident, &row, err);

	if (r)
		return r;
	if (row.b.incarnation == hold->incarnation)
		binding_end(&row.b, row.now, &s->rules, hold->op_id, end->proven, end->lost, &row.changed);
	row.notify = row.changed;
	r = row_put(s, txn, &row, effect, err);
	if (!row.changed) /* ended already, maybe by a try of this whose answer was lost: that one told nobody here */
		effect->notify = effect->kick = true;
	return r;
}

void session_end_done(struct sessions *s, struct session_hold *hold)
{
	struct session_effect effect = hold->private->effect;
	struct ident ident = hold->ident;

	hold_free(s, hold);
	row_effect(s, &ident, &effect);
}

struct end {
	struct sessions *s;
	const struct session_hold *hold;
	const struct session_end *end;
};

static int end_step(struct txn *txn, void *arg, struct err *err)
{
	const struct end *end = arg;

	return session_end_step(end->s, txn, end->hold, end->end, err);
}

/* Waits between two tries; false once the host stops. */
static bool pause_release(struct sessions *s, int64_t tries)
{
	int64_t until = clock_after_ms(binding_backoff(tries, RETRY_FIRST_MS, RETRY_MOST_MS,
						       (uint64_t)clock_boot_ns()));
	bool stopping;

	lock_take(&s->lock);
	while (!s->keeper_stop && cond_wait_until(&s->changed, &s->lock, until))
		continue;
	stopping = s->keeper_stop;
	lock_drop(&s->lock);
	return !stopping;
}

void session_release(struct sessions *s, struct session_hold *hold, const struct session_end *end)
{
	struct end arg = {s, hold, end};
	struct err err = {0};
	int r = store_update(s->config.store, end_step, &arg, &err);

	for (int64_t tries = 1; r == ERR_STORE && pause_release(s, tries); tries++)
		r = store_update(s->config.store, end_step, &arg, &err);
	if (r)
		log_error("the end of an operation could not be stored", KS("task", hold->ident.task),
			  KS("operation", hold->op_id), KS("error", err.msg)); /* its time to live ends it */
	session_end_done(s, hold);
}

void session_detach(struct sessions *s, struct session_hold *hold)
{
	hold_free(s, hold);
}

/* ---- resume ---- */

struct resume {
	const char *op_id;
	char *doc;
};

static int set_resumed(struct sessions *s, struct txn *txn, struct row *row, void *arg, struct err *err)
{
	struct resume *resume = arg;

	(void)txn;
	free(resume->doc);
	resume->doc = NULL;
	if (!binding_resume(&row->b, row->now, &s->rules, resume->op_id, s->config.host_id))
		return err_set(err, ERR_SESSION_GONE, "the operation's session is gone");
	row->changed = true;
	return row_text(&row->b, &resume->doc, err);
}

int session_resume(struct sessions *s, const struct ident *ident, const char *op_id, struct session_hold **ret,
		   struct err *err)
{
	struct resume resume = {.op_id = op_id};
	int r = row_update(s, ident, set_resumed, &resume, err);

	if (r == 0)
		r = hold_make(s, ident, op_id, resume.doc, ret, err);
	free(resume.doc);
	return r;
}
