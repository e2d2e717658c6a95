/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides, under <id>/lock, whether this attempt may start, and turns the process into a supervisor that nobody waits
 * for: the launching process forks, the child gets its own session and writes `started` before the lock is released.
 * Must never start anything unless `started` is in place.
 */
#include "sup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

static void close_inherited(void)
{
	struct rlimit limit;

	if (close_range(3, ~0U, 0) == 0)
		return;
	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur > 65536)
		limit.rlim_cur = 65536;
	for (int fd = 3; fd < (int)limit.rlim_cur; fd++)
		close(fd);
}

/* Nothing of the caller may reach the command: descriptors, ignored signals, mask, umask, working directory. */
static int shed(void)
{
	struct sigaction action = {.sa_handler = SIG_DFL};
	sigset_t all;
	int fd;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	for (int sig = 1; sig < NSIG; sig++)
		sigaction(sig, &action, NULL);
	action.sa_handler = SIG_IGN;
	sigaction(SIGPIPE, &action, NULL);
	umask(022);
	close_inherited();
	fd = open("/dev/null", O_RDWR | O_CLOEXEC);
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
	/* Opened here, so that its hang-up tells a reader of our death from the first moment; for reading too, because
	 * that needs no reader on the other side. */
	s->wake = openat(s->attempt_fd, "wake", O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	if (s->wake < 0)
		return SUP_EXIT_SPEC;
	return 0;
}

static int write_started(struct sup *s)
{
	char text[SUP_SMALL_MAX], boot[SUP_BOOT_MAX];
	struct sup_proc self;
	int len;

	if (sup_boot_id(boot, sizeof(boot)) < 0 || sup_proc_read(getpid(), &self) < 0)
		return -EIO;
	len = snprintf(text, sizeof(text), "attempt=%" PRIu32 "\npid=%d\nstart=%" PRIu64 "\nboot=%s\n", s->attempt,
		       (int)getpid(), self.start, boot);
	return sup_replace_file(s->id_fd, "started", text, (size_t)len, 0, &s->started_fd);
}

static int open_events(struct sup *s)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGUSR1);
	s->events = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return s->events < 0 ? -errno : 0;
}

static int supervise(struct sup *s, int lock)
{
	struct refusal refusal;

	setsid();
	s->subreaper = prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
	if (open_events(s) < 0 || write_started(s) < 0)
		return SUP_EXIT_STORAGE;
	close(lock);
	close(s->id_fd);
	for (int i = 0; i < 2; i++)
		s->out[i] = (struct stream){
			.pipe = -1, .file = -1, .name = i ? "stderr" : "stdout", .max = s->spec.max[i]};
	command_start(s, &refusal);
	if (refusal.reason)
		loop_refused(s, &refusal);
	else
		loop_run(s);
	return 0;
}

int start_run(const char *dir, uint32_t attempt)
{
	static struct sup s = {.id_fd = -1, .attempt_fd = -1, .started_fd = -1, .wake = -1, .events = -1};
	int lock, rc;

	s.dir = dir;
	s.attempt = attempt;
	if (shed() < 0)
		return SUP_EXIT_RESOURCES;
	if (open_dirs(&s) < 0)
		return SUP_EXIT_STORAGE;
	lock = sup_lock(s.id_fd);
	if (lock < 0)
		return SUP_EXIT_STORAGE;
	rc = decide(&s);
	if (rc)
		return rc;
	/* The lock belongs to the open file, which both sides hold: it is free once the child closed it. */
	switch (fork()) {
	case -1:
		return SUP_EXIT_RESOURCES;
	case 0:
		_exit(supervise(&s, lock));
	default:
		return SUP_EXIT_STARTED;
	}
}
