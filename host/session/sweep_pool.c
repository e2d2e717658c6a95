/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A round over the pool of one target, beside the provider's list: entries that a dead process was making are gone on
 * with, old, dead and superfluous ones are replaced, reservations that no binding has are given back. Entered by the
 * sweep's job. That a session is missing from a list proves nothing; only inspect does.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "session/sweep.h"

#define INSPECT_MS 30000
#define RESERVED_PAGE 256

struct entries {
	struct job *job;
	struct warm_entry *list;
	size_t count, cap;
	struct err err;
	int code;
};

static bool take_entry(const struct store_row *row, void *arg)
{
	struct entries *entries = arg;

	if (entries->count == entries->cap) {
		size_t cap = entries->cap ? entries->cap * 2 : 64;
		struct warm_entry *grown = realloc(entries->list, cap * sizeof(*grown));

		if (!grown) {
			entries->code = err_set(&entries->err, ERR_NOMEM, "no memory is left for warm entries");
			return false;
		}
		entries->list = grown;
		entries->cap = cap;
	}
	entries->code = warm_decode(entries->job->arena, row->key, row->doc, row->doc_len,
				    &entries->list[entries->count], &entries->err);
	entries->count += entries->code == 0;
	return entries->code == 0;
}

static int scan_group(struct txn *txn, struct entries *entries, const char *state, struct err *err)
{
	const char *group = arena_printf(txn_arena(txn), "%s/%s", entries->job->target->conf->name, state);
	int r = group ? txn_scan(txn, STORE_WARM, group, "", false, SIZE_MAX, take_entry, entries, err) : ERR_NOMEM;

	if (r == 0 && entries->code) {
		*err = entries->err;
		r = entries->code;
	}
	return r;
}

static int read_step(struct txn *txn, void *arg, struct err *err)
{
	struct entries *entries = arg;
	int r;

	entries->count = 0;
	entries->code = 0;
	r = scan_group(txn, entries, "making", err);
	return r ? r : scan_group(txn, entries, "ready", err);
}

struct counted {
	const char *target;
	int64_t count;
};

static int count_step(struct txn *txn, void *arg, struct err *err)
{
	struct counted *counted = arg;

	return warm_count(txn, counted->target, &counted->count, err);
}

int sweep_has_pool(struct job *job, bool *ret, struct err *err)
{
	struct counted counted = {job->target->conf->name, 0};
	int r = store_view(job->s->config.store, count_step, &counted, err);

	*ret = counted.count > 0;
	return r;
}

/* ---- what a dead process was making ---- */

struct recover {
	struct job *job;
	const struct warm_entry *seen;
	const struct made *made; /* found at the provider, or NULL */
	const struct binding_session *session;
	int64_t listed_ms;
	bool lost; /* it is this host's, and no job is at it */
	bool resumed;
};

static bool is_abandoned(const struct recover *recover, struct txn *txn, const struct warm_entry *entry)
{
	bool own = strcmp(entry->owner, recover->job->s->config.host_id) == 0;

	if (own)
		return recover->lost && recover->listed_ms > entry->create_until_ms;
	return !*entry->owner || host_is_dead(recover->job->s, txn, entry->owner);
}

/* Certainly nothing of its token was there when the list was begun, nor can it appear later. */
static bool cannot_appear(const struct recover *recover, const struct warm_entry *entry)
{
	const struct sessions *s = recover->job->s;
	int64_t until = entry->create_until_ms;

	if (s->exclusive && *entry->owner && strcmp(entry->owner, s->config.host_id) != 0)
		until = binding_min(until, s->started_ms);
	return recover->listed_ms >= until + recover->job->target->create_settle_ms;
}

static int recover_step(struct txn *txn, void *arg, struct err *err)
{
	struct recover *recover = arg;
	const struct binding_session *session = recover->session;
	struct warm_entry entry;
	int r = warm_get(txn, recover->seen->key, &entry, err);

	recover->resumed = false;
	if (r || entry.state != WARM_MAKING || !is_abandoned(recover, txn, &entry))
		return r;
	if (!*entry.ref && !session) {
		if (!cannot_appear(recover, &entry))
			return 0;
		entry.state = WARM_ABSENT;
		return warm_put(txn, &entry, WARM_MAKING, err);
	}
	if (!*entry.ref) {
		entry.ref = session->ref;
		entry.sealed_state = session->sealed_state;
		entry.boot_id = session->boot_id;
		entry.root = session->root;
		entry.isolation = session->isolation;
		entry.created_ms = session->created_ms;
		entry.expires_ms = binding_expiry(session->provider_expires_ms);
	}
	entry.owner = recover->job->s->config.host_id;
	recover->resumed = true;
	return warm_put(txn, &entry, WARM_MAKING, err);
}

static int recover_making(struct job *job, const struct seen *seen, const struct warm_entry *entry, struct err *err)
{
	struct binding_session session;
	struct recover recover = {
		.job = job, .seen = entry, .listed_ms = seen->listed_ms, .made = map_get(seen->tokens, entry->intent)};
	int r = 0;

	if (strcmp(entry->owner, job->s->config.host_id) == 0) {
		recover.lost = !job_background_runs(job->s, entry->intent);
		if (!recover.lost)
			return 0;
	}
	if (!*entry->ref && recover.made) {
		snprintf(job->key, sizeof(job->key), "%s", entry->key);
		r = made_seal(job, recover.made, &session, err);
		recover.session = &session;
	}
	if (r == 0)
		r = store_update(job->s->config.store, recover_step, &recover, err);
	if (r == 0 && recover.resumed)
		warm_resume(job->s, job->target, entry->intent);
	return r;
}

/* ---- ready ones ---- */

static bool is_gone(struct job *job, const struct warm_entry *entry, const struct seen *seen)
{
	const struct made *listed = map_get(seen->refs, entry->ref);
	struct err err = {0};
	struct made made;
	int r;

	if (listed && !phase_is_over(listed->phase))
		return false;
	if (warm_open(job, entry, &made, &err))
		return false;
	r = create_ask(job, &made, call_look, NULL, clock_after_ms(INSPECT_MS), &err);
	return create_is_dead(r, &made);
}

static int keep_ready(struct job *job, const struct seen *seen, const struct warm_entry *entry, const char *pool_key,
		      int64_t *left, struct err *err)
{
	const char *why = NULL;
	int rc;

	if (*left <= 0)
		why = "superfluous";
	else if (strcmp(entry->pool_key, pool_key) != 0)
		why = "other configuration";
	else if (warm_is_old(entry, seen->listed_ms))
		why = "old";
	else if (entry->made_ms < seen->listed_ms && is_gone(job, entry, seen))
		why = "dead";
	if (!why) {
		(*left)--;
		return 0;
	}
	log_info("a warm session is replaced", KS("target", entry->target), KS("ref", entry->ref), KS("why", why));
	rc = warm_retire(job->s, entry, err);
	session_kick_gc(job->s); /* not before: it looks for what is due */
	return rc;
}

/* ---- reservations ---- */

struct reserved {
	struct job *job;
	char after[WARM_KEY_MAX + 1];
	char keys[RESERVED_PAGE][WARM_KEY_MAX + 1];
	size_t count;
};

static bool note_reserved(const struct store_row *row, void *arg)
{
	struct reserved *reserved = arg;

	snprintf(reserved->keys[reserved->count++], WARM_KEY_MAX + 1, "%s", row->key);
	return true;
}

static int reserved_step(struct txn *txn, void *arg, struct err *err)
{
	struct reserved *reserved = arg;
	const char *group = arena_printf(txn_arena(txn), "%s/reserved", reserved->job->target->conf->name);

	reserved->count = 0;
	return group ? txn_scan(txn, STORE_WARM, group, reserved->after, false, RESERVED_PAGE, note_reserved, reserved,
				err)
		     : ERR_NOMEM;
}

struct loose {
	struct sessions *s;
	const char *key;
};

static int loose_step(struct txn *txn, void *arg, struct err *err)
{
	const struct loose *loose = arg;
	struct warm_entry entry;
	struct ident ident;
	struct row row;
	int r = warm_get(txn, loose->key, &entry, err);

	if (r || entry.state != WARM_RESERVED)
		return r;
	if (split_key(entry.task, &ident)) {
		r = row_get(loose->s, txn, &ident, &row, err);
		if (r == ERR_CORRUPT)
			return 0; /* what it has cannot be read: its reservation is left alone */
		if (r || strcmp(row.b.warm, loose->key) == 0)
			return r;
	}
	if (entry.used)
		warm_to_releasing(&entry, txn_now(txn));
	else
		warm_to_ready(&entry, txn_now(txn));
	return warm_put(txn, &entry, WARM_RESERVED, err);
}

static int check_reservations(struct job *job, struct err *err)
{
	struct reserved *reserved = calloc(1, sizeof(*reserved));
	int r = reserved ? 0 : err_set(err, ERR_NOMEM, "no memory is left for warm entries");

	if (reserved)
		reserved->job = job;
	do {
		if (r == 0)
			r = store_view(job->s->config.store, reserved_step, reserved, err);
		for (size_t i = 0; r == 0 && i < reserved->count; i++) {
			struct loose loose = {job->s, reserved->keys[i]};

			r = store_update(job->s->config.store, loose_step, &loose, err);
		}
		if (r == 0 && reserved->count)
			memcpy(reserved->after, reserved->keys[reserved->count - 1], sizeof(reserved->after));
	} while (r == 0 && reserved->count == RESERVED_PAGE && !job_cancelled(job));
	free(reserved);
	return r;
}

/* ---- the round ---- */

struct drained {
	const struct target *target;
	bool drained;
};

static int drained_step(struct txn *txn, void *arg, struct err *err)
{
	struct drained *drained = arg;

	return target_drained(txn, drained->target, &drained->drained, err);
}

int sweep_pool(struct job *job, const struct seen *seen, struct err *err)
{
	struct drained drained = {.target = job->target};
	struct entries entries = {.job = job};
	struct warm_pool *pool = warm_pool_of(job->s, job->target);
	char pool_key[65];
	int64_t left;
	int r = store_view(job->s->config.store, drained_step, &drained, err);

	warm_pool_key(job->target, pool_key);
	if (r == 0 && !pool->checked)
		r = check_reservations(job, err);
	pool->checked |= r == 0;
	if (r == 0)
		r = store_view(job->s->config.store, read_step, &entries, err);
	left = drained.drained ? 0 : job->target->conf->warm;
	for (size_t i = 0; r == 0 && i < entries.count && !job_cancelled(job); i++) {
		if (entries.list[i].state == WARM_MAKING)
			r = recover_making(job, seen, &entries.list[i], err);
		else
			r = keep_ready(job, seen, &entries.list[i], pool_key, &left, err);
	}
	free(entries.list);
	return r;
}
