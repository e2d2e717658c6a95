/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the listening descriptor and the number of open connections. Entered from main (new, run, stop) and from the
 * loop threads (closed). While as many are open as there may be, and for a moment after the system had no room
 * for one more, clients wait in the kernel's queue. Must never touch a connection that it has handed on.
 */
#include "api/acceptor.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/log.h"
#include "core/thread.h"

#define PAUSE_MS 100 /* until a system without room is asked again */

struct acceptor {
	int fd, wake; /* eventfd: stop was set, or there is room again */
	unsigned most;
	struct MHD_Daemon *daemon;
	atomic_uint open;
	atomic_bool full; /* the thread waits for room */
	atomic_bool stop;
	bool runs;
	bool short_of; /* the log has been told; the thread's own */
	pthread_t thread;
};

static void wake(struct acceptor *acceptor)
{
	if (eventfd_write(acceptor->wake, 1) != 0)
		abort(); /* it holds 2^64 - 2 */
}

/* Says so before it looks: who closes a connection in between sees that it is waited for. */
static bool is_full(struct acceptor *acceptor)
{
	atomic_store(&acceptor->full, true);
	if (atomic_load(&acceptor->open) >= acceptor->most)
		return true;
	atomic_store(&acceptor->full, false);
	return false;
}

/* True: nothing waits any more, or only this client was lost. */
static bool is_passing(int error)
{
	return error != EMFILE && error != ENFILE && error != ENOBUFS && error != ENOMEM && error != EBADF &&
	       error != EINVAL && error != ENOTSOCK;
}

static int short_of_room(struct acceptor *acceptor, int error)
{
	if (!acceptor->short_of)
		log_warn("connections cannot be accepted for now", KS("error", strerror(error)));
	acceptor->short_of = true;
	return PAUSE_MS;
}

/* Takes all that wait; the milliseconds to pause then, or -1. */
static int accept_all(struct acceptor *acceptor)
{
	while (!atomic_load(&acceptor->stop) && !is_full(acceptor)) {
		struct sockaddr_storage address;
		socklen_t len = sizeof(address);
		int fd = accept4(acceptor->fd, (struct sockaddr *)&address, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0)
			return is_passing(errno) ? -1 : short_of_room(acceptor, errno);
		atomic_fetch_add(&acceptor->open, 1);
		/* Closes it where it fails. */
		if (MHD_add_connection(acceptor->daemon, fd, (struct sockaddr *)&address, len) != MHD_YES) {
			atomic_fetch_sub(&acceptor->open, 1);
			return short_of_room(acceptor, errno);
		}
		acceptor->short_of = false;
	}
	return -1;
}

static void *accept_main(void *arg)
{
	struct acceptor *acceptor = arg;
	int pause_ms = -1;

	while (!atomic_load(&acceptor->stop)) {
		bool listens = pause_ms < 0 && !is_full(acceptor);
		struct pollfd fds[] = {{.fd = acceptor->wake, .events = POLLIN},
				       {.fd = listens ? acceptor->fd : -1, .events = POLLIN}};
		eventfd_t count;

		if (poll(fds, 2, pause_ms) > 0 && fds[0].revents)
			eventfd_read(acceptor->wake, &count);
		pause_ms = accept_all(acceptor);
	}
	return NULL;
}

int acceptor_new(int fd, unsigned most, struct acceptor **ret, struct err *err)
{
	struct acceptor *acceptor = calloc(1, sizeof(*acceptor));
	int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	if (!acceptor || event < 0) {
		free(acceptor);
		close(fd);
		if (event >= 0)
			close(event);
		return err_set(err, ERR_NOMEM, "cannot make an event descriptor");
	}
	acceptor->fd = fd;
	acceptor->wake = event;
	acceptor->most = most;
	*ret = acceptor;
	return 0;
}

int acceptor_run(struct acceptor *acceptor, struct MHD_Daemon *daemon, struct err *err)
{
	acceptor->daemon = daemon;
	if (thread_start(&acceptor->thread, "http-accept", accept_main, acceptor) != 0)
		return err_set(err, ERR_NOMEM, "cannot start a thread");
	acceptor->runs = true;
	return 0;
}

void acceptor_closed(struct acceptor *acceptor)
{
	atomic_fetch_sub(&acceptor->open, 1);
	if (atomic_load(&acceptor->full))
		wake(acceptor);
}

unsigned acceptor_open(struct acceptor *acceptor)
{
	return atomic_load(&acceptor->open);
}

void acceptor_stop(struct acceptor *acceptor)
{
	atomic_store(&acceptor->stop, true);
	if (acceptor->runs) {
		wake(acceptor);
		pthread_join(acceptor->thread, NULL);
	}
	acceptor->runs = false;
	if (acceptor->fd >= 0)
		close(acceptor->fd);
	acceptor->fd = -1;
}

void acceptor_free(struct acceptor *acceptor)
{
	if (!acceptor)
		return;
	acceptor_stop(acceptor);
	close(acceptor->wake);
	free(acceptor);
}
