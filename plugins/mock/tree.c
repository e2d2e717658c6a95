/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removal of trees that commands left behind. They may be deeper than any path, hold directories without permissions,
 * and be removed by another process at the same time. So: no recursion and no paths; a directory that is not empty is
 * hoisted to the top of the tree under a new name and emptied there. Never follows a symlink, never leaves the tree.
 * Any thread.
 */
#include "tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* How often a tree may fill again behind the remover before that is an error. */
#define REFILLS_MAX 1000u

/* Hoisted directories get names that no two hoists of this machine share, so that none lands on another. */
static void hoist_name(char *ret, size_t cap)
{
	static atomic_uint_fast64_t serial;

	snprintf(ret, cap, ".hoist-%ld-%llu", (long)getpid(), (unsigned long long)atomic_fetch_add(&serial, 1));
}

/* A directory without permissions is given them through its descriptor, so that a swapped symlink is not followed. */
int tree_open(int parent_fd, const char *name)
{
	int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char link[64];
	int path_fd;

	if (fd >= 0 && faccessat(fd, ".", W_OK | X_OK, 0) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	else if (errno != EACCES)
		return -errno;
	path_fd = openat(parent_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (path_fd < 0)
		return -errno;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", path_fd);
	chmod(link, 0700);
	fd = openat(path_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		fd = -errno;
	close(path_fd);
	return fd;
}

/* To the top, under a new name. Moving a directory rewrites its "..", which needs write permission on it. */
static int hoist(int dir_fd, const char *name, int top_fd)
{
	char hoisted[64];
	int fd;

	hoist_name(hoisted, sizeof(hoisted));
	if (!renameat(dir_fd, name, top_fd, hoisted))
		return 0;
	if (errno == EACCES) {
		fd = tree_open(dir_fd, name);
		if (fd >= 0)
			close(fd);
		if (!renameat(dir_fd, name, top_fd, hoisted))
			return 0;
	}
	return errno == ENOENT ? 0 : -errno;
}

/* Removes a file. 1 = it is a directory; `type` of readdir saves asking. */
static int drop_file(int dir_fd, const char *name, unsigned char type)
{
	if (type == DT_DIR)
		return 1;
	if (!unlinkat(dir_fd, name, 0) || errno == ENOENT)
		return 0;
	return errno == EISDIR || errno == EPERM ? 1 : -errno;
}

/* Removes one entry, or moves it to the top when it is a directory with something in it. */
static int drop_entry(int dir_fd, const struct dirent *entry, int top_fd)
{
	int rc = drop_file(dir_fd, entry->d_name, entry->d_type);

	if (rc <= 0 || !unlinkat(dir_fd, entry->d_name, AT_REMOVEDIR) || errno == ENOENT)
		return rc < 0 ? rc : 0;
	return errno == ENOTEMPTY || errno == EEXIST ? hoist(dir_fd, entry->d_name, top_fd) : -errno;
}

static int empty_dir(int dir_fd, int top_fd)
{
	DIR *dir = fdopendir(dir_fd);
	struct dirent *entry;
	int first = 0;

	if (!dir) {
		first = -errno;
		close(dir_fd);
		return first;
	}
	while ((entry = readdir(dir))) {
		int rc;

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		rc = drop_entry(dirfd(dir), entry, top_fd);
		if (rc < 0 && !first)
			first = rc;
	}
	closedir(dir);
	return first;
}

/* One directory directly below the top: its files go, its directories move up beside it, then it goes itself. */
static int drop_top_dir(int top_fd, const char *name)
{
	int fd = tree_open(top_fd, name);
	int rc;

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	rc = empty_dir(fd, top_fd);
	if (!rc && unlinkat(top_fd, name, AT_REMOVEDIR) && errno != ENOENT)
		rc = -errno;
	return rc;
}

/* One pass over the top. *ret_left counts the directories met: while there are any, another pass is due. */
static int pass(int top_fd, size_t *ret_left)
{
	int fd = openat(top_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;
	int first = 0;

	*ret_left = 0;
	if (!dir) {
		first = -errno;
		if (fd >= 0)
			close(fd);
		return first;
	}
	while ((entry = readdir(dir))) {
		int rc;

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		++*ret_left;
		rc = drop_file(top_fd, entry->d_name, entry->d_type);
		if (rc > 0)
			rc = drop_top_dir(top_fd, entry->d_name);
		if (rc && !first)
			first = rc;
	}
	closedir(dir);
	return first;
}

int tree_remove(int parent_fd, const char *name)
{
	int top_fd = tree_open(parent_fd, name);
	unsigned refilled = 0;
	size_t left;
	int rc;

	if (top_fd < 0)
		return top_fd == -ENOENT ? 0 : top_fd;
	do {
		rc = pass(top_fd, &left);
		/* Something else put an entry back: another remover's hoist, or a process that should be dead. */
		if (rc == -ENOTEMPTY && ++refilled < REFILLS_MAX)
			rc = 0;
		if (!rc && !left && unlinkat(parent_fd, name, AT_REMOVEDIR) && errno != ENOENT) {
			rc = errno == ENOTEMPTY && ++refilled < REFILLS_MAX ? 0 : -errno;
			left = 1;
		}
	} while (!rc && left);
	close(top_fd);
	return rc;
}
