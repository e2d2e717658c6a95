/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One loop thread: a curl_multi driven by epoll, which costs nothing for exchanges that are silent. Others ask through
 * loop_ask; only the loop's thread touches its multi. Never blocks, never calls into a plugin. The first loop also closes
 * pooled handles that grew old.
 */
#include "net/private.h"

#include <errno.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/log.h"

#define EVENTS 64

struct loop {
	struct net *net;
	pthread_t thread;
	bool first;
	CURLM *multi;
	int epoll_fd, event_fd;
	int64_t timer_ns;  /* when libcurl wants to be called */
	int64_t sweep_ns;  /* when the pool is to be looked at */
	int64_t quiet_ns;  /* when idle connections are closed; INT64_MAX = there are none, or it is busy */
	_Atomic unsigned active;

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

/* ---- what libcurl asks for ---- */

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *known)
{
	struct loop *loop = arg;
	struct epoll_event event = {.data.fd = fd};

	(void)easy;
	if (what == CURL_POLL_REMOVE) {
		epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
		curl_multi_assign(loop->multi, fd, NULL);
		return 0;
	}
	event.events = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);
	if (epoll_ctl(loop->epoll_fd, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) != 0 &&
	    epoll_ctl(loop->epoll_fd, known ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event) != 0)
		log_error("a connection cannot be watched", KS("error", strerror(errno)));
	curl_multi_assign(loop->multi, fd, loop);
	return 0;
}

static int on_timer(CURLM *multi, long timeout_ms, void *arg)
{
	struct loop *loop = arg;

	(void)multi;
	loop->timer_ns = timeout_ms < 0 ? INT64_MAX : clock_after_ms(timeout_ms);
	return 0;
}

static bool open_multi(struct loop *loop)
{
	loop->multi = curl_multi_init();
	if (!loop->multi)
		return false;
	loop->timer_ns = loop->quiet_ns = INT64_MAX;
	curl_multi_setopt(loop->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
	curl_multi_setopt(loop->multi, CURLMOPT_SOCKETDATA, loop);
	curl_multi_setopt(loop->multi, CURLMOPT_TIMERFUNCTION, on_timer);
	curl_multi_setopt(loop->multi, CURLMOPT_TIMERDATA, loop);
	return true;
}

/* ---- exchanges ---- */

/* libcurl closes the oldest idle connection when a transfer ends above this; at most one per end, so it is lowered with each. */
static void keep_few(struct loop *loop)
{
	curl_multi_setopt(loop->multi, CURLMOPT_MAXCONNECTS, (long)loop_active(loop) + NET_LOOP_IDLE);
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
	lock_take(&loop->lock);
	if (carried->listed)
		unlist_locked(loop, carried);
	carried->gone = true;
	lock_drop(&loop->lock);
	if (atomic_fetch_sub(&loop->active, 1) == 1)
		loop->quiet_ns = clock_after_ms((NET_KEEP_S + 1) * 1000);
	keep_few(loop);
	carried->ended(carried, result);
}

static void add(struct loop *loop, struct carried *carried)
{
	CURLMcode rc = CURLM_OUT_OF_MEMORY;

	loop->quiet_ns = INT64_MAX;
	keep_few(loop);
	if (loop->multi || open_multi(loop)) {
		curl_easy_setopt(carried->ex->easy, CURLOPT_PRIVATE, carried);
		rc = curl_multi_add_handle(loop->multi, carried->ex->easy);
	}
	if (rc)
		let_go(loop, carried, CURLE_OUT_OF_MEMORY);
}

static void serve(struct loop *loop, struct carried *carried, unsigned wants)
{
	if (wants & LOOP_REMOVE) {
		if (!(wants & LOOP_ADD))
			curl_multi_remove_handle(loop->multi, carried->ex->easy);
		let_go(loop, carried, CURLE_ABORTED_BY_CALLBACK);
	} else if (wants & LOOP_ADD) {
		add(loop, carried);
	} else {
		curl_easy_pause(carried->ex->easy, CURLPAUSE_CONT);
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

static void collect(struct loop *loop)
{
	CURLMsg *msg;
	int left;

	while ((msg = curl_multi_info_read(loop->multi, &left)) != NULL) {
		CURLcode result = msg->data.result;
		CURL *easy = msg->easy_handle;
		char *carried = NULL;

		if (msg->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(easy, CURLINFO_PRIVATE, &carried);
		curl_multi_remove_handle(loop->multi, easy);
		let_go(loop, (struct carried *)(void *)carried, result);
	}
}

/* ---- the thread ---- */

static int wait_ms(const struct loop *loop)
{
	int64_t next = loop->timer_ns < loop->sweep_ns ? loop->timer_ns : loop->sweep_ns;
	int64_t left;

	next = next < loop->quiet_ns ? next : loop->quiet_ns;
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
		uint32_t bits = events[i].events;
		uint64_t value;

		if (events[i].data.fd == loop->event_fd) {
			(void)!read(loop->event_fd, &value, sizeof(value));
			asked = true;
			continue;
		}
		curl_multi_socket_action(loop->multi, events[i].data.fd,
					 (bits & EPOLLIN ? CURL_CSELECT_IN : 0) | (bits & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
						 (bits & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0),
					 &running);
		collect(loop); /* one by one: see keep_few */
	}
	return asked;
}

static void take_timers(struct loop *loop)
{
	int64_t now = clock_boot_ns();
	int running;

	if (now >= loop->timer_ns) {
		loop->timer_ns = INT64_MAX;
		curl_multi_socket_action(loop->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	}
	if (now >= loop->sweep_ns)
		loop->sweep_ns = pool_sweep(loop->net, now);
	/* Nothing ran for a while: a new multi, as libcurl closes idle connections only beside transfers. */
	if (now >= loop->quiet_ns) {
		curl_multi_cleanup(loop->multi);
		loop->multi = NULL;
		loop->timer_ns = loop->quiet_ns = INT64_MAX;
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
		if (loop->multi)
			collect(loop);
	}
	return NULL;
}

static void close_all(struct loop *loop)
{
	if (loop->multi)
		curl_multi_cleanup(loop->multi);
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
	loop->timer_ns = loop->sweep_ns = loop->quiet_ns = INT64_MAX;
	loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	loop->event_fd = event.data.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
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
