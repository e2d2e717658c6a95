/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts the leader: /bin/sh on the script file, in its own session, with its own environment, descriptors 0-2 only,
 * default signals, and the working directory opened beneath the root. vfork keeps it as cheap as posix_spawn; the child
 * must not allocate, and reports what refused it through memory it shares with the suspended parent until exec.
 */
#include "sup.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "../lib/localfs_beneath.h"

/* What the child needs, ready-made: it must not allocate. */
struct plan {
	int cwd;
	int in; /* -1 = keep /dev/null */
	int out[2];
	int cgroup; /* cgroup.procs, or -1 */
	int started;
	pid_t parent;
	const struct spec *spec;
	char script[PATH_MAX];
	volatile struct refusal refusal;
};

static _Noreturn void refuse(struct plan *plan, const char *reason)
{
	plan->refusal.err = errno;
	plan->refusal.reason = reason;
	_exit(127);
}

/* Adds the leader to the mark before it runs, so that what it leaves can be found even when this supervisor is killed.
 * A hint: the command runs all the same. */
static void note_leader(const struct plan *plan)
{
	char text[96];
	struct sup_proc self;
	int len;

	if (sup_proc_read(getpid(), &self) < 0)
		return;
	len = snprintf(text, sizeof(text), "leader=%d\nleader_start=%" PRIu64 "\n", (int)getpid(), self.start);
	(void)sup_write_all(plan->started, text, (size_t)len);
}

static void take_identity(struct plan *plan)
{
	const struct spec *spec = plan->spec;

	if (spec->uid < 0 && spec->gid < 0)
		return;
	if (geteuid() == 0 && setgroups(0, NULL) < 0)
		refuse(plan, "user");
	if (spec->gid >= 0 && setresgid((gid_t)spec->gid, (gid_t)spec->gid, (gid_t)spec->gid) < 0)
		refuse(plan, "user");
	if (spec->uid >= 0 && setresuid((uid_t)spec->uid, (uid_t)spec->uid, (uid_t)spec->uid) < 0)
		refuse(plan, "user");
	/* sh would only say 127. */
	if (access(plan->script, R_OK) < 0)
		refuse(plan, "script");
}

static const char *exec_reason(int err)
{
	if (err == E2BIG)
		return "env";
	if (err == ENOENT || err == EACCES || err == ENOEXEC || err == ENOTDIR)
		return "shell";
	return "resources";
}

static _Noreturn void child(struct plan *plan)
{
	char *argv[] = {"sh", plan->script, NULL};
	sigset_t none;

	setsid();
	note_leader(plan);
	if (plan->cgroup >= 0 && write(plan->cgroup, "0", 1) != 1)
		refuse(plan, "cgroup");
	if ((plan->in >= 0 && dup2(plan->in, STDIN_FILENO) < 0) || dup2(plan->out[0], STDOUT_FILENO) < 0 ||
	    dup2(plan->out[1], STDERR_FILENO) < 0)
		refuse(plan, "resources");
	take_identity(plan);
	if (fchdir(plan->cwd) < 0)
		refuse(plan, "cwd");
	/* After the change of identity, which clears it: without its supervisor the command must not run on. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != plan->parent)
		_exit(127);
	sigaction(SIGPIPE, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execve("/bin/sh", argv, plan->spec->env);
	refuse(plan, exec_reason(errno));
}

static pid_t __attribute__((noinline)) spawn(struct plan *plan)
{
	pid_t pid = vfork();

	if (pid == 0)
		child(plan);
	return pid;
}

static int open_cwd(const struct spec *spec)
{
	int root = open(spec->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int fd;

	if (root < 0)
		return -errno;
	fd = beneath_open(root, spec->cwd, O_PATH | O_DIRECTORY, 0, 0);
	close(root);
	return fd;
}

static int open_pipe(struct stream *out, int spare[2], int *ret_write)
{
	int ends[2] = {spare[0], spare[1]};

	spare[0] = spare[1] = -1;
	if (ends[0] < 0 && pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	/* Only our end: the command's must block as usual. */
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	out->pipe = ends[0];
	*ret_write = ends[1];
	return 0;
}

static int open_cgroup(const char *dir)
{
	char path[PATH_MAX];

	if ((size_t)snprintf(path, sizeof(path), "%s/cgroup.procs", dir) >= sizeof(path))
		return -1;
	return open(path, O_WRONLY | O_CLOEXEC);
}

/* Returns the reason why it cannot be started, or NULL; errno says more. */
static const char *plan_open(struct sup *s, struct plan *plan)
{
	const struct spec *spec = &s->spec;

	plan->cwd = open_cwd(spec);
	if (plan->cwd < 0) {
		errno = -plan->cwd;
		return "cwd";
	}
	if ((size_t)snprintf(plan->script, sizeof(plan->script), "%s/%" PRIu32 "/script", s->dir, s->attempt) >=
	    sizeof(plan->script))
		return "script";
	if (spec->has_stdin) {
		plan->in = openat(s->attempt_fd, "stdin", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
		if (plan->in < 0)
			return "stdin";
	}
	if (spec->cgroup[0]) {
		plan->cgroup = open_cgroup(spec->cgroup);
		if (plan->cgroup < 0)
			return "cgroup";
	}
	for (int i = 0; i < 2; i++)
		if (open_pipe(&s->out[i], s->spare[i], &plan->out[i]) < 0)
			return "resources";
	return NULL;
}

static void plan_close(struct plan *plan)
{
	int fds[] = {plan->cwd, plan->in, plan->cgroup, plan->started, plan->out[0], plan->out[1]};

	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

void command_start(struct sup *s, struct refusal *ret_refusal)
{
	struct plan plan = {
		.cwd = -1,
		.in = -1,
		.cgroup = -1,
		.started = s->started_fd,
		.out = {-1, -1},
		.parent = getpid(),
		.spec = &s->spec,
	};
	const char *reason = plan_open(s, &plan);
	int err = errno;
	pid_t pid = -1;

	/* Before the command can raise them. */
	if (s->counters_open && !s->spec.cgroup[0])
		cgroup_restart(&s->counters);
	else
		cgroup_open(&s->counters, s->spec.cgroup);
	s->begin_ns = sup_now_ns();
	if (!reason) {
		pid = spawn(&plan);
		err = pid < 0 ? errno : plan.refusal.err;
		reason = pid < 0 ? "resources" : plan.refusal.reason;
	}
	*ret_refusal = (struct refusal){.reason = reason, .err = err};
	plan_close(&plan);
	s->started_fd = -1;
	/* A child that refused goes to init with us. */
	if (!reason)
		s->leader = pid;
}
