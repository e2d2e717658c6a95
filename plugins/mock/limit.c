/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control groups for the limits of a session. The parent is the group this process is in, found through /proc, never
 * made up; a limit that cannot be set refuses the target at open, it is never left out. Entered by open and by any
 * thread that runs a command or removes a session.
 */
#include "limit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOUNT "/sys/fs/cgroup"

static int write_value(const char *dir, const char *name, uint64_t value)
{
	char path[2304], text[32];
	int len = snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	int rc = 0;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (write(fd, text, (size_t)len) != len)
		rc = errno ? -errno : -EIO;
	close(fd);
	return rc;
}

static bool names_controller(const char *list, const char *name)
{
	size_t len = strlen(name);

	for (const char *at = list; (at = strstr(at, name)); at += len)
		if ((at == list || at[-1] == ',') && (!at[len] || at[len] == ','))
			return true;
	return false;
}

/* One line "number:controllers:path" of /proc/self/cgroup; version 2 has neither number nor controllers. */
static bool take_line(struct limits *limits, char *line, const char *controller)
{
	char *list = strchr(line, ':');
	char *path = list ? strchr(list + 1, ':') : NULL;
	const char *mount = limits->version == 2 ? "" : controller;
	struct stat st;

	if (!path)
		return false;
	*path++ = '\0';
	path[strcspn(path, "\n")] = '\0';
	list++;
	if (limits->version == 2 ? *list : !names_controller(list, controller))
		return false;
	snprintf(limits->parent, sizeof(limits->parent), MOUNT "/%s%s", mount, path);
	/* In a container the path may be the machine's, while the mount shows the container's own group. */
	if (stat(limits->parent, &st))
		snprintf(limits->parent, sizeof(limits->parent), MOUNT "/%s", mount);
	return true;
}

static bool find_parent(struct limits *limits, const char *controller)
{
	FILE *file = fopen("/proc/self/cgroup", "re");
	char line[2048];
	bool found = false;

	while (file && !found && fgets(line, sizeof(line), file))
		found = take_line(limits, line, controller);
	if (file)
		fclose(file);
	return found;
}

static int set_limits(const struct limits *limits, const char *dir)
{
	bool two = limits->version == 2;
	int rc = 0;

	if (limits->memory_max)
		rc = write_value(dir, two ? "memory.max" : "memory.limit_in_bytes", limits->memory_max);
	/* Swap would turn the limit into slowness; where it cannot be accounted for there is no such file. */
	if (!rc && limits->memory_max && two && write_value(dir, "memory.swap.max", 0) == -EACCES)
		rc = -EACCES;
	if (!rc && limits->pids_max)
		rc = write_value(dir, "pids.max", limits->pids_max);
	return rc;
}

static void group_path(const struct limits *limits, const char *ref, char *ret, size_t cap)
{
	snprintf(ret, cap, "%s/%s", limits->parent, ref);
}

int limit_enter(const struct limits *limits, const char *ref, char *ret_dir, size_t cap)
{
	ret_dir[0] = '\0';
	if (!*limits->parent)
		return 0;
	group_path(limits, ref, ret_dir, cap);
	if (mkdir(ret_dir, 0755) && errno != EEXIST)
		return -errno;
	return set_limits(limits, ret_dir);
}

int limit_leave(const struct limits *limits, const char *ref)
{
	char dir[2304];

	if (!*limits->parent)
		return 0;
	group_path(limits, ref, dir, sizeof(dir));
	return rmdir(dir) && errno != ENOENT ? -errno : 0;
}

int limit_open(struct limits *limits, uint64_t memory_max, uint64_t pids_max, char *ret_error, size_t cap)
{
	char probe[64], dir[2304], why[128];
	int rc;

	*limits = (struct limits){.memory_max = memory_max, .pids_max = pids_max};
	if (!memory_max && !pids_max)
		return 0;
	limits->version = access(MOUNT "/cgroup.controllers", F_OK) ? 1 : 2;
	if (limits->version == 1 && memory_max && pids_max) {
		snprintf(ret_error, cap,
			 "with cgroup version 1 a command runs in one group, so only one of memory_max and pids_max"
			 " can be set");
		return -1;
	}
	if (!find_parent(limits, memory_max ? "memory" : "pids")) {
		snprintf(ret_error, cap,
			 "memory_max or pids_max is set, but this process is in no control group that could hold it");
		return -1;
	}
	snprintf(probe, sizeof(probe), "mock-probe-%ld", (long)getpid());
	rc = limit_enter(limits, probe, dir, sizeof(dir));
	limit_leave(limits, probe);
	if (!rc)
		return 0;
	snprintf(ret_error, cap, "memory_max or pids_max is set, but %s cannot hold it: %s", dir,
		 strerror_r(-rc, why, sizeof(why)));
	return -1;
}
