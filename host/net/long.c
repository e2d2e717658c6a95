/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The caller's side of a long exchange. The loop puts response bytes into a bounded window and pauses when it is full; the
 * calling thread takes the window as a whole, lets the peer go on, and hands the bytes to the callbacks. Request bytes
 * go the other way round. Callbacks run on the calling thread without a lock; a silent exchange holds no buffers.
 */
#include "net/private.h"

#include <assert.h>

/* More than this is taken away while libcurl goes on reading, not when it is through: the window would fill, and each pause
 * of a transfer costs a copy. */
#define NEWS_MOST (NET_WINDOW / 8)
#define QUIET_MS 1000 /* without a byte for so long, buffers and unused stack are given back */

struct ferry {
	struct carried carried;
	struct exchange *ex;
	struct lock lock; /* LOCK_STREAM: all below */
	struct cond cond;
	struct buf in;   /* for the caller */
	bool in_paused;  /* the loop waits for room */
	bool head_ready; /* and not delivered */
	char *feed;      /* for the peer; filled without the lock while the loop has none of it left */
	size_t feed_len, feed_at;
	bool feed_wanted; /* the loop waits for bytes */
	bool feed_end;
	bool woken; /* by a cancel */
	bool ended;
	CURLcode result;
	/* The calling thread only. */
	struct buf out;
	bool rests;   /* it was silent for so long that it holds as little as it can */
	bool gave_up; /* removal was asked for; what still comes is dropped */
	enum cut cut;
	int32_t code;
};

/* ---- on the loop ---- */

static bool head_over(struct exchange *ex)
{
	struct ferry *ferry = ex->carrier;

	lock_take(&ferry->lock);
	ferry->head_ready = true;
	lock_drop(&ferry->lock);
	loop_news(&ferry->carried);
	return true;
}

static size_t write_over(struct exchange *ex, const char *ptr, size_t len)
{
	struct ferry *ferry = ex->carrier;
	size_t done = len;
	bool much;

	lock_take(&ferry->lock);
	if (ferry->in.len && len > NET_WINDOW - ferry->in.len) {
		ferry->in_paused = true;
		done = CURL_WRITEFUNC_PAUSE;
	} else if (buf_append(&ferry->in, ptr, len)) {
		exchange_cut(ex, CUT_MEMORY);
		done = 0;
	}
	much = ferry->in.len > NEWS_MOST;
	lock_drop(&ferry->lock);
	if (much)
		cond_wake_one(&ferry->cond);
	else
		loop_news(&ferry->carried);
	return done;
}

static size_t read_over(struct exchange *ex, char *buf, size_t cap)
{
	struct ferry *ferry = ex->carrier;
	size_t len = 0;

	lock_take(&ferry->lock);
	if (ferry->feed_at < ferry->feed_len) {
		len = ferry->feed_len - ferry->feed_at;
		len = len < cap ? len : cap;
		memcpy(buf, ferry->feed + ferry->feed_at, len);
		ferry->feed_at += len;
	} else if (!ferry->feed_end) {
		ferry->feed_wanted = true;
		len = CURL_READFUNC_PAUSE;
		loop_news(&ferry->carried);
	}
	lock_drop(&ferry->lock);
	return len;
}

static void told(struct carried *carried)
{
	struct ferry *ferry = (struct ferry *)(void *)carried; /* its first member */

	cond_wake_one(&ferry->cond);
}

static void end_over(struct carried *carried, CURLcode result)
{
	struct ferry *ferry = (struct ferry *)(void *)carried; /* its first member */

	lock_take(&ferry->lock);
	ferry->result = result;
	ferry->ended = true;
	cond_wake_one(&ferry->cond);
	lock_drop(&ferry->lock);
}

static const struct way over = {.head = head_over, .write = write_over, .read = read_over};

/* ---- any thread ---- */

static void wake(void *arg)
{
	struct ferry *ferry = arg;

	lock_take(&ferry->lock);
	ferry->woken = true;
	cond_wake_one(&ferry->cond);
	lock_drop(&ferry->lock);
}

/* ---- on the calling thread ---- */

static void give_up(struct ferry *ferry, enum cut cut, int32_t code)
{
	if (ferry->gave_up)
		return;
	ferry->gave_up = true;
	ferry->cut = cut;
	ferry->code = code;
	loop_ask(&ferry->carried, LOOP_REMOVE);
}

static void obey(struct ferry *ferry, int32_t code)
{
	if (code != BERTH_OK)
		give_up(ferry, CUT_CALLBACK, code);
}

static bool has_work_locked(const struct ferry *ferry)
{
	return ferry->in.len || ferry->head_ready || ferry->feed_wanted || ferry->woken || ferry->ended;
}

static void wait_locked(struct ferry *ferry, int64_t next_ns)
{
	bool holds = !ferry->rests || ferry->in.ptr || ferry->out.ptr;
	int64_t quiet_ns = holds ? clock_after_ms(QUIET_MS) : INT64_MAX;

	if (has_work_locked(ferry))
		return;
	cond_wait_until(&ferry->cond, &ferry->lock, quiet_ns < next_ns ? quiet_ns : next_ns);
	if (!holds || has_work_locked(ferry) || clock_boot_ns() < quiet_ns)
		return;
	buf_fini(&ferry->in);
	buf_fini(&ferry->out);
	if (!ferry->rests)
		thread_shed_stack();
	ferry->rests = true;
}

static void feed(struct ferry *ferry)
{
	size_t len;
	int32_t code;

	if (!ferry->feed)
		ferry->feed = malloc(NET_FEED);
	if (!ferry->feed) {
		give_up(ferry, CUT_MEMORY, 0);
		return;
	}
	code = exchange_fetch(ferry->ex, ferry->feed, NET_FEED, &len);
	if (code != BERTH_OK) {
		obey(ferry, code);
		return;
	}
	lock_take(&ferry->lock);
	ferry->feed_len = len;
	ferry->feed_at = 0;
	ferry->feed_end = len == 0;
	ferry->feed_wanted = false;
	lock_drop(&ferry->lock);
	loop_ask(&ferry->carried, LOOP_RESUME);
}

struct work {
	bool head, resume, feed, ended;
};

static struct work take_work(struct ferry *ferry, int64_t next_ns)
{
	struct work work;
	struct buf swap;

	lock_take(&ferry->lock);
	wait_locked(ferry, next_ns);
	work = (struct work){
		.head = ferry->head_ready,
		.resume = ferry->in_paused,
		.feed = ferry->feed_wanted,
		.ended = ferry->ended,
	};
	swap = ferry->out;
	ferry->out = ferry->in;
	ferry->in = swap;
	ferry->head_ready = ferry->in_paused = ferry->woken = false;
	lock_drop(&ferry->lock);
	return work;
}

/* False once the loop is done with it and everything is delivered. */
static bool step(struct ferry *ferry)
{
	struct exchange *ex = ferry->ex;
	int64_t next = INT64_MAX;
	struct work work;
	enum cut cut = ferry->gave_up ? CUT_NONE : exchange_due(ex, &next);

	if (cut)
		give_up(ferry, cut, 0);
	work = take_work(ferry, ferry->gave_up ? INT64_MAX : next);
	if (work.resume)
		loop_ask(&ferry->carried, LOOP_RESUME);
	if (work.head && !ferry->gave_up)
		obey(ferry, exchange_deliver_head(ex));
	if (ferry->out.len && !ferry->gave_up)
		obey(ferry, exchange_deliver(ex, ferry->out.ptr, ferry->out.len));
	buf_clear(&ferry->out);
	if (work.feed && !work.ended && !ferry->gave_up)
		feed(ferry);
	return !work.ended;
}

static CURLcode carry(struct ferry *ferry)
{
	ferry->carried.gone = ferry->ended = ferry->feed_wanted = false;
	loop_ask(&ferry->carried, LOOP_ADD);
	while (step(ferry))
		;
	if (ferry->gave_up) {
		ferry->ex->cut = ferry->cut;
		ferry->ex->code = ferry->code;
	}
	return ferry->result;
}

static CURLcode carry_all(struct ferry *ferry)
{
	struct exchange *ex = ferry->ex;
	const struct net_caller *caller = ex->caller;
	struct net_waker waker = {.fn = wake, .arg = ferry};
	CURLcode result;

	exchange_prepare(ex);
	if (caller->listen)
		caller->listen(caller->arg, &waker);
	do {
		result = carry(ferry);
	} while (exchange_again(ex, result));
	if (caller->unlisten)
		caller->unlisten(caller->arg, &waker);
	return result;
}

static int32_t run(struct exchange *ex, struct loop *loop)
{
	struct ferry ferry = {.ex = ex, .carried = {.ex = ex, .loop = loop, .ended = end_over, .told = told}};
	int32_t code;

	lock_init(&ferry.lock, LOCK_STREAM);
	cond_init(&ferry.cond);
	buf_init(&ferry.in, NET_WINDOW);
	buf_init(&ferry.out, NET_WINDOW);
	ex->way = &over;
	ex->carrier = &ferry;
	code = outcome_of(ex, carry_all(&ferry));
	free(ferry.feed);
	buf_fini(&ferry.in);
	buf_fini(&ferry.out);
	cond_fini(&ferry.cond);
	lock_fini(&ferry.lock);
	return code;
}

int32_t long_exchange(struct exchange *ex)
{
	struct loop *loop = net_loop_least(ex->net);
	int32_t code;

	if (!loop || !net_reserve(ex->net, 1)) {
		exchange_cut(ex, CUT_DESCRIPTORS);
		return outcome_of(ex, CURLE_OK);
	}
	ex->easy = curl_easy_init();
	if (ex->easy) {
		code = run(ex, loop);
	} else {
		exchange_cut(ex, CUT_MEMORY);
		code = outcome_of(ex, CURLE_OK);
	}
	curl_easy_cleanup(ex->easy);
	net_unreserve(ex->net, 1);
	return code;
}
