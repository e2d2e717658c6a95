/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns what happens when the store is lost while this host runs: another one is taken as soon as it stands there, or
 * begun when none has come for a while, and is told of the commands that run here. The fleet's thread enters; what it
 * looks for in runs is under executions.lock. Never puts a record over another one, and never invents what no process
 * holds: what only waited is gone.
 */
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/limits.h"
#include "core/log.h"
#include "execution/execution_private.h"
#include "execution/shared.h"

#define SETTLE_MS 5000 /* for other hosts to tell theirs, before anything is accepted: they look every two seconds */
#define REVISION_JUMP 1000000 /* above whatever was published of the record since it was kept */
#define PAGE 64

/* ---- what is kept of a running command ---- */

static void docs_free(struct run_docs *docs)
{
	free(docs->record);
	free(docs->claim);
	*docs = (struct run_docs){0};
}

/* Inside the step that starts it, after both rows were put; see lost_kept_locked. */
int lost_keep_step(struct run *run, struct txn *txn, struct err *err)
{
	struct store_row record, claim;
	int rc;

	if (store_is_exclusive(run->e->config.store))
		return 0;
	docs_free(&run->fresh);
	rc = txn_get(txn, STORE_EXECUTION, run->id, &record, err);
	if (rc == 0)
		rc = txn_get(txn, STORE_CLAIM, run->id, &claim, err);
	if (rc || !record.doc || !claim.doc)
		return rc;
	run->fresh = (struct run_docs){.record = strdup(record.doc), .claim = strdup(claim.doc)};
	if (run->fresh.record && run->fresh.claim)
		return 0;
	docs_free(&run->fresh);
	return err_set(err, ERR_NOMEM, "no memory to keep what runs");
}

void lost_kept_locked(struct run *run)
{
	if (!run->fresh.record)
		return;
	docs_free(&run->docs);
	run->docs = run->fresh;
	run->fresh = (struct run_docs){0};
}

void lost_forget(struct run *run)
{
	docs_free(&run->docs);
	docs_free(&run->fresh);
}

/* ---- telling ---- */

struct told {
	struct run *run; /* a reference */
	int64_t attempt;
	const char *record, *claim; /* in the page's arena */
};

struct told_page {
	struct executions *e;
	struct arena *arena;
	struct told list[PAGE];
	size_t count;
	size_t waiting; /* of all pages: not told, and so lost */
	bool full;
	char after[IDENT_ID_MAX + 1];
};

static bool told_one(const char *key, void *value, void *arg)
{
	struct told_page *page = arg;
	struct run *run = value;
	struct told *told = &page->list[page->count];

	if (strcmp(key, page->after) <= 0)
		return true;
	if (!run->claimed || !run->has_plan || !run->docs.record) {
		page->waiting++;
		return true;
	}
	*told = (struct told){.attempt = run->claimed,
			      .record = arena_strdup(page->arena, run->docs.record),
			      .claim = arena_strdup(page->arena, run->docs.claim)};
	if (!told->record || !told->claim) {
		page->full = true;
		return false;
	}
	told->run = run_ref(run);
	return ++page->count < PAGE;
}

struct tell {
	struct executions *e;
	const struct told *told;
	char event_id[IDENT_ID_MAX + 1];
	bool there;
};

static int put_doc(struct txn *txn, enum store_table table, const char *key, const char *group, const char *doc,
		   size_t len, struct err *err)
{
	return txn_put(txn, table, &(struct store_row){.key = key, .group = group, .doc = doc, .doc_len = len}, err);
}

static int put_others(struct txn *txn, const struct run *run, const struct record *r, struct err *err)
{
	int rc = put_doc(txn, STORE_EXECUTION_INDEX, run->id, run->ident.workspace, run->ident.task,
			 strlen(run->ident.task), err);

	if (rc == 0)
		rc = put_doc(txn, STORE_COMMAND, run->id, "", run->plan.body, run->plan.body_len, err);
	return rc || !r->idempotency_key ? rc : create_put_idempotency(txn, r, "", err);
}

static int tell_step(struct txn *txn, void *arg, struct err *err)
{
	struct tell *tell = arg;
	const struct told *told = tell->told;
	const struct run *run = told->run;
	struct record_change change = {.attempt = told->attempt};
	struct store_row row;
	struct record r;
	struct claim c;
	bool replay;
	int rc = txn_get(txn, STORE_EXECUTION, run->id, &row, err);

	tell->there = rc == 0 && row.doc;
	if (rc || row.doc)
		return rc;
	rc = record_decode(txn_arena(txn), run->id, told->record, strlen(told->record), &r, err);
	if (rc == 0)
		rc = claim_decode(txn_arena(txn), run->id, told->claim, strlen(told->claim), &c, err);
	if (rc)
		return rc;
	r.attempt = c.attempt = c.sent_attempt = told->attempt;
	r.revision += REVISION_JUMP;
	c.runner = tell->e->config.host_id;
	c.claim_until_ms = txn_now(txn) + tell->e->config.conf->claim_ttl_ms;
	rc = steps_apply(tell->e, txn, &r, EVENT_PROGRESS, &change, tell->event_id, &replay, err);
	if (rc == 0)
		rc = steps_put_claim(txn, run->id, &c, err);
	return rc ? rc : put_others(txn, run, &r, err);
}

static int tell_one(struct executions *e, const struct told *told, struct err *err)
{
	struct tell tell = {.e = e, .told = told};
	int rc;

	steps_event_id(tell.event_id);
	rc = store_update(e->config.store, tell_step, &tell, err);
	if (rc && rc != ERR_STORE) {
		log_error("a running command could not be told to the new store", KS("execution", told->run->id),
			  KS("error", err->msg));
		return 0;
	}
	if (rc)
		return rc;
	lock_take(&e->lock);
	told->run->published[0] = told->run->published[1] = 0; /* its output is shown anew */
	lock_drop(&e->lock);
	return 0;
}

static int tell_page(struct told_page *page, struct err *err)
{
	struct executions *e = page->e;
	int rc = 0;

	page->count = 0;
	arena_reset(page->arena);
	lock_take(&e->lock);
	map_each(e->runs, told_one, page);
	lock_drop(&e->lock);
	for (size_t i = 0; i < page->count; i++) {
		if (rc == 0)
			rc = tell_one(e, &page->list[i], err);
		memcpy(page->after, page->list[i].run->id, sizeof(page->after));
		run_unref(page->list[i].run);
	}
	return rc;
}

static int tell_runs(struct executions *e, size_t *ret_count, size_t *ret_waiting, struct err *err)
{
	struct told_page *page = calloc(1, sizeof(*page));
	int rc = 0;

	*ret_count = *ret_waiting = 0;
	if (page)
		page->arena = arena_new(PAGE * 4 * LIMIT_ROW);
	if (!page || !page->arena)
		rc = err_set(err, ERR_NOMEM, "no memory to tell the new store what runs here");
	while (rc == 0) {
		page->e = e;
		rc = tell_page(page, err);
		*ret_count += page->count;
		if (page->full)
			log_error("no memory was left to tell the new store all that runs here");
		if (page->count < PAGE)
			break;
	}
	if (page) {
		*ret_waiting = page->waiting;
		arena_free(page->arena);
	}
	free(page);
	return rc;
}

/* ---- the loss ---- */

static int announce(struct executions *e, struct err *err)
{
	const struct executions_config *config = &e->config;
	size_t holds, runs, waiting;
	int rc = blob_adopt(config->blobs, store_id(config->store), err);

	if (rc == 0)
		rc = shared_check(config->store, config->seal, config->blobs, err);
	if (rc == 0)
		rc = session_announce(config->sessions, &holds, err);
	if (rc == 0)
		rc = tell_runs(e, &runs, &waiting, err);
	if (rc == 0)
		log_warn("the new state store knows what this host holds; what only waited is lost",
			 KS("store", store_id(config->store)), KI("sessions", holds), KI("running", runs),
			 KI("waiting", waiting));
	return rc;
}

static void set_lost(struct executions *e, bool lost)
{
	atomic_store(&e->lost, lost);
	session_set_lost(e->config.sessions, lost);
}

/* Another host may have begun a new one already; on its own this one waits for as long as the former may come back. */
static int renew(struct executions *e, struct err *err)
{
	int64_t patience_ns = 2 * e->config.conf->operation_ttl_ms * CLOCK_NS_PER_MS;

	if (e->lost_ns == 0)
		e->lost_ns = clock_boot_ns();
	set_lost(e, true);
	return store_renew(e->config.store, clock_boot_ns() - e->lost_ns >= patience_ns, err);
}

static void settled(struct executions *e, bool is_new)
{
	e->lost_ns = 0;
	set_lost(e, false);
	if (!is_new)
		return;
	ended_clear(e->ended);
	e->last_seq = 0;
	e->reconciled = false;
	atomic_store(&e->open_ns, clock_after_ms(SETTLE_MS));
	e->opens = true;
}

/* Who waits for something that nobody told of learns only now that it is gone. */
static void open_again(struct executions *e)
{
	if (!e->opens || clock_boot_ns() < atomic_load(&e->open_ns))
		return;
	e->opens = false;
	watch_notify_all(e->config.watch);
}

bool lost_look(struct executions *e)
{
	struct store *store = e->config.store;
	struct err err = {0};
	bool is_new;
	int rc = 0;

	open_again(e);
	if (!store_is_lost(store) && e->lost_ns == 0)
		return false;
	if (store_is_lost(store))
		rc = renew(e, &err);
	is_new = strcmp(e->store_id, store_id(store)) != 0;
	if (rc == 0 && is_new)
		rc = announce(e, &err);
	if (rc) {
		if (strcmp(err.reason, "store_lost") != 0)
			log_warn("the lost state store has no successor yet", KS("error", err.msg));
		return true;
	}
	snprintf(e->store_id, sizeof(e->store_id), "%s", store_id(store));
	settled(e, is_new);
	return false;
}

bool execution_is_closed(const struct executions *e)
{
	return atomic_load(&e->lost) || clock_boot_ns() < atomic_load(&e->open_ns);
}
