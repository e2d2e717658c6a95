/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attend: a launcher that stays. It keeps a few forked processes ready; each takes one message from descriptor 0
 * (struct sup_attend and a pipe's end) and becomes the supervisor of that attempt. To execute a program for each
 * command costs as much as half a shell. It ends with the socket's other side. Must never hold anything of a command:
 * it reads no file.
 */
#include "sup.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define JOBS 3
#define READY 2

struct attend {
	int events;	    /* signalfd: CHLD */
	int taken[2];	    /* a pipe: the number of each process that has taken a job */
	pid_t ready[READY]; /* 0 = none */
};

static int take_fd(struct msghdr *message)
{
	struct cmsghdr *control = CMSG_FIRSTHDR(message);
	int fd;

	if (!control || control->cmsg_type != SCM_RIGHTS || control->cmsg_len != CMSG_LEN(sizeof(fd)))
		return -1;
	memcpy(&fd, CMSG_DATA(control), sizeof(fd));
	return fd;
}

/* Returns where to answer; -1: what came was no job, or the end. */
static int receive(struct sup_attend *job)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = {job, sizeof(*job)};
	struct msghdr message = {.msg_iov = &iov,
				 .msg_iovlen = 1,
				 .msg_control = control.bytes,
				 .msg_controllen = sizeof(control.bytes)};
	ssize_t n;

	do {
		n = recvmsg(JOBS, &message, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < (ssize_t)sizeof(job->attempt) + 2)
		return -1;
	job->dir[(size_t)n - sizeof(job->attempt) - 1] = '\0';
	return take_fd(&message);
}

/* From here on the process belongs to a command; another one gets ready while it goes on. */
static void report_taken(const struct attend *attend)
{
	pid_t self = getpid();

	while (write(attend->taken[1], &self, sizeof(self)) < 0 && errno == EINTR)
		continue;
	close(attend->taken[0]);
	close(attend->taken[1]);
	close(attend->events);
	close(JOBS);
}

static _Noreturn void ready(const struct attend *attend, pid_t parent)
{
	static struct sup_attend job;
	int reply;

	/* Without its parent nobody would reap it, nor make another. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent || start_prepare_one() != 0)
		_exit(SUP_EXIT_RESOURCES);
	reply = receive(&job);
	if (reply < 0)
		_exit(0);
	prctl(PR_SET_PDEATHSIG, 0);
	report_taken(attend);
	start_here(job.dir, job.attempt, reply);
}

/* Returns false when no process could be made. */
static bool fill(struct attend *attend)
{
	pid_t self = getpid();

	for (int i = 0; i < READY; i++) {
		if (attend->ready[i])
			continue;
		attend->ready[i] = fork();
		if (attend->ready[i] == 0)
			ready(attend, self);
		if (attend->ready[i] < 0) {
			attend->ready[i] = 0;
			return false;
		}
	}
	return true;
}

static void remove_ready(struct attend *attend, pid_t pid)
{
	for (int i = 0; i < READY; i++)
		if (attend->ready[i] == pid)
			attend->ready[i] = 0;
}

static void take_events(struct attend *attend)
{
	struct signalfd_siginfo info;
	pid_t pid;

	while (read(attend->events, &info, sizeof(info)) == (ssize_t)sizeof(info))
		continue;
	while (read(attend->taken[0], &pid, sizeof(pid)) == (ssize_t)sizeof(pid))
		remove_ready(attend, pid);
	while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
		remove_ready(attend, pid);
}

static int open_all(struct attend *attend)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	attend->events = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (attend->events < 0 || pipe2(attend->taken, O_CLOEXEC) < 0)
		return -1;
	return fcntl(attend->taken[0], F_SETFL, O_NONBLOCK);
}

/* Nobody is ready and nobody can be made: who asks must know, not wait. */
static void refuse_one(void)
{
	static struct sup_attend job;
	const uint8_t none_left = SUP_EXIT_RESOURCES;
	int reply = receive(&job);

	if (reply >= 0 && write(reply, &none_left, 1) < 0)
		errno = 0; /* who asked is gone */
	if (reply >= 0)
		close(reply);
}

static bool any_ready(const struct attend *attend)
{
	for (int i = 0; i < READY; i++)
		if (attend->ready[i])
			return true;
	return false;
}

int attend_run(void)
{
	struct attend attend = {0};
	struct pollfd fds[3] = {{.fd = JOBS}, {.events = POLLIN}, {.events = POLLIN}};

	if (dup2(STDIN_FILENO, JOBS) < 0 || fcntl(JOBS, F_SETFD, FD_CLOEXEC) < 0 || start_shed(JOBS + 1) < 0 ||
	    open_all(&attend) < 0 || start_prepare_all() != 0)
		return SUP_EXIT_RESOURCES;
	fds[1].fd = attend.taken[0];
	fds[2].fd = attend.events;
	for (;;) {
		bool full = fill(&attend);

		fds[0].events = any_ready(&attend) ? 0 : POLLIN;
		/* There may be room for a process again soon. */
		if (poll(fds, 3, full ? -1 : 20) > 0 && (fds[0].revents & (POLLHUP | POLLERR | POLLNVAL)))
			return 0;
		if (fds[0].revents & POLLIN)
			refuse_one();
		take_events(&attend);
	}
}
