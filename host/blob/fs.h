/* SPDX-License-Identifier: Apache-2.0 */
/* Internal: the directory store and the little it needs of the file system. */
#ifndef BLOB_FS_H
#define BLOB_FS_H

#include <stdbool.h>
#include <stddef.h>

#include "blob/ops.h"
#include "core/ident.h"
#include "core/thread.h"

#define FS_STAGING ".staging"
#define FS_LOCK ".lock"
#define FS_OBJECTS "objects"
#define FS_ID "store-id"
#define FS_CHUNK ((size_t)64 * 1024)

struct fs_store {
	struct blob_store base;
	char *root, *staging, *id;
	char stage[sizeof(FS_STAGING) + IDENT_ID_MAX + 1]; /* the folder of this process, below the root */
	int objects_fd, staging_fd; /* their numbers stay, also when they come to mean new folders */
	int lock_fd;		    /* says that this process lives */
	struct lock lock;	    /* class BLOB: one look at a time */
};

static inline struct fs_store *fs_of(struct blob_store *blobs)
{
	return (struct fs_store *)blobs;
}

/* fs.c: blob_check. */
int fs_check(struct blob_store *blobs, struct err *err);
int fs_adopt(struct blob_store *blobs, const char *store_id, struct err *err);

/* fs_stage.c: the folder in which this process writes, locked for as long as it lives. 0 or an errno. */
int fs_stage_open(const struct fs_store *store, int root_fd, int *ret_fd, int *ret_lock);
/* Removes what processes left that do not live any more. */
int fs_stage_sweep(const struct fs_store *store, int root_fd, struct err *err);
void fs_stage_close(const struct fs_store *store);

/* fs_path.c. Keys are relative to objects_fd. */
int fs_error(struct err *err, int number, const char *what, const char *key);
/* Makes the folders above key. */
int fs_make_parents(int objects_fd, const char *key, struct err *err);
/* Syncs every folder above key, nearest first, and the root of the objects. */
int fs_sync_parents(int objects_fd, const char *key, struct err *err);
/* Removes the folders above key as far as they are empty; what is left of the path is synced. */
int fs_prune_parents(int objects_fd, const char *key, struct err *err);

/* fs_put.c */
int fs_put_file(struct blob_store *blobs, const char *key, const char *path, const struct blob_info *info,
		struct err *err);
int fs_put_bytes(struct blob_store *blobs, const char *key, const void *ptr, size_t len, struct err *err);
int fs_write_all(int fd, const void *ptr, size_t len);

/* fs_get.c */
int fs_read(struct blob_store *blobs, const char *key, uint64_t offset, uint64_t length,
	    int (*fn)(void *arg, const void *ptr, size_t len), void *arg, struct err *err);
int fs_size(struct blob_store *blobs, const char *key, uint64_t *ret_size, struct err *err);

/* fs_delete.c */
int fs_remove(struct blob_store *blobs, const char *key, struct err *err);
int fs_remove_prefix(struct blob_store *blobs, const char *prefix, struct err *err);
/* Removes all below a folder, not the folder. */
int fs_empty(const char *path, struct err *err);

#endif
