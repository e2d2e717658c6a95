/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns what this host has to learn of the other hosts of its store: new requests, claims that ended without their
 * runner, cancels that were asked elsewhere, claims that another host took. One thread, and one for each of what may take
 * long, which no cancel waits for; only where the store is shared. Notices only make it look earlier than it would. Never
 * judges by a notice, it looks at the rows; but what waits here leaves the line when another host tells that it took it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "execution/execution_private.h"

#define LOOK_MS 2000	/* for ended claims and requests, and to show output to the others */
#define CLAIMS_MS 4000	/* for what others did to the claims of this host: a cancel arrives within 5 s */
#define GIVE_MS 1000	/* a claim that waits longer for room here is free for a host that has some */
#define MISSED_CLAIMS 4 /* times a claim's life, two minutes by default: between two looks for missing messages */
#define PAGE 256	/* claims looked at in one step */
#define STALE_MAX 10000 /* ended claims of one look; the next look finds the rest */

/* What may take long: an object is slow to be written, or there are a million records. */
struct aside {
	const char *name;
	void (*look)(struct executions *e);
	bool to_the_end; /* also while the host stops */
};

struct aside_thread {
	struct fleet *fleet;
	const struct aside *what;
	int64_t every_ms;
};

#define ASIDES 2

struct fleet {
	struct executions *e;
	pthread_t threads[1 + ASIDES];
	size_t count;
	struct aside_thread asides[ASIDES];
	struct lock lock;
	struct cond wake;
	/* Under lock. */
	bool stop, requests, given, claims;
};

/* ---- claims that ended ---- */

struct stale {
	int64_t upto_ms; /* 0: now */
	struct buf ids;	 /* NUL-terminated, one after the other */
};

static bool note_stale(const struct store_row *row, void *arg)
{
	struct stale *stale = arg;

	return buf_append(&stale->ids, row->key, strlen(row->key) + 1) == 0;
}

static int stale_step(struct txn *txn, void *arg, struct err *err)
{
	struct stale *stale = arg;

	buf_clear(&stale->ids);
	return txn_scan_due(txn, STORE_CLAIM, stale->upto_ms ? stale->upto_ms : txn_now(txn), STALE_MAX, note_stale, stale,
			    err);
}

static int take_claims(struct executions *e, int64_t upto_ms, struct err *err)
{
	struct stale stale = {.upto_ms = upto_ms};
	int rc;

	buf_init(&stale.ids, STALE_MAX * (IDENT_ID_MAX + 1));
	rc = store_view(e->config.store, stale_step, &stale, err);
	for (size_t at = 0; rc == 0 && at < stale.ids.len; at += strlen(stale.ids.ptr + at) + 1) {
		rc = recover_inherit(e, stale.ids.ptr + at, err);
		if (rc == ERR_NOT_FOUND || rc == ERR_CORRUPT)
			rc = recover_bury_claim(e, stale.ids.ptr + at, err);
	}
	buf_fini(&stale.ids);
	return rc;
}

/* While the store has just come back only those that were handed back: the other runners may live and only have been unable to say
 * so. */
static void take_stale(struct executions *e)
{
	struct err err = {0};
	int rc = take_claims(e, store_hold_ms(e->config.store) > 0 ? CLAIM_GIVEN_MS : 0, &err);

	if (rc && rc != ERR_SHUTTING_DOWN)
		log_warn("ended claims could not be looked at", KS("error", err.msg));
}

/* A store of this process alone: whoever had a claim is dead. What is beyond STALE_MAX is found by its record. */
int fleet_inherit_all(struct executions *e, struct err *err)
{
	return take_claims(e, INT64_MAX, err);
}

/* ---- the claims of this host ---- */

struct own_claim {
	char id[IDENT_ID_MAX + 1];
	char cancel[REASON_MAX + 1]; /* asked for, with this reason; or "" */
	bool taken;		     /* by another host, or ended by it */
};

struct own_page {
	struct executions *e;
	struct own_claim claims[PAGE];
	size_t count;
	char after[IDENT_ID_MAX + 1];
};

static bool own_one(const char *key, void *value, void *arg)
{
	struct own_page *page = arg;
	const struct run *run = value;

	if (strcmp(key, page->after) > 0 && run->claimed) {
		page->claims[page->count] = (struct own_claim){0};
		snprintf(page->claims[page->count++].id, sizeof(page->claims[0].id), "%s", key);
	}
	return page->count < PAGE;
}

static int look_at_claim(struct own_page *page, struct txn *txn, struct own_claim *own, struct err *err)
{
	struct store_row row;
	struct claim c;
	int rc = txn_get(txn, STORE_CLAIM, own->id, &row, err);

	own->taken = false;
	own->cancel[0] = '\0';
	if (rc || (row.doc && claim_decode(txn_arena(txn), own->id, row.doc, row.doc_len, &c, NULL)))
		return rc; /* whoever needs a row that cannot be read says so */
	own->taken = !row.doc || !c.runner || strcmp(c.runner, page->e->config.host_id) != 0;
	if (!own->taken)
		snprintf(own->cancel, sizeof(own->cancel), "%s", claim_cancel(&c));
	return 0;
}

static int own_step(struct txn *txn, void *arg, struct err *err)
{
	struct own_page *page = arg;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < page->count; i++)
		rc = look_at_claim(page, txn, &page->claims[i], err);
	return rc;
}

/* The command goes on under the other host's eyes: this one only stops looking. */
static void let_go(struct executions *e, const char *id)
{
	struct run *run;

	lock_take(&e->lock);
	run = queue_find_locked(e, id);
	if (run)
		call_moved_locked(run);
	lock_drop(&e->lock);
}

static void look_at_own(struct executions *e)
{
	struct own_page *page = calloc(1, sizeof(*page));
	struct err err = {0};
	int rc = 0;

	if (!page)
		return;
	page->e = e;
	do {
		page->count = 0;
		lock_take(&e->lock);
		map_each(e->runs, own_one, page);
		lock_drop(&e->lock);
		if (page->count == 0)
			break;
		memcpy(page->after, page->claims[page->count - 1].id, sizeof(page->after));
		rc = store_view(e->config.store, own_step, page, &err);
		for (size_t i = 0; rc == 0 && i < page->count; i++) {
			if (page->claims[i].taken)
				let_go(e, page->claims[i].id);
			else if (page->claims[i].cancel[0])
				cancel_local(e, page->claims[i].id, page->claims[i].cancel);
		}
	} while (rc == 0 && page->count == PAGE);
	free(page);
}

/* ---- claims that wait for room ---- */

/* Many claim while their sessions come up; what then finds no room here may run on another host. */
static bool waits_for_room(const struct run *run)
{
	return run->state == RUN_READY && run->claimed && !run->has_session && !run->cancel &&
	       run->ready_ns + GIVE_MS * CLOCK_NS_PER_MS < clock_boot_ns();
}

/* It stays in line, without a claim: its worker claims it anew, unless another host was first. */
static bool give_one(const char *key, void *value, void *arg)
{
	struct own_page *page = arg;
	struct run *run = value;

	if (waits_for_room(run)) {
		run->claimed = 0;
		snprintf(page->claims[page->count++].id, sizeof(page->claims[0].id), "%s", key);
	}
	return page->count < PAGE;
}

static int give_step(struct txn *txn, void *arg, struct err *err)
{
	struct own_page *page = arg;
	struct record r;
	struct claim c;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < page->count; i++) {
		rc = steps_load(txn, page->claims[i].id, &r, &c, err);
		if (rc == ERR_NOT_FOUND || rc == ERR_CORRUPT)
			rc = 0;
		else if (rc == 0 && r.status == RECORD_CLAIMED)
			rc = steps_hand_back(page->e, txn, page->claims[i].id, &c, err);
	}
	return rc;
}

static void give_back(struct executions *e)
{
	struct own_page *page = calloc(1, sizeof(*page));
	struct err err = {0};
	int rc = 0;

	if (!page)
		return;
	page->e = e;
	do {
		page->count = 0;
		lock_take(&e->lock);
		map_each(e->runs, give_one, page);
		lock_drop(&e->lock);
		rc = page->count ? steps_update(e, give_step, page, &err) : 0;
	} while (rc == 0 && page->count == PAGE);
	if (rc && rc != ERR_SHUTTING_DOWN)
		log_warn("claims could not be handed back; others take them when they end", KS("error", err.msg));
	free(page);
}

/* ---- notices ---- */

static bool is_ours(struct executions *e, const char *id)
{
	bool ours;

	lock_take(&e->lock);
	ours = queue_find_locked(e, id) != NULL;
	lock_drop(&e->lock);
	return ours;
}

static void wake(struct fleet *fleet, bool *ret_what)
{
	lock_take(&fleet->lock);
	*ret_what = true;
	cond_wake_all(&fleet->wake);
	lock_drop(&fleet->lock);
}

/* On the store's thread. */
static void on_notice(const char *key, void *arg)
{
	struct fleet *fleet = arg;
	struct executions *e = fleet->e;

	if (!key) {
		wake(fleet, &fleet->requests);
		wake(fleet, &fleet->given);
		wake(fleet, &fleet->claims);
		session_kick_gc(e->config.sessions);
		watch_notify_all(e->config.watch);
	} else if (strcmp(key, FLEET_REQUESTS) == 0) {
		wake(fleet, &fleet->requests);
	} else if (strcmp(key, SESSION_NOTICE_GC) == 0) {
		session_kick_gc(e->config.sessions);
	} else if (strcmp(key, FLEET_GIVEN) == 0) {
		wake(fleet, &fleet->given);
	} else if (strncmp(key, FLEET_CANCEL, strlen(FLEET_CANCEL)) == 0) {
		if (is_ours(e, key + strlen(FLEET_CANCEL)))
			wake(fleet, &fleet->claims);
	} else {
		if (strncmp(key, EXECUTION_WATCH, strlen(EXECUTION_WATCH)) == 0)
			recover_passed(e, key + strlen(EXECUTION_WATCH));
		watch_notify(e->config.watch, key);
	}
}

int fleet_notify_changed(struct txn *txn, const char *id, struct err *err)
{
	char key[64];

	execution_watch_key(id, key);
	return txn_notify(txn, key, err);
}

int fleet_notify_cancel(struct txn *txn, const char *id, struct err *err)
{
	char key[64];

	snprintf(key, sizeof(key), "%s%s", FLEET_CANCEL, id);
	return txn_notify(txn, key, err);
}

bool fleet_is_foreign(const struct executions *e, const struct claim *c, int64_t now_ms, bool hold)
{
	if (store_is_exclusive(e->config.store) || !c->runner || strcmp(c->runner, e->config.host_id) == 0)
		return false;
	return c->claim_until_ms > 0 && (hold || c->claim_until_ms > now_ms);
}

/* ---- the threads ---- */

struct looks {
	bool due, requests, given, claims;
	int64_t due_ns, claims_ns; /* when the next look at everything, and at the claims, is due anyway */
};

static bool wait_for_look(struct fleet *fleet, struct looks *looks)
{
	int64_t until = looks->due_ns < looks->claims_ns ? looks->due_ns : looks->claims_ns;
	bool stop;

	lock_take(&fleet->lock);
	while (!fleet->stop && !fleet->requests && !fleet->given && !fleet->claims &&
	       cond_wait_until(&fleet->wake, &fleet->lock, until))
		;
	looks->due = clock_boot_ns() >= looks->due_ns;
	looks->requests = fleet->requests || looks->due;
	looks->given = fleet->given || looks->due;
	looks->claims = fleet->claims || clock_boot_ns() >= looks->claims_ns;
	fleet->requests = fleet->given = fleet->claims = false;
	stop = fleet->stop;
	lock_drop(&fleet->lock);
	return !stop;
}

/* A notice between the start's own look and the start costs one LOOK_MS. */
static bool is_running(struct executions *e, bool *ret_stops)
{
	bool running;

	lock_take(&e->lock);
	running = e->started && !e->detaching;
	*ret_stops = e->stopping;
	lock_drop(&e->lock);
	return running && !atomic_load(&e->dead);
}

/* Messages that nobody can tell of: the stream was deleted, a message was lost with the end of Redis' file. And those that nobody
 * needs. */
static void look_for_missed(struct executions *e)
{
	struct err err = {0};
	bool all = !atomic_exchange(&e->reconciled, true);
	int rc = all ? recover_lost(e, &err) : recover_waiting(e, &err);

	if (rc == 0)
		rc = recover_spent(e, &err);
	else if (all)
		atomic_store(&e->reconciled, false);
	if (rc && rc != ERR_SHUTTING_DOWN)
		log_warn("the records could not be looked at for missing messages", KS("error", err.msg));
	else if (rc == 0)
		log_debug("what waits was looked through for missing messages");
}

/* While the host stops nothing is taken any more; what runs has the stop's grace, and is heard until that is over. */
static void look(struct executions *e, const struct looks *looks, bool stops)
{
	struct err err = {0};

	if (lost_look(e))
		return;
	if (looks->claims && runs_commands(e))
		look_at_own(e); /* before what takes longer: somebody waits for its cancel */
	if (looks->due && !stops)
		elsewhere_look(e);
	if (stops || !runs_commands(e))
		return;
	if (looks->requests && recover_stream(e, &err) && err.code != ERR_SHUTTING_DOWN)
		log_warn("the request stream could not be read", KS("error", err.msg));
	if (looks->given)
		take_stale(e);
	if (looks->due) {
		give_back(e);
		sweep_line(e);
	}
}

static void *fleet_main(void *arg)
{
	struct fleet *fleet = arg;
	struct looks looks = {.due_ns = clock_after_ms(LOOK_MS), .claims_ns = clock_after_ms(CLAIMS_MS)};
	bool stops;

	while (wait_for_look(fleet, &looks)) {
		if (is_running(fleet->e, &stops))
			look(fleet->e, &looks, stops);
		if (looks.due)
			looks.due_ns = clock_after_ms(LOOK_MS);
		if (looks.claims)
			looks.claims_ns = clock_after_ms(CLAIMS_MS);
	}
	return NULL;
}

static const struct aside asides[ASIDES] = {
	{"shows", segment_publish, true},
	{"missed", look_for_missed, false},
};

/* False: the fleet stops. */
static bool wait_aside(struct fleet *fleet, int64_t until_ns)
{
	bool stop;

	lock_take(&fleet->lock);
	while (!fleet->stop && cond_wait_until(&fleet->wake, &fleet->lock, until_ns))
		;
	stop = fleet->stop;
	lock_drop(&fleet->lock);
	return !stop;
}

static void *aside_main(void *arg)
{
	struct aside_thread *aside = arg;
	struct executions *e = aside->fleet->e;
	int64_t until_ns = clock_after_ms(LOOK_MS);
	bool stops;

	while (wait_aside(aside->fleet, until_ns)) {
		if (is_running(e, &stops) && !atomic_load(&e->lost) && (!stops || aside->what->to_the_end))
			aside->what->look(e);
		until_ns = clock_after_ms(aside->every_ms);
	}
	return NULL;
}

void fleet_stop(struct executions *e)
{
	struct fleet *fleet = e->fleet;

	if (!fleet)
		return;
	(void)store_listen(e->config.store, NULL, NULL, NULL);
	lock_take(&fleet->lock);
	fleet->stop = true;
	cond_wake_all(&fleet->wake);
	lock_drop(&fleet->lock);
	for (size_t i = 0; i < fleet->count; i++)
		thread_join_until(fleet->threads[i], INT64_MAX);
	cond_fini(&fleet->wake);
	lock_fini(&fleet->lock);
	free(fleet);
	e->fleet = NULL;
}

static int start_thread(struct fleet *fleet, const char *name, void *(*fn)(void *arg), void *arg, struct err *err)
{
	if (thread_start(&fleet->threads[fleet->count], name, fn, arg))
		return err_set(err, ERR_NOMEM, "no thread to look after the other hosts");
	fleet->count++;
	return 0;
}

static int start_threads(struct fleet *fleet, struct err *err)
{
	const int64_t every_ms[ASIDES] = {LOOK_MS, MISSED_CLAIMS * fleet->e->config.conf->claim_ttl_ms};
	int rc = start_thread(fleet, "fleet", fleet_main, fleet, err);

	for (size_t i = 0; rc == 0 && i < ASIDES && runs_commands(fleet->e); i++) {
		fleet->asides[i] = (struct aside_thread){fleet, &asides[i], every_ms[i]};
		rc = start_thread(fleet, asides[i].name, aside_main, &fleet->asides[i], err);
	}
	return rc;
}

int fleet_start(struct executions *e, struct err *err)
{
	struct fleet *fleet;
	int rc;

	if (store_is_exclusive(e->config.store))
		return 0;
	fleet = calloc(1, sizeof(*fleet));
	if (!fleet)
		return err_set(err, ERR_NOMEM, "no memory to look after the other hosts");
	fleet->e = e;
	lock_init(&fleet->lock, LOCK_LEAF);
	cond_init(&fleet->wake);
	e->fleet = fleet;
	rc = start_threads(fleet, err);
	if (rc == 0)
		rc = store_listen(e->config.store, on_notice, fleet, err);
	if (rc)
		fleet_stop(e);
	return rc;
}
