/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folders of the directory store: made on the way to an object, synced, pruned when empty. Any thread; several may
 * make and prune the same folders at once, so a caller that finds its folder gone makes it again.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "blob/fs.h"
#include "core/ident.h"

int fs_error(struct err *err, int number, const char *what, const char *key)
{
	switch (number) {
	case ENOENT:
		return err_set(err, ERR_NOT_FOUND, "there is no object %.160s", key);
	case ENOSPC:
	case EDQUOT:
		err_set(err, ERR_STORE, "the object store is full: cannot %s %.120s", what, key);
		err_reason(err, "disk_full");
		return ERR_STORE;
	case ENOTDIR:
	case EISDIR:
	case ENOTEMPTY:
		return err_set(err, ERR_CONFLICT, "cannot %s %.120s: an object and a folder would have the same name",
			       what, key);
	default:
		err_set(err, ERR_STORE, "the object store cannot %s %.120s: %s", what, key, strerror(number));
		err_reason(err, "io");
		return ERR_STORE;
	}
}

/* Cuts the last component off; false when there was only one. */
static bool cut(char *path)
{
	char *slash = strrchr(path, '/');

	if (slash == NULL)
		return false;
	*slash = '\0';
	return true;
}

int fs_make_parents(int objects_fd, const char *key, struct err *err)
{
	char path[IDENT_PATH_MAX + 1];
	char *slash;

	snprintf(path, sizeof(path), "%s", key);
	for (slash = strchr(path, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		/* ENOENT: another thread pruned the folder above just now; the caller comes again. */
		if (mkdirat(objects_fd, path, 0700) != 0 && errno != EEXIST && errno != ENOENT)
			return fs_error(err, errno, "make the folder of", key);
		*slash = '/';
	}
	return 0;
}

static int sync_dir(int objects_fd, const char *path)
{
	int fd = openat(objects_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = 0;

	if (fd < 0)
		return errno;
	if (fsync(fd) != 0)
		rc = errno;
	close(fd);
	return rc;
}

/* All of them: a folder that was there already may have been made by another thread that has not synced it yet. */
int fs_sync_parents(int objects_fd, const char *key, struct err *err)
{
	char path[IDENT_PATH_MAX + 1];
	int number = 0;

	snprintf(path, sizeof(path), "%s", key);
	while (number == 0 && cut(path))
		number = sync_dir(objects_fd, path);
	if (number == 0 && fsync(objects_fd) != 0)
		number = errno;
	return number != 0 ? fs_error(err, number == ENOENT ? EIO : number, "sync the folder of", key) : 0;
}

int fs_prune_parents(int objects_fd, const char *key, struct err *err)
{
	char path[IDENT_PATH_MAX + 1];
	bool inside;
	int number;

	snprintf(path, sizeof(path), "%s", key);
	while ((inside = cut(path)) && (unlinkat(objects_fd, path, AT_REMOVEDIR) == 0 || errno == ENOENT))
		continue;
	number = inside ? sync_dir(objects_fd, path) : fsync(objects_fd) != 0 ? errno : 0;
	/* ENOENT: removed by another thread, which syncs what is left. */
	return number != 0 && number != ENOENT ? fs_error(err, number, "sync the folder of", key) : 0;
}
