/* SPDX-License-Identifier: Apache-2.0 */
/* The one rule for a path given from outside. */
#ifndef LOCALFS_PATH_H
#define LOCALFS_PATH_H

#include <berth/types.h>

/* 0 when path is "." or relative, without empty, "." and ".." components, without NUL and at most BERTH_PATH_MAX bytes;
 * else -EINVAL, -EXDEV (absolute or "..") or -ENAMETOOLONG. */
int localfs_path_check(const struct berth_str *path);

#endif
