/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the ring by Brent's way: one cursor is kept and every other held against it, and after twice as many pages the
 * then newest takes its place. So no list needs memory for its cursors. Pure.
 */
#include "plugin/cursors.h"

#include <string.h>

#define PAGES_MAX 1000000 /* no list is so long, where none comes again */

int cursors_take(struct cursors *cursors, const char *next, struct err *err)
{
	if (!next)
		return 0;
	if (cursors->count && strcmp(next, cursors->kept) == 0)
		return err_set(err, ERR_PROVIDER, "the provider's list does not end: a cursor came again");
	if (++cursors->count > PAGES_MAX)
		return err_set(err, ERR_PROVIDER, "the provider's list does not end");
	if (cursors->count < cursors->keep_at)
		return 0;
	strncpy(cursors->kept, next, sizeof(cursors->kept) - 1);
	cursors->keep_at = 2 * cursors->count;
	return 0;
}
