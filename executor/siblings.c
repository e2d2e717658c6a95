/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the list of running streams. The wake-up FIFO of a command gives each byte to one reader only; a stream that
 * found new output tells the others of the same command, and one that finds nothing tells nobody, so it comes to rest.
 * Any worker; the lock is held for a few words and descriptors. Must never wait.
 */
#include "siblings.h"

#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sibling *first;

static void watch(const struct sibling *self, int fd)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP};

	(void)epoll_ctl(self->wait_fd, EPOLL_CTL_ADD, fd, &event);
}

static void make_told(struct sibling *self)
{
	if (self->told >= 0)
		return;
	self->told = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (self->told >= 0)
		watch(self, self->told);
}

void siblings_join(struct sibling *self, const char *execution_id, int peer_fd)
{
	*self = (struct sibling){.execution_id = execution_id, .told = -1, .wait_fd = epoll_create1(EPOLL_CLOEXEC)};
	if (self->wait_fd < 0)
		return;
	watch(self, peer_fd);
	pthread_mutex_lock(&lock);
	for (struct sibling *other = first; other; other = other->next) {
		if (strcmp(other->execution_id, execution_id) == 0) {
			make_told(other);
			make_told(self);
		}
	}
	self->next = first;
	first = self;
	pthread_mutex_unlock(&lock);
}

void siblings_leave(struct sibling *self)
{
	if (self->wait_fd < 0)
		return;
	pthread_mutex_lock(&lock);
	for (struct sibling **at = &first; *at; at = &(*at)->next) {
		if (*at == self) {
			*at = self->next;
			break;
		}
	}
	pthread_mutex_unlock(&lock);
	if (self->told >= 0)
		close(self->told);
	close(self->wait_fd);
	self->wait_fd = self->told = -1;
}

void siblings_tell(struct sibling *self)
{
	static const uint64_t one = 1;

	if (self->wait_fd < 0)
		return;
	pthread_mutex_lock(&lock);
	for (struct sibling *other = self->told >= 0 ? first : NULL; other; other = other->next)
		if (other != self && other->told >= 0 && strcmp(other->execution_id, self->execution_id) == 0)
			/* Full: it has been told often enough. */
			(void)!write(other->told, &one, sizeof(one));
	pthread_mutex_unlock(&lock);
}

void siblings_heed(struct sibling *self)
{
	uint64_t count;
	int told;

	if (self->wait_fd < 0)
		return;
	/* Another thread may be making it just now. */
	pthread_mutex_lock(&lock);
	told = self->told;
	pthread_mutex_unlock(&lock);
	if (told >= 0)
		(void)!read(told, &count, sizeof(count));
}
