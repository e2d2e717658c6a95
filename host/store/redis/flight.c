/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of several threads that go to Redis together: one write, one read, and for Redis one round of its loop with one write to its
 * file. Whoever comes while all flights are under way waits for the next one, so a thread that is alone never waits for others, and
 * the busier Redis is the more go at once. Each step keeps its own slot and its own answer; the first thread of a flight lends its
 * connection. Entered by threads that run a step; no lock is held while Redis is waited for.
 */
#include "obs/metrics.h"
#include "store/redis/redis.h"

#define FLIGHTS_MAX 2 /* one on its way while Redis works on the other */

void flight_init(struct redis_store *store)
{
	lock_init(&store->flight_lock, LOCK_LEAF);
	store->waiting_end = &store->waiting;
}

void flight_fini(struct redis_store *store)
{
	lock_fini(&store->flight_lock);
}

static void queue_locked(struct redis_store *store, struct rconn *conn, const struct wire_args *args)
{
	struct redis_seat *seat = &conn->seat;

	seat->next = NULL;
	seat->args = args;
	seat->boarded = seat->landed = false;
	seat->reply = NULL;
	seat->rc = 0;
	*store->waiting_end = conn;
	store->waiting_end = &seat->next;
}

/* All that wait; their threads wait on until they have landed. */
static struct rconn *board_locked(struct redis_store *store)
{
	struct rconn *first = store->waiting, *conn;

	for (conn = first; conn != NULL; conn = conn->seat.next)
		conn->seat.boarded = true;
	store->waiting = NULL;
	store->waiting_end = &store->waiting;
	store->flights++;
	return first;
}

static void fail_from(struct rconn *conn, int rc, const struct err *err)
{
	for (; conn != NULL; conn = conn->seat.next) {
		conn->seat.rc = rc;
		conn->seat.err = *err;
	}
}

static bool append_all(redisContext *ctx, const struct rconn *conn)
{
	for (; conn != NULL; conn = conn->seat.next) {
		const struct wire_args *args = conn->seat.args;

		if (redisAppendCommandArgv(ctx, args->count, args->ptr, args->len) != REDIS_OK)
			return false;
	}
	return true;
}

/* An answer that does not come leaves open what became of this command and of those after it. */
static void fly(struct rconn *pilot, struct rconn *first)
{
	struct err err = {0};
	struct rconn *conn;
	int rc = 0;

	if (!append_all(pilot->ctx, first)) {
		wire_drop(pilot); /* nothing was sent */
		fail_from(first, err_set(&err, ERR_NOMEM, "no memory to talk to Redis"), &err);
		return;
	}
	metric_add(METRIC_STORE_ROUND_TRIPS, 0, 0, 1);
	for (conn = first; conn != NULL && rc == 0; conn = rc == 0 ? conn->seat.next : conn)
		rc = wire_reply(pilot->ctx, &conn->seat.reply, &err);
	if (rc == 0)
		return;
	wire_drop(pilot);
	fail_from(conn, rc, &err);
}

/* A seat is its thread's again as soon as it has landed. */
static void land_locked(struct redis_store *store, const struct rconn *pilot, struct rconn *first)
{
	struct rconn *conn, *next;

	store->flights--;
	for (conn = first; conn != NULL; conn = next) {
		next = conn->seat.next;
		conn->seat.landed = true;
		if (conn != pilot)
			cond_wake_one(&conn->seat.changed);
	}
	if (store->waiting != NULL)
		cond_wake_one(&store->waiting->seat.changed);
}

int flight_send(struct rconn *conn, const struct wire_args *args, redisReply **ret, struct err *err)
{
	struct redis_store *store = conn->store;
	struct redis_seat *seat = &conn->seat;
	struct rconn *first;

	lock_take(&store->flight_lock);
	queue_locked(store, conn, args);
	while (!seat->landed && (seat->boarded || store->flights == FLIGHTS_MAX))
		cond_wait_until(&seat->changed, &store->flight_lock, INT64_MAX);
	if (!seat->landed) {
		first = board_locked(store);
		lock_drop(&store->flight_lock);
		fly(conn, first);
		lock_take(&store->flight_lock);
		land_locked(store, conn, first);
	}
	lock_drop(&store->flight_lock);
	if (seat->rc != 0)
		*err = seat->err;
	else
		*ret = seat->reply;
	return seat->rc;
}
