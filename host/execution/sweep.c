/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns what happens by time: expired queue entries, retention, foreign messages, trimming, renewal of claims. Enters on
 * the GC's and the keeper's threads. Never removes anything of an open execution.
 */
#include <stdio.h>
#include <string.h>

#include "core/limits.h"
#include "core/log.h"
#include "execution/execution_private.h"
#include "execution/nonce.h"

#define PAGE 200
#define PAGES_MAX 20 /* of old records in one round; the next round goes on */
#define TRIM_PAGE 5000
#define POSTPONE_MS INT64_C(3600000)
#define CLAIMS 256 /* renewed in one step */

/* ---- queue expiry ---- */

struct expired {
	int64_t now_ms;
	struct run *runs[PAGE];
	size_t count;
};

/* Parked ones have timers; this is for those in line. */
static bool expire_one(const char *key, void *value, void *arg)
{
	struct expired *x = arg;
	struct run *run = value;

	(void)key;
	if (run->state == RUN_READY && !run->has_session && run->queue_expires_ms &&
	    run->queue_expires_ms <= x->now_ms && queue_take_locked(run))
		x->runs[x->count++] = run;
	return x->count < PAGE;
}

void sweep_line(struct executions *e)
{
	struct expired *x = calloc(1, sizeof(*x));
	bool go_on;

	if (!x)
		return;
	x->now_ms = steps_now(e);
	go_on = true;
	do {
		x->count = 0;
		lock_take(&e->lock);
		map_each(e->runs, expire_one, x);
		lock_drop(&e->lock);
		for (size_t i = 0; i < x->count; i++)
			go_on = sweep_expire(x->runs[i]) && go_on;
	} while (go_on && x->count == PAGE);
	free(x);
}

/* ---- retention ---- */

struct old {
	char id[IDENT_ID_MAX + 1];
	int64_t now_ms;
	bool large, terminal, corrupt;
	bool shared; /* the store */
	int64_t postpone_ms;
	/* Of one that is ended here. */
	struct executions *e;
	char event_id[IDENT_ID_MAX + 1];
	struct ident ident;
	bool ended;
};

struct old_page {
	char ids[PAGE][IDENT_ID_MAX + 1];
	size_t count;
};

static bool old_one(const struct store_row *row, void *arg)
{
	struct old_page *page = arg;

	snprintf(page->ids[page->count++], sizeof(page->ids[0]), "%s", row->key);
	return page->count < PAGE;
}

static int old_step(struct txn *txn, void *arg, struct err *err)
{
	struct old_page *page = arg;

	page->count = 0;
	return txn_scan_due(txn, STORE_EXECUTION, txn_now(txn), PAGE, old_one, page, err);
}

static int old_look_step(struct txn *txn, void *arg, struct err *err)
{
	struct old *old = arg;
	struct record r;
	int rc = steps_load(txn, old->id, &r, NULL, err);

	old->corrupt = rc == ERR_CORRUPT;
	old->terminal = rc == 0 && record_status_terminal(r.status);
	/* A host that died may have left segments. */
	old->large = old->shared || (rc == 0 && (r.result.stdout_bytes > (int64_t)LIMIT_INLINE_OBJECT ||
				 r.result.stderr_bytes > (int64_t)LIMIT_INLINE_OBJECT));
	return old->corrupt ? 0 : rc;
}

static int delete_idempotency(struct txn *txn, const struct record *r, struct err *err)
{
	char key[IDENT_KEY_MAX + 67];
	struct store_row row;
	int rc;

	if (!r->idempotency_key)
		return 0;
	create_idempotency_key(r->workspace_id, r->task_id, r->idempotency_key, key, sizeof(key));
	rc = txn_get(txn, STORE_IDEMPOTENCY, key, &row, err);
	if (rc || !row.doc || !strstr(row.doc, r->id))
		return rc; /* a later record has the key */
	return txn_delete(txn, STORE_IDEMPOTENCY, key, err);
}

static int purge_step(struct txn *txn, void *arg, struct err *err)
{
	static const enum store_table tables[] = {STORE_EXECUTION, STORE_EXECUTION_INDEX, STORE_COMMAND, STORE_CLAIM};
	const struct old *old = arg;
	char key[RECORD_OUTPUT_KEY_MAX];
	struct store_row row;
	struct record r;
	int rc = steps_load(txn, old->id, &r, NULL, err);

	if (rc == 0)
		rc = txn_get(txn, STORE_EXECUTION, old->id, &row, err);
	if (rc || !record_status_terminal(r.status) || row.due_ms == 0 || row.due_ms > txn_now(txn))
		return rc == ERR_NOT_FOUND ? 0 : rc;
	rc = delete_idempotency(txn, &r, err);
	for (unsigned i = 1; rc == 0 && i <= 2; i++) {
		record_output_key(old->id, i, key);
		rc = txn_delete(txn, STORE_OBJECT, key, err);
	}
	for (size_t i = 0; rc == 0 && i < sizeof(tables) / sizeof(tables[0]); i++)
		rc = txn_delete(txn, tables[i], old->id, err);
	return rc;
}

/* A row that cannot be read, or that other hosts still have to end, must not stand at the head of every round. */
static int postpone_step(struct txn *txn, void *arg, struct err *err)
{
	const struct old *old = arg;
	struct store_row row;
	int rc = txn_get(txn, STORE_EXECUTION, old->id, &row, err);

	if (rc || !row.doc || row.due_ms == 0 || row.due_ms > txn_now(txn))
		return rc;
	row.due_ms = txn_now(txn) + old->postpone_ms;
	return txn_put(txn, STORE_EXECUTION, &row, err);
}

/* ---- what no runner ended ---- */

/* Their own hosts end what waits, and know what for; this is for those that no host with that role has. */
static bool is_overdue(const struct executions *e, const struct record *r, const struct claim *c, int64_t now_ms)
{
	const struct conf *conf = e->config.conf;
	int64_t wait = conf->claim_ttl_ms;

	if (r->status == RECORD_CLAIMED)
		wait += conf->scheduling_ms + conf->starting_ms;
	return r->status != RECORD_RUNNING && now_ms >= r->queue_expires_ms + wait && !fleet_is_foreign(e, c, now_ms, false);
}

static int overdue_step(struct txn *txn, void *arg, struct err *err)
{
	struct old *old = arg;
	const struct record_change change = {.reason = "queue_expired",
					     .error = "it was not started before its time in the queue was over"};
	struct record r;
	struct claim c;
	bool replay;
	int rc = steps_load(txn, old->id, &r, &c, err);

	old->ended = false;
	if (rc || record_status_terminal(r.status) || !is_overdue(old->e, &r, &c, txn_now(txn)))
		return rc;
	rc = steps_apply(old->e, txn, &r, EVENT_CANCELLED, &change, old->event_id, &replay, err);
	if (rc == 0)
		rc = steps_close(old->e, txn, &r, &old->ident, err);
	old->ended = rc == 0;
	return rc;
}

/* Open, and its time in the queue is over. */
static int look_at_open(struct executions *e, struct old *old, struct err *err)
{
	int rc;

	if (runs_commands(e)) {
		rc = recover_adopt(e, old->id, err); /* known here, or put in line, where it expires */
	} else {
		steps_event_id(old->event_id);
		rc = store_hold_ms(e->config.store) > 0 ? 0 : steps_update(e, overdue_step, old, err);
	}
	if (rc == 0 && old->ended) {
		session_unwait_done(e->config.sessions, &old->ident);
		steps_changed(e, old->id);
	}
	old->postpone_ms = e->config.conf->claim_ttl_ms;
	return rc || old->ended || !old->shared ? rc : steps_update(e, postpone_step, old, err);
}

static int purge(struct executions *e, struct old *old, struct err *err)
{
	char prefix[RECORD_OUTPUT_KEY_MAX];

	snprintf(prefix, sizeof(prefix), "executions/%s", old->id);
	if (old->large) {
		int rc = blob_delete_prefix(e->config.blobs, prefix, err);

		if (rc)
			return rc;
	}

	int rc = steps_update(e, purge_step, old, err);

	ended_drop(e->ended, old->id);
	return rc;
}

static int look_at_old(struct executions *e, const char *id, struct err *err)
{
	struct old old = {.e = e, .shared = !store_is_exclusive(e->config.store), .postpone_ms = POSTPONE_MS};
	int rc;

	snprintf(old.id, sizeof(old.id), "%s", id);
	rc = store_view(e->config.store, old_look_step, &old, err);
	if (rc == ERR_NOT_FOUND)
		return 0;
	if (rc)
		return rc;
	if (old.terminal)
		return purge(e, &old, err);
	if (!old.corrupt)
		return look_at_open(e, &old, err);
	log_error("a record cannot be read, it is kept", KS("execution", id));
	return steps_update(e, postpone_step, &old, err);
}

static void retain(struct executions *e)
{
	struct old_page *page = calloc(1, sizeof(*page));
	struct err err = {0};
	int rc = 0;

	for (unsigned pages = 0; page && rc == 0 && pages < PAGES_MAX; pages++) {
		rc = store_view(e->config.store, old_step, page, &err);
		for (size_t i = 0; rc == 0 && i < page->count; i++)
			rc = look_at_old(e, page->ids[i], &err);
		if (page->count < PAGE)
			break;
	}
	if (rc && rc != ERR_SHUTTING_DOWN)
		log_warn("old executions could not be removed", KS("error", err.msg));
	free(page);
}

static int trim_step(struct txn *txn, void *arg, struct err *err)
{
	struct executions *e = arg;
	size_t count;

	return txn_trim(txn, STREAM_EVENTS, txn_now(txn) - e->config.conf->exec_retention_ms, TRIM_PAGE, &count, err);
}

static void drop_nonces(struct executions *e)
{
	struct err err = {0};
	bool more = true;
	int rc = 0;

	for (unsigned pages = 0; rc == 0 && more && pages < PAGES_MAX; pages++)
		rc = steps_update(e, nonce_sweep_step, &more, &err);
	if (rc && rc != ERR_SHUTTING_DOWN)
		log_warn("old nonces could not be removed", KS("error", err.msg));
}

/* ---- rounds ---- */

static void look_alone(struct executions *e)
{
	struct err err = {0};

	sweep_line(e);
	if (recover_stream(e, &err) && err.code != ERR_SHUTTING_DOWN)
		log_warn("the request stream could not be read", KS("error", err.msg));
	if (!e->reconciled)
		e->reconciled = recover_lost(e, &err) == 0;
}

void sweep_round(void *arg)
{
	struct executions *e = arg;
	struct err err = {0};
	bool started;

	lock_take(&e->lock);
	started = e->started && !e->stopping;
	lock_drop(&e->lock);
	if (!started || atomic_load(&e->dead))
		return;
	if (store_is_exclusive(e->config.store)) /* else it is the fleet's thread that does it */
		look_alone(e);
	retain(e);
	drop_nonces(e);
	if (steps_update(e, trim_step, e, &err) && err.code != ERR_SHUTTING_DOWN)
		log_warn("old events could not be trimmed", KS("error", err.msg));
}

/* ---- claims ---- */

struct claims {
	struct executions *e;
	char ids[CLAIMS][IDENT_ID_MAX + 1];
	size_t count;
	char after[IDENT_ID_MAX + 1];
};

static bool claim_one(const char *key, void *value, void *arg)
{
	struct claims *claims = arg;
	const struct run *run = value;

	if (strcmp(key, claims->after) > 0 && run->claimed)
		snprintf(claims->ids[claims->count++], sizeof(claims->ids[0]), "%s", key);
	return claims->count < CLAIMS;
}

static int renew_one(struct claims *claims, struct txn *txn, const char *id, struct err *err)
{
	const struct executions_config *config = &claims->e->config;
	struct store_row row;
	struct claim c;
	int rc = txn_get(txn, STORE_CLAIM, id, &row, err);

	if (rc || !row.doc)
		return rc;
	if (claim_decode(txn_arena(txn), id, row.doc, row.doc_len, &c, NULL))
		return 0; /* whoever needs it says so */
	if (!c.runner || strcmp(c.runner, config->host_id) != 0 || c.claim_until_ms == 0)
		return 0;
	c.claim_until_ms = txn_now(txn) + config->conf->claim_ttl_ms;
	return steps_put_claim(txn, id, &c, err);
}

static int renew_step(struct txn *txn, void *arg, struct err *err)
{
	struct claims *claims = arg;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < claims->count; i++)
		rc = renew_one(claims, txn, claims->ids[i], err);
	return rc;
}

void sweep_keep(void *arg)
{
	struct executions *e = arg;
	struct claims *claims = calloc(1, sizeof(*claims));
	struct err err = {0};
	int rc = 0;

	if (!claims)
		return;
	claims->e = e;
	do {
		claims->count = 0;
		lock_take(&e->lock);
		if (!e->detaching)
			map_each(e->runs, claim_one, claims);
		lock_drop(&e->lock);
		if (claims->count == 0)
			break;
		memcpy(claims->after, claims->ids[claims->count - 1], sizeof(claims->after));
		rc = steps_update(e, renew_step, claims, &err);
	} while (rc == 0 && claims->count == CLAIMS);
	if (rc && rc != ERR_SHUTTING_DOWN)
		log_warn("claims could not be renewed", KS("error", err.msg));
	free(claims);
}
