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

static bool end_one(int run_fd, const char *id, bool at_once)
{
	struct sup_started started;
	int fd = openat(run_fd, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	int rc;

	if (fd < 0)
		return false;
	/* What has not started yet does not start any more: the request is refused, or its launcher finds this. Where the
	 * lock is held, by a launcher or a command, it is tried again at the next look. */
	rc = sup_poison_now(fd, UINT32_MAX, &started);
	close(fd);
	if (rc != 1 || !sup_supervisor_alive(&started))
		return false;
	/* Each time: it may have started since the last. */
	(void)sup_signal_supervisor(&started, at_once ? SIGUSR1 : SIGTERM);
	return true;
}

size_t drain_commands(int run_fd, bool at_once)
{
	int fd = openat(run_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	size_t alive = 0;

	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			alive += end_one(run_fd, entry->d_name, at_once);
	if (dir)
		closedir(dir);
	else if (fd >= 0)
		close(fd);
	return alive;
}
