/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes many files in as one tar. Everything is first written to a staging directory that no list shows, for the
 * host says only at the end of its source whether the bytes were what it promised; then each file is renamed into
 * place. Entered by any thread with a small stack. Must never place a file of an archive that did not end well, nor
 * take anything but regular files and directories.
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

/* What one archive may bring; more is refused by name. */
#define ENTRIES_MAX 262144u
#define NAMES_MAX (64u << 20)

struct item {
	char *path; /* relative to the root */
	uint32_t mode;
	uint32_t directory;
};

struct import {
	struct localfs_op op;
	char target[BERTH_PATH_MAX + 1]; /* "" = the root */
	int dir;                         /* the target directory */
	int stage;
	char stage_name[LOCALFS_TEMP_MAX];
	char *buf; /* input not yet used: [pos, len) */
	size_t pos;
	size_t len;
	bool ended;
	struct item *items;
	size_t count;
	size_t cap;
	size_t names;
	struct ustar_pax pax;
};

static int32_t refuse(const struct import *im, const char *reason, const char *text)
{
	return localfs_fail(im->op.host, im->op.call, BERTH_INVALID, reason, text);
}

static int32_t fail(const struct import *im, int err, const char *doing)
{
	if (err == -EBADMSG)
		return refuse(im, "tar_invalid", "the archive is damaged");
	if (err == -ENOTSUP)
		return refuse(im, "tar_entry", "only regular files and directories are taken from an archive");
	return localfs_fail_errno(im->op.host, im->op.call, err, doing);
}

/* At least one byte in the buffer, or ended. */
static int32_t fill(struct import *im)
{
	int32_t code;

	if (im->pos < im->len || im->ended)
		return BERTH_OK;
	im->pos = im->len = 0;
	code = localfs_ask(&im->op);
	if (code)
		return code;
	code = im->op.host->source_read(im->op.call, im->buf, LOCALFS_CHUNK, &im->len);
	im->ended = code == BERTH_OK && im->len == 0;
	return code;
}

static int32_t take(struct import *im, void *out, size_t len)
{
	char *at = out;

	while (len > 0) {
		int32_t code = fill(im);
		size_t n = im->len - im->pos;

		if (code)
			return code;
		if (im->ended)
			return refuse(im, "tar_truncated", "the archive ends in the middle");
		n = n < len ? n : len;
		memcpy(at, im->buf + im->pos, n);
		im->pos += n;
		at += n;
		len -= n;
	}
	return BERTH_OK;
}

static int32_t take_padding(struct import *im, uint64_t size)
{
	char padding[USTAR_BLOCK];

	return take(im, padding, (size_t)((USTAR_BLOCK - size % USTAR_BLOCK) % USTAR_BLOCK));
}

static int32_t take_data(struct import *im, int fd, uint64_t size)
{
	for (uint64_t left = size; left > 0;) {
		int32_t code = fill(im);
		size_t n = im->len - im->pos;
		int rc;

		if (code)
			return code;
		if (im->ended)
			return refuse(im, "tar_truncated", "the archive ends in the middle");
		n = n < left ? n : (size_t)left;
		rc = localfs_write_all(fd, im->buf + im->pos, n);
		if (rc < 0)
			return fail(im, rc, "write a file of the archive");
		im->pos += n;
		left -= n;
	}
	return take_padding(im, size);
}

static int32_t take_pax(struct import *im, const struct ustar_entry *entry)
{
	struct ustar_pax ignored = {0};
	bool global = entry->type == USTAR_PAX_GLOBAL;
	int32_t code;
	char *data;
	int rc;

	if (entry->size > USTAR_PAX_MAX)
		return refuse(im, "tar_invalid", "a pax header is larger than 64 KiB");
	data = malloc((size_t)entry->size + 1);
	if (!data)
		return fail(im, -ENOMEM, "read the archive");
	code = take(im, data, (size_t)entry->size);
	if (code == BERTH_OK)
		code = take_padding(im, entry->size);
	if (code == BERTH_OK) {
		rc = ustar_pax_parse(data, (size_t)entry->size, global ? &ignored : &im->pax);
		/* A name or size for all entries makes no sense here. */
		if (rc == 0 && (ignored.has_path || ignored.has_size))
			rc = -ENOTSUP;
		code = rc < 0 ? fail(im, rc, "read the archive") : BERTH_OK;
	}
	free(data);
	return code;
}

static int32_t add_item(struct import *im, const char *path, const struct ustar_entry *entry)
{
	if (im->count == ENTRIES_MAX || im->names + strlen(path) > NAMES_MAX)
		return refuse(im, "too_many_entries", "more than 262144 entries or 64 MiB of names in one archive");
	if (im->count == im->cap) {
		size_t cap = im->cap ? im->cap * 2 : 64;
		struct item *grown = realloc(im->items, cap * sizeof(*grown));

		if (!grown)
			return fail(im, -ENOMEM, "read the archive");
		im->items = grown;
		im->cap = cap;
	}
	im->items[im->count] = (struct item){strdup(path), entry->mode & 0777, entry->type == USTAR_DIRECTORY};
	if (!im->items[im->count].path)
		return fail(im, -ENOMEM, "read the archive");
	im->count++;
	im->names += strlen(path);
	return BERTH_OK;
}

/* "./a/" → "a"; "" for the target itself. */
static char *plain_path(struct ustar_entry *entry)
{
	char *path = entry->path;
	size_t len;

	while (path[0] == '.' && path[1] == '/')
		path += 2;
	len = strlen(path);
	while (entry->type == USTAR_DIRECTORY && len > 1 && path[len - 1] == '/')
		path[--len] = '\0';
	if (strcmp(path, ".") == 0)
		path[0] = '\0';
	return path;
}

static int32_t full_path(struct import *im, struct ustar_entry *entry, char out[BERTH_PATH_MAX + 1], bool *ret_self)
{
	char *path = plain_path(entry);
	struct berth_str str = {path, strlen(path)};
	int n, rc;

	*ret_self = entry->type == USTAR_DIRECTORY && str.len == 0;
	if (*ret_self)
		return BERTH_OK;
	rc = localfs_path_check(&str);
	if (rc < 0)
		return fail(im, rc, "a path in the archive");
	n = snprintf(out, BERTH_PATH_MAX + 1, "%s%s%s", im->target, im->target[0] ? "/" : "", path);
	return n > (int)BERTH_PATH_MAX ? fail(im, -ENAMETOOLONG, "a path in the archive") : BERTH_OK;
}

static int32_t stage_file(struct import *im, const struct ustar_entry *entry)
{
	char name[16];
	int32_t code;
	int fd, rc;

	snprintf(name, sizeof(name), "%zu", im->count - 1);
	fd = openat(im->stage, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return fail(im, -errno, "write a file of the archive");
	code = take_data(im, fd, entry->size);
	if (code == BERTH_OK) {
		rc = localfs_finish(&im->op, fd, entry->mode);
		code = rc < 0 ? fail(im, rc, "set owner and mode") : BERTH_OK;
	}
	if (close(fd) < 0 && code == BERTH_OK)
		code = fail(im, -errno, "write a file of the archive");
	return code;
}

static int32_t take_entry(struct import *im, struct ustar_entry *entry)
{
	char path[BERTH_PATH_MAX + 1];
	bool self = false;
	int32_t code;

	if (im->pax.has_path)
		memcpy(entry->path, im->pax.path, sizeof(entry->path));
	if (im->pax.has_size)
		entry->size = im->pax.size;
	im->pax = (struct ustar_pax){0};
	if (entry->type == USTAR_DIRECTORY && entry->size)
		return fail(im, -EBADMSG, "read the archive");
	code = full_path(im, entry, path, &self);
	if (code || self)
		return code;
	code = add_item(im, path, entry);
	if (code == BERTH_OK && entry->type == USTAR_REGULAR)
		code = stage_file(im, entry);
	return code;
}

/* After the two blocks of zeros only more zeros may follow; the source is read to its end, where the host judges it. */
static int32_t take_end(struct import *im)
{
	unsigned char block[USTAR_BLOCK];
	int32_t code = take(im, block, sizeof(block));

	if (code)
		return code;
	for (size_t i = 0; i < sizeof(block); i++)
		if (block[i])
			return fail(im, -EBADMSG, "read the archive");
	while ((code = fill(im)) == BERTH_OK && !im->ended)
		for (; im->pos < im->len; im->pos++)
			if (im->buf[im->pos])
				return fail(im, -EBADMSG, "read the archive");
	return code;
}

static int32_t take_all(struct import *im)
{
	for (;;) {
		unsigned char block[USTAR_BLOCK];
		struct ustar_entry entry;
		int32_t code = take(im, block, sizeof(block));
		int rc;

		if (code)
			return code;
		rc = ustar_parse(block, &entry);
		if (rc == 1)
			return im->pax.has_path || im->pax.has_size ? fail(im, -EBADMSG, "read the archive")
								    : take_end(im);
		if (rc < 0)
			return fail(im, rc, "read the archive");
		if (entry.type == USTAR_PAX || entry.type == USTAR_PAX_GLOBAL)
			code = take_pax(im, &entry);
		else
			code = take_entry(im, &entry);
		if (code)
			return code;
	}
}

static int place_file(struct import *im, size_t i)
{
	struct berth_str path = {im->items[i].path, strlen(im->items[i].path)};
	struct localfs_at at;
	char name[24];
	int rc = localfs_at_open(&im->op, &at, &path, true);

	snprintf(name, sizeof(name), "%zu", i);
	if (rc == 0)
		rc = localfs_check_target(&im->op, &at);
	if (rc == 0)
		rc = localfs_place(im->stage, name, at.dir, at.name);
	localfs_at_close(&at);
	return rc;
}

static int finish_directory(struct import *im, const struct item *item)
{
	int fd = beneath_open(im->op.fs->root_fd, item->path, O_RDONLY | O_DIRECTORY, 0, 0);
	int rc;

	if (fd < 0)
		return fd;
	rc = localfs_finish(&im->op, fd, item->mode);
	close(fd);
	return rc;
}

static int place(struct import *im, size_t i)
{
	int dir;

	if (!im->items[i].directory)
		return place_file(im, i);
	dir = localfs_dir_open(&im->op, im->items[i].path, strlen(im->items[i].path), true);
	if (dir >= 0)
		close(dir);
	return dir < 0 ? dir : 0;
}

/* Directories get their own modes last and from the end: a closed one could not be filled. */
static int32_t place_all(struct import *im)
{
	int32_t code = BERTH_OK;
	int rc = 0;

	for (size_t i = 0; rc == 0 && !code && i < im->count; i++) {
		code = localfs_ask(&im->op);
		if (!code)
			rc = place(im, i);
	}
	for (size_t i = im->count; rc == 0 && !code && i > 0; i--) {
		code = localfs_ask(&im->op);
		if (!code && im->items[i - 1].directory)
			rc = finish_directory(im, &im->items[i - 1]);
	}
	return rc < 0 ? fail(im, rc, "put the archive's files in place") : code;
}

static int32_t import_open(struct import *im, const struct berth_str *path)
{
	int rc = localfs_path_copy(path, im->target);

	if (rc < 0)
		return fail(im, rc, "the target directory");
	if (strcmp(im->target, ".") == 0)
		im->target[0] = '\0';
	im->dir = localfs_dir_open(&im->op, im->target, strlen(im->target), true);
	if (im->dir < 0)
		return fail(im, im->dir, "open the target directory");
	im->stage = localfs_temp_make(&im->op, im->dir, im->stage_name, true);
	if (im->stage < 0)
		return fail(im, im->stage, "make a staging directory");
	im->buf = malloc(LOCALFS_CHUNK);
	return im->buf ? BERTH_OK : fail(im, -ENOMEM, "read the archive");
}

static void import_close(struct import *im)
{
	if (im->stage >= 0) {
		close(im->stage);
		/* What stays behind on a failure here is not listed, and goes with the session. */
		(void)localfs_remove_tree(NULL, im->dir, im->stage_name);
	}
	if (im->dir >= 0)
		close(im->dir);
	for (size_t i = 0; i < im->count; i++)
		free(im->items[i].path);
	free(im->items);
	free(im->buf);
}

int32_t berth_localfs_import(const struct berth_host *host, struct berth_call *call, const struct berth_localfs *fs,
			     const struct berth_str *path)
{
	struct import im = {.op = {host, call, fs}, .dir = -1, .stage = -1};
	int32_t code = import_open(&im, path);

	if (code == BERTH_OK)
		code = take_all(&im);
	if (code == BERTH_OK)
		code = place_all(&im);
	import_close(&im);
	return code;
}
