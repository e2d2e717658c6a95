/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guarded clock: Redis' time plus an offset that all hosts share. Every answer of a script is a sample of it;
 * between samples this process goes on by CLOCK_BOOTTIME. A sample that disagrees with that by more than 2 s is a jump
 * of Redis' clock, and whoever sees it first moves the offset. Any thread. Never goes back, and never expires a lease
 * for a jump.
 */
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "store/clock.h"
#include "store/redis/redis.h"

#define JUMP_MS 2000
#define MARK_EVERY_NS (5 * CLOCK_NS_PER_S)
#define MARK_GOOD_NS (6 * 3600 * CLOCK_NS_PER_S) /* two machines drift apart by less than a jump in that time */

static int64_t at_locked(const struct redis_clock *clock, int64_t boot_ns)
{
	return clock->base_ms + (boot_ns - clock->base_ns) / CLOCK_NS_PER_MS;
}

static int64_t now_locked(struct redis_clock *clock)
{
	int64_t ms = at_locked(clock, clock_boot_ns());

	if (ms > clock->last_ms)
		clock->last_ms = ms;
	return clock->last_ms;
}

int64_t guard_now(struct redis_store *store)
{
	int64_t ms;

	lock_take(&store->clock_lock);
	ms = now_locked(&store->clock);
	lock_drop(&store->clock_lock);
	return ms;
}

static void absorb(struct rconn *conn, int64_t offset_ms, int64_t moved_ms)
{
	struct redis_store *store = conn->store;
	struct wire_args args = {0};
	char before[24], after[24], hold[24];
	redisReply *reply = NULL;
	struct err err = {0};
	int rc;

	snprintf(before, sizeof(before), "%lld", (long long)offset_ms);
	snprintf(after, sizeof(after), "%lld", (long long)(offset_ms - moved_ms));
	snprintf(hold, sizeof(hold), "%lld", (long long)store->hold_ms);
	wire_text(&args, before);
	wire_text(&args, after);
	wire_text(&args, hold);
	conn->absorbs = true;
	rc = args.error != 0 ? args.error : script_once(conn, SCRIPT_absorb, &args, &reply, &err);
	conn->absorbs = false;
	/* What was not absorbed is met again by the next sample. */
	if (rc == 0)
		log_warn("the clock of Redis jumped; the store's clock goes on as before", KI("moved_ms", moved_ms),
			 KI("offset_ms", script_int(reply, 2)));
	freeReplyObject(reply);
	wire_fini(&args);
}

/* How far Redis' clock has moved away from ours, beyond what the way there and back explains. */
static int64_t moved_locked(const struct redis_clock *clock, int64_t ms, int64_t sent_ns, int64_t got_ns)
{
	int64_t least = at_locked(clock, sent_ns), most = at_locked(clock, got_ns);

	if (ms > most + JUMP_MS)
		return ms - most;
	return ms < least - JUMP_MS ? ms - least : 0;
}

/* Within what is no jump the sample is right: forward at once, back by standing still (see now_locked). */
static void follow_locked(struct redis_clock *clock, int64_t ms, int64_t sent_ns, int64_t got_ns)
{
	int64_t way_ms = (got_ns - sent_ns) / CLOCK_NS_PER_MS + 1, mine = at_locked(clock, got_ns);

	if (mine < ms)
		clock->base_ms = ms;
	else if (mine > ms + way_ms)
		clock->base_ms = ms + way_ms;
	else
		return;
	clock->base_ns = got_ns;
}

void guard_sample(struct rconn *conn, const redisReply *reply, int64_t sent_ns, int64_t got_ns)
{
	struct redis_store *store = conn->store;
	int64_t offset = script_int(reply, 2), ms = script_int(reply, 1) / 1000 + offset, moved = 0;

	lock_take(&store->clock_lock);
	store->clock.quiet_ms = script_int(reply, 3);
	if (store->clock.base_ns != 0)
		moved = moved_locked(&store->clock, ms, sent_ns, got_ns);
	if (store->clock.base_ns != 0 && moved == 0)
		follow_locked(&store->clock, ms, sent_ns, got_ns);
	lock_drop(&store->clock_lock);
	if (moved != 0 && !conn->absorbs)
		absorb(conn, offset, moved);
}

/* The time that the store would expect at least, and whether this machine knows it exactly. */
static int64_t expected(const redisReply *open, int64_t got_ns, bool *ret_exact)
{
	const char *mark = open->element[3]->str;
	int64_t last = script_int(open, 8), ms, ns;
	char *end;

	*ret_exact = false;
	if (mark == NULL)
		return last;
	ms = strtoll(mark, &end, 10);
	ns = strtoll(end, NULL, 10);
	if (ns <= 0 || ns > got_ns || got_ns - ns > MARK_GOOD_NS || ms <= 0)
		return last;
	*ret_exact = true;
	ms += (got_ns - ns) / CLOCK_NS_PER_MS;
	return ms > last ? ms : last;
}

int guard_start(struct rconn *conn, const redisReply *open, int64_t got_ns, struct err *err)
{
	struct redis_store *store = conn->store;
	int64_t ms = script_int(open, 4) / 1000 + script_int(open, 5), want;
	bool exact;

	want = expected(open, got_ns, &exact);
	if (ms <= 0 || ms > STORE_CLOCK_MAX_MS)
		return err_set(err, ERR_STORE, "the clock of Redis says %lld, which is no time", (long long)ms);
	lock_take(&store->clock_lock);
	store->clock.base_ns = got_ns;
	/* Ahead of what is known is a jump only where this machine knows what has passed meanwhile. */
	store->clock.base_ms = want > ms || (exact && ms > want + JUMP_MS) ? want : ms;
	store->clock.quiet_ms = script_int(open, 6);
	lock_drop(&store->clock_lock);
	return 0;
}

int guard_seen(struct rconn *conn, struct err *err)
{
	struct redis_store *store = conn->store;
	struct wire_args args = {0};
	char mark[64], hold[24];
	redisReply *reply = NULL;
	int64_t now_ms;
	int rc;

	if (redis_id_of(store)[0] == '\0')
		return 0;
	now_ms = guard_now(store);
	snprintf(mark, sizeof(mark), "%lld %lld", (long long)now_ms, (long long)clock_boot_ns());
	snprintf(hold, sizeof(hold), "%lld", (long long)store->hold_ms);
	wire_text(&args, conn->run_id);
	wire_text(&args, hold);
	wire_text(&args, store->boot_id);
	wire_text(&args, mark);
	rc = args.error != 0 ? err_set(err, ERR_NOMEM, "no memory to talk to Redis")
			     : script_once(conn, SCRIPT_seen, &args, &reply, err);
	if (rc == 0 && strcmp(script_word(reply), "RESTARTED") == 0)
		log_warn("Redis was started anew or failed over; nothing is reclaimed for a while",
			 KI("hold_ms", store->hold_ms));
	freeReplyObject(reply);
	wire_fini(&args);
	return rc;
}

void guard_mark(struct rconn *conn)
{
	struct redis_store *store = conn->store;
	int64_t now_ns = clock_boot_ns();
	struct err ignored;
	bool due;

	lock_take(&store->clock_lock);
	due = now_ns - store->marked_ns >= MARK_EVERY_NS;
	if (due)
		store->marked_ns = now_ns;
	lock_drop(&store->clock_lock);
	if (due && conn->ctx != NULL)
		guard_seen(conn, &ignored); /* a broken connection is met by the next call */
}

void guard_outage(struct redis_store *store)
{
	lock_take(&store->clock_lock);
	store->clock.hold_ns = clock_after_ms(store->hold_ms);
	lock_drop(&store->clock_lock);
}

int64_t guard_hold_ms(struct store *base)
{
	struct redis_store *store = redis_of(base);
	int64_t own, shared;

	lock_take(&store->clock_lock);
	own = clock_left_ms(store->clock.hold_ns);
	shared = store->clock.quiet_ms - now_locked(&store->clock);
	lock_drop(&store->clock_lock);
	return shared > own ? shared : own;
}
