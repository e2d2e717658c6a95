/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns what happens by time: expired queue entries, foreign messages, renewal of claims; what is removed by time is
 * retain.c's. Enters on the GC's and the keeper's threads.
 */
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "execution/execution_private.h"

#define PAGE 200
#define CLAIMS 256 /* renewed in one step */

/* ---- queue expiry ---- */

struct expired {
	int64_t now_ms;
	struct run *runs[PAGE];
	size_t count;
};

/* A claimed one may have a session that comes up. */
static bool is_over(const struct run *run, int64_t now_ms)
{
	return run->cancel || (run->queue_expires_ms && now_ms >= take_wait_ends_ms(run, run->facts.attempt > 0,
										    run->queue_expires_ms));
}

/* Parked ones have timers; this is for those in line. Nobody owns these: their facts stand still. */
static bool expire_one(const char *key, void *value, void *arg)
{
	struct expired *x = arg;
	struct run *run = value;

	(void)key;
	if (run->state == RUN_READY && !run->has_session && is_over(run, x->now_ms) && queue_take_locked(run))
		x->runs[x->count++] = run;
	return x->count < PAGE;
}

static enum next end_by_time(struct run *run)
{
	/* A record that was not read yet, or that a runner claimed, is judged by the step. */
	bool known = run->facts.lasts_ms != 0 && run->facts.attempt == 0;
	bool cancel;

	lock_take(&run->e->lock);
	cancel = run->cancel;
	lock_drop(&run->e->lock);
	if (cancel)
		return finish_cancelled(run);
	return known ? finish_expired(run) : take_run(run);
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
			go_on = runner_at_once(x->runs[i], end_by_time) != NEXT_LEAVE && go_on;
	} while (go_on && x->count == PAGE);
	free(x);
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

bool sweep_round(void *arg)
{
	struct executions *e = arg;
	bool started;

	lock_take(&e->lock);
	started = e->started && !e->stopping;
	lock_drop(&e->lock);
	if (!started || atomic_load(&e->dead))
		return false;
	if (store_is_exclusive(e->config.store)) /* else it is the fleet's thread that does it */
		look_alone(e);
	return retain_round(e);
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
