/* SPDX-License-Identifier: Apache-2.0 */
/* What the localfs*.c files share. */
#ifndef LOCALFS_INTERNAL_H
#define LOCALFS_INTERNAL_H

#include <stdbool.h>
#include <sys/types.h>

#include <berth/localfs.h>

#include "localfs_beneath.h"
#include "localfs_errno.h"
#include "localfs_path.h"

struct stat;

#define LOCALFS_CHUNK 262144u
#define LOCALFS_TEMP_MAX 64u

/* One operation. */
struct localfs_op {
	const struct berth_host *host;
	struct berth_call *call;
	const struct berth_localfs *fs;
};

/* A path taken apart: the directory that holds the last component, and that component. "." has no name. */
struct localfs_at {
	int dir; /* O_PATH; -1 = not open */
	char path[BERTH_PATH_MAX + 1];
	const char *name; /* in path */
};

/* Between two steps of what takes as long as the sandbox's files are many: OK, or CANCELLED or TIMEOUT, told. */
int32_t localfs_ask(const struct localfs_op *op);
/* How many entries are looked at before it is asked again. */
#define LOCALFS_ASK_EVERY 256u

/* All return 0 or a negative errno. */
int localfs_path_copy(const struct berth_str *path, char out[BERTH_PATH_MAX + 1]);
/* Opens the directory that the first len bytes of a checked path name (0 = the root), O_PATH. */
int localfs_dir_open(const struct localfs_op *op, const char *path, size_t len, bool make);
/* Opens the parent directory; make: missing ones are created with mode 0755. */
int localfs_at_open(const struct localfs_op *op, struct localfs_at *at, const struct berth_str *path, bool make);
void localfs_at_close(struct localfs_at *at);
/* A new file (or, with directory, a new directory) under a name that no list shows. */
int localfs_temp_make(const struct localfs_op *op, int dir, char name[LOCALFS_TEMP_MAX], bool directory);
bool localfs_temp_is(const char *name);
/* Owner and exact permission bits. */
int localfs_finish(const struct localfs_op *op, int fd, mode_t mode);
/* Moves a finished temporary file into place; -EISDIR when a directory is there. */
int localfs_place(int from_dir, const char *from, int to_dir, const char *name);
/* What is there now must not lead outside or be a directory: the rename would not follow a link, but the caller means
 * another file. */
int localfs_check_target(const struct localfs_op *op, const struct localfs_at *at);
int localfs_write_all(int fd, const char *buf, size_t len);
/* Opens a regular file for reading, below dir (-1 = the root); -EISDIR, -ENODEV (neither) or as open. */
int localfs_open_regular(const struct localfs_op *op, int dir, const char *path, unsigned int how, struct stat *ret_st);
/* Removes a directory and all below; with op, asks now and then, and the answer may be a code, which is above 0. */
int localfs_remove_tree(const struct localfs_op *op, int dir, const char *name);

/* Walks everything below a directory, parents before children, following no symlink, with few directories open or kept
 * however many there are; too many wide ones in one another are INVALID.
 * Temporary names are skipped. The callback's first non-OK code ends the walk, as do the call's deadline and cancel. */
struct localfs_walk {
	const struct localfs_op *op;
	int base;           /* directory to walk */
	const char *prefix; /* put before each path: "" or the base's path */
	bool recursive;
	bool lenient; /* what cannot be named or looked at is left out and counted; else it ends the walk */
	int32_t (*entry)(struct localfs_walk *walk, const char *below, const char *path, const struct stat *st);
	void *ctx;
	size_t seen; /* entries */
	size_t left_out;
};
int32_t localfs_walk_run(struct localfs_walk *walk);

#endif
