/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parent's side of a probe: starts the child with the already opened file, waits at most the limit, and turns
 * whatever became of it into one sentence. Main thread at start. Never trusts what the child wrote: it ran foreign
 * code.
 */
#include "plugin/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"

#define CHILD_FD 3
#define LINE_MAX_LEN 400
#define TAIL_LEN 200
#define STEP_BYTE '\x01'

extern char **environ;

struct child {
	pid_t pid;
	int pidfd;
	int out[2]; /* pipes; [0] is ours */
	int err[2];
	unsigned steps;
	char line[LINE_MAX_LEN + 1];
	size_t line_len;
	char tail[TAIL_LEN + 1];
	size_t tail_len;
};

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static int spawn_child(struct child *child, const char *program, int fd, const char *path, const char *name)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t all, none;
	char number[8];
	char *argv[7];
	int rc;

	snprintf(number, sizeof(number), "%d", CHILD_FD);
	argv[0] = strdup(program);
	argv[1] = strdup("--probe");
	argv[2] = number;
	argv[3] = strdup(path);
	argv[4] = strdup(name);
	argv[5] = NULL;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, child->out[1], 1);
	posix_spawn_file_actions_adddup2(&actions, child->err[1], 2);
	posix_spawn_file_actions_adddup2(&actions, fd, CHILD_FD);
	sigfillset(&all);
	sigemptyset(&none);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setsigdefault(&attr, &all);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setpgroup(&attr, 0); /* so that what it starts is killed with it */
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
	rc = argv[0] && argv[1] && argv[3] && argv[4]
		 ? posix_spawn(&child->pid, program, &actions, &attr, argv, environ)
		 : ENOMEM;
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attr);
	free(argv[0]);
	free(argv[1]);
	free(argv[3]);
	free(argv[4]);
	return rc;
}

static void keep_line(struct child *child, const char *ptr, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (ptr[i] == STEP_BYTE)
			child->steps++;
		else if (child->line_len < LINE_MAX_LEN && ptr[i] != '\n')
			child->line[child->line_len++] = ptr[i];
	}
}

/* The last bytes, as one line. */
static void keep_tail(struct child *child, const char *ptr, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (child->tail_len == TAIL_LEN)
			memmove(child->tail, child->tail + 1, --child->tail_len);
		child->tail[child->tail_len++] = (unsigned char)ptr[i] < 0x20 || ptr[i] == 0x7f ? ' ' : ptr[i];
	}
}

/* Reads what is there; closes the descriptor at its end. */
static void drain(struct child *child, int *fd, void (*keep)(struct child *, const char *, size_t))
{
	char chunk[512];
	ssize_t len;

	while (*fd >= 0 && (len = read(*fd, chunk, sizeof(chunk))) != 0) {
		if (len < 0) {
			if (errno == EINTR)
				continue;
			return;
		}
		keep(child, chunk, (size_t)len);
	}
	close_fd(fd);
}

/* True when the child has ended by itself. */
static bool wait_child(struct child *child, int64_t deadline_ns)
{
	for (;;) {
		struct pollfd fds[] = {
		    {.fd = child->out[0], .events = POLLIN},
		    {.fd = child->err[0], .events = POLLIN},
		    {.fd = child->pidfd, .events = POLLIN},
		};
		int64_t left = clock_left_ms(deadline_ns);
		int rc = poll(fds, 3, left > 1000000 ? 1000000 : (int)left);

		if (rc < 0 && errno != EINTR)
			return false;
		drain(child, &child->out[0], keep_line);
		drain(child, &child->err[0], keep_tail);
		if (rc > 0 && fds[2].revents)
			return true;
		if (left == 0)
			return false;
	}
}

static const char *const steps[] = {"the start of the probe", "loading", "its entry", "init", "fini",
				    "the end of the probe"};

static const char *step_word(const struct child *child)
{
	size_t last = sizeof(steps) / sizeof(*steps) - 1;

	return steps[child->steps < last ? child->steps : last];
}

/* limit_ms: what the child did not keep; 0 when it ended by itself. */
static int judge(struct child *child, int status, int64_t limit_ms, const char *path, struct err *err)
{
	const char *sep = child->tail_len ? "; it wrote: " : "";

	if (limit_ms)
		return err_set(err, ERR_CONFIG, "plugin %s: did not come back from %s within %lld ms%s%s", path,
			       step_word(child), (long long)limit_ms, sep, child->tail);
	if (WIFSIGNALED(status))
		return err_set(err, ERR_CONFIG, "plugin %s: crashed in %s: SIG%s%s%s", path, step_word(child),
			       sigabbrev_np(WTERMSIG(status)) ? sigabbrev_np(WTERMSIG(status)) : "?", sep, child->tail);
	if (WEXITSTATUS(status) == 0 && !strncmp(child->line, "ok ", 3))
		return 0;
	if (child->line_len && strncmp(child->line, "ok ", 3))
		return err_set(err, ERR_CONFIG, "%s", child->line);
	return err_set(err, ERR_CONFIG, "plugin %s: ended the process in %s with exit status %d%s%s", path,
		       step_word(child), WEXITSTATUS(status), sep, child->tail);
}

static int open_pipes(struct child *child)
{
	if (pipe2(child->out, O_CLOEXEC) || pipe2(child->err, O_CLOEXEC))
		return -1;
	if (fcntl(child->out[0], F_SETFL, O_NONBLOCK) || fcntl(child->err[0], F_SETFL, O_NONBLOCK))
		return -1;
	return 0;
}

int probe_run(const char *program, int fd, const char *path, const char *name, int64_t limit_ms, struct err *err)
{
	struct child child = {.pid = -1, .pidfd = -1, .out = {-1, -1}, .err = {-1, -1}};
	int status = 0, failed = 0, rc = ERR_CONFIG;
	bool ended;

	if (open_pipes(&child)) {
		err_set(err, rc, "plugin %s: no pipe for its probe: %s", path, strerror(errno));
		goto out;
	}
	failed = spawn_child(&child, program, fd, path, name);
	close_fd(&child.out[1]);
	close_fd(&child.err[1]);
	if (failed) {
		err_set(err, rc, "plugin %s: its probe %s cannot be started: %s", path, program, strerror(failed));
		goto out;
	}
	child.pidfd = pidfd_open(child.pid, 0);
	ended = child.pidfd >= 0 && wait_child(&child, clock_after_ms(limit_ms));
	kill(-child.pid, SIGKILL);
	while (waitpid(child.pid, &status, 0) < 0 && errno == EINTR)
		;
	drain(&child, &child.out[0], keep_line);
	drain(&child, &child.err[0], keep_tail);
	rc = judge(&child, status, ended ? 0 : limit_ms, path, err);
	if (!rc && child.tail_len)
		log_warn("a plugin wrote to standard output or error during its probe", KS("plugin", path),
			 KS("text", child.tail));
out:
	close_fd(&child.out[0]);
	close_fd(&child.out[1]);
	close_fd(&child.err[0]);
	close_fd(&child.err[1]);
	close_fd(&child.pidfd);
	return rc;
}
