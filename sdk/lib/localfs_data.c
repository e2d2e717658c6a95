/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of single files beneath a local root: read and write. Entered by any thread with a small stack; keeps no
 * state, buffers are on the heap. Must never show a file before it is complete, nor wait on a FIFO or device.
 */
#include "localfs_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096 /* a sink that copies whole pages into whole pages does so at full speed */

int localfs_open_regular(const struct localfs_op *op, int dir, const char *path, unsigned int how, struct stat *ret_st)
{
	/* O_NONBLOCK: a FIFO must not hold the thread before it is seen to be one. */
	int fd = beneath_open(dir < 0 ? op->fs->root_fd : dir, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, how);
	int rc = 0;

	if (fd < 0)
		return fd;
	if (fstat(fd, ret_st) < 0)
		rc = -errno;
	else if (S_ISDIR(ret_st->st_mode))
		rc = -EISDIR;
	else if (!S_ISREG(ret_st->st_mode))
		rc = -ENODEV;
	if (rc == 0)
		return fd;
	close(fd);
	return rc;
}

static int32_t send_range(const struct localfs_op *op, int fd, uint64_t offset, uint64_t length, size_t chunk)
{
	void *buf = NULL;
	int32_t code = BERTH_OK;

	if (posix_memalign(&buf, PAGE, chunk) != 0)
		return localfs_fail_errno(op->host, op->call, ENOMEM, "read the file");
	while (code == BERTH_OK && length > 0) {
		ssize_t n = pread(fd, buf, length < chunk ? (size_t)length : chunk, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n == 0)
			break;
		if (n < 0) {
			code = localfs_fail_errno(op->host, op->call, errno, "read the file");
			break;
		}
		code = localfs_ask(op);
		if (code == BERTH_OK)
			code = op->host->sink_write(op->call, BERTH_STREAM_DATA, buf, (size_t)n);
		offset += (uint64_t)n;
		length -= (uint64_t)n;
	}
	free(buf);
	return code;
}

int32_t berth_localfs_read(const struct berth_host *host, struct berth_call *call, const struct berth_localfs *fs,
			   const struct berth_str *path, uint64_t offset, uint64_t length)
{
	struct localfs_op op = {host, call, fs};
	char name[BERTH_PATH_MAX + 1];
	size_t chunk = LOCALFS_CHUNK;
	struct stat st;
	int32_t code;
	int fd = localfs_path_copy(path, name);

	if (fd == 0)
		fd = localfs_open_regular(&op, -1, name, 0, &st);
	if (fd < 0)
		return localfs_fail_errno(host, call, fd == -ENOTDIR ? ENOENT : fd, "open the file");
	if (offset > INT64_MAX || length > INT64_MAX - offset)
		length = offset > INT64_MAX ? 0 : INT64_MAX - offset;
	/* The size is a hint for the buffer only: a file of /proc style or one that grows is read to its end. */
	if (st.st_size > 0 && (uint64_t)st.st_size < chunk)
		chunk = (size_t)st.st_size + 1;
	code = send_range(&op, fd, offset, length, chunk);
	close(fd);
	return code;
}

int localfs_write_all(int fd, const char *buf, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, buf, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		buf += n;
		len -= (size_t)n;
	}
	return 0;
}

static int32_t copy_source(const struct localfs_op *op, int fd, uint64_t *ret_total)
{
	char *buf = malloc(LOCALFS_CHUNK);
	int32_t code = BERTH_OK;
	uint64_t total = 0;

	if (!buf)
		return localfs_fail_errno(op->host, op->call, ENOMEM, "write the file");
	for (;;) {
		size_t len = 0;
		int rc;

		code = localfs_ask(op);
		if (code == BERTH_OK)
			code = op->host->source_read(op->call, buf, LOCALFS_CHUNK, &len);
		if (code || len == 0)
			break;
		rc = localfs_write_all(fd, buf, len);
		if (rc < 0) {
			code = localfs_fail_errno(op->host, op->call, rc, "write the file");
			break;
		}
		total += len;
	}
	free(buf);
	*ret_total = total;
	return code;
}

int localfs_check_target(const struct localfs_op *op, const struct localfs_at *at)
{
	struct stat st;
	int rc = 0;
	int fd = beneath_open(op->fs->root_fd, at->path, O_PATH, 0, 0);

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	if (fstat(fd, &st) < 0)
		rc = -errno;
	else if (S_ISDIR(st.st_mode))
		rc = -EISDIR;
	close(fd);
	return rc;
}

static int32_t write_temp(const struct localfs_op *op, const struct berth_file_write *write, int fd)
{
	uint64_t total = 0;
	int32_t code = copy_source(op, fd, &total);
	int rc;

	if (code)
		return code;
	if (write->size != BERTH_SIZE_UNKNOWN && write->size != total)
		return localfs_fail(op->host, op->call, BERTH_INVALID, "size_mismatch",
				    "the source is not as long as it was said to be");
	rc = localfs_finish(op, fd, write->mode);
	return rc < 0 ? localfs_fail_errno(op->host, op->call, rc, "set owner and mode") : BERTH_OK;
}

static int32_t write_at(const struct localfs_op *op, const struct berth_file_write *write, const struct localfs_at *at)
{
	char temp[LOCALFS_TEMP_MAX];
	int32_t code;
	int rc = 0;
	int fd = localfs_temp_make(op, at->dir, temp, false);

	if (fd < 0)
		return localfs_fail_errno(op->host, op->call, fd, "make a temporary file");
	code = write_temp(op, write, fd);
	/* Some file systems tell of a full disk only here. */
	if (close(fd) < 0 && code == BERTH_OK)
		code = localfs_fail_errno(op->host, op->call, errno, "close the file");
	if (code == BERTH_OK)
		rc = localfs_place(at->dir, temp, at->dir, at->name);
	if (rc < 0)
		code = localfs_fail_errno(op->host, op->call, rc, "rename the file into place");
	if (code)
		unlinkat(at->dir, temp, 0);
	return code;
}

int32_t berth_localfs_write(const struct berth_host *host, struct berth_call *call, const struct berth_localfs *fs,
			    const struct berth_file_write *write)
{
	struct localfs_op op = {host, call, fs};
	struct localfs_at at;
	int32_t code;
	int rc = localfs_at_open(&op, &at, &write->path, true);

	if (rc == 0)
		rc = localfs_check_target(&op, &at);
	if (rc < 0)
		code = localfs_fail_errno(host, call, rc, "open the directory");
	else if (write->mode == 0 || write->mode > 0777)
		code = localfs_fail(host, call, BERTH_INVALID, "mode", "mode must be 0001 to 0777");
	else
		code = write_at(&op, write, &at);
	localfs_at_close(&at);
	return code;
}
