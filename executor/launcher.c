/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the process `berth-supervise attend`. The main thread starts it, as its own child, and learns of its end;
 * workers send it jobs, each with a pipe whose end tells when the job was lost. Without it everything works, only
 * slower. Must never wait for it for ever: a command of the same user may have stopped it.
 */
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../sdk/lib/supervised_files.h"

#define AGAIN_NS INT64_C(1000000000)
#define PATIENCE_MS 5000

static int spawn_attend(const char *helper, int job_fd, pid_t *ret_pid)
{
	static char name[] = "berth-supervise", verb[] = "attend";
	static char *const argv[] = {name, verb, NULL}, *const no_env[] = {NULL};
	posix_spawn_file_actions_t actions;
	int rc = posix_spawn_file_actions_init(&actions);

	if (rc)
		return -rc;
	rc = posix_spawn_file_actions_adddup2(&actions, job_fd, STDIN_FILENO);
	if (rc == 0)
		rc = posix_spawn(ret_pid, helper, &actions, NULL, argv, no_env);
	posix_spawn_file_actions_destroy(&actions);
	return -rc;
}

void launcher_keep(struct launcher *launcher)
{
	int64_t now = sup_now_ns();
	int ends[2];
	pid_t pid = 0;

	if (launcher->pid || (launcher->started_ns && now - launcher->started_ns < AGAIN_NS))
		return;
	launcher->started_ns = now;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return;
	if (spawn_attend(launcher->helper, ends[1], &pid) < 0) {
		close(ends[0]);
		ends[0] = -1;
	}
	close(ends[1]);
	pthread_mutex_lock(&launcher->lock);
	launcher->pid = pid;
	launcher->socket = ends[0];
	pthread_mutex_unlock(&launcher->lock);
}

void launcher_reaped(struct launcher *launcher, pid_t pid)
{
	pthread_mutex_lock(&launcher->lock);
	if (pid == launcher->pid) {
		if (launcher->socket >= 0)
			close(launcher->socket);
		launcher->socket = -1;
		launcher->pid = 0;
	}
	pthread_mutex_unlock(&launcher->lock);
}

static int send_job(struct launcher *launcher, const char *dir, uint32_t attempt, int reply)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.bytes = {0}};
	struct iovec iov[2] = {{&attempt, sizeof(attempt)}, {(void *)(uintptr_t)dir, strlen(dir) + 1}};
	struct msghdr message = {
		.msg_iov = iov, .msg_iovlen = 2, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	ssize_t n;

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(reply));
	memcpy(CMSG_DATA(header), &reply, sizeof(reply));
	pthread_mutex_lock(&launcher->lock);
	n = launcher->socket < 0 ? -1 : sendmsg(launcher->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	pthread_mutex_unlock(&launcher->lock);
	return n < 0 ? -ENOSYS : 0;
}

/* It does not answer, so it must not start anything later either: whoever is asked next asks a new one. */
static void give_up(struct launcher *launcher)
{
	pthread_mutex_lock(&launcher->lock);
	if (launcher->pid > 0)
		kill(launcher->pid, SIGKILL);
	pthread_mutex_unlock(&launcher->lock);
}

int32_t launcher_launch(void *ctx, const char *dir, uint32_t attempt)
{
	struct launcher *launcher = ctx;
	struct pollfd poller = {.events = POLLIN};
	uint8_t code = 0;
	int ends[2], rc;
	ssize_t n;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -ENOSYS;
	rc = send_job(launcher, dir, attempt, ends[1]);
	close(ends[1]);
	poller.fd = ends[0];
	if (rc == 0 && poll(&poller, 1, PATIENCE_MS) == 0)
		give_up(launcher);
	if (rc == 0) {
		do {
			n = read(ends[0], &code, 1);
		} while (n < 0 && errno == EINTR);
		rc = n == 1 ? code : -EINTR; /* lost: the SDK looks whether it began */
	}
	close(ends[0]);
	return rc;
}
