/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One loop thread: curl_multis (shelf.c) driven by epoll, which costs nothing for exchanges that are silent. Others ask
 * through loop_ask; only the loop's thread touches its multis. Never blocks, never calls into a plugin. The first loop also closes
 * pooled handles that grew old.
 */
#include "net/private.h"

#include <errno.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>


#define EVENTS 64
#define NOT_A_SHELF UINT32_MAX /* the wake-up */

struct loop {
	struct net *net;
	pthread_t thread;
	bool first;
	struct shelves shelves;
	int epoll_fd, event_fd;
	int64_t sweep_ns; /* when the pool is to be looked at */
	_Atomic unsigned active;
	struct carried *news; /* whose callers are to be told */

	struct lock lock; /* LOCK_LEAF: the rest */
	struct carried *asked;
	bool stop;
};

unsigned loop_active(const struct loop *loop)
{
	return atomic_load(&loop->active);
}

void loop_poke(struct loop *loop)
{
	const uint64_t one = 1;

	(void)!write(loop->event_fd, &one, sizeof(one)); /* fails only when it is already readable */
}

void loop_ask(struct carried *carried, unsigned want)
{
	struct loop *loop = carried->loop;
	bool poke = false;

	lock_take(&loop->lock);
	if (!carried->gone) {
		if (want & LOOP_ADD)
			atomic_fetch_add(&loop->active, 1);
		carried->wants |= want;
		poke = !loop->asked;
		if (!carried->listed) {
			carried->next = loop->asked;
			loop->asked = carried;
			carried->listed = true;
		}
	}
	lock_drop(&loop->lock);
	if (poke)
		loop_poke(loop);
}

/* ---- exchanges ---- */

void loop_news(struct carried *carried)
{
	struct loop *loop = carried->loop;

	if (carried->has_news)
		return;
	carried->has_news = true;
	carried->next_news = loop->news;
	loop->news = carried;
}

/* Head, body and end of a short answer come at once, and are one wake of the caller. */
static void tell_news(struct loop *loop)
{
	struct carried *carried;

	while ((carried = loop->news) != NULL) {
		loop->news = carried->next_news;
		carried->has_news = false;
		carried->told(carried);
	}
}

static void forget_news(struct loop *loop, struct carried *carried)
{
	struct carried **at = &loop->news;

	while (carried->has_news && *at != carried)
		at = &(*at)->next_news;
	if (carried->has_news)
		*at = carried->next_news;
	carried->has_news = false;
}

static void unlist_locked(struct loop *loop, struct carried *carried)
{
	struct carried **at = &loop->asked;

	while (*at && *at != carried)
		at = &(*at)->next;
	if (*at)
		*at = carried->next;
	carried->listed = false;
}

/* After this its caller may free it at any time. */
static void let_go(struct loop *loop, struct carried *carried, CURLcode result)
{
	forget_news(loop, carried);
	lock_take(&loop->lock);
	if (carried->listed)
		unlist_locked(loop, carried);
	carried->gone = true;
	lock_drop(&loop->lock);
	atomic_fetch_sub(&loop->active, 1);
	carried->ended(carried, result);
}

static void serve(struct loop *loop, struct carried *carried, unsigned wants)
{
	if (wants & LOOP_REMOVE) {
		if (!(wants & LOOP_ADD))
			shelf_take(carried);
		let_go(loop, carried, CURLE_ABORTED_BY_CALLBACK);
	} else if (wants & LOOP_ADD) {
		if (!shelves_put(&loop->shelves, carried))
			let_go(loop, carried, CURLE_OUT_OF_MEMORY);
	} else {
		curl_easy_pause(carried->ex->easy, CURLPAUSE_CONT);
		tell_news(loop);
	}
}

static void serve_all(struct loop *loop)
{
	for (;;) {
		struct carried *carried;
		unsigned wants = 0;

		lock_take(&loop->lock);
		carried = loop->asked;
		if (carried) {
			loop->asked = carried->next;
			carried->listed = false;
			wants = carried->wants;
			carried->wants = 0;
		}
		lock_drop(&loop->lock);
		if (!carried)
			return;
		serve(loop, carried, wants);
	}
}

static void collect(struct loop *loop, struct shelf *shelf)
{
	struct carried *carried;
	CURLcode result;

	while ((carried = shelf_ended(shelf, &result)) != NULL)
		let_go(loop, carried, result);
	tell_news(loop);
}

/* ---- the thread ---- */

static int wait_ms(const struct loop *loop)
{
	int64_t next = shelves_due(&loop->shelves);
	int64_t left;

	next = next < loop->sweep_ns ? next : loop->sweep_ns;
	if (next == INT64_MAX)
		return -1;
	left = next - clock_boot_ns();
	return left <= 0 ? 0 : (int)((left + CLOCK_NS_PER_MS - 1) / CLOCK_NS_PER_MS);
}

/* True when it was asked for something. */
static bool take_events(struct loop *loop)
{
	struct epoll_event events[EVENTS];
	int count = epoll_wait(loop->epoll_fd, events, EVENTS, wait_ms(loop));
	bool asked = false;
	int running;

	for (int i = 0; i < count; i++) {
		uint32_t bits = events[i].events, number = (uint32_t)(events[i].data.u64 >> 32);
		int fd = (int)(uint32_t)events[i].data.u64;
		struct shelf *shelf;
		uint64_t value;

		if (number == NOT_A_SHELF) {
			(void)!read(loop->event_fd, &value, sizeof(value));
			asked = true;
			continue;
		}
		shelf = loop->shelves.all[number];
		curl_multi_socket_action(shelf->multi, fd,
					 (bits & EPOLLIN ? CURL_CSELECT_IN : 0) | (bits & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
						 (bits & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0),
					 &running);
		collect(loop, shelf); /* one by one: see keep_few */
	}
	return asked;
}

static void take_timers(struct loop *loop)
{
	int64_t now = clock_boot_ns();

	if (now >= loop->sweep_ns)
		loop->sweep_ns = pool_sweep(loop->net, now);
	for (unsigned i = 0; i < loop->shelves.count; i++) {
		shelf_on_time(loop->shelves.all[i], now);
		collect(loop, loop->shelves.all[i]);
	}
}

static bool must_stop(struct loop *loop)
{
	bool stop;

	lock_take(&loop->lock);
	stop = loop->stop;
	lock_drop(&loop->lock);
	return stop;
}

static void *loop_main(void *arg)
{
	struct loop *loop = arg;

	while (!must_stop(loop)) {
		if (take_events(loop) && loop->first && loop->sweep_ns == INT64_MAX)
			loop->sweep_ns = pool_sweep(loop->net, clock_boot_ns());
		serve_all(loop);
		take_timers(loop);
	}
	return NULL;
}

static void close_all(struct loop *loop)
{
	shelves_free(&loop->shelves);
	if (loop->event_fd >= 0)
		close(loop->event_fd);
	if (loop->epoll_fd >= 0)
		close(loop->epoll_fd);
	lock_fini(&loop->lock);
	net_unreserve(loop->net, NET_LOOP_DESCRIPTORS + NET_LOOP_IDLE);
	free(loop);
}

struct loop *loop_new(struct net *net, unsigned number)
{
	struct loop *loop = calloc(1, sizeof(*loop));
	struct epoll_event event = {.events = EPOLLIN};
	char name[16];

	if (!loop || !net_reserve(net, NET_LOOP_DESCRIPTORS + NET_LOOP_IDLE)) {
		free(loop);
		return NULL;
	}
	loop->net = net;
	loop->first = number == 0;
	lock_init(&loop->lock, LOCK_LEAF);
	loop->sweep_ns = INT64_MAX;
	loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	loop->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	event.data.u64 = shelf_event(NOT_A_SHELF, loop->event_fd);
	loop->shelves = (struct shelves){.net = net, .epoll_fd = loop->epoll_fd};
	snprintf(name, sizeof(name), "net-%u", number);
	if (loop->epoll_fd >= 0 && loop->event_fd >= 0 &&
	    epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->event_fd, &event) == 0 &&
	    thread_start(&loop->thread, name, loop_main, loop) == 0)
		return loop;
	close_all(loop);
	return NULL;
}

void loop_free(struct loop *loop)
{
	lock_take(&loop->lock);
	loop->stop = true;
	lock_drop(&loop->lock);
	loop_poke(loop);
	pthread_join(loop->thread, NULL);
	close_all(loop);
}
