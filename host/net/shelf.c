/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loop's exchanges stand on shelves: multis of few exchanges each, since libcurl goes through all connections of a multi to
 * one host when an exchange begins and when it ends. The first with room takes the next one, so that few stay together,
 * where they find each other's connections, and a shelf that is not needed any more runs empty. Entered by the loop's
 * thread only. Must never hold more descriptors than it has reserved.
 */
#include "net/private.h"

#include <errno.h>
#include <sys/epoll.h>

#include "core/log.h"

#define ROOM 128u /* exchanges of one shelf */

/* The first shelf's are reserved with its loop. */
static unsigned descriptors_of(const struct shelf *shelf)
{
	return shelf->number ? NET_SHELF_DESCRIPTORS + NET_SHELF_IDLE : 0;
}

static unsigned idle_of(const struct shelf *shelf)
{
	return shelf->number ? NET_SHELF_IDLE : NET_LOOP_IDLE;
}

/* ---- what libcurl asks for ---- */

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *known)
{
	struct shelf *shelf = arg;
	struct epoll_event event = {.data.u64 = shelf_event(shelf->number, fd)};

	(void)easy;
	if (what == CURL_POLL_REMOVE) {
		epoll_ctl(shelf->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
		curl_multi_assign(shelf->multi, fd, NULL);
		return 0;
	}
	event.events = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);
	if (epoll_ctl(shelf->epoll_fd, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) != 0 &&
	    epoll_ctl(shelf->epoll_fd, known ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event) != 0)
		log_error("a connection cannot be watched", KS("error", strerror(errno)));
	curl_multi_assign(shelf->multi, fd, shelf);
	return 0;
}

static int on_timer(CURLM *multi, long timeout_ms, void *arg)
{
	struct shelf *shelf = arg;

	(void)multi;
	shelf->timer_ns = timeout_ms < 0 ? INT64_MAX : clock_after_ms(timeout_ms);
	return 0;
}

/* ---- opening and closing ---- */

static bool open_multi(struct shelf *shelf)
{
	if (shelf->multi)
		return true;
	if (!net_reserve(shelf->net, descriptors_of(shelf)))
		return false;
	shelf->multi = curl_multi_init();
	if (!shelf->multi) {
		net_unreserve(shelf->net, descriptors_of(shelf));
		return false;
	}
	shelf->timer_ns = shelf->quiet_ns = INT64_MAX;
	curl_multi_setopt(shelf->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
	curl_multi_setopt(shelf->multi, CURLMOPT_SOCKETDATA, shelf);
	curl_multi_setopt(shelf->multi, CURLMOPT_TIMERFUNCTION, on_timer);
	curl_multi_setopt(shelf->multi, CURLMOPT_TIMERDATA, shelf);
	return true;
}

static void shelf_close(struct shelf *shelf)
{
	if (!shelf->multi)
		return;
	curl_multi_cleanup(shelf->multi);
	net_unreserve(shelf->net, descriptors_of(shelf));
	shelf->multi = NULL;
	shelf->timer_ns = shelf->quiet_ns = INT64_MAX;
}

static struct shelf *add_shelf(struct shelves *shelves)
{
	struct shelf **grown = realloc(shelves->all, (shelves->count + 1) * sizeof(struct shelf *)); /* NOLINT */
	struct shelf *shelf = grown ? calloc(1, sizeof(*shelf)) : NULL;

	if (grown)
		shelves->all = grown;
	if (!shelf)
		return NULL;
	*shelf = (struct shelf){.net = shelves->net,
				.epoll_fd = shelves->epoll_fd,
				.number = shelves->count,
				.timer_ns = INT64_MAX,
				.quiet_ns = INT64_MAX};
	shelves->all[shelves->count++] = shelf;
	return shelf;
}

/* Without memory or descriptors for another one, an open one takes more than it should. */
static struct shelf *with_room(struct shelves *shelves)
{
	struct shelf *least = NULL, *shelf;

	for (unsigned i = 0; i < shelves->count; i++) {
		shelf = shelves->all[i];
		if (shelf->active < ROOM && open_multi(shelf))
			return shelf;
		if (shelf->multi && (!least || shelf->active < least->active))
			least = shelf;
	}
	shelf = add_shelf(shelves);
	return shelf && open_multi(shelf) ? shelf : least;
}

void shelves_free(struct shelves *shelves)
{
	for (unsigned i = 0; i < shelves->count; i++) {
		shelf_close(shelves->all[i]);
		free(shelves->all[i]);
	}
	free(shelves->all);
}

/* ---- exchanges ---- */

/* libcurl closes the oldest idle connection when a transfer ends above this; at most one per end, so it is lowered with each. */
static void keep_few(struct shelf *shelf)
{
	curl_multi_setopt(shelf->multi, CURLMOPT_MAXCONNECTS, (long)(shelf->active + idle_of(shelf)));
}

bool shelves_put(struct shelves *shelves, struct carried *carried)
{
	struct shelf *shelf = with_room(shelves);

	if (!shelf)
		return false;
	shelf->quiet_ns = INT64_MAX;
	shelf->active++;
	keep_few(shelf);
	carried->shelf = shelf;
	curl_easy_setopt(carried->ex->easy, CURLOPT_PRIVATE, carried);
	if (curl_multi_add_handle(shelf->multi, carried->ex->easy) == CURLM_OK)
		return true;
	shelf_forget(carried);
	return false;
}

void shelf_take(struct carried *carried)
{
	curl_multi_remove_handle(carried->shelf->multi, carried->ex->easy);
	shelf_forget(carried);
}

void shelf_forget(struct carried *carried)
{
	struct shelf *shelf = carried->shelf;

	carried->shelf = NULL;
	if (--shelf->active == 0)
		shelf->quiet_ns = clock_after_ms((NET_KEEP_S + 1) * 1000);
	keep_few(shelf);
}

struct carried *shelf_ended(struct shelf *shelf, CURLcode *ret_result)
{
	CURLMsg *msg;
	int left;

	while (shelf->multi && (msg = curl_multi_info_read(shelf->multi, &left)) != NULL) {
		char *carried = NULL;

		if (msg->msg != CURLMSG_DONE)
			continue;
		*ret_result = msg->data.result;
		curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &carried);
		shelf_take((struct carried *)(void *)carried);
		return (struct carried *)(void *)carried;
	}
	return NULL;
}

/* ---- time ---- */

int64_t shelves_due(const struct shelves *shelves)
{
	int64_t due = INT64_MAX;

	for (unsigned i = 0; i < shelves->count; i++) {
		const struct shelf *shelf = shelves->all[i];
		int64_t first = shelf->timer_ns < shelf->quiet_ns ? shelf->timer_ns : shelf->quiet_ns;

		due = first < due ? first : due;
	}
	return due;
}

void shelf_on_time(struct shelf *shelf, int64_t now_ns)
{
	int running;

	if (now_ns >= shelf->timer_ns) {
		shelf->timer_ns = INT64_MAX;
		curl_multi_socket_action(shelf->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	}
	/* Nothing ran for a while: a new multi, as libcurl closes idle connections only beside transfers. */
	if (now_ns >= shelf->quiet_ns)
		shelf_close(shelf);
}
