/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the list of connections and the one thread that measures them. Each has credit: milliseconds that it may still
 * be slow. Time costs credit while the client is the one to act; bytes at the least rate earn it back, up to the whole
 * window. Entered from the loop threads (add, remove, set). Must never close a descriptor, nor read or write one: it
 * shuts a connection down, and libmicrohttpd finds its end.
 */
#include "api/guard.h"

#include <assert.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <linux/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/thread.h"
#include "obs/metrics.h"

#define TICK_LEAST_MS 10
#define TICK_MOST_MS 500
#define LATE_GRACE_MS 5000  /* for the answer to a late body to be made and sent with its next byte */
#define EVICT_AFTER_MS 1000 /* a head younger than this is not taken for a slow one */
#define PHASE_BITS 3u
#define PHASE_MASK ((1u << PHASE_BITS) - 1)

/* Places in METRIC_DIM_LIMIT. */
enum reason { CUT_HEAD, CUT_BODY, CUT_ANSWER, CUT_IDLE, CUT_FULL, CUT_REASONS };

struct guard {
	struct lock lock; /* class LEAF: everything below */
	struct cond cond;
	struct guard_limits limits;
	int64_t tick_ms, looked_ns;
	struct guard_entry *entries;
	unsigned count;		    /* without those that were cut */
	atomic_uint busy;	    /* not under lock */
	unsigned cuts[CUT_REASONS]; /* since the last log line */
	bool stop;
	pthread_t thread;
};

/* ---- what the kernel knows ---- */

struct flow {
	uint64_t acked, arrived, owed; /* owed: sent or to be sent, not acknowledged */
};

static void look_at(int fd, struct flow *ret)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);
	int owed = 0;

	*ret = (struct flow){0};
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0) {
		ret->acked = info.tcpi_bytes_acked;
		ret->arrived = info.tcpi_bytes_received;
	}
	if (ioctl(fd, SIOCOUTQ, &owed) == 0 && owed > 0)
		ret->owed = (uint64_t)owed;
}

static bool has_unread(int fd)
{
	int unread = 0;

	return ioctl(fd, SIOCINQ, &unread) == 0 && unread > 0;
}

/* ---- credit ---- */

static enum guard_phase phase_of(unsigned turn)
{
	return (enum guard_phase)(turn & PHASE_MASK);
}

static bool is_busy(unsigned turn)
{
	return phase_of(turn) != GUARD_HEAD && phase_of(turn) != GUARD_IDLE;
}

static int64_t credit_of(const struct guard *guard, enum guard_phase phase)
{
	switch (phase) {
	case GUARD_HEAD:
		return guard->limits.head_ms;
	case GUARD_LINGER:
		return guard->limits.linger_ms;
	case GUARD_IDLE:
		return guard->limits.idle_ms;
	default:
		return guard->limits.window_ms;
	}
}

static int64_t earned(const struct guard *guard, uint64_t bytes)
{
	uint64_t most = (uint64_t)guard->limits.window_ms, ms = most;

	if (bytes == 0)
		return 0;
	if (guard->limits.rate > 0 && bytes < UINT64_MAX / 1000)
		ms = bytes * 1000 / (uint64_t)guard->limits.rate;
	return (int64_t)(ms < most ? ms : most);
}

static void charge(const struct guard *guard, int64_t *credit, int64_t cost_ms, uint64_t bytes)
{
	*credit += earned(guard, bytes) - cost_ms;
	if (*credit > guard->limits.window_ms)
		*credit = guard->limits.window_ms;
}

/* Bytes that we sent. A client that has taken all that was owed at the last look keeps up, however little that is. */
static bool answer_stalls(struct guard *guard, struct guard_entry *entry, const struct flow *flow, int64_t cost_ms)
{
	uint64_t taken = flow->acked - entry->acked_seen;

	if (flow->owed == 0 || taken >= entry->owed_seen)
		entry->flow_ms = guard->limits.window_ms;
	else
		charge(guard, &entry->flow_ms, cost_ms, taken);
	entry->acked_seen = flow->acked;
	entry->owed_seen = flow->owed;
	return entry->flow_ms <= 0;
}

/* Told once that it is late, so that its next byte is answered; what sends nothing has no next byte. */
static bool body_stalls(struct guard *guard, struct guard_entry *entry, int64_t cost_ms)
{
	uint64_t received = atomic_load(&entry->received);
	uint64_t came = received - entry->received_seen;

	entry->received_seen = received;
	if (atomic_load(&entry->late)) {
		entry->credit_ms -= cost_ms;
		return entry->credit_ms <= 0;
	}
	if (atomic_load(&entry->paused) || has_unread(entry->fd))
		return false;
	charge(guard, &entry->credit_ms, cost_ms, came);
	if (entry->credit_ms > 0)
		return false;
	atomic_store(&entry->late, true);
	if (atomic_load(&entry->turn) != entry->turn_seen) /* it has come to its end meanwhile */
		atomic_store(&entry->late, false);
	entry->credit_ms = LATE_GRACE_MS < guard->limits.window_ms ? LATE_GRACE_MS : guard->limits.window_ms;
	return false;
}

static void begin_phase(struct guard *guard, struct guard_entry *entry, unsigned turn, const struct flow *flow)
{
	entry->turn_seen = turn;
	entry->credit_ms = credit_of(guard, phase_of(turn));
	entry->arrived_seen = flow->arrived;
	entry->received_seen = atomic_load(&entry->received);
	if (!entry->looked)
		entry->flow_ms = guard->limits.window_ms;
	entry->looked = true;
}

/* The first byte of the next head ends the idle time: libmicrohttpd tells of whole request lines only. */
static void notice_head(struct guard *guard, struct guard_entry *entry, const struct flow *flow)
{
	unsigned idle = entry->turn_seen;
	unsigned head = (idle & ~PHASE_MASK) | GUARD_HEAD;

	if (flow->arrived == entry->arrived_seen || !atomic_compare_exchange_strong(&entry->turn, &idle, head))
		return;
	begin_phase(guard, entry, head, flow);
}

/* One look at one connection; true: it is to be cut, for *ret. */
static bool exceeds(struct guard *guard, struct guard_entry *entry, int64_t cost_ms, enum reason *ret)
{
	unsigned turn = atomic_load(&entry->turn);
	enum guard_phase phase = phase_of(turn);
	struct flow flow = {0};

	if (phase != GUARD_HEAD && phase != GUARD_BODY)
		look_at(entry->fd, &flow);
	if (!entry->looked || turn != entry->turn_seen) {
		begin_phase(guard, entry, turn, &flow);
		return false;
	}
	*ret = CUT_ANSWER;
	if (phase == GUARD_ANSWER || phase == GUARD_WORK || (phase == GUARD_IDLE && flow.owed))
		return answer_stalls(guard, entry, &flow, cost_ms);
	*ret = CUT_BODY;
	if (phase == GUARD_BODY)
		return body_stalls(guard, entry, cost_ms);
	*ret = phase == GUARD_HEAD ? CUT_HEAD : phase == GUARD_IDLE ? CUT_IDLE : CUT_BODY;
	entry->credit_ms -= cost_ms;
	if (phase == GUARD_IDLE)
		notice_head(guard, entry, &flow);
	return entry->credit_ms <= 0;
}

/* ---- cutting ---- */

/* What is left in the kernel's buffers would live on without us, so the connection is reset, unless it is idle or its
 * client may still be reading an answer. */
static void cut_locked(struct guard *guard, struct guard_entry *entry, enum reason reason)
{
	const struct linger reset = {.l_onoff = 1};

	if (!entry->cut) {
		entry->cut = true;
		guard->count--;
		guard->cuts[reason]++;
		metric_add(METRIC_HTTP_CUT, reason, 0, 1);
		if (reason != CUT_IDLE && phase_of(atomic_load(&entry->turn)) != GUARD_LINGER)
			setsockopt(entry->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	}
	/* Again with each look until it is closed: an edge-triggered loop may miss an end that came with bytes. */
	shutdown(entry->fd, SHUT_RDWR);
}

static int64_t credit_left(const struct guard *guard, const struct guard_entry *entry, unsigned turn)
{
	return entry->looked && entry->turn_seen == turn ? entry->credit_ms : credit_of(guard, phase_of(turn));
}

/* False: nobody can go. With the list's newest first, the last of equals is the oldest. */
static bool evict_locked(struct guard *guard, bool idle_too)
{
	struct guard_entry *worst[2] = {NULL, NULL}; /* an unfinished head, an idle one */
	int64_t least[2] = {guard->limits.head_ms - EVICT_AFTER_MS, INT64_MAX};

	for (struct guard_entry *entry = guard->entries; entry; entry = entry->next) {
		unsigned turn = atomic_load(&entry->turn);
		unsigned kind = phase_of(turn) == GUARD_IDLE;
		int64_t left = credit_left(guard, entry, turn);

		if (entry->cut || (kind ? !idle_too : phase_of(turn) != GUARD_HEAD) || left > least[kind])
			continue;
		worst[kind] = entry;
		least[kind] = left;
	}
	if (worst[0] || worst[1])
		cut_locked(guard, worst[0] ? worst[0] : worst[1], CUT_FULL);
	return worst[0] || worst[1];
}

/* At its own limit libmicrohttpd accepts nobody, and nobody comes to guard_add: so there has to be room again. */
static void make_room_locked(struct guard *guard)
{
	unsigned most = guard->limits.connections;

	if (guard->count <= most)
		return;
	while (guard->count > most - most / 4 && evict_locked(guard, guard->count > most))
		;
}

/* ---- the thread ---- */

static void look_locked(struct guard *guard)
{
	int64_t now = clock_boot_ns();
	int64_t cost_ms = (now - guard->looked_ns) / CLOCK_NS_PER_MS;

	/* A process that was stopped has not looked, and not read either. */
	if (cost_ms > 2 * guard->tick_ms)
		cost_ms = 2 * guard->tick_ms;
	guard->looked_ns = now;
	for (struct guard_entry *entry = guard->entries; entry; entry = entry->next) {
		enum reason reason = CUT_FULL;

		if (entry->cut || exceeds(guard, entry, cost_ms, &reason))
			cut_locked(guard, entry, reason);
	}
	make_room_locked(guard);
}

/* One line for all of a while: ten thousand slow clients must not fill the log. */
static void tell(const unsigned cuts[CUT_REASONS])
{
	unsigned total = 0;

	for (unsigned i = 0; i < CUT_REASONS; i++)
		total += cuts[i];
	if (total > cuts[CUT_IDLE])
		log_info("slow clients were cut", KI("head", cuts[CUT_HEAD]), KI("body", cuts[CUT_BODY]),
			 KI("answer", cuts[CUT_ANSWER]), KI("full", cuts[CUT_FULL]));
}

static void *guard_main(void *arg)
{
	struct guard *guard = arg;

	lock_take(&guard->lock);
	while (!guard->stop) {
		unsigned cuts[CUT_REASONS];

		cond_wait_until(&guard->cond, &guard->lock,
				guard->entries ? clock_after_ms(guard->tick_ms) : INT64_MAX);
		look_locked(guard);
		memcpy(cuts, guard->cuts, sizeof(cuts));
		memset(guard->cuts, 0, sizeof(guard->cuts));
		lock_drop(&guard->lock);
		tell(cuts);
		lock_take(&guard->lock);
	}
	lock_drop(&guard->lock);
	return NULL;
}

static int64_t tick_of(const struct guard_limits *limits)
{
	int64_t least = limits->head_ms < limits->idle_ms ? limits->head_ms : limits->idle_ms;

	if (limits->window_ms < least)
		least = limits->window_ms;
	least /= 8;
	return least < TICK_LEAST_MS ? TICK_LEAST_MS : least > TICK_MOST_MS ? TICK_MOST_MS : least;
}

int guard_new(const struct guard_limits *limits, struct guard **ret, struct err *err)
{
	struct guard *guard = calloc(1, sizeof(*guard));

	if (!guard)
		return err_set(err, ERR_NOMEM, "out of memory");
	guard->limits = *limits;
	guard->tick_ms = tick_of(limits);
	guard->looked_ns = clock_boot_ns();
	lock_init(&guard->lock, LOCK_LEAF);
	cond_init(&guard->cond);
	if (thread_start(&guard->thread, "guard", guard_main, guard) != 0) {
		cond_fini(&guard->cond);
		lock_fini(&guard->lock);
		free(guard);
		return err_set(err, ERR_NOMEM, "cannot start the guard's thread");
	}
	*ret = guard;
	return 0;
}

void guard_free(struct guard *guard)
{
	if (!guard)
		return;
	lock_take(&guard->lock);
	guard->stop = true;
	cond_wake_all(&guard->cond);
	lock_drop(&guard->lock);
	pthread_join(guard->thread, NULL);
	assert(!guard->entries);
	cond_fini(&guard->cond);
	lock_fini(&guard->lock);
	free(guard);
}

/* ---- loop threads ---- */

void guard_add(struct guard *guard, struct guard_entry *entry, int fd)
{
	entry->guard = guard;
	entry->fd = fd;
	lock_take(&guard->lock);
	if (++guard->count > guard->limits.connections)
		evict_locked(guard, true);
	entry->prev = NULL;
	entry->next = guard->entries;
	if (entry->next)
		entry->next->prev = entry;
	else
		cond_wake_all(&guard->cond); /* without connections the thread sleeps */
	guard->entries = entry;
	lock_drop(&guard->lock);
}

void guard_remove(struct guard *guard, struct guard_entry *entry)
{
	lock_take(&guard->lock);
	if (entry->prev)
		entry->prev->next = entry->next;
	else
		guard->entries = entry->next;
	if (entry->next)
		entry->next->prev = entry->prev;
	guard->count -= !entry->cut;
	lock_drop(&guard->lock);
	if (is_busy(atomic_load(&entry->turn)))
		atomic_fetch_sub(&guard->busy, 1);
}

void guard_set(struct guard_entry *entry, enum guard_phase phase)
{
	unsigned turn = atomic_load(&entry->turn), next;

	do
		next = ((turn | PHASE_MASK) + 1) | phase;
	while (!atomic_compare_exchange_weak(&entry->turn, &turn, next));
	if (is_busy(next) && !is_busy(turn))
		atomic_fetch_add(&entry->guard->busy, 1);
	if (is_busy(turn) && !is_busy(next))
		atomic_fetch_sub(&entry->guard->busy, 1);
}

unsigned guard_busy(struct guard *guard)
{
	return atomic_load(&guard->busy);
}
