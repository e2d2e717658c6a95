/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder in which this process writes, <root>/.staging/<name>, and a lock beside it, <name>.lock, which says that its
 * process lives: several hosts may share the root. Entered by the thread that starts and stops the daemon, and under the
 * store's lock. It must never touch what a living process has in its folder.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "blob/fs.h"

#define LOCK_TRIES 100

static bool lock_file(int fd, int flags)
{
	int rc;

	do
		rc = flock(fd, LOCK_EX | flags);
	while (rc != 0 && errno == EINTR);
	return rc == 0;
}

/* Who finds it before it is locked takes it for a dead one's, and removes it: then there has to be another one. */
static int make_lock(int root_fd, const char *name, int *ret_fd)
{
	struct stat st;

	for (int tries = 0; tries < LOCK_TRIES; tries++) {
		int fd = openat(root_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		int number = 0;

		if (fd < 0)
			return errno;
		if (!lock_file(fd, 0) || fstat(fd, &st) != 0)
			number = errno;
		else if (st.st_nlink > 0) {
			*ret_fd = fd;
			return 0;
		}
		close(fd);
		if (number != 0)
			return number;
	}
	return EBUSY;
}

/* When the folders are made anew the lock may still be there, and held: another descriptor would wait for ourselves. */
static bool is_held(const struct fs_store *store, int root_fd, const char *name)
{
	struct stat named, held;

	return store->lock_fd >= 0 && fstat(store->lock_fd, &held) == 0 &&
	       fstatat(root_fd, name, &named, AT_SYMLINK_NOFOLLOW) == 0 && named.st_dev == held.st_dev &&
	       named.st_ino == held.st_ino;
}

static int take_lock(const struct fs_store *store, int root_fd, const char *name, int *ret_fd)
{
	if (!is_held(store, root_fd, name))
		return make_lock(root_fd, name, ret_fd);
	*ret_fd = fcntl(store->lock_fd, F_DUPFD_CLOEXEC, 0); /* the same lock */
	return *ret_fd < 0 ? errno : 0;
}

int fs_stage_open(const struct fs_store *store, int root_fd, int *ret_fd, int *ret_lock)
{
	char name[sizeof(store->stage) + sizeof(FS_LOCK)];
	int lock = -1, fd, number;

	snprintf(name, sizeof(name), "%s" FS_LOCK, store->stage);
	if (mkdirat(root_fd, FS_STAGING, 0700) != 0 && errno != EEXIST)
		return errno;
	number = take_lock(store, root_fd, name, &lock);
	if (number != 0)
		return number;
	if (mkdirat(root_fd, store->stage, 0700) != 0 && errno != EEXIST)
		number = errno;
	fd = number == 0 ? openat(root_fd, store->stage, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW) : -1;
	if (fd < 0) {
		number = number != 0 ? number : errno;
		close(lock);
		return number;
	}
	*ret_fd = fd;
	*ret_lock = lock;
	return 0;
}

/* ---- what dead processes left ---- */

/* A file, or a folder with what is in it. */
static int remove_left(const struct fs_store *store, int dir_fd, const char *name, struct err *err)
{
	char path[PATH_MAX];
	int rc;

	if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
		return 0;
	snprintf(path, sizeof(path), "%s/" FS_STAGING "/%s", store->root, name);
	rc = fs_empty(path, err);
	if (rc == 0 && unlinkat(dir_fd, name, AT_REMOVEDIR) != 0 && errno != ENOENT)
		rc = fs_error(err, errno, "delete", name);
	return rc;
}

static int remove_locked(const struct fs_store *store, int dir_fd, const char *lock, struct err *err)
{
	int fd = openat(dir_fd, lock, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	char name[NAME_MAX + 1];
	struct stat st;
	int rc = 0;

	if (fd < 0)
		return errno == ENOENT ? 0 : fs_error(err, errno, "open", lock);
	if (lock_file(fd, LOCK_NB)) {
		if (fstat(fd, &st) != 0 || st.st_nlink == 0) {
			close(fd);
			return 0; /* the name is another one's by now */
		}
		snprintf(name, sizeof(name), "%.*s", (int)(strlen(lock) - strlen(FS_LOCK)), lock);
		rc = remove_left(store, dir_fd, name, err);
		if (rc == 0 && unlinkat(dir_fd, lock, 0) != 0 && errno != ENOENT)
			rc = fs_error(err, errno, "delete", lock);
	} else if (errno != EWOULDBLOCK) {
		rc = fs_error(err, errno, "lock", lock);
	}
	close(fd);
	return rc;
}

static int look_at(const struct fs_store *store, int dir_fd, const char *name, struct err *err)
{
	size_t len = strlen(name), end = strlen(FS_LOCK);
	char lock[NAME_MAX + sizeof(FS_LOCK)];

	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return 0;
	if (len > end && strcmp(name + len - end, FS_LOCK) == 0)
		return remove_locked(store, dir_fd, name, err);
	snprintf(lock, sizeof(lock), "%s" FS_LOCK, name);
	/* A folder's lock is there before it, and goes after it. */
	return faccessat(dir_fd, lock, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : remove_left(store, dir_fd, name, err);
}

int fs_stage_sweep(const struct fs_store *store, int root_fd, struct err *err)
{
	int fd = openat(root_fd, FS_STAGING, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;
	int rc = 0;

	if (dir == NULL) {
		rc = fs_error(err, errno, "list", FS_STAGING);
		if (fd >= 0)
			close(fd);
		return rc;
	}
	while (rc == 0 && (entry = readdir(dir)) != NULL)
		rc = look_at(store, fd, entry->d_name, err);
	closedir(dir);
	return rc;
}

/* With something left in it, it is the next start's. */
void fs_stage_close(const struct fs_store *store)
{
	char lock[PATH_MAX];

	snprintf(lock, sizeof(lock), "%s" FS_LOCK, store->staging);
	if (store->lock_fd >= 0 && rmdir(store->staging) == 0)
		unlink(lock);
	if (store->lock_fd >= 0)
		close(store->lock_fd);
}
