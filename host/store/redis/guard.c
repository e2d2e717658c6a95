/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guarded clock: Redis' time plus an offset that all hosts share. Every answer of a script is a sample of it;
 * between samples this process goes on by CLOCK_BOOTTIME. A sample that disagrees with that by more than 2 s is a jump
 * of Redis' clock, for which the offset is moved, or of this host's, which then takes the sample: lua/absorb.lua tells
 * which. Any thread. What it gives out never goes back, and a jump never expires a lease.
 */
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "store/clock.h"
#include "store/redis/redis.h"

#define JUMP_MS 2000
#define WITNESS_MS "1000" /* two clocks that are no further apart say the same */
#define MARK_EVERY_NS (5 * CLOCK_NS_PER_S)
#define MARK_GOOD_NS (6 * 3600 * CLOCK_NS_PER_S) /* two machines drift apart by less than a jump in that time */

/* Of the store's clock, from one answer; Redis looked at it between the two moments. */
struct sample {
	int64_t ms, offset_ms, moves;
	int64_t sent_ns, got_ns;
};

/* A sample that this host disagrees with. */
struct doubt {
	int64_t moved_ms; /* 0: it agrees */
	int64_t offset_ms, moves;
	bool agreed; /* until now, since the offset was moved last */
};

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

/* How far the sample is away from our clock, beyond what its way and the way of the base's own sample explain. */
static int64_t moved_locked(const struct redis_clock *clock, const struct sample *sample)
{
	int64_t least = at_locked(clock, sample->sent_ns), most = at_locked(clock, sample->got_ns);

	if (sample->ms > most + clock->unsure_ms + JUMP_MS)
		return sample->ms - most;
	return sample->ms < least - JUMP_MS ? sample->ms - least : 0;
}

static int64_t way_ms(const struct sample *sample)
{
	return (sample->got_ns - sample->sent_ns) / CLOCK_NS_PER_MS + 1;
}

static void take_locked(struct redis_clock *clock, const struct sample *sample)
{
	clock->base_ms = sample->ms;
	clock->base_ns = sample->got_ns;
	clock->unsure_ms = way_ms(sample);
}

/* Within what is no jump the sample is right: forward at once, back by standing still (see now_locked). */
static void follow_locked(struct redis_clock *clock, const struct sample *sample)
{
	int64_t most = sample->ms + way_ms(sample), mine = at_locked(clock, sample->got_ns);

	if (mine < sample->ms || mine > most) {
		clock->base_ms = mine < sample->ms ? sample->ms : most;
		clock->base_ns = sample->got_ns;
		mine = clock->base_ms;
	}
	if (most - mine < clock->unsure_ms)
		clock->unsure_ms = most - mine;
}

static struct doubt judge_locked(struct rconn *conn, const redisReply *reply, const struct sample *sample)
{
	struct redis_clock *clock = &conn->store->clock;
	struct doubt doubt = {.offset_ms = sample->offset_ms, .moves = sample->moves};

	/* An answer that was overtaken by one of another connection says how it was before the offset was moved. */
	if (clock->base_ns == 0 || sample->moves < clock->moves)
		return doubt;
	clock->moves = sample->moves;
	clock->quiet_ms = script_int(reply, 3);
	if (conn->absorbs && strcmp(script_word(reply), "TAKE") == 0) {
		take_locked(clock, sample);
		clock->hold_ns = clock_after_ms(conn->store->hold_ms); /* by the wrong clock, others may look dead */
	}
	doubt.moved_ms = moved_locked(clock, sample);
	doubt.agreed = clock->agreed == sample->moves;
	if (doubt.moved_ms == 0) {
		follow_locked(clock, sample);
		clock->agreed = sample->moves;
	}
	return doubt;
}

static void tell(const redisReply *reply, const struct doubt *doubt)
{
	const char *word = script_word(reply);

	if (strcmp(word, "MOVED") == 0)
		log_warn("the clocks of Redis and of this host disagree; the store's goes on by this host's, unless "
			 "another host stands by Redis'",
			 KI("moved_ms", doubt->moved_ms), KI("offset_ms", script_int(reply, 2)));
	else if (strcmp(word, "TAKE") == 0)
		log_warn("this host's clock was wrong by what another host says; it goes on by the store's",
			 KI("moved_ms", doubt->moved_ms), KI("offset_ms", script_int(reply, 2)));
}

static void absorb(struct rconn *conn, const struct doubt *doubt)
{
	struct redis_store *store = conn->store;
	struct wire_args args = {0};
	char moves[24], offset[24], hold[24];
	redisReply *reply = NULL;
	struct err err = {0};
	int rc;

	snprintf(moves, sizeof(moves), "%lld", (long long)doubt->moves);
	snprintf(offset, sizeof(offset), "%lld", (long long)(doubt->offset_ms - doubt->moved_ms));
	snprintf(hold, sizeof(hold), "%lld", (long long)store->hold_ms);
	wire_text(&args, moves);
	wire_text(&args, offset);
	wire_text(&args, hold);
	wire_text(&args, doubt->agreed ? "1" : "0");
	wire_text(&args, WITNESS_MS);
	conn->absorbs = true;
	rc = args.error != 0 ? args.error : script_once(conn, SCRIPT_absorb, &args, &reply, &err);
	conn->absorbs = false;
	/* What was not absorbed is met again by the next sample. */
	if (rc == 0)
		tell(reply, doubt);
	freeReplyObject(reply);
	wire_fini(&args);
}

void guard_sample(struct rconn *conn, const redisReply *reply, int64_t sent_ns, int64_t got_ns)
{
	struct redis_store *store = conn->store;
	struct sample sample = {.sent_ns = sent_ns, .got_ns = got_ns};
	struct doubt doubt;

	sample.offset_ms = script_int(reply, 2);
	sample.ms = script_int(reply, 1) / 1000 + sample.offset_ms;
	sample.moves = script_int(reply, 5);
	lock_take(&store->clock_lock);
	doubt = judge_locked(conn, reply, &sample);
	lock_drop(&store->clock_lock);
	if (doubt.moved_ms != 0 && !conn->absorbs)
		absorb(conn, &doubt);
}

/* The time that the store would expect at least, and whether this machine knows it exactly; then *ret_agreed is how
 * often the offset had been moved when the process before agreed with it. */
static int64_t expected(const redisReply *open, int64_t got_ns, bool *ret_exact, int64_t *ret_agreed)
{
	const char *mark = open->element[3]->str;
	int64_t last = script_int(open, 8), ms, ns, agreed;
	char *end;

	*ret_exact = false;
	*ret_agreed = -1;
	if (mark == NULL)
		return last;
	ms = strtoll(mark, &end, 10);
	ns = strtoll(end, &end, 10);
	agreed = *end == ' ' ? strtoll(end, NULL, 10) : -1;
	if (ns <= 0 || ns > got_ns || got_ns - ns > MARK_GOOD_NS || ms <= 0)
		return last;
	*ret_exact = true;
	*ret_agreed = agreed;
	ms += (got_ns - ns) / CLOCK_NS_PER_MS;
	return ms > last ? ms : last;
}

int guard_start(struct rconn *conn, const redisReply *open, int64_t sent_ns, int64_t got_ns, struct err *err)
{
	struct redis_store *store = conn->store;
	struct redis_clock *clock = &store->clock;
	int64_t ms = script_int(open, 4) / 1000 + script_int(open, 5), want, most, agreed;
	bool exact;

	want = expected(open, got_ns, &exact, &agreed);
	if (ms <= 0 || ms > STORE_CLOCK_MAX_MS)
		return err_set(err, ERR_STORE, "the clock of Redis says %lld, which is no time", (long long)ms);
	lock_take(&store->clock_lock);
	/* A clock that goes already meets another store, with numbers of its own. */
	clock->moves = script_int(open, 9);
	clock->agreed = clock->base_ns == 0 ? agreed : -1;
	clock->quiet_ms = script_int(open, 6);
	if (clock->base_ns == 0) {
		most = ms + (got_ns - sent_ns) / CLOCK_NS_PER_MS + 1;
		clock->base_ns = got_ns;
		/* Ahead of what is known is a jump only where this machine knows what has passed meanwhile. */
		clock->base_ms = want > ms || (exact && ms > want + JUMP_MS) ? want : ms;
		clock->unsure_ms = exact || clock->base_ms > most ? 0 : most - clock->base_ms;
	}
	lock_drop(&store->clock_lock);
	return 0;
}

int guard_seen(struct rconn *conn, struct err *err)
{
	struct redis_store *store = conn->store;
	struct wire_args args = {0};
	char mark[80], hold[24];
	redisReply *reply = NULL;
	int64_t now_ms, now_ns, agreed;
	int rc;

	if (redis_id_of(store)[0] == '\0')
		return 0;
	lock_take(&store->clock_lock);
	now_ns = clock_boot_ns();
	now_ms = at_locked(&store->clock, now_ns);
	agreed = store->clock.agreed;
	lock_drop(&store->clock_lock);
	snprintf(mark, sizeof(mark), "%lld %lld %lld", (long long)now_ms, (long long)now_ns, (long long)agreed);
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
	struct redis_clock *clock = &store->clock;
	int64_t own, shared, ahead, at_ms;

	lock_take(&store->clock_lock);
	at_ms = at_locked(clock, clock_boot_ns());
	own = clock_left_ms(clock->hold_ns);
	shared = clock->quiet_ms - at_ms;
	/* What it gave out was far ahead, and stands still: by that, others look dead. */
	ahead = clock->last_ms - at_ms > JUMP_MS ? clock->last_ms - at_ms : 0;
	lock_drop(&store->clock_lock);
	own = ahead > own ? ahead : own;
	return shared > own ? shared : own;
}
