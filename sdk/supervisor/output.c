/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes the command's bytes from its pipes to its files, up to the limit of each stream; the rest is read and counted,
 * so that the command never blocks nor gets SIGPIPE. Must never leave a hole: after a failed write the file ends.
 */
#include "sup.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define BLOCK 65536u
/* The most an unprivileged process can enlarge a pipe to: what was written before the leader ended fits in it. */
#define PIPE_MOST (1u << 20)
/* Output is announced this much later, so that a short command wakes its reader once, at its end. */
#define WAKE_DELAY_NS INT64_C(2000000)

static size_t append(struct sup *s, struct stream *out, const char *block, size_t len)
{
	uint64_t room = out->max - out->kept;
	size_t done = 0;

	if (len > room)
		len = (size_t)room;
	if (len == 0 || out->broken)
		return 0;
	if (out->file < 0)
		out->file = openat(s->attempt_fd, out->name,
				   O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW, 0600);
	while (out->file >= 0 && done < len) {
		ssize_t n = write(out->file, block + done, len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			break;
		done += (size_t)n;
	}
	out->broken = done < len;
	return done;
}

bool output_read(struct sup *s, struct stream *out)
{
	static char block[BLOCK];
	ssize_t n;
	size_t done;

	if (out->pipe < 0)
		return false;
	do {
		n = read(out->pipe, block, sizeof(block));
	} while (n < 0 && errno == EINTR);
	if (n == 0 || (n < 0 && errno != EAGAIN))
		output_close(out);
	if (n <= 0)
		return false;
	if (s->output_over)
		return true;
	done = append(s, out, block, (size_t)n);
	out->kept += done;
	out->dropped += (size_t)n - done;
	if (done && !s->wake_ns)
		s->wake_ns = sup_now_ns() + WAKE_DELAY_NS;
	return true;
}

void output_drain(struct sup *s)
{
	for (int i = 0; i < 2; i++) {
		struct stream *out = &s->out[i];
		uint64_t until = out->kept + out->dropped + PIPE_MOST;

		while (out->kept + out->dropped < until && output_read(s, out))
			continue;
	}
}

void output_close(struct stream *out)
{
	if (out->pipe >= 0)
		close(out->pipe);
	out->pipe = -1;
}

bool output_followed(const struct sup *s)
{
	struct pollfd poller = {.fd = s->wake, .events = POLLOUT};

	return poll(&poller, 1, 0) >= 0 && !(poller.revents & POLLERR);
}

void output_wake(struct sup *s)
{
	s->wake_ns = 0;
	/* Full: the reader has not looked yet and will. No reader: one that comes later looks first. */
	while (write(s->wake, "", 1) < 0 && errno == EINTR)
		continue;
}
