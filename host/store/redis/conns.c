/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connections, and what is known of Redis being there: one attempt at a time while it is away, with a growing pause
 * between them, so that many callers do not storm a server that comes back. Any thread. No lock is held while Redis is
 * waited for.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/limits.h"
#include "core/log.h"
#include "core/secret.h"
#include "store/redis/redis.h"

#define BACKOFF_FIRST_MS 20
#define BACKOFF_MOST_MS 5000
#define PATIENCE_MS 1000 /* how long callers wait for a Redis that has just gone */
#define PAUSE_MOST_MS 50

static struct rconn *conn_new(struct redis_store *store, unsigned slot)
{
	struct rconn *conn = calloc(1, sizeof(*conn));

	if (conn == NULL)
		return NULL;
	conn->store = store;
	conn->slot = slot;
	conn->arena = arena_new(LIMIT_REQUEST_ARENA);
	if (conn->arena != NULL)
		return conn;
	free(conn);
	return NULL;
}

/* NULL: no memory. Waits for one when all are taken. */
struct rconn *conns_take(struct redis_store *store)
{
	struct rconn *conn;

	lock_take(&store->lock);
	while (store->idle == NULL && store->conns == store->conns_max)
		cond_wait_until(&store->freed, &store->lock, INT64_MAX);
	conn = store->idle;
	if (conn != NULL)
		store->idle = conn->next;
	else if ((conn = conn_new(store, store->conns)) != NULL)
		store->conns++;
	lock_drop(&store->lock);
	return conn;
}

void conns_give(struct rconn *conn)
{
	struct redis_store *store = conn->store;

	arena_reset(conn->arena);
	lock_take(&store->lock);
	conn->next = store->idle;
	store->idle = conn;
	lock_drop(&store->lock);
	cond_wake_one(&store->freed); /* who wakes finds the lock free */
}

void conns_close(struct redis_store *store)
{
	struct rconn *conn;

	while ((conn = store->idle) != NULL) {
		store->idle = conn->next;
		store->conns--;
		wire_drop(conn);
		arena_free(conn->arena);
		free(conn);
	}
	assert(store->conns == 0);
}

/* ---- connecting ---- */

/* From half of `ms` to all of it: hosts that lost one Redis together do not come back together. */
static int64_t jitter(int64_t ms)
{
	uint32_t lot;

	secret_random(&lot, sizeof(lot));
	return ms / 2 + lot % (ms / 2 + 1);
}

static int64_t backoff_locked(const struct redis_store *store)
{
	unsigned shift = store->failures < 9 ? store->failures - 1 : 8;
	int64_t ms = (int64_t)BACKOFF_FIRST_MS << shift;

	return jitter(ms < BACKOFF_MOST_MS ? ms : BACKOFF_MOST_MS);
}

static int refuse_locked(const struct redis_store *store, struct err *err)
{
	int64_t left = clock_left_ms(store->try_ns);

	*err = store->trouble;
	err->retry_after_ms = left > 1000 ? left : 1000;
	return err->code;
}

/* Returns 0 when this thread may try now. */
static int wait_turn(struct redis_store *store, int64_t until_ns, bool patient, struct err *err)
{
	int64_t patience_ns, wake_ns;
	int rc = 0;

	lock_take(&store->lock);
	while (store->failures > 0 && (store->trying || clock_boot_ns() < store->try_ns)) {
		patience_ns = store->away_ns + PATIENCE_MS * CLOCK_NS_PER_MS;
		patience_ns = patience_ns < until_ns && !patient ? patience_ns : until_ns;
		wake_ns = store->trying || store->try_ns > patience_ns ? patience_ns : store->try_ns;
		if (clock_boot_ns() >= patience_ns) {
			rc = refuse_locked(store, err);
			break;
		}
		cond_wait_until(&store->changed, &store->lock, wake_ns);
	}
	if (rc == 0 && store->failures > 0)
		store->trying = true;
	lock_drop(&store->lock);
	return rc;
}

static void note_failure(struct redis_store *store, const struct err *err)
{
	bool first;

	lock_take(&store->lock);
	first = store->failures++ == 0;
	if (store->away_ns == 0)
		store->away_ns = clock_boot_ns();
	store->try_ns = clock_boot_ns() + backoff_locked(store) * CLOCK_NS_PER_MS;
	store->trouble = *err;
	store->trying = false;
	cond_wake_all(&store->changed);
	lock_drop(&store->lock);
	if (first)
		log_warn("the state store is away", KS("error", err->msg), KS("reason", err->reason));
}

static void note_success(struct redis_store *store)
{
	int64_t away_ns;

	lock_take(&store->lock);
	away_ns = store->failures > 0 ? store->away_ns : 0;
	store->failures = 0;
	store->away_ns = 0;
	store->trying = false;
	err_clear(&store->trouble);
	cond_wake_all(&store->changed);
	lock_drop(&store->lock);
	if (away_ns == 0)
		return;
	guard_outage(store);
	log_info("the state store is back", KI("away_ms", (clock_boot_ns() - away_ns) / CLOCK_NS_PER_MS));
}

static int try_once(struct rconn *conn, struct err *err)
{
	struct redis_info info;
	int rc = wire_connect(conn, &info, err);

	if (rc == 0) {
		memcpy(conn->run_id, info.run_id, sizeof(conn->run_id));
		rc = guard_seen(conn, err);
	}
	if (rc == 0)
		apply_untouch(conn->store);
	if (rc != 0) {
		wire_drop(conn);
		rc = rc == WIRE_BROKEN ? ERR_STORE : rc;
		err->code = rc;
	}
	return rc;
}

int conns_connect(struct rconn *conn, int64_t until_ns, bool patient, struct err *err)
{
	struct redis_store *store = conn->store;
	int rc = 0;

	while (conn->ctx == NULL) {
		rc = wait_turn(store, until_ns, patient, err);
		if (rc != 0)
			return rc;
		rc = try_once(conn, err);
		if (rc == 0)
			note_success(store);
		else
			note_failure(store, err);
	}
	return rc;
}

void conns_pause(const struct rconn *conn, unsigned round)
{
	int64_t ms = round < 6 ? INT64_C(1) << round : PAUSE_MOST_MS;
	uint64_t dice = ((uint64_t)clock_boot_ns() ^ conn->slot * UINT64_C(0x9e3779b97f4a7c15)) * 6364136223846793005u;
	int64_t ns = (int64_t)((dice >> 33) % (uint64_t)(ms * CLOCK_NS_PER_MS));

	nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

/* ---- health ---- */

bool conns_healthy(struct store *base, struct err *err)
{
	struct redis_store *store = redis_of(base);
	struct wire_args none = {0};
	redisReply *reply = NULL;
	struct err local = {0};
	struct rconn *conn = conns_take(store);
	int rc;

	if (conn == NULL)
		return false;
	rc = script_run(conn, SCRIPT_state, &none, &reply, err != NULL ? err : &local);
	freeReplyObject(reply);
	conns_give(conn);
	return rc == 0;
}
