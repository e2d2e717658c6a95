/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends commands through their supervisors, which know their trees. Main thread only; must not make a process, since
 * there may be none left. Must never signal by number alone.
 */
#include "drain.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "../sdk/lib/supervised_files.h"

static bool end_one(int run_fd, const char *id, bool at_once, bool first)
{
	struct sup_started started;
	int fd = openat(run_fd, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	int rc;

	if (fd < 0)
		return false;
	/* What has not started yet does not start any more: the request is refused, or its launcher finds this. */
	rc = first ? sup_poison(fd, UINT32_MAX, &started) == 1 ? 0 : -1 : sup_started_read(fd, &started);
	close(fd);
	if (rc < 0 || !sup_supervisor_alive(&started))
		return false;
	/* Each time: it may have started since the last. */
	(void)sup_signal_supervisor(&started, at_once ? SIGUSR1 : SIGTERM);
	return true;
}

size_t drain_commands(int run_fd, bool at_once, bool first)
{
	int fd = openat(run_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	size_t alive = 0;

	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			alive += end_one(run_fd, entry->d_name, at_once, first);
	if (dir)
		closedir(dir);
	else if (fd >= 0)
		close(fd);
	return alive;
}
