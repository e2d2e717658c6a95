/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds and ends the descendants of a process. Orphans of the tree belong to the supervisor (it is their subreaper), so
 * setsid and double forks do not lead out of it. /proc/<pid>/task/<tid>/children is used where the kernel has it, else
 * all of /proc is read. Must never signal a process that is not in the tree: numbers are reused, so each one is
 * pinned by a pidfd and its parent is looked at again before the signal.
 */
#include "sup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

void tree_fini(struct tree *tree)
{
	free(tree->pids);
	tree->pids = NULL;
	tree->count = tree->cap = 0;
}

static int tree_add(struct tree *tree, pid_t pid)
{
	if (tree->count == tree->cap) {
		size_t cap = tree->cap ? tree->cap * 2 : 32;
		pid_t *grown = realloc(tree->pids, cap * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		tree->pids = grown;
		tree->cap = cap;
	}
	tree->pids[tree->count++] = pid;
	return 0;
}

/* Adds the numbers of one children file. */
static int add_children(struct tree *tree, pid_t pid, pid_t task)
{
	char path[64], block[4096];
	pid_t child = 0;
	ssize_t n;
	int fd, rc = 0;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)task);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while (rc == 0 && (n = read(fd, block, sizeof(block))) > 0) {
		for (ssize_t i = 0; rc == 0 && i < n; i++) {
			if (block[i] >= '0' && block[i] <= '9') {
				child = child * 10 + (block[i] - '0');
			} else if (child > 0) {
				rc = tree_add(tree, child);
				child = 0;
			}
		}
	}
	close(fd);
	return rc;
}

/* Each thread has children of its own. A process that ended meanwhile has none. */
static int add_process(struct tree *tree, pid_t pid)
{
	char path[32];
	struct dirent *entry;
	DIR *tasks;
	int rc = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	tasks = opendir(path);
	if (!tasks)
		return errno == ENOENT || errno == ESRCH ? 0 : -errno;
	while (rc == 0 && (entry = readdir(tasks))) {
		pid_t task = (pid_t)strtol(entry->d_name, NULL, 10);

		if (task > 0)
			rc = add_children(tree, pid, task);
		if (rc == -ENOENT || rc == -ESRCH)
			rc = 0;
	}
	closedir(tasks);
	return rc;
}

static bool has_children_files(void)
{
	char path[64];
	pid_t self = getpid();

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)self, (int)self);
	return access(path, R_OK) == 0;
}

struct pair {
	pid_t pid;
	pid_t parent;
};

static int pairs_read(struct pair **ret_pairs, size_t *ret_count)
{
	struct pair *pairs = NULL;
	size_t count = 0, cap = 0;
	struct dirent *entry;
	DIR *proc = opendir("/proc");

	if (!proc)
		return -errno;
	while ((entry = readdir(proc))) {
		struct sup_proc info;
		pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);

		if (pid <= 0 || sup_proc_read(pid, &info) < 0)
			continue;
		if (count == cap) {
			struct pair *grown = realloc(pairs, (cap = cap ? cap * 2 : 256) * sizeof(*grown));

			if (!grown) {
				free(pairs);
				closedir(proc);
				return -ENOMEM;
			}
			pairs = grown;
		}
		pairs[count++] = (struct pair){.pid = pid, .parent = info.ppid};
	}
	closedir(proc);
	*ret_pairs = pairs;
	*ret_count = count;
	return 0;
}

static int list_by_scan(struct tree *tree)
{
	struct pair *pairs = NULL;
	size_t count = 0;
	int rc = pairs_read(&pairs, &count);
	pid_t parent = tree->root;

	for (size_t next = 0; rc == 0; parent = tree->pids[next++]) {
		for (size_t i = 0; rc == 0 && i < count; i++)
			if (pairs[i].parent == parent)
				rc = tree_add(tree, pairs[i].pid);
		if (next == tree->count)
			break;
	}
	free(pairs);
	return rc;
}

static int list_by_children(struct tree *tree)
{
	int rc = add_process(tree, tree->root);

	for (size_t i = 0; rc == 0 && i < tree->count; i++)
		rc = add_process(tree, tree->pids[i]);
	return rc;
}

int tree_list(struct tree *tree)
{
	size_t alive = 0;
	int rc;

	tree->count = 0;
	rc = has_children_files() ? list_by_children(tree) : list_by_scan(tree);
	for (size_t i = 0; i < tree->count; i++) {
		struct sup_proc info;

		if (sup_proc_read(tree->pids[i], &info) == 0 && info.state != 'Z' && info.state != 'X')
			tree->pids[alive++] = tree->pids[i];
	}
	tree->count = alive;
	return rc;
}

static bool in_tree(const struct tree *tree, pid_t pid)
{
	if (pid == tree->root)
		return true;
	for (size_t i = 0; i < tree->count; i++)
		if (tree->pids[i] == pid)
			return true;
	return false;
}

static void signal_member(const struct tree *tree, pid_t pid, int sig)
{
	struct sup_proc info;
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	if (fd < 0 && errno != ENOSYS && errno != EMFILE && errno != ENFILE)
		return;
	/* The number may have been reused since the list was made; then its parent is not one of us. */
	if (sup_proc_read(pid, &info) == 0 && in_tree(tree, info.ppid)) {
		if (fd >= 0)
			syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0);
		else
			kill(pid, sig);
	}
	if (fd >= 0)
		close(fd);
}

size_t tree_signal(struct tree *tree, int sig)
{
	tree_list(tree);
	for (size_t i = 0; i < tree->count; i++) {
		signal_member(tree, tree->pids[i], sig);
		/* A stopped process would not see TERM before the grace is over. */
		if (sig == SIGTERM)
			signal_member(tree, tree->pids[i], SIGCONT);
	}
	return tree->count;
}

static int by_number(const void *a, const void *b)
{
	pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

	return (x > y) - (x < y);
}

/* True when every member of now was in before: both sorted. */
static bool nothing_new(const struct tree *now, const pid_t *before, size_t count)
{
	size_t at = 0;

	for (size_t i = 0; i < now->count; i++) {
		while (at < count && before[at] < now->pids[i])
			at++;
		if (at == count || before[at] != now->pids[i])
			return false;
	}
	return true;
}

/* A process with STOP pending cannot fork any more (fork restarts when a signal is pending), so once a look shows
 * nobody new, nobody new can come. */
static void freeze(struct tree *tree, int64_t until_ns)
{
	pid_t *before = NULL;
	size_t count = 0;

	for (;;) {
		bool stable;

		if (tree_list(tree) == -ENOMEM)
			break;
		qsort(tree->pids, tree->count, sizeof(*tree->pids), by_number);
		stable = nothing_new(tree, before, count);
		for (size_t i = 0; !stable && i < tree->count; i++)
			signal_member(tree, tree->pids[i], SIGSTOP);
		if (stable || sup_now_ns() >= until_ns)
			break;
		free(before);
		count = tree->count;
		before = malloc((count + 1) * sizeof(*before));
		if (!before)
			return;
		if (count)
			memcpy(before, tree->pids, count * sizeof(*before));
	}
	free(before);
}

size_t tree_kill(struct tree *tree, int64_t until_ns)
{
	freeze(tree, until_ns);
	for (size_t i = 0; i < tree->count; i++)
		signal_member(tree, tree->pids[i], SIGKILL);
	return tree->count;
}
