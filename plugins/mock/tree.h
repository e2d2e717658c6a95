/* SPDX-License-Identifier: Apache-2.0 */
/* Removal of directory trees made by strangers. Any thread; no recursion, few descriptors. */
#ifndef MOCK_TREE_H
#define MOCK_TREE_H

/* Opens a directory, which is given the permissions of its owner if it lacks them. A descriptor or -errno. */
int tree_open(int parent_fd, const char *name);

/* Removes the directory parent_fd/name with everything in it, whatever its depth and modes, never following a symlink.
 * 0 also when it is not there; else -errno of the first entry that would not go. Two processes may
 * remove one tree at once. */
int tree_remove(int parent_fd, const char *name);

#endif
