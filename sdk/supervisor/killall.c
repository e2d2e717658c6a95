/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kill-all: ends every process that any supervisor of a run directory still holds, for the release of a session. Asks
 * the supervisors first, since only they can prove that their tree is gone; ends the trees of those that do not answer
 * from outside, and what a killed supervisor left by its session. Ids that have not started are poisoned, so that no
 * late start slips through. Must never signal by number alone.
 */
#include "sup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MS INT64_C(1000000)
/* How long a supervisor may take over its own tree (it gives itself 5 s) before it is done from outside. */
#define PATIENCE_NS (6000 * MS)
#define ROUND_MS 20

struct member {
	pid_t pid;
	pid_t session;
	uint64_t start;
};

struct round {
	int dir;
	const char *only; /* NULL = every id */
	int64_t until_ns;
	bool impatient;
	bool again;   /* not the first one */
	bool barring; /* the second walk of a round: over what has not started */
	bool failed;  /* an id could not be looked at */
	size_t alive; /* processes seen in this round */
	size_t held;  /* locks of ids that have not started */
	struct sup_started wait; /* one supervisor to wait for; pid 0 = none */
	char boot[SUP_BOOT_MAX];
	bool scanned;
	struct member *members; /* every process, by session */
	size_t count;
};

static int by_session(const void *a, const void *b)
{
	const struct member *x = a, *y = b;

	return (x->session > y->session) - (x->session < y->session);
}

/* All processes, once a round: there may be thousands of ids. */
static void scan(struct round *r)
{
	struct dirent *entry;
	size_t cap = 0; /* of this scan; realloc of what an earlier one left is fine */
	DIR *proc = opendir("/proc");

	r->scanned = true;
	r->failed |= !proc;
	while (proc && (entry = readdir(proc))) {
		pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
		struct sup_proc info;
		int rc = pid > 0 ? sup_proc_read(pid, &info) : -ESRCH;

		r->failed |= rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM;
		if (rc < 0 || info.state == 'Z' || info.state == 'X')
			continue;
		if (r->count == cap) {
			struct member *grown = realloc(r->members, (cap = cap ? cap * 2 : 256) * sizeof(*grown));

			if (!grown) {
				r->failed = true;
				break;
			}
			r->members = grown;
		}
		r->members[r->count++] = (struct member){pid, info.session, info.start};
	}
	if (proc)
		closedir(proc);
	if (r->count)
		qsort(r->members, r->count, sizeof(*r->members), by_session);
}

/* Members of a dead supervisor's session. The session's number cannot be reused while one of them lives; the leader's
 * start time tells a later session with the same number. */
static void end_session(struct round *r, const struct sup_started *started)
{
	struct sup_proc leader;
	size_t low = 0, high;

	if (started->leader <= 0)
		return;
	if (!r->scanned)
		scan(r);
	for (high = r->count; low < high;) {
		size_t middle = low + (high - low) / 2;

		if (r->members[middle].session < started->leader)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == r->count || r->members[low].session != started->leader)
		return;
	if (sup_proc_read(started->leader, &leader) == 0 && leader.start != started->leader_start)
		return;
	for (; low < r->count && r->members[low].session == started->leader; low++) {
		if (r->members[low].start < started->leader_start)
			continue;
		sup_signal_exact(r->members[low].pid, r->members[low].start, SIGKILL);
		r->alive++;
	}
}

/* Traced, or stopped once more after it was continued: it hears nothing. */
static bool held_up(const struct round *r, const struct sup_started *started, char *ret_state)
{
	struct sup_proc proc;

	if (sup_proc_read(started->pid, &proc) < 0 || proc.start != started->start)
		return false;
	*ret_state = proc.state;
	return proc.state == 't' || (proc.state == 'T' && r->again);
}

static void tell(const struct sup_started *started)
{
	sup_signal_exact(started->pid, started->start, SIGUSR1);
	sup_signal_exact(started->pid, started->start, SIGCONT);
}

/* The supervisor is stopped or stuck. Its tree first: once it is gone nobody can find it. And what held it up may be in
 * there: then it can end the rest itself, and write its status. */
static void end_from_outside(const struct sup_started *started, bool hopeless)
{
	struct tree tree = {.root = started->pid};

	if (sup_signal_exact(started->pid, started->start, SIGSTOP) < 0)
		return;
	tree_kill(&tree, sup_now_ns() + 1000 * MS);
	if (tree.count == 0 && hopeless)
		sup_signal_exact(started->pid, started->start, SIGKILL);
	else
		tell(started);
	tree_fini(&tree);
}

static void end_started(struct round *r, const struct sup_started *started)
{
	char state = 0;

	if (strcmp(r->boot, started->boot) != 0)
		return;
	/* One that could not be looked at is looked at again in the next round. */
	if (sup_alive(started->pid, started->start) == 0) {
		end_session(r, started);
		return;
	}
	r->alive++;
	r->wait = *started;
	if (held_up(r, started, &state) || r->impatient)
		end_from_outside(started, r->impatient || state == 't');
	else
		tell(started);
}

static void end_found(void *ctx, const struct sup_started *started)
{
	end_started(ctx, started);
}

/* By its own descriptor: a symlink is not followed. */
static void permit(int at, const char *name, int flags)
{
	char link[40];
	int fd = openat(at, name, O_PATH | O_CLOEXEC | flags);

	if (fd < 0)
		return;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	chmod(link, 0700);
	close(fd);
}

/* A command of our own user may have closed it, or kept us from writing there. */
static int open_dir(int at, const char *name, int flags)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);

	if (fd >= 0 && faccessat(fd, ".", W_OK | X_OK, 0) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	else if (errno != EACCES)
		return -1;
	permit(at, name, flags);
	return openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
}

static int mark_read(int id_fd, struct sup_started *ret_started)
{
	int rc = sup_started_read(id_fd, ret_started);

	if (rc != -EACCES)
		return rc;
	permit(id_fd, "started", O_NOFOLLOW);
	return sup_started_read(id_fd, ret_started);
}

static int each_holder(struct round *r, int id_fd)
{
	return holder_each(id_fd, end_found, r) < 0 ? -EIO : -ENOENT;
}

/* Whoever holds the lock is waited for by looking again, since what holds it may yet be ended in this very round; a
 * supervisor that was stopped while it started has no mark. 0 = it has started. */
static int bar(struct round *r, int id_fd, struct sup_started *ret_started)
{
	int rc = sup_poison_now(id_fd, UINT32_MAX, ret_started);

	if (rc == -ETIMEDOUT)
		return r->alive || (r->held++ && sup_now_ns() >= r->until_ns) ? -ENOENT : each_holder(r, id_fd);
	/* Nothing starts from a poison that cannot be read either. */
	if (rc == 0 || rc == -EACCES)
		return -ENOENT;
	return rc == 1 ? 0 : rc;
}

static void end_id(struct round *r, const char *id)
{
	struct sup_started started;
	int fd = open_dir(r->dir, id, O_NOFOLLOW);
	int rc;

	if (fd < 0) {
		r->failed |= errno != ENOENT && errno != ENOTDIR && errno != ELOOP;
		return;
	}
	rc = mark_read(fd, &started);
	if (r->barring)
		rc = rc == -ENOENT ? bar(r, fd, &started) : -ENOENT;
	/* Emptied by a power cut, and then nothing runs; or by its command, which must not live on for that. */
	if (sup_damaged(rc))
		rc = each_holder(r, fd);
	close(fd);
	if (rc == 0)
		end_started(r, &started);
	else
		r->failed |= rc != -ENOENT;
}

static int walk(struct round *r)
{
	struct dirent *entry;
	DIR *dir;
	int fd;

	if (r->only) {
		end_id(r, r->only);
		return 0;
	}
	fd = openat(r->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir)
		return -errno;
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			end_id(r, entry->d_name);
	closedir(dir);
	return 0;
}

/* What runs first: it can put any number of ids that have not started in our way. */
static int round_run(struct round *r)
{
	int rc = 0;

	r->failed = false;
	r->alive = r->held = 0;
	r->wait.pid = 0;
	r->scanned = false;
	r->count = 0;
	for (int i = 0; rc == 0 && i < 2; i++) {
		r->barring = i;
		rc = walk(r);
	}
	r->again = true;
	return rc;
}

/* Until one of the supervisors is gone, or the next look is due. */
static void round_wait(const struct round *r)
{
	int fd = r->wait.pid ? (int)syscall(SYS_pidfd_open, r->wait.pid, 0) : -1;
	struct pollfd poller = {.fd = fd, .events = POLLIN};

	poll(&poller, 1, ROUND_MS);
	if (fd >= 0)
		close(fd);
}

int killall_run(const char *run_dir, const char *id, int64_t until_ns)
{
	struct round r = {.only = id, .until_ns = until_ns};
	int64_t patience = sup_now_ns() + PATIENCE_NS;
	bool found = false;

	r.dir = open_dir(AT_FDCWD, run_dir, 0);
	if (r.dir < 0)
		return errno == ENOENT ? 0 : SUP_EXIT_STORAGE;
	if (sup_boot_id(r.boot, sizeof(r.boot)) < 0)
		return SUP_EXIT_STORAGE;
	for (;;) {
		r.impatient = sup_now_ns() >= patience;
		if (round_run(&r) < 0)
			return SUP_EXIT_STORAGE;
		if (r.alive == 0 && r.held == 0)
			break;
		found |= r.alive > 0;
		if (sup_now_ns() >= until_ns)
			return SUP_EXIT_TIMEOUT;
		round_wait(&r);
	}
	if (r.failed)
		return SUP_EXIT_STORAGE;
	return id && !found ? SUP_EXIT_NOTHING : 0;
}
