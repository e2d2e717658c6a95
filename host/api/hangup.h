/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notices clients that hang up where libmicrohttpd does not: while their connection is suspended, and during an upload,
 * where its edge-triggered loop misses an end that arrived together with bytes. One thread.
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
	bool poked;
	/* Called once per hang-up on the watcher's thread: hold with the watcher's lock held (takes a reference),
	 * fire without. True from fire: the loop is to be pointed at the end until the entry is removed. Then drop
	 * gives the reference back. */
	void (*hold)(struct hangup_entry *entry);
	bool (*fire)(struct hangup_entry *entry);
	void (*drop)(struct hangup_entry *entry);
};

int hangup_new(struct hangup **ret, struct err *err); /* starts the thread */
void hangup_free(struct hangup *hangup);	      /* stops and joins it; NULL is fine */
void hangup_add(struct hangup *hangup, struct hangup_entry *entry);
void hangup_remove(struct hangup *hangup, struct hangup_entry *entry); /* not watched: nothing happens */

#endif
