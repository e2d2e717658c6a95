/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns an epoll set of connections and the one thread that waits on it for the peer's end. Entered from the loop
 * threads (add) and from whoever resumes (remove). Must never read from a connection, and never call out with its lock
 * held but for the hold callback.
 */
#include "api/hangup.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/thread.h"

#define HANGUP_EVENTS 64
#define POKE_MS 100

struct hangup {
	struct lock lock; /* class LEAF: entries, stop */
	struct hangup_entry *entries;
	unsigned poked; /* entries to poke */
	bool stop;
	int epoll;
	int wake; /* eventfd: stop was set */
	pthread_t thread;
};

/* An event may be older than a remove: only an entry that is still in the list counts. */
static struct hangup_entry *hold_watched(struct hangup *hangup, void *ptr)
{
	struct hangup_entry *entry;

	lock_take(&hangup->lock);
	for (entry = hangup->entries; entry && (void *)entry != ptr; entry = entry->next)
		;
	if (entry)
		entry->hold(entry);
	lock_drop(&hangup->lock);
	return entry;
}

static void poke_from_now(struct hangup *hangup, struct hangup_entry *entry)
{
	lock_take(&hangup->lock);
	if (entry->watched && !entry->poked) {
		entry->poked = true;
		hangup->poked++;
	}
	lock_drop(&hangup->lock);
}

/* The peer has sent its last byte, so shutting that direction loses nothing: what is buffered stays readable. But it
 * wakes the loop's epoll once more, which then reads up to the end. */
static void poke_all_locked(struct hangup *hangup)
{
	for (struct hangup_entry *entry = hangup->entries; hangup->poked && entry; entry = entry->next) {
		if (entry->poked)
			shutdown(entry->fd, SHUT_RD);
	}
}

/* Milliseconds until the next look, or -1; false when the thread shall end. */
static bool plan(struct hangup *hangup, int *ret_ms)
{
	lock_take(&hangup->lock);
	poke_all_locked(hangup);
	*ret_ms = hangup->poked ? POKE_MS : -1;

	bool stop = hangup->stop;

	lock_drop(&hangup->lock);
	return !stop;
}

static void *hangup_main(void *arg)
{
	struct hangup *hangup = arg;
	struct epoll_event events[HANGUP_EVENTS];
	int ms;

	while (plan(hangup, &ms)) {
		int count = epoll_wait(hangup->epoll, events, HANGUP_EVENTS, ms);

		for (int i = 0; i < count; i++) {
			struct hangup_entry *entry = hold_watched(hangup, events[i].data.ptr);

			if (!entry)
				continue;
			if (entry->fire(entry))
				poke_from_now(hangup, entry);
			entry->drop(entry);
		}
	}
	return NULL;
}

int hangup_new(struct hangup **ret, struct err *err)
{
	struct hangup *hangup = calloc(1, sizeof(*hangup));

	if (!hangup)
		return err_set(err, ERR_NOMEM, "out of memory");
	lock_init(&hangup->lock, LOCK_LEAF);
	hangup->epoll = epoll_create1(EPOLL_CLOEXEC);
	hangup->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	struct epoll_event event = {.events = EPOLLIN};

	if (hangup->epoll < 0 || hangup->wake < 0 ||
	    epoll_ctl(hangup->epoll, EPOLL_CTL_ADD, hangup->wake, &event) != 0) {
		err_set(err, ERR_IO, "cannot make the watcher's descriptors: %s", strerror(errno));
		goto fail;
	}
	if (thread_start(&hangup->thread, "hangup", hangup_main, hangup) != 0) {
		err_set(err, ERR_NOMEM, "cannot start the watcher's thread");
		goto fail;
	}
	*ret = hangup;
	return 0;
fail:
	if (hangup->epoll >= 0)
		close(hangup->epoll);
	if (hangup->wake >= 0)
		close(hangup->wake);
	lock_fini(&hangup->lock);
	free(hangup);
	return err ? err->code : ERR_IO;
}

void hangup_free(struct hangup *hangup)
{
	if (!hangup)
		return;
	lock_take(&hangup->lock);
	hangup->stop = true;
	lock_drop(&hangup->lock);

	uint64_t one = 1;
	ssize_t written = write(hangup->wake, &one, sizeof(one));

	(void)written; /* an eventfd at zero always takes it */
	pthread_join(hangup->thread, NULL);
	close(hangup->epoll);
	close(hangup->wake);
	lock_fini(&hangup->lock);
	free(hangup);
}

void hangup_add(struct hangup *hangup, struct hangup_entry *entry)
{
	/* One shot: a peer that has closed stays closed, and the owner acts on it once. */
	struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.ptr = entry};

	lock_take(&hangup->lock);
	entry->prev = NULL;
	entry->next = hangup->entries;
	if (entry->next)
		entry->next->prev = entry;
	hangup->entries = entry;
	/* A descriptor that cannot be watched only costs the early notice; its deadline still ends the wait. */
	entry->watched = true;
	epoll_ctl(hangup->epoll, EPOLL_CTL_ADD, entry->fd, &event);
	lock_drop(&hangup->lock);
}

void hangup_remove(struct hangup *hangup, struct hangup_entry *entry)
{
	lock_take(&hangup->lock);
	if (entry->watched) {
		epoll_ctl(hangup->epoll, EPOLL_CTL_DEL, entry->fd, NULL);
		if (entry->prev)
			entry->prev->next = entry->next;
		else
			hangup->entries = entry->next;
		if (entry->next)
			entry->next->prev = entry->prev;
		hangup->poked -= entry->poked;
		entry->watched = entry->poked = false;
	}
	lock_drop(&hangup->lock);
}
