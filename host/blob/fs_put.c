/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing objects: complete and synced under a name in the staging folder, then renamed, then the folders are synced.
 * Any thread. An object must never be seen half written, and never be reported stored before it is durable.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include "blob/fs.h"
#include "core/ident.h"

#define RENAME_TRIES 100

int fs_write_all(int fd, const void *ptr, size_t len)
{
	const char *at = ptr;
	ssize_t done;

	while (len > 0) {
		done = write(fd, at, len);
		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return errno;
		at += done;
		len -= (size_t)done;
	}
	return 0;
}

static int make_temp(struct fs_store *store, const char *key, char ret_name[IDENT_ID_MAX + 1], int *ret_fd,
		     struct err *err)
{
	ident_random(ret_name, "put_", 24);
	*ret_fd = openat(store->staging_fd, ret_name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	/* In a folder that was removed nothing can be made; there may be another one now. */
	if (*ret_fd < 0 && errno == ENOENT) {
		if (fs_check(&store->base, err) != 0)
			return ERR_STORE;
		*ret_fd = openat(store->staging_fd, ret_name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	}
	return *ret_fd < 0 ? fs_error(err, errno == ENOENT ? EIO : errno, "begin", key) : 0;
}

/* Renames into place. A folder that another thread prunes between mkdir and rename is made again. */
static int rename_in(struct fs_store *store, int from_fd, const char *from, const char *key, struct err *err)
{
	int tries, rc = 0;

	for (tries = 0; tries < RENAME_TRIES; tries++) {
		rc = fs_make_parents(store->objects_fd, key, err);
		if (rc != 0)
			return rc;
		if (renameat(from_fd, from, store->objects_fd, key) == 0)
			return 0;
		if (errno != ENOENT || faccessat(from_fd, from, F_OK, AT_SYMLINK_NOFOLLOW) != 0)
			break;
		if (tries == 0 && fs_check(&store->base, err) != 0)
			return ERR_STORE;
	}
	/* EXDEV is for the caller, who copies. */
	if (errno == EXDEV)
		return ERR_UNSUPPORTED;
	return fs_error(err, errno == ENOENT ? EIO : errno, "store", key);
}

/* Syncs and closes the staged file and puts it in place; it is gone from the staging folder either way. */
static int finish(struct fs_store *store, int fd, const char *name, const char *key, struct err *err)
{
	int rc = 0;

	if (fsync(fd) != 0)
		rc = fs_error(err, errno, "sync", key);
	close(fd);
	if (rc == 0)
		rc = rename_in(store, store->staging_fd, name, key, err);
	if (rc != 0)
		unlinkat(store->staging_fd, name, 0);
	else
		rc = fs_sync_parents(store->objects_fd, key, err);
	return rc;
}

static int discard(struct fs_store *store, int fd, const char *name, int rc)
{
	close(fd);
	unlinkat(store->staging_fd, name, 0);
	return rc;
}

int fs_put_bytes(struct blob_store *blobs, const char *key, const void *ptr, size_t len, struct err *err)
{
	struct fs_store *store = fs_of(blobs);
	char name[IDENT_ID_MAX + 1];
	int fd, number;
	int rc = make_temp(store, key, name, &fd, err);

	if (rc != 0)
		return rc;
	number = fs_write_all(fd, ptr, len);
	if (number != 0)
		return discard(store, fd, name, fs_error(err, number, "write", key));
	return finish(store, fd, name, key, err);
}

static int copy_bytes(int from, int to, const char *key, struct err *err)
{
	char *chunk = malloc(FS_CHUNK);
	ssize_t len = 0;
	int number = 0;

	if (chunk == NULL)
		return err_set(err, ERR_NOMEM, "no memory to copy %.160s", key);
	while (number == 0 && (len = read(from, chunk, FS_CHUNK)) != 0) {
		if (len < 0 && errno == EINTR)
			continue;
		number = len < 0 ? errno : fs_write_all(to, chunk, (size_t)len);
	}
	free(chunk);
	return number != 0 ? fs_error(err, number, "copy", key) : 0;
}

/* From another file system. */
static int copy_in(struct fs_store *store, int from, const char *key, const char *path, struct err *err)
{
	char name[IDENT_ID_MAX + 1];
	int fd;
	int rc = make_temp(store, key, name, &fd, err);

	if (rc != 0)
		return rc;
	if (lseek(from, 0, SEEK_SET) != 0)
		rc = fs_error(err, errno, "copy", key);
	if (rc == 0)
		rc = copy_bytes(from, fd, key, err);
	if (rc != 0)
		return discard(store, fd, name, rc);
	rc = finish(store, fd, name, key, err);
	if (rc == 0)
		unlink(path);
	return rc;
}

static int move_in(struct fs_store *store, int from, const char *key, const char *path, struct err *err)
{
	int rc;

	if (fsync(from) != 0)
		return fs_error(err, errno, "sync", key);
	rc = rename_in(store, AT_FDCWD, path, key, err);
	if (rc == ERR_UNSUPPORTED)
		return copy_in(store, from, key, path, err);
	if (rc != 0)
		return rc;
	rc = fs_sync_parents(store->objects_fd, key, err);
	/* Not stored after all: the file goes back, so that the caller can try again. */
	if (rc != 0)
		renameat(store->objects_fd, key, AT_FDCWD, path);
	return rc;
}

int fs_put_file(struct blob_store *blobs, const char *key, const char *path, const struct blob_info *info,
		struct err *err)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	int rc;

	if (fd < 0)
		return err_set(err, ERR_IO, "the file for %.160s cannot be opened: %s", key, strerror(errno));
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
		rc = err_set(err, ERR_IO, "the file for %.160s is not a regular file", key);
	else if ((uint64_t)st.st_size != info->size)
		rc = err_set(err, ERR_CORRUPT, "the file for %.120s has %" PRIu64 " bytes, not %" PRIu64, key,
			     (uint64_t)st.st_size, info->size);
	else
		rc = move_in(fs_of(blobs), fd, key, path, err);
	close(fd);
	return rc;
}
