/* SPDX-License-Identifier: Apache-2.0 */
/* Reading objects in pieces of bounded size. Any thread; an object that is deleted meanwhile is read to its end. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include "blob/fs.h"

static int open_object(struct fs_store *store, const char *key, int *ret_fd, uint64_t *ret_size, struct err *err)
{
	struct stat st;
	int fd = openat(store->objects_fd, key, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	/* With the whole folder away it is not this object that is missing. */
	if (fd < 0 && errno == ENOENT) {
		if (fs_check(&store->base, err) != 0)
			return ERR_STORE;
		fd = openat(store->objects_fd, key, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	}
	/* A folder of that name is no object; neither is anything below an object. */
	if (fd < 0)
		return fs_error(err, errno == ENOTDIR ? ENOENT : errno, "open", key);
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
		close(fd);
		return fs_error(err, ENOENT, "open", key);
	}
	*ret_fd = fd;
	*ret_size = (uint64_t)st.st_size;
	return 0;
}

int fs_size(struct blob_store *blobs, const char *key, uint64_t *ret_size, struct err *err)
{
	int fd;
	int rc = open_object(fs_of(blobs), key, &fd, ret_size, err);

	if (rc == 0)
		close(fd);
	return rc;
}

/* The reader's own error stays as it set it. */
static int stopped(struct err *err, int code, const char *key)
{
	if (err != NULL && err->code == code)
		return code;
	return err_set(err, code, "the reader of %.160s stopped", key);
}

static int read_pieces(int fd, const char *key, uint64_t offset, uint64_t end, int (*fn)(void *, const void *, size_t),
		       void *arg, struct err *err)
{
	char *chunk = malloc(FS_CHUNK);
	ssize_t len;
	int rc = 0, code;

	if (chunk == NULL)
		return err_set(err, ERR_NOMEM, "no memory to read %.160s", key);
	while (rc == 0 && offset < end) {
		len = pread(fd, chunk, end - offset < FS_CHUNK ? (size_t)(end - offset) : FS_CHUNK, (off_t)offset);
		if (len < 0 && errno == EINTR)
			continue;
		if (len < 0) {
			rc = fs_error(err, errno, "read", key);
		} else if (len == 0) {
			rc = err_set(err, ERR_CORRUPT, "the object %.120s ends at %" PRIu64, key, offset);
		} else {
			offset += (uint64_t)len;
			code = fn(arg, chunk, (size_t)len);
			rc = code != 0 ? stopped(err, code, key) : 0;
		}
	}
	free(chunk);
	return rc;
}

int fs_read(struct blob_store *blobs, const char *key, uint64_t offset, uint64_t length,
	    int (*fn)(void *arg, const void *ptr, size_t len), void *arg, struct err *err)
{
	uint64_t size, end;
	int fd;
	int rc = open_object(fs_of(blobs), key, &fd, &size, err);

	if (rc != 0)
		return rc;
	if (offset > size)
		rc = err_set(err, ERR_RANGE,
			     "the object %.120s has %" PRIu64 " bytes; reading cannot begin at %" PRIu64, key,
			     size, offset);
	end = length < size - offset ? offset + length : size;
	if (rc == 0)
		rc = read_pieces(fd, key, offset, end, fn, arg, err);
	close(fd);
	return rc;
}
