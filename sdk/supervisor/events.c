/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one place where the supervisor waits: for signals (as a descriptor), output and deadlines. Must never block on
 * anything else.
 */
#include "sup.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

void events_reap(struct sup *s)
{
	int status;
	pid_t pid;

	for (;;) {
		pid = waitpid(-1, &status, WNOHANG);
		if (pid < 0 && errno == EINTR)
			continue;
		s->childless = pid < 0 && errno == ECHILD;
		if (pid <= 0)
			return;
		if (pid == s->leader && !s->leader_done) {
			s->leader_done = true;
			s->leader_status = status;
			s->end_ns = sup_now_ns();
		}
	}
}

static void take_signals(struct sup *s)
{
	struct signalfd_siginfo info;

	while (read(s->events, &info, sizeof(info)) == sizeof(info)) {
		s->asked_stop |= info.ssi_signo == SIGTERM;
		s->asked_kill |= info.ssi_signo == SIGUSR1;
	}
	events_reap(s);
}

static int timeout_ms(int64_t until_ns)
{
	int64_t left;

	if (until_ns == INT64_MAX)
		return -1;
	left = until_ns - sup_now_ns();
	if (left <= 0)
		return 0;
	left = (left + 999999) / 1000000;
	return left > INT_MAX ? INT_MAX : (int)left;
}

void events_wait(struct sup *s, int64_t until_ns)
{
	struct pollfd fds[3] = {
		{.fd = s->events, .events = POLLIN},
		{.fd = s->out[0].pipe, .events = POLLIN},
		{.fd = s->out[1].pipe, .events = POLLIN},
	};
	bool tell = s->wake_ns && s->wake_ns < until_ns;
	int n = poll(fds, 3, timeout_ms(tell ? s->wake_ns : until_ns));

	if (n > 0 && fds[1].revents)
		output_read(s, &s->out[0]);
	if (n > 0 && fds[2].revents)
		output_read(s, &s->out[1]);
	if (n > 0 && fds[0].revents)
		take_signals(s);
	if (s->wake_ns && sup_now_ns() >= s->wake_ns)
		output_wake(s);
}
