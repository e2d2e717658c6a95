/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the kernel's own word on memory and process limits: oom_kill of memory.events (version 2) or memory.oom_control
 * (version 1), max of pids.events. Without a directory it looks at the group this process is in. What cannot be read
 * never rises: a missing counter must not turn an exit into something else.
 */
#include "sup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOUNT "/sys/fs/cgroup"

static bool counter_read(int fd, const char *key, uint64_t *ret_value)
{
	char text[512];
	size_t key_len = strlen(key);
	ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);

	if (n <= 0)
		return false;
	text[n] = '\0';
	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, key_len) == 0 && line[key_len] == ' ') {
			*ret_value = strtoull(line + key_len + 1, NULL, 10);
			return true;
		}
	}
	return false;
}

/* Opens dir/name when it holds the counter; sets the value it starts from. */
static int counter_open(const char *dir, const char *name, const char *key, uint64_t *ret_value)
{
	char path[PATH_MAX];
	int fd;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) >= sizeof(path))
		return -1;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && !counter_read(fd, key, ret_value)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static void open_memory(struct counters *c, const char *dir, const char *name)
{
	if (c->memory < 0)
		c->memory = counter_open(dir, name, "oom_kill", &c->oom_kills);
}

static void open_pids(struct counters *c, const char *dir)
{
	if (c->pids < 0)
		c->pids = counter_open(dir, "pids.events", "max", &c->pids_max);
}

static bool has_controller(const char *list, const char *name)
{
	size_t len = strlen(name);

	for (const char *at = list; (at = strstr(at, name)); at += len)
		if ((at == list || at[-1] == ',') && (at[len] == ',' || at[len] == '\0'))
			return true;
	return false;
}

static void open_in(struct counters *c, const char *controllers, const char *dir)
{
	if (*controllers == '\0') {
		open_memory(c, dir, "memory.events");
		open_pids(c, dir);
	} else if (has_controller(controllers, "memory")) {
		open_memory(c, dir, "memory.oom_control");
	} else {
		open_pids(c, dir);
	}
}

/* One line of /proc/self/cgroup: number:controllers:path. In a container the path may be the host's while the mount
 * shows the container's own group at its top, so both places are tried. */
static void open_line(struct counters *c, char *line)
{
	char dir[PATH_MAX];
	char *controllers = strchr(line, ':');
	char *path = controllers ? strchr(controllers + 1, ':') : NULL;
	const char *mount = MOUNT;

	if (!path)
		return;
	*path++ = '\0';
	controllers++;
	if (has_controller(controllers, "memory"))
		mount = MOUNT "/memory";
	else if (has_controller(controllers, "pids"))
		mount = MOUNT "/pids";
	else if (*controllers)
		return;
	if (path[1] && (size_t)snprintf(dir, sizeof(dir), "%s%s", mount, path) < sizeof(dir))
		open_in(c, controllers, dir);
	open_in(c, controllers, mount);
}

void cgroup_open(struct counters *c, const char *dir)
{
	char text[4096];
	char *line = text;

	c->memory = c->pids = -1;
	if (*dir) {
		open_in(c, "", dir);
		open_memory(c, dir, "memory.oom_control");
	}
	if (*dir || sup_read_file(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text)) < 0)
		return;
	while (*line) {
		char *end = strchrnul(line, '\n');
		char *next = *end ? end + 1 : end;

		*end = '\0';
		open_line(c, line);
		line = next;
	}
}

void cgroup_restart(struct counters *c)
{
	(void)counter_read(c->memory, "oom_kill", &c->oom_kills);
	(void)counter_read(c->pids, "max", &c->pids_max);
}

bool cgroup_oom_rose(const struct counters *c)
{
	uint64_t now;

	return counter_read(c->memory, "oom_kill", &now) && now > c->oom_kills;
}

bool cgroup_pids_rose(const struct counters *c)
{
	uint64_t now;

	return counter_read(c->pids, "max", &now) && now > c->pids_max;
}
