/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a program for what it prints. posix_spawn, so that nothing of this process runs in the child; its own process
 * group, so that what it starts ends with it. Any thread. It must never wait past its deadline, nor leave a zombie.
 */
#include <berth/spawn.h>

#include <berth/types.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define REAP_TICK_NS 2000000

/* Rounded up: 0 says that the deadline is reached, and callers look at the same clock afterwards. */
static int64_t left_ms(int64_t deadline_ns)
{
	struct timespec now;
	int64_t left;

	clock_gettime(CLOCK_BOOTTIME, &now);
	left = (deadline_ns - ((int64_t)now.tv_sec * 1000000000 + now.tv_nsec) + 999999) / 1000000;
	return left < 0 ? 0 : left > 3600000 ? 3600000 : left;
}

static int set_attributes(posix_spawnattr_t *attr)
{
	sigset_t none, all;

	sigemptyset(&none);
	sigfillset(&all);
	sigdelset(&all, SIGKILL);
	sigdelset(&all, SIGSTOP);
	return posix_spawnattr_setpgroup(attr, 0) || posix_spawnattr_setsigmask(attr, &none) ||
	       posix_spawnattr_setsigdefault(attr, &all) ||
	       posix_spawnattr_setflags(attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

static int start(char *const argv[], char *const env[], int out, pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	int rc = ENOMEM;

	if (posix_spawn_file_actions_init(&actions))
		return rc;
	if (posix_spawnattr_init(&attr))
		goto out;
	if (!set_attributes(&attr) && !posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0) &&
	    !posix_spawn_file_actions_adddup2(&actions, out, 1) &&
	    !posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0))
		rc = posix_spawnp(ret_pid, argv[0], &actions, &attr, argv, env);
	posix_spawnattr_destroy(&attr);
out:
	posix_spawn_file_actions_destroy(&actions);
	return rc;
}

/* Until the program closes its output. */
static int32_t take(int fd, int64_t deadline_ns, char *buf, size_t cap, size_t *ret_len)
{
	char more;

	*ret_len = 0;
	for (;;) {
		struct pollfd ready = {.fd = fd, .events = POLLIN};
		int64_t ms = left_ms(deadline_ns);
		bool full = *ret_len == cap;
		ssize_t got;

		if (!ms)
			return BERTH_TIMEOUT;
		if (poll(&ready, 1, (int)ms) <= 0)
			continue;
		got = read(fd, full ? &more : buf + *ret_len, full ? 1 : cap - *ret_len);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return BERTH_OK;
		if (full)
			return BERTH_INVALID;
		*ret_len += (size_t)got;
	}
}

/* Output may be closed while the program goes on. */
static int32_t reap(pid_t pid, int64_t deadline_ns, int32_t rc, int32_t *ret_status)
{
	const struct timespec tick = {.tv_nsec = REAP_TICK_NS};
	int status = 0;
	pid_t got;

	while (rc == BERTH_OK && (got = waitpid(pid, &status, WNOHANG)) <= 0) {
		if (got < 0 && errno != EINTR)
			return BERTH_UNAVAILABLE;
		if (!left_ms(deadline_ns))
			rc = BERTH_TIMEOUT;
		else
			nanosleep(&tick, NULL);
	}
	if (rc == BERTH_OK) {
		*ret_status = status;
		return rc;
	}
	kill(-pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return rc;
}

int32_t berth_spawn_read(char *const argv[], char *const env[], int64_t deadline_ns, void *buf, size_t cap,
			 size_t *ret_len, int32_t *ret_status)
{
	int fds[2], err;
	pid_t pid = 0;
	int32_t rc;

	if (pipe2(fds, O_CLOEXEC))
		return BERTH_UNAVAILABLE;
	err = start(argv, env, fds[1], &pid);
	close(fds[1]);
	if (err) {
		close(fds[0]);
		return err == EAGAIN || err == ENOMEM ? BERTH_UNAVAILABLE : BERTH_NOT_FOUND;
	}
	rc = take(fds[0], deadline_ns, buf, cap, ret_len);
	close(fds[0]);
	return reap(pid, deadline_ns, rc, ret_status);
}
