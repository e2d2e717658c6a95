/* SPDX-License-Identifier: Apache-2.0 */
/* What a directory tree looks like at one moment: kind, inode, change time, size and mode of every entry. Any thread.
 */
#ifndef LOCALFS_SNAPSHOT_H
#define LOCALFS_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct snapshot_entry {
	char *path;     /* relative to the root */
	uint64_t inode; /* 0: changed so lately that a later change may not show; differs from everything */
	int64_t ctime_ns;
	uint64_t size;
	uint32_t mode;
	uint32_t kind; /* BERTH_FILE_* */
	bool closed;   /* a directory that could not be looked into, or not into all of it; not saved */
};

struct snapshot {
	struct snapshot_entry *entries; /* in order of path once taken */
	size_t count, cap;
	size_t unnamed;    /* entries whose path is longer than the ABI can say */
	size_t closed;     /* directories and entries that could not be looked at; not saved */
	int64_t newest_ns; /* latest change time met */
};

#define SNAPSHOT_ENTRIES_MAX 200000u

/* Asked now and then; other than 0 ends the walk with that. */
struct snapshot_stop {
	int (*ask)(void *arg);
	void *arg;
};

/* 0; -errno; -E2BIG past SNAPSHOT_ENTRIES_MAX; what stop said. */
int snapshot_take(int root_fd, const struct snapshot_stop *stop, struct snapshot *ret);
void snapshot_fini(struct snapshot *snapshot);
/* Of a path that is not in it: it may be there all the same, in a closed directory. */
bool snapshot_hides(const struct snapshot *snapshot, const char *path);

/* As one file; written under a temporary name. */
int snapshot_save(int dir_fd, const char *name, const struct snapshot *snapshot);
int snapshot_load(int dir_fd, const char *name, struct snapshot *ret);

#endif
