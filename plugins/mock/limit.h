/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory_max and pids_max: one control group per session below a parent that this process may write. Version 2, or one
 * controller of version 1. Without limits every function does nothing. Any thread.
 */
#ifndef MOCK_LIMIT_H
#define MOCK_LIMIT_H

#include <stddef.h>
#include <stdint.h>

struct limits {
	uint64_t memory_max; /* bytes; 0 = none */
	uint64_t pids_max;   /* 0 = none */
	char parent[2048];   /* directory the groups are made in; empty without limits */
	int version;
};

/* Finds the parent and proves it with a group of its own. 0, or -1 and a sentence. */
int limit_open(struct limits *limits, uint64_t memory_max, uint64_t pids_max, char *ret_error, size_t cap);
/* Makes the session's group when it is not there; ret_dir is its directory, empty without limits. 0 or -errno. */
int limit_enter(const struct limits *limits, const char *ref, char *ret_dir, size_t cap);
/* Removes it. -EBUSY: a process is still in it. */
int limit_leave(const struct limits *limits, const char *ref);

#endif
