/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns what is removed by time: records past their retention with all that belongs to them, events, nonces; and the end
 * of what waits and no runner ends. Enters on the GC's thread. A round does a bounded part and says when more is left.
 * Never removes anything of an open execution.
 */
#include <stdio.h>
#include <string.h>

#include "core/limits.h"
#include "core/log.h"
#include "execution/execution_private.h"
#include "execution/nonce.h"

#define PAGE 200
#define BATCH 25      /* records removed in one step: some ten rows each */
#define PAGES_MAX 20  /* of each kind in one round */
#define TRIM_PAGE 500 /* events of one step: Redis reads and removes them in a few ms */
#define POSTPONE_MS INT64_C(3600000)

/* ---- retention ---- */

struct old {
	char id[IDENT_ID_MAX + 1];
	bool gone, large, terminal, corrupt;
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

/* What is removed together. */
struct batch {
	struct old rows[BATCH];
	size_t count;
};

static int look_one(struct txn *txn, struct old *old, struct err *err)
{
	struct record r;
	int rc = steps_load(txn, old->id, &r, NULL, err);

	old->gone = rc == ERR_NOT_FOUND;
	old->corrupt = rc == ERR_CORRUPT;
	old->terminal = rc == 0 && record_status_terminal(r.status);
	/* A host that died may have left segments. */
	old->large = old->shared || (rc == 0 && (r.result.stdout_bytes > (int64_t)LIMIT_INLINE_OBJECT ||
						 r.result.stderr_bytes > (int64_t)LIMIT_INLINE_OBJECT));
	return old->gone || old->corrupt ? 0 : rc;
}

static int look_step(struct txn *txn, void *arg, struct err *err)
{
	struct batch *batch = arg;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < batch->count; i++)
		rc = look_one(txn, &batch->rows[i], err);
	return rc;
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

static int purge_one(struct txn *txn, const struct old *old, struct err *err)
{
	static const enum store_table tables[] = {STORE_EXECUTION, STORE_EXECUTION_INDEX, STORE_COMMAND, STORE_CLAIM};
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

static int purge_step(struct txn *txn, void *arg, struct err *err)
{
	const struct batch *batch = arg;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < batch->count; i++) {
		if (batch->rows[i].terminal)
			rc = purge_one(txn, &batch->rows[i], err);
	}
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
	return r->status != RECORD_RUNNING && now_ms >= r->queue_expires_ms + wait &&
	       !fleet_is_foreign(e, c, now_ms, false);
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

/* Objects first: a record that is still there leads to them again. */
static int purge(struct executions *e, struct batch *batch, struct err *err)
{
	char prefix[RECORD_OUTPUT_KEY_MAX];
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < batch->count; i++) {
		snprintf(prefix, sizeof(prefix), "executions/%s", batch->rows[i].id);
		if (batch->rows[i].terminal && batch->rows[i].large)
			rc = blob_delete_prefix(e->config.blobs, prefix, err);
	}
	if (rc == 0)
		rc = steps_update(e, purge_step, batch, err);
	for (size_t i = 0; i < batch->count; i++) {
		if (batch->rows[i].terminal)
			ended_drop(e->ended, batch->rows[i].id);
	}
	return rc;
}

static int look_at_other(struct executions *e, struct old *old, struct err *err)
{
	if (!old->corrupt)
		return look_at_open(e, old, err);
	log_error("a record cannot be read, it is kept", KS("execution", old->id));
	return steps_update(e, postpone_step, old, err);
}

/* The number that are gone is added to *ret_gone. */
static int retain_batch(struct executions *e, struct batch *batch, size_t *ret_gone, struct err *err)
{
	size_t old = 0, gone = 0;
	int rc = store_view(e->config.store, look_step, batch, err);

	for (size_t i = 0; rc == 0 && i < batch->count; i++) {
		old += batch->rows[i].terminal;
		gone += batch->rows[i].gone;
		if (!batch->rows[i].terminal && !batch->rows[i].gone)
			rc = look_at_other(e, &batch->rows[i], err);
	}
	if (rc == 0 && old)
		rc = purge(e, batch, err);
	*ret_gone += rc == 0 ? gone + old : 0;
	return rc;
}

static int retain_page(struct executions *e, const struct old_page *page, struct batch *batch, size_t *ret_gone,
		       struct err *err)
{
	bool shared = !store_is_exclusive(e->config.store);
	int rc = 0;

	for (size_t at = 0; rc == 0 && at < page->count; at += batch->count) {
		memset(batch, 0, sizeof(*batch));
		for (; batch->count < BATCH && at + batch->count < page->count; batch->count++) {
			struct old *old = &batch->rows[batch->count];

			*old = (struct old){.e = e, .shared = shared, .postpone_ms = POSTPONE_MS};
			snprintf(old->id, sizeof(old->id), "%s", page->ids[at + batch->count]);
		}
		rc = retain_batch(e, batch, ret_gone, err);
	}
	return rc;
}

/* True: there is more. A page of which nothing could be removed is not read again in this round. */
static bool retain(struct executions *e)
{
	struct old_page *page = calloc(1, sizeof(*page));
	struct batch *batch = calloc(1, sizeof(*batch));
	struct err err = {0};
	bool more = page && batch;
	int rc = 0;

	for (unsigned pages = 0; more && pages < PAGES_MAX; pages++) {
		size_t gone = 0;

		rc = store_view(e->config.store, old_step, page, &err);
		if (rc == 0)
			rc = retain_page(e, page, batch, &gone, &err);
		more = rc == 0 && page->count == PAGE && gone > 0;
	}
	if (rc && rc != ERR_SHUTTING_DOWN)
		log_warn("old executions could not be removed", KS("error", err.msg));
	free(page);
	free(batch);
	return more;
}

/* ---- events, nonces ---- */

struct trim {
	int64_t keep_ms;
	bool more;
};

static int trim_step(struct txn *txn, void *arg, struct err *err)
{
	struct trim *trim = arg;
	size_t count;
	int rc = txn_trim(txn, STREAM_EVENTS, txn_now(txn) - trim->keep_ms, TRIM_PAGE, &count, err);

	trim->more = rc == 0 && count == TRIM_PAGE;
	return rc;
}

static bool trim_events(struct executions *e)
{
	struct trim trim = {.keep_ms = e->config.conf->exec_retention_ms, .more = true};
	struct err err = {0};
	int rc = 0;

	for (unsigned pages = 0; rc == 0 && trim.more && pages < PAGES_MAX; pages++)
		rc = steps_update(e, trim_step, &trim, &err);
	if (rc && rc != ERR_SHUTTING_DOWN)
		log_warn("old events could not be trimmed", KS("error", err.msg));
	return rc == 0 && trim.more;
}

static bool drop_nonces(struct executions *e)
{
	struct err err = {0};
	bool more = true;
	int rc = 0;

	for (unsigned pages = 0; rc == 0 && more && pages < PAGES_MAX; pages++)
		rc = steps_update(e, nonce_sweep_step, &more, &err);
	if (rc && rc != ERR_SHUTTING_DOWN)
		log_warn("old nonces could not be removed", KS("error", err.msg));
	return rc == 0 && more;
}

bool retain_round(struct executions *e)
{
	bool more = retain(e);

	more |= drop_nonces(e);
	more |= trim_events(e);
	return more;
}
