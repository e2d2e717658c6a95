/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this host holds, told to a store that has taken the place of a lost one: the rows of the sessions that its
 * operations work in, as they were when the operations began. Entered by the thread that renewed the store. Puts a row
 * only where there is none; whoever has come first is right, and then the hold is lost.
 */
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "core/log.h"
#include "session/session_private.h"

struct held { /* a copy: the hold may end meanwhile */
	struct held *next;
	struct ident ident;
	uint64_t serial;
	const char *op_id, *text;
};

struct announce {
	struct sessions *s;
	struct arena *arena;
	struct held *list, **end;
	bool full;
};

static bool copy_local(const char *key, void *value, void *arg)
{
	struct announce *announce = arg;
	const struct local *local = value;

	(void)key;
	for (const struct kept *kept = local->kept; kept; kept = kept->next) {
		struct held *held;

		if (!kept->hold || kept->lost || !kept->hold->row)
			continue;
		held = arena_alloc(announce->arena, sizeof(*held));
		if (!held || !(held->op_id = arena_strdup(announce->arena, kept->op_id)) ||
		    !(held->text = arena_strdup(announce->arena, kept->hold->row))) {
			announce->full = true;
			return false;
		}
		held->ident = local->ident;
		held->serial = kept->serial;
		*announce->end = held;
		announce->end = &held->next;
	}
	return true;
}

struct put {
	const struct held *held;
	bool there; /* the operation is in the row */
};

static int put_row(struct sessions *s, struct txn *txn, struct row *row, void *arg, struct err *err)
{
	struct put *put = arg;
	struct binding was;
	uint64_t fence = 0;
	int r = binding_decode(txn_arena(txn), &put->held->ident, put->held->text, strlen(put->held->text), &was, err);

	if (r == 0 && !row->existed)
		r = row_next_fence(txn, row, &fence, err);
	if (r)
		return r;
	put->there = binding_announce(txn_arena(txn), &row->b, row->now, &s->rules, row->existed, &was,
				      put->held->op_id, s->config.host_id, (int64_t)fence);
	row->changed = row->notify = put->there;
	return 0;
}

static void lose(struct sessions *s, const struct held *held)
{
	char key[IDENT_KEY_MAX + 1];
	struct local *local;

	ident_key(&held->ident, key);
	lock_take(&s->lock);
	local = local_get_locked(s, key);
	for (struct kept *kept = local ? local->kept : NULL; kept; kept = kept->next) {
		if (kept->serial == held->serial)
			kept_lose_locked(s, kept, NULL);
	}
	lock_drop(&s->lock);
}

static int tell(struct sessions *s, const struct held *held, size_t *count, struct err *err)
{
	struct put put = {.held = held};
	int r = row_update(s, &held->ident, put_row, &put, err);

	if (r == ERR_STORE)
		return r;
	if (r || !put.there) {
		log_warn("a session that this host holds could not be told to the new store",
			 KS("workspace", held->ident.workspace), KS("task", held->ident.task),
			 KS("why", r ? err->msg : "another host has come for the task"));
		lose(s, held);
	}
	*count += r == 0 && put.there;
	return 0;
}

int session_announce(struct sessions *s, size_t *ret_count, struct err *err)
{
	struct announce announce = {.s = s, .arena = arena_new(LIMIT_GC_KEYS), .end = &announce.list};
	int r = announce.arena ? 0 : err_set(err, ERR_NOMEM, "no memory is left to tell what this host holds");

	*ret_count = 0;
	if (r == 0) {
		lock_take(&s->lock);
		map_each(s->tasks, copy_local, &announce);
		lock_drop(&s->lock);
		r = keeper_beat(s, err);
	}
	if (r == 0)
		r = sweep_note_store(s, err);
	if (announce.full)
		log_error("no memory was left to tell the new store all that this host holds");
	for (const struct held *held = announce.list; r == 0 && held; held = held->next)
		r = tell(s, held, ret_count, err);
	arena_free(announce.arena);
	return r;
}

void session_set_lost(struct sessions *s, bool lost)
{
	atomic_store(&s->lost, lost);
}
