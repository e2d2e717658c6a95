/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a path beneath a directory so that no symlink, swapped or not, leads out. Built into berth-supervise too. */
#ifndef LOCALFS_BENEATH_H
#define LOCALFS_BENEATH_H

#include <sys/types.h>

#define BENEATH_NO_SYMLINKS 1u /* refuse every symlink in the path, not only those that leave */

/* Like openat2 with RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS; O_CLOEXEC is added. A descriptor or a negative errno:
 * -EXDEV or -ELOOP when the path leaves the directory, -EAGAIN when renames kept the kernel from proving it does not.
 * On kernels without openat2 (gVisor) every symlink in the path is refused. */
int beneath_open(int dir, const char *path, int flags, mode_t mode, unsigned int how);

#endif
