/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The other side of `berth-supervise attend`. Each job carries the writing end of a pipe, whose end tells when the job was
 * lost. Entered by any thread, keeps no state. Must never wait for it for ever: a command of the same user may have
 * stopped it.
 */
#include "supervised_attend.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "supervised_files.h"

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

int sup_attend_start(const char *helper, int *ret_socket, pid_t *ret_pid)
{
	int ends[2], rc;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return -errno;
	rc = spawn_attend(helper, ends[1], ret_pid);
	close(ends[1]);
	if (rc < 0)
		close(ends[0]);
	else
		*ret_socket = ends[0];
	return rc;
}

static int send_job(int socket, const char *dir, uint32_t attempt, int reply)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.bytes = {0}};
	struct iovec iov[2] = {{&attempt, sizeof(attempt)}, {(void *)(uintptr_t)dir, strlen(dir) + 1}};
	struct msghdr message = {
		.msg_iov = iov, .msg_iovlen = 2, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(reply));
	memcpy(CMSG_DATA(header), &reply, sizeof(reply));
	return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

int sup_attend_send(int socket, const char *dir, uint32_t attempt, int *ret_reply)
{
	int ends[2], rc;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	rc = send_job(socket, dir, attempt, ends[1]);
	close(ends[1]);
	if (rc < 0)
		close(ends[0]);
	else
		*ret_reply = ends[0];
	return rc;
}

static int wait_reply(int reply)
{
	struct pollfd poller = {.fd = reply, .events = POLLIN};
	int n;

	do {
		n = poll(&poller, 1, PATIENCE_MS);
	} while (n < 0 && errno == EINTR);
	return n;
}

int sup_attend_last(int reply)
{
	uint8_t code = 0;
	ssize_t n = 0;

	/* Who took the job may be stopped too. */
	if (wait_reply(reply) > 0)
		do {
			n = read(reply, &code, 1);
		} while (n < 0 && errno == EINTR);
	close(reply);
	return n == 1 ? code : -EINTR;
}

int sup_attend_reply(int reply)
{
	return wait_reply(reply) == 0 ? -ETIME : sup_attend_last(reply);
}
