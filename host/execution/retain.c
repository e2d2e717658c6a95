/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns what is removed by time: records past their retention with all that belongs to them, events, nonces; and the end
 * of what waits and no runner ends. Enters on the GC's thread. A round does a bounded part and says when more is left.
 * Never removes anything of an open execution.
 */
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "execution/execution_private.h"
#include "execution/nonce.h"

#define PAGE 200
#define BATCH 100	/* records removed in one step: some seven rows each */
#define BATCH_SHARED 20 /* Redis does nothing else meanwhile: a hundred are 30 ms */
#define PAGES_MAX 20	/* of each kind in one round */
#define TRIM_STEP 500	/* events of one step: Redis reads and removes them in a few ms */
#define TRIMS_A_PAGE 4	/* events go faster than the records they are of, each of which has five to seven */
#define POSTPONE_MS INT64_C(3600000)

/* ---- retention ---- */

struct old {
	char id[IDENT_ID_MAX + 1];
	bool objects, terminal, corrupt; /* objects: there may be some of its outputs */
	int64_t postpone_ms;
	/* Of one that is ended here. */
	struct executions *e;
	char event_id[IDENT_ID_MAX + 1];
	struct ident ident;
	bool ended;
};

struct page {
	struct executions *e;
	struct arena *arena; /* the step's */
	struct old rows[PAGE];
	size_t count;
};

static bool is_shared(const struct executions *e)
{
	return !store_is_exclusive(e->config.store);
}

static bool note_old(const struct store_row *row, void *arg)
{
	struct page *page = arg;
	struct old *old = &page->rows[page->count++];
	struct record r;
	int rc = record_decode(page->arena, row->key, row->doc, row->doc_len, &r, NULL);

	*old = (struct old){.e = page->e, .postpone_ms = POSTPONE_MS, .corrupt = rc != 0};
	snprintf(old->id, sizeof(old->id), "%s", row->key);
	old->terminal = rc == 0 && record_status_terminal(r.status);
	/* Whatever the record says: a host that died, or lost the command, may have stored some, or left segments. */
	old->objects = rc == 0 && r.started_ms != 0;
	return page->count < PAGE;
}

static int page_step(struct txn *txn, void *arg, struct err *err)
{
	struct page *page = arg;

	page->count = 0;
	page->arena = txn_arena(txn);
	return txn_scan_due(txn, STORE_EXECUTION, txn_now(txn), PAGE, note_old, page, err);
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
	struct store_row row;
	struct record r;
	int rc = steps_load(txn, old->id, &r, NULL, err);

	if (rc == 0)
		rc = txn_get(txn, STORE_EXECUTION, old->id, &row, err);
	if (rc || !record_status_terminal(r.status) || row.due_ms == 0 || row.due_ms > txn_now(txn))
		return rc == ERR_NOT_FOUND ? 0 : rc;
	rc = delete_idempotency(txn, &r, err);
	for (unsigned i = 1; rc == 0 && i <= 2; i++) {
		const char *key = record_output_ref(&r, i);

		rc = key ? txn_delete(txn, STORE_OBJECT, key, err) : 0;
	}
	for (size_t i = 0; rc == 0 && i < sizeof(tables) / sizeof(tables[0]); i++)
		rc = txn_delete(txn, tables[i], old->id, err);
	return rc ? rc : txn_forget_subject(txn, STREAM_EVENTS, old->id, err);
}

/* What is removed together. */
struct batch {
	const struct old *rows;
	size_t count;
};

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
	if (old->ended)
		steps_closed(e, &old->ident, old->id);
	old->postpone_ms = e->config.conf->claim_ttl_ms;
	return rc || old->ended || !is_shared(e) ? rc : steps_update(e, postpone_step, old, err);
}

/* Objects first: a record that is still there leads to them again. */
static int purge(struct executions *e, const struct batch *batch, struct err *err)
{
	char prefix[RECORD_OUTPUT_KEY_MAX];
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < batch->count; i++) {
		snprintf(prefix, sizeof(prefix), "executions/%s", batch->rows[i].id);
		if (batch->rows[i].terminal && batch->rows[i].objects)
			rc = blob_delete_prefix(e->config.blobs, prefix, err);
	}
	if (rc == 0)
		rc = steps_update(e, purge_step, (void *)(uintptr_t)batch, err);
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

static int look_at_others(struct executions *e, struct page *page, size_t *ret_old, struct err *err)
{
	int rc = 0;

	*ret_old = 0;
	for (size_t i = 0; rc == 0 && i < page->count; i++) {
		*ret_old += page->rows[i].terminal;
		rc = page->rows[i].terminal ? 0 : look_at_other(e, &page->rows[i], err);
	}
	return rc;
}

static int purge_page(struct executions *e, const struct page *page, struct err *err)
{
	size_t most = is_shared(e) ? BATCH_SHARED : BATCH;
	int rc = 0;

	for (size_t at = 0; rc == 0 && at < page->count; at += most) {
		struct batch batch = {.rows = page->rows + at,
				      .count = page->count - at < most ? page->count - at : most};

		rc = purge(e, &batch, err);
	}
	return rc;
}

/* True: there may be more. A page of which nothing could be removed is not read again in this round. */
static bool retain_page(struct executions *e)
{
	struct page *page = calloc(1, sizeof(*page));
	struct err err = {0};
	size_t old = 0;
	int rc;

	if (!page)
		return false;
	page->e = e;
	rc = store_view(e->config.store, page_step, page, &err);
	if (rc == 0)
		rc = look_at_others(e, page, &old, &err);
	if (rc == 0 && old)
		rc = purge_page(e, page, &err);
	if (rc && rc != ERR_SHUTTING_DOWN)
		log_warn("old executions could not be removed", KS("error", err.msg));

	bool more = rc == 0 && old && page->count == PAGE;

	free(page);
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
	int rc = txn_trim(txn, STREAM_EVENTS, txn_now(txn) - trim->keep_ms, TRIM_STEP, &count, err);

	trim->more = rc == 0 && count == TRIM_STEP;
	return rc;
}

static bool trim_events(struct executions *e)
{
	struct trim trim = {.keep_ms = e->config.conf->exec_retention_ms, .more = true};
	struct err err = {0};
	int rc = 0;

	for (unsigned steps = 0; rc == 0 && trim.more && steps < TRIMS_A_PAGE; steps++)
		rc = steps_update(e, trim_step, &trim, &err);
	if (rc && rc != ERR_SHUTTING_DOWN)
		log_warn("old events could not be trimmed", KS("error", err.msg));
	return rc == 0 && trim.more;
}

static bool drop_nonces(struct executions *e)
{
	struct err err = {0};
	bool more = true;
	int rc = steps_update(e, nonce_sweep_step, &more, &err);

	if (rc && rc != ERR_SHUTTING_DOWN)
		log_warn("old nonces could not be removed", KS("error", err.msg));
	return rc == 0 && more;
}

bool retain_round(struct executions *e)
{
	bool records = true, events = true, nonces = true;

	/* In turn: a backlog of one kind does not let the others grow. */
	for (unsigned pages = 0; (records || events || nonces) && pages < PAGES_MAX; pages++) {
		records = records && retain_page(e);
		events = events && trim_events(e);
		nonces = nonces && drop_nonces(e);
	}
	return records || events || nonces;
}
