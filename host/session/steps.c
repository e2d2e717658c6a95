/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of tasks inside store steps: read, written back, counted per target; and what follows a commit. The functions with a
 * txn run on the store's thread, may run again from the start, and take no lock; row_update and row_effect run on any thread
 * and hold no lock over the store.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/limits.h"
#include "session/session_private.h"
#include "session/warm.h"

void task_watch_key(const struct ident *ident, char ret_key[WATCH_KEY_MAX])
{
	snprintf(ret_key, WATCH_KEY_MAX, "task:%s/%s", ident->workspace, ident->task);
}

/* A row that is not gone takes one of its target's sessions. */
static const char *counted_target(const struct binding *b)
{
	return b->state != BINDING_GONE && *b->target ? b->target : NULL;
}

int row_get(struct sessions *s, struct txn *txn, const struct ident *ident, struct row *ret, struct err *err)
{
	struct store_row stored;
	int r;

	(void)s;
	memset(ret, 0, sizeof(*ret));
	ret->ident = *ident;
	ident_key(ident, ret->key);
	r = txn_get(txn, STORE_TASK, ret->key, &stored, err);
	if (r)
		return r;
	r = binding_decode(txn_arena(txn), ident, stored.doc, stored.doc_len, &ret->b, err);
	if (r)
		return r;
	ret->existed = stored.doc != NULL;
	ret->now = txn_now(txn);
	ret->was = ret->b.state;
	ret->was_incarnation = ret->b.incarnation;
	ret->counted = counted_target(&ret->b);
	return 0;
}

int row_next_fence(struct txn *txn, const struct row *row, uint64_t *ret, struct err *err)
{
	int r = txn_next(txn, ret, err);

	if (r || row->b.fence < 0 || *ret > (uint64_t)row->b.fence)
		return r;
	return err_set(err, ERR_CORRUPT, "binding of task %s: its fence is beyond the store's counter",
		       row->ident.task);
}

static int count_row(struct txn *txn, const char *target, int64_t delta, struct err *err)
{
	char *name = arena_printf(txn_arena(txn), "sessions:%s", target);

	if (!name)
		return err_set(err, ERR_NOMEM, "no memory is left for a counter's name");
	return txn_count_add(txn, name, delta, err);
}

static int recount(struct txn *txn, const struct row *row, struct err *err)
{
	const char *now = counted_target(&row->b);
	int r = 0;

	if (row->counted && now && strcmp(row->counted, now) == 0)
		return 0;
	if (row->counted)
		r = count_row(txn, row->counted, -1, err);
	if (r == 0 && now)
		r = count_row(txn, now, 1, err);
	return r;
}

static bool has_session(enum binding_state state)
{
	return state == BINDING_PROVISIONING || state == BINDING_HYDRATING || state == BINDING_LIVE;
}

static void note_effect(const struct row *row, struct session_effect *ret)
{
	enum binding_state now = row->b.state;

	ret->notify = row->notify || row->was != now;
	ret->ended = has_session(row->was) && !has_session(now) && now != BINDING_CAPTURING;
	ret->kick = row->was != now && (now == BINDING_RELEASING || now == BINDING_QUARANTINED) && !*row->b.owner;
	ret->incarnation = row->was_incarnation;
	ret->cause = row->b.cause;
}

/* Who waits for the task on another host, and who collects it when this one does not. */
static int tell_others(struct sessions *s, struct txn *txn, const struct row *row, int64_t due_ms,
		       const struct session_effect *effect, struct err *err)
{
	char key[WATCH_KEY_MAX];
	int r = 0;

	if (!(s->roles & ROLE_GC) && (effect->kick || (due_ms > 0 && due_ms <= row->now)))
		r = txn_notify(txn, SESSION_NOTICE_GC, err);
	if (r || !effect->notify)
		return r;
	task_watch_key(&row->ident, key);
	return txn_notify(txn, key, err);
}

int row_put(struct sessions *s, struct txn *txn, struct row *row, struct session_effect *ret, struct err *err)
{
	struct store_row stored = {.key = row->key, .group = row->ident.workspace};
	struct buf doc;
	int r;

	memset(ret, 0, sizeof(*ret));
	if (row->delete)
		return txn_delete(txn, STORE_TASK, row->key, err);
	if (!row->changed)
		return 0;
	r = row->b.state == BINDING_GONE ? warm_unbind(txn, &row->b, err) : 0;
	if (r)
		return r;
	buf_init(&doc, LIMIT_ROW);
	r = binding_encode(&row->b, &doc);
	if (r) {
		err_set(err, r, "the row of task %s cannot be written", row->ident.task);
	} else {
		stored.doc = doc.ptr;
		stored.doc_len = doc.len;
		stored.due_ms = binding_due(&row->b, &s->rules);
		r = txn_put(txn, STORE_TASK, &stored, err);
	}
	if (r == 0)
		r = recount(txn, row, err);
	if (r == 0) {
		note_effect(row, ret);
		r = tell_others(s, txn, row, stored.due_ms, ret, err);
	}
	buf_fini(&doc);
	return r;
}

int row_text(const struct binding *b, char **ret, struct err *err)
{
	struct buf doc;
	int r;

	buf_init(&doc, LIMIT_ROW);
	r = binding_encode(b, &doc);
	if (r)
		err_set(err, r, "the row of task %s cannot be written", b->task_id);
	else
		*ret = buf_take(&doc);
	buf_fini(&doc);
	return r;
}

struct update {
	struct sessions *s;
	const struct ident *ident;
	row_change fn;
	void *arg;
	struct session_effect effect;
};

static int update_step(struct txn *txn, void *arg, struct err *err)
{
	struct update *update = arg;
	struct row row;
	int r = row_get(update->s, txn, update->ident, &row, err);

	memset(&update->effect, 0, sizeof(update->effect));
	if (r == 0)
		r = update->fn(update->s, txn, &row, update->arg, err);
	if (r == 0)
		r = row_put(update->s, txn, &row, &update->effect, err);
	return r;
}

int row_update(struct sessions *s, const struct ident *ident, row_change fn, void *arg, struct err *err)
{
	struct update update = {.s = s, .ident = ident, .fn = fn, .arg = arg};
	int r = store_update(s->config.store, update_step, &update, err);

	if (r == 0)
		row_effect(s, ident, &update.effect);
	return r;
}

void row_effect(struct sessions *s, const struct ident *ident, const struct session_effect *effect)
{
	char key[WATCH_KEY_MAX];

	if (effect->ended)
		local_ended(s, ident, effect->incarnation, effect->cause);
	if (effect->kick)
		session_kick_gc(s);
	else if (effect->refill)
		gc_fill_at(s, clock_after_ms(GC_FILL_SOON_MS));
	if (effect->notify) {
		task_watch_key(ident, key);
		watch_notify(s->config.watch, key);
	}
}

/* A host lives while its own row says so; of an exclusive store there is only this one. */
bool host_is_dead(struct sessions *s, struct txn *txn, const char *host)
{
	struct store_row stored;
	struct err ignored;

	if (strcmp(host, s->config.host_id) == 0)
		return false;
	if (s->exclusive)
		return true;
	/* A read that fails fails the step. */
	if (txn_get(txn, STORE_HOST, host, &stored, &ignored))
		return false;
	return !stored.doc || stored.due_ms <= txn_now(txn);
}
