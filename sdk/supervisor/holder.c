/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the supervisors of an id whose mark is damaged: emptied by a power cut, or by its command. Each holds the id's
 * directory open to its end, whatever that is called by now. Main thread of kill-all. Must never take another process
 * for one that only reads there, nor a helper of our own kind.
 */
#include "sup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Told by what it was started as: berth-executor is the same program and opens these directories, and kill-all does. */
static bool is_supervisor(int32_t pid)
{
	static const char *const heads[] = {"berth-supervise\0run", "berth-supervise\0attend"};
	static const size_t lens[] = {sizeof("berth-supervise\0run"), sizeof("berth-supervise\0attend")};
	char path[48], text[sizeof("berth-supervise\0attend")];
	ssize_t len = -1;
	int fd;

	snprintf(path, sizeof(path), "/proc/%" PRId32 "/cmdline", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		len = read(fd, text, sizeof(text));
		close(fd);
	}
	for (size_t i = 0; i < 2; i++)
		if (len >= (ssize_t)lens[i] && memcmp(text, heads[i], lens[i]) == 0)
			return true;
	return false;
}

/* 1 = yes; 0 also when we are not allowed to look: one of ours we are. */
static int holds(int32_t pid, const struct stat *id)
{
	char path[48];
	struct dirent *entry;
	struct stat st;
	int found = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%" PRId32 "/fd", pid);
	dir = opendir(path);
	if (!dir)
		return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? -errno : 0;
	while (!found && (entry = readdir(dir)))
		found = fstatat(dirfd(dir), entry->d_name, &st, 0) == 0 && S_ISDIR(st.st_mode) &&
			st.st_dev == id->st_dev && st.st_ino == id->st_ino;
	closedir(dir);
	return found;
}

static int look_at(int32_t pid, const struct stat *id, struct sup_started *ret)
{
	struct sup_proc proc;
	int rc = sup_proc_read(pid, &proc);

	if (rc < 0)
		return rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM ? rc : 0;
	if (proc.state == 'Z' || proc.state == 'X' || !is_supervisor(pid))
		return 0;
	rc = holds(pid, id);
	if (rc <= 0)
		return rc;
	*ret = (struct sup_started){.pid = pid, .start = proc.start};
	return sup_boot_id(ret->boot, sizeof(ret->boot)) < 0 ? -EIO : 1;
}

int holder_each(int id_fd, void (*found)(void *ctx, const struct sup_started *started), void *ctx)
{
	struct dirent *entry;
	struct stat id;
	DIR *proc;
	int rc = 0;

	if (fstat(id_fd, &id) < 0)
		return -errno;
	proc = opendir("/proc");
	if (!proc)
		return -errno;
	while (rc >= 0 && (entry = readdir(proc))) {
		int32_t pid = (int32_t)strtol(entry->d_name, NULL, 10);
		struct sup_started started;

		rc = pid > 0 && pid != getpid() ? look_at(pid, &id, &started) : 0;
		if (rc == 1)
			found(ctx, &started);
	}
	closedir(proc);
	return rc < 0 ? rc : 0;
}
