/* SPDX-License-Identifier: Apache-2.0 */
/* Copies the running program. Main thread only. Must never leave half a program under its final name. */
#include "install.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../sdk/lib/supervised_files.h"

#define NAME "berth-executor"
#define TEMPORARY ".berth-executor.tmp"

static int copy(int from, int to)
{
	char block[65536];
	ssize_t n;

	while ((n = read(from, block, sizeof(block))) > 0) {
		int rc = sup_write_all(to, block, (size_t)n);

		if (rc < 0)
			return rc;
	}
	return n < 0 ? -errno : 0;
}

static int write_temporary(int dir)
{
	int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	int to = openat(dir, TEMPORARY, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0755);
	int rc = from < 0 || to < 0 ? -errno : copy(from, to);

	if (rc == 0 && (fchmod(to, 0755) < 0 || fsync(to) < 0))
		rc = -errno;
	if (from >= 0)
		close(from);
	if (to >= 0 && close(to) < 0 && rc == 0)
		rc = -errno;
	return rc;
}

int install_self(const char *dir, char *text, size_t cap)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = fd < 0 ? -errno : write_temporary(fd);

	if (rc == 0 && renameat(fd, TEMPORARY, fd, NAME) < 0)
		rc = -errno;
	if (rc < 0 && fd >= 0)
		unlinkat(fd, TEMPORARY, 0);
	if (fd >= 0)
		close(fd);
	if (rc < 0)
		snprintf(text, cap, "install into %s: %s", dir, strerror(-rc));
	return rc < 0 ? -1 : 0;
}
