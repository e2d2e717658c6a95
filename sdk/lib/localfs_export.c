/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives many files out as one tar: the named paths, directories with all below. Entered by any thread with a small
 * stack; one file is open at a time, and few directories. Must never follow a symlink below a named directory, nor send
 * fewer bytes for a file than its header says.
 */
#include "localfs_internal.h"
#include "localfs_ustar.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct export {
	struct localfs_op op;
	char *buf;
	size_t len;
};

static int32_t fail(const struct export *ex, int err)
{
	return localfs_fail_errno(ex->op.host, ex->op.call, err, "export");
}

static int32_t flush(struct export *ex)
{
	size_t len = ex->len;
	int32_t code = localfs_ask(&ex->op);

	ex->len = 0;
	return code || !len ? code : ex->op.host->sink_write(ex->op.call, BERTH_STREAM_DATA, ex->buf, len);
}

/* data NULL = zeros. */
static int32_t put(struct export *ex, const void *data, size_t len)
{
	const char *at = data;

	while (len > 0) {
		size_t n = LOCALFS_CHUNK - ex->len;

		n = n < len ? n : len;
		if (at) {
			memcpy(ex->buf + ex->len, at, n);
			at += n;
		} else {
			memset(ex->buf + ex->len, 0, n);
		}
		ex->len += n;
		len -= n;
		if (ex->len == LOCALFS_CHUNK) {
			int32_t code = flush(ex);

			if (code)
				return code;
		}
	}
	return BERTH_OK;
}

static int32_t put_padding(struct export *ex, uint64_t size)
{
	return put(ex, NULL, (size_t)((USTAR_BLOCK - size % USTAR_BLOCK) % USTAR_BLOCK));
}

static int32_t put_pax(struct export *ex, const struct ustar_entry *entry)
{
	struct ustar_entry header = {.type = USTAR_PAX, .mode = 0644, .path = "pax_header"};
	unsigned char block[USTAR_BLOCK];
	char records[BERTH_PATH_MAX + 128];
	int32_t code;

	header.size = ustar_pax_format(entry, records, sizeof(records));
	ustar_format(&header, block);
	code = put(ex, block, sizeof(block));
	if (code == BERTH_OK)
		code = put(ex, records, (size_t)header.size);
	return code ? code : put_padding(ex, header.size);
}

static int32_t put_header(struct export *ex, const char *path, char type, const struct stat *st)
{
	struct ustar_entry entry = {
		.type = type,
		.mode = st->st_mode & 0777,
		.size = type == USTAR_REGULAR ? (uint64_t)st->st_size : 0,
		.mtime = st->st_mtim.tv_sec,
	};
	unsigned char block[USTAR_BLOCK];
	int32_t code = BERTH_OK;

	snprintf(entry.path, sizeof(entry.path), "%s", path);
	if (ustar_needs_pax(&entry))
		code = put_pax(ex, &entry);
	ustar_format(&entry, block);
	return code ? code : put(ex, block, sizeof(block));
}

/* Straight into the buffer. A file that grew is cut where the header says; one that shrank cannot be mended. */
static int32_t put_data(struct export *ex, int fd, uint64_t size)
{
	uint64_t left = size;

	while (left > 0) {
		size_t room = LOCALFS_CHUNK - ex->len;
		ssize_t n = read(fd, ex->buf + ex->len, left < room ? (size_t)left : room);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail(ex, errno);
		if (n == 0)
			return ex->op.host->fail(ex->op.call, BERTH_CONFLICT, "changed", 1, 0,
						 "a file became shorter while it was exported");
		ex->len += (size_t)n;
		left -= (uint64_t)n;
		if (ex->len == LOCALFS_CHUNK) {
			int32_t code = flush(ex);

			if (code)
				return code;
		}
	}
	return put_padding(ex, size);
}

static int32_t put_file(struct export *ex, const char *path, int fd, const struct stat *st)
{
	int32_t code = put_header(ex, path, USTAR_REGULAR, st);

	return code ? code : put_data(ex, fd, (uint64_t)st->st_size);
}

static int32_t export_entry(struct localfs_walk *walk, const char *below, const char *path, const struct stat *st)
{
	struct export *ex = walk->ctx;
	struct stat now;
	int32_t code;
	int fd;

	if (S_ISDIR(st->st_mode))
		return put_header(ex, path, USTAR_DIRECTORY, st);
	/* A symlink is not left out in silence: the caller names the files it wants around it. */
	if (!S_ISREG(st->st_mode))
		return fail(ex, ENODEV);
	fd = localfs_open_regular(&ex->op, walk->base, below, BENEATH_NO_SYMLINKS, &now);
	if (fd == -ENOENT)
		return BERTH_OK; /* removed meanwhile */
	if (fd < 0)
		return fail(ex, fd == -ELOOP ? ENODEV : fd);
	code = put_file(ex, path, fd, &now);
	close(fd);
	return code;
}

static int32_t export_directory(struct export *ex, const char *path, int fd, const struct stat *st)
{
	bool root = strcmp(path, ".") == 0;
	struct localfs_walk walk = {
		.op = &ex->op,
		.base = fd,
		.prefix = root ? "" : path,
		.recursive = true,
		.entry = export_entry,
		.ctx = ex,
	};
	int32_t code = root ? BERTH_OK : put_header(ex, path, USTAR_DIRECTORY, st);

	return code ? code : localfs_walk_run(&walk);
}

static int32_t export_path(struct export *ex, const struct berth_str *str)
{
	char path[BERTH_PATH_MAX + 1];
	struct stat st;
	int32_t code;
	int fd = localfs_path_copy(str, path);

	if (fd == 0)
		fd = beneath_open(ex->op.fs->root_fd, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, 0);
	if (fd < 0)
		return fail(ex, fd == -ENOTDIR ? ENOENT : fd);
	if (fstat(fd, &st) < 0)
		code = fail(ex, errno);
	else if (S_ISDIR(st.st_mode))
		code = export_directory(ex, path, fd, &st);
	else if (S_ISREG(st.st_mode))
		code = put_file(ex, path, fd, &st);
	else
		code = fail(ex, ENODEV);
	close(fd);
	return code;
}

int32_t berth_localfs_export(const struct berth_host *host, struct berth_call *call, const struct berth_localfs *fs,
			     const struct berth_str *paths, size_t path_count)
{
	struct export ex = {.op = {host, call, fs}, .buf = malloc(LOCALFS_CHUNK)};
	int32_t code = ex.buf ? BERTH_OK : fail(&ex, ENOMEM);

	for (size_t i = 0; code == BERTH_OK && i < path_count; i++)
		code = export_path(&ex, &paths[i]);
	if (code == BERTH_OK)
		code = put(&ex, NULL, (size_t)2 * USTAR_BLOCK);
	if (code == BERTH_OK)
		code = flush(&ex);
	free(ex.buf);
	return code;
}
