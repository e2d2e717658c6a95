/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Judges a path given from outside before anything is opened. The host has checked it already; a plugin that is called
 * by something else must be as safe. No state; must never touch the file system.
 */
#include "localfs_path.h"

#include <errno.h>
#include <string.h>

static int component_check(const char *name, size_t len)
{
	if (len == 0 || (len == 1 && name[0] == '.'))
		return -EINVAL;
	if (len == 2 && name[0] == '.' && name[1] == '.')
		return -EXDEV;
	return len > 255 ? -ENAMETOOLONG : 0;
}

int localfs_path_check(const struct berth_str *path)
{
	size_t start = 0;

	if (!path->ptr || path->len == 0)
		return -EINVAL;
	if (path->len > BERTH_PATH_MAX)
		return -ENAMETOOLONG;
	if (memchr(path->ptr, '\0', path->len))
		return -EINVAL;
	if (path->ptr[0] == '/')
		return -EXDEV;
	if (path->len == 1 && path->ptr[0] == '.')
		return 0;
	for (size_t i = 0; i <= path->len; i++) {
		int rc;

		if (i < path->len && path->ptr[i] != '/')
			continue;
		rc = component_check(path->ptr + start, i - start);
		if (rc < 0)
			return rc;
		start = i + 1;
	}
	return 0;
}
