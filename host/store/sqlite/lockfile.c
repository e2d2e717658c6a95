/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "Exactly one berthd per database": a lock on <path>.lock that the kernel drops with the process, and the holder's
 * pid in the file for the one who is refused. Entered at open and close. The file is never deleted: deleting it would
 * let two processes lock two different files.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "store/sqlite/sqlite.h"

static int refuse_holder(int fd, const char *name, struct err *err)
{
	char pid[24] = "";
	ssize_t len = pread(fd, pid, sizeof(pid) - 1, 0);

	pid[len > 0 ? strspn(pid, "0123456789") : 0] = '\0';
	return err_set(err, ERR_IN_USE, "%s is in use by berthd pid %s", name, pid[0] != '\0' ? pid : "(unknown)");
}

int lockfile_take(const char *path, const char *name, int *ret_fd, struct err *err)
{
	char *file = NULL;
	int rc = 0, fd = -1;

	if (asprintf(&file, "%s.lock", path) < 0)
		return err_set(err, ERR_NOMEM, "no memory for a path");
	fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0) {
		rc = err_set(err, ERR_CONFIG, "cannot make %s.lock: %s", name, strerror(errno));
		goto out;
	}
	if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		rc = errno == EWOULDBLOCK ? refuse_holder(fd, name, err)
					  : err_set(err, ERR_CONFIG, "cannot lock %s.lock: %s", name, strerror(errno));
		goto out;
	}
	if (ftruncate(fd, 0) != 0 || dprintf(fd, "%ld\n", (long)getpid()) < 0) {
		rc = err_set(err, ERR_STORE, "cannot write %s.lock: %s", name, strerror(errno));
		goto out;
	}
	*ret_fd = fd;
	fd = -1;
out:
	if (fd >= 0)
		close(fd);
	free(file);
	return rc;
}

void lockfile_drop(int fd)
{
	if (fd < 0)
		return;
	/* Should it fail: a stale pid is harmless, it is read only while somebody holds the lock. */
	(void)!ftruncate(fd, 0);
	close(fd);
}
