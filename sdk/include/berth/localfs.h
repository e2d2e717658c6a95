/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File operations beneath a local root, for plugins and executors that see the session's files directly. Every
 * path is resolved with openat2(RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS): a symlink or ".." that leaves the root is
 * INVALID with reason "path_escapes", even while it is being swapped. Semantics are those of the operations of the same
 * name in provider.h. Files are owned by uid and gid (-1 = keep).
 */
#ifndef BERTH_LOCALFS_H
#define BERTH_LOCALFS_H

#include <berth/host.h>

#ifdef __cplusplus
extern "C" {
#endif

struct berth_localfs {
	uint32_t struct_size;
	int32_t root_fd; /* O_PATH or O_RDONLY directory; owned by the caller */
	int32_t uid;
	int32_t gid;
};

int32_t berth_localfs_read(const struct berth_host *host, struct berth_call *call, const struct berth_localfs *fs,
			   const struct berth_str *path, uint64_t offset, uint64_t length);
int32_t berth_localfs_write(const struct berth_host *host, struct berth_call *call, const struct berth_localfs *fs,
			    const struct berth_file_write *write);
int32_t berth_localfs_stat(const struct berth_host *host, struct berth_call *call, const struct berth_localfs *fs,
			   const struct berth_str *path);
int32_t berth_localfs_list(const struct berth_host *host, struct berth_call *call, const struct berth_localfs *fs,
			   const struct berth_str *path, uint32_t flags);
int32_t berth_localfs_remove(const struct berth_host *host, struct berth_call *call, const struct berth_localfs *fs,
			     const struct berth_str *path, uint32_t flags);
int32_t berth_localfs_move(const struct berth_host *host, struct berth_call *call, const struct berth_localfs *fs,
			   const struct berth_str *from, const struct berth_str *to);
int32_t berth_localfs_import(const struct berth_host *host, struct berth_call *call, const struct berth_localfs *fs,
			     const struct berth_str *path);
int32_t berth_localfs_export(const struct berth_host *host, struct berth_call *call, const struct berth_localfs *fs,
			     const struct berth_str *paths, size_t path_count);

/* What changed since a mark. Marks are kept as files in marks_fd, a private directory outside the root: the newest 16;
 * asking for an older one is NOT_FOUND. *ret_unnamed: entries that are left out, since their paths are too long to be told
 * or they lie in closed folders; what a mark knew in such a folder is not told as deleted. */
int32_t berth_localfs_mark(const struct berth_host *host, struct berth_call *call, const struct berth_localfs *fs,
			   int marks_fd, size_t *ret_unnamed);
int32_t berth_localfs_changes(const struct berth_host *host, struct berth_call *call, const struct berth_localfs *fs,
			      int marks_fd, const struct berth_str *token, size_t *ret_unnamed);

#ifdef __cplusplus
}
#endif

#endif
