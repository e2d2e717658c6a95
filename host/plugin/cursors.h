/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the pages of a list come to an end: a ring of cursors is a plugin's defect, and would be followed for ever. */
#ifndef PLUGIN_CURSORS_H
#define PLUGIN_CURSORS_H

#include <stddef.h>

#include <berth/types.h>

#include "core/err.h"

/* Zeroed, it is at the first page. One list's, one thread's. */
struct cursors {
	char kept[BERTH_CURSOR_MAX + 1]; /* one that came before */
	size_t count, keep_at;
};

/* With what each page gave, NULL at the last. 0, or ERR_PROVIDER once one has come again, after at most four times as many
 * pages as there are different cursors. */
int cursors_take(struct cursors *cursors, const char *next, struct err *err);

#endif
