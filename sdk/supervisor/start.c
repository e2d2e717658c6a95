/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides, under the lock of <id>, whether this attempt may start, and turns the process into a supervisor that nobody
 * waits for: the launching process ends at once, its child gets its own session and sets the mark that it started
 * before the lock is released. Must never start anything unless `started` is in place.
 */
#include "sup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void close_inherited(unsigned first)
{
	struct rlimit limit;

	if (close_range(first, ~0U, 0) == 0)
		return;
	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur > 65536)
		limit.rlim_cur = 65536;
	for (int fd = (int)first; fd < (int)limit.rlim_cur; fd++)
		close(fd);
}

/* Nothing of the caller may reach the command: descriptors from `first` on, ignored signals, mask, umask, working
 * directory. */
int start_shed(unsigned first)
{
	/* The kernel's struct in zeros: the default action. libc's sigaction would leave out its own two signals, which
	 * posix_spawn hands on as ignored. */
	static const char by_default[64];
	struct sigaction ignore = {.sa_handler = SIG_IGN};
	sigset_t all;
	int fd;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	for (int sig = 1; sig <= 64; sig++)
		syscall(SYS_rt_sigaction, sig, by_default, NULL, (size_t)8);
	sigaction(SIGPIPE, &ignore, NULL);
	umask(022);
	close_inherited(first);
	fd = open("/dev/null", O_RDWR); /* may be one of the three itself */
	for (int i = 0; i < 3; i++)
		if (fd < 0 || dup2(fd, i) < 0)
			return -errno;
	if (fd > 2)
		close(fd);
	return chdir("/") < 0 ? -errno : 0;
}

static int open_dirs(struct sup *s)
{
	char name[16];

	s->id_fd = open(s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->id_fd < 0)
		return -errno;
	snprintf(name, sizeof(name), "%" PRIu32, s->attempt);
	s->attempt_fd = openat(s->id_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return s->attempt_fd < 0 ? -errno : 0;
}

/* Opened before the fork, so that its hang-up tells a reader of our death from the first moment. The detour over a
 * descriptor for both directions is for the case that nobody reads yet; we must not stay a reader ourselves, or could
 * not see that there is none. */
static int open_wake(struct sup *s)
{
	int both = openat(s->attempt_fd, "wake", O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);

	if (both >= 0)
		s->wake = openat(s->attempt_fd, "wake", O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	if (both >= 0)
		close(both);
	return s->wake < 0 ? SUP_EXIT_SPEC : 0;
}

/* The lock is held. 0 = go on, else an exit code. */
static int decide(struct sup *s)
{
	struct sup_started started;
	uint32_t poison;
	int rc = sup_started_read(s->id_fd, &started);

	/* A mark that cannot be read is a mark. */
	if (rc == 0 || rc == -EBADMSG)
		return SUP_EXIT_ALREADY;
	if (rc != -ENOENT || sup_poison_read(s->id_fd, &poison) < 0)
		return SUP_EXIT_STORAGE;
	if (poison >= s->attempt)
		return SUP_EXIT_POISONED;
	if (spec_load(&s->spec, s->attempt_fd) < 0 || faccessat(s->attempt_fd, "script", R_OK, 0) < 0)
		return SUP_EXIT_SPEC;
	return open_wake(s);
}

static int look_up_self(struct sup *s)
{
	struct sup_proc self;

	if (!s->boot[0] && sup_boot_id(s->boot, sizeof(s->boot)) < 0)
		return -EIO;
	if (s->self_start)
		return 0;
	if (sup_proc_read(getpid(), &self) < 0)
		return -EIO;
	s->self_start = self.start;
	return 0;
}

/* The mark is the spec file itself, with the facts of the start added, moved into place: one step, and no new file. */
static int write_started(struct sup *s)
{
	char text[SUP_SMALL_MAX];
	int len, rc;

	if (look_up_self(s) < 0)
		return -EIO;
	s->started_fd = openat(s->attempt_fd, "spec", O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
	if (s->started_fd < 0)
		return -errno;
	len = snprintf(text, sizeof(text), "attempt=%" PRIu32 "\npid=%d\nstart=%" PRIu64 "\nboot=%s\n", s->attempt,
		       (int)getpid(), s->self_start, s->boot);
	rc = sup_write_all(s->started_fd, text, (size_t)len);
	if (rc == 0 && renameat(s->attempt_fd, "spec", s->id_fd, "started") < 0)
		rc = -errno;
	return rc;
}

static int open_events(struct sup *s)
{
	sigset_t set;

	if (s->events >= 0)
		return 0;
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGUSR1);
	s->events = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return s->events < 0 ? -errno : 0;
}

struct supervisor {
	struct sup sup;
	int lock;
	int reply; /* where the exit code goes when nobody waits for a launcher; -1 = none */
};

/* The pipe's end tells, too, when this process is lost before it could answer. */
static void answer(struct supervisor *self, int code)
{
	uint8_t byte = (uint8_t)code;

	if (self->reply < 0)
		return;
	while (write(self->reply, &byte, 1) < 0 && errno == EINTR)
		continue;
	close(self->reply);
	self->reply = -1;
}

static int supervise(void *ctx)
{
	struct supervisor *self = ctx;
	struct sup *s = &self->sup;
	struct refusal refusal;

	if (!s->subreaper)
		setsid();
	s->subreaper = s->subreaper || prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
	if (open_events(s) < 0 || write_started(s) < 0) {
		answer(self, SUP_EXIT_STORAGE);
		_exit(SUP_EXIT_STORAGE);
	}
	/* Explicitly: the launcher may still hold the descriptor. */
	flock(self->lock, LOCK_UN);
	close(self->lock);
	/* id_fd stays: by it holder.c finds us when the mark is damaged. */
	answer(self, SUP_EXIT_STARTED);
	for (int i = 0; i < 2; i++)
		s->out[i] = (struct stream){
			.pipe = -1, .file = -1, .name = i ? "stderr" : "stdout", .max = s->spec.max[i]};
	command_start(s, &refusal);
	if (refusal.reason)
		loop_refused(s, &refusal);
	else
		loop_run(s);
	_exit(0);
}

/* Becomes a process of its own without copying the memory: the launcher does nothing with it any more but exit. */
static int detach(struct supervisor *self)
{
	static char stack[256 * 1024] __attribute__((aligned(16)));

	return clone(supervise, stack + sizeof(stack), CLONE_VM | SIGCHLD, self) < 0 ? SUP_EXIT_RESOURCES
										     : SUP_EXIT_STARTED;
}

/* The lock is taken unless a code other than 0 is returned. */
static int claim(struct supervisor *self, const char *dir, uint32_t attempt)
{
	struct sup *s = &self->sup;

	s->dir = dir;
	s->attempt = attempt;
	if (open_dirs(s) < 0)
		return SUP_EXIT_STORAGE;
	/* The lock belongs to the open file, which the supervisor inherits. */
	self->lock = sup_lock(s->id_fd);
	return self->lock < 0 ? SUP_EXIT_STORAGE : decide(s);
}

static struct supervisor *supervisor_new(void)
{
	static struct supervisor self = {
		.sup = {.id_fd = -1, .attempt_fd = -1, .started_fd = -1, .wake = -1, .events = -1,
			.spare = {{-1, -1}, {-1, -1}}},
		.reply = -1};

	return &self;
}

int start_run(const char *dir, uint32_t attempt)
{
	struct supervisor *self = supervisor_new();
	int rc;

	if (start_shed(3) < 0)
		return SUP_EXIT_RESOURCES;
	rc = claim(self, dir, attempt);
	_exit(rc ? rc : detach(self));
}

int start_prepare_all(void)
{
	struct sup *s = &supervisor_new()->sup;

	cgroup_open(&s->counters, "");
	s->counters_open = true;
	return sup_boot_id(s->boot, sizeof(s->boot)) < 0 ? SUP_EXIT_STORAGE : 0;
}

int start_prepare_one(void)
{
	struct sup *s = &supervisor_new()->sup;

	setsid();
	s->subreaper = prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
	if (look_up_self(s) < 0 || open_events(s) < 0)
		return SUP_EXIT_RESOURCES;
	for (int i = 0; i < 2; i++)
		if (pipe2(s->spare[i], O_CLOEXEC) < 0)
			return SUP_EXIT_RESOURCES;
	return 0;
}

void start_here(const char *dir, uint32_t attempt, int reply)
{
	struct supervisor *self = supervisor_new();
	int rc;

	self->reply = reply;
	rc = claim(self, dir, attempt);
	if (rc == 0)
		supervise(self);
	answer(self, rc);
	_exit(rc);
}
