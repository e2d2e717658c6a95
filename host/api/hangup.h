/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notices clients that hang up while their connection is suspended (libmicrohttpd does not look at it then). One thread.
 */
#ifndef API_HANGUP_H
#define API_HANGUP_H

#include <stdbool.h>

#include "core/err.h"

struct hangup;

/* Zeroed by its owner; watched between hangup_add and hangup_remove. */
struct hangup_entry {
	struct hangup_entry *next, *prev;
	int fd;
	bool watched;
	/* Called once per hang-up on the watcher's thread: hold with the watcher's lock held (takes a reference), fire without
	 * (gives it back). */
	void (*hold)(struct hangup_entry *entry);
	void (*fire)(struct hangup_entry *entry);
};

int hangup_new(struct hangup **ret, struct err *err); /* starts the thread */
void hangup_free(struct hangup *hangup);              /* stops and joins it; NULL is fine */
void hangup_add(struct hangup *hangup, struct hangup_entry *entry);
void hangup_remove(struct hangup *hangup, struct hangup_entry *entry); /* not watched: nothing happens */

#endif
