/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the one way a path given from outside becomes a descriptor. Any thread; no state. Must never resolve a path
 * without the kernel's promise (openat2) or, where there is none, must follow no symlink at all.
 */
#include "localfs_beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A rename elsewhere can make one look-up inconclusive; a storm of them must not hold a thread. */
#define TRIES 64

static int open_last(int dir, const char *name, int flags, mode_t mode)
{
	int fd = openat(dir, name, flags | O_NOFOLLOW | O_CLOEXEC, mode);

	if (fd >= 0)
		return fd;
	/* With O_DIRECTORY a symlink answers ENOTDIR: either way it is refused as one. */
	return -errno;
}

/* Opens one component after the other, following nothing. ".." is refused: it could leave. */
static int walk(int dir, const char *path, int flags, mode_t mode)
{
	char name[256];
	int at = dir;
	int fd = -EXDEV;

	if (*path == '/')
		return -EXDEV;
	for (;;) {
		const char *slash = strchrnul(path, '/');
		size_t len = (size_t)(slash - path);

		if (len >= sizeof(name)) {
			fd = -ENAMETOOLONG;
			break;
		}
		memcpy(name, path, len);
		name[len] = '\0';
		if (len == 0 || strcmp(name, "..") == 0) {
			fd = -EXDEV;
			break;
		}
		if (*slash == '\0') {
			fd = open_last(at, name, flags, mode);
			break;
		}
		fd = open_last(at, name, O_PATH | O_DIRECTORY, 0);
		if (fd < 0)
			break;
		if (at != dir)
			close(at);
		at = fd;
		path = slash + 1;
	}
	if (at != dir)
		close(at);
	return fd;
}

int beneath_open(int dir, const char *path, int flags, mode_t mode, unsigned int how)
{
	struct open_how open_how = {
		.flags = (unsigned int)(flags | O_CLOEXEC),
		.mode = (flags & O_CREAT) ? mode : 0,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS |
			   ((how & BENEATH_NO_SYMLINKS) ? RESOLVE_NO_SYMLINKS : 0),
	};

	for (int i = 0; i < TRIES; i++) {
		int fd = (int)syscall(SYS_openat2, dir, path, &open_how, sizeof(open_how));

		if (fd >= 0)
			return fd;
		if (errno == ENOSYS)
			return walk(dir, path, flags, mode);
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
	}
	return -EAGAIN;
}
