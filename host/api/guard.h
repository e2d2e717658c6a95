/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Patience with clients: how long a head may take, how slowly a body may come and an answer be taken, how long a
 * connection may be idle; and who has to go when there are too many connections. One thread that looks at all of them.
 */
#ifndef API_GUARD_H
#define API_GUARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"

struct guard;

struct guard_limits {
	int64_t head_ms;      /* from the connect, or the first byte after an answer, to the end of the head */
	int64_t idle_ms;      /* between two requests */
	int64_t linger_ms;    /* after an answer that came before the end of its body */
	int64_t window_ms;    /* a body or an answer may fall behind the least rate for so long */
	int64_t rate;	      /* bytes a second; 0: only what does not move at all is cut */
	unsigned connections; /* past these, some that are not in use make room */
};

/* What the connection's loop thread is doing with it; each has its own limit. */
enum guard_phase { GUARD_HEAD, GUARD_BODY, GUARD_WORK, GUARD_ANSWER, GUARD_LINGER, GUARD_IDLE };

/* Zeroed by its owner; watched between guard_add and guard_remove. */
struct guard_entry {
	struct guard_entry *next, *prev;
	struct guard *guard;
	int fd;
	atomic_uint turn;	       /* counts changes of the phase, which stands in the low bits */
	atomic_bool paused;	       /* we do not read the body: that it does not come is not the client's fault */
	atomic_bool late;	       /* the body fell behind: to be refused with its next byte */
	atomic_uint_fast64_t received; /* bytes of the body */
	/* The guard's own. */
	unsigned turn_seen;
	int64_t credit_ms; /* of the phase */
	int64_t flow_ms;   /* of what was sent and is not acknowledged */
	uint64_t received_seen, acked_seen, owed_seen, arrived_seen;
	bool looked, cut;
};

int guard_new(const struct guard_limits *limits, struct guard **ret, struct err *err); /* starts the thread */
void guard_free(struct guard *guard); /* stops and joins it; NULL is fine */

/* Loop threads. Adding one too many cuts the connection that is the least use: the oldest unfinished head, else the
 * one that has been idle for the longest. */
void guard_add(struct guard *guard, struct guard_entry *entry, int fd);
void guard_remove(struct guard *guard, struct guard_entry *entry); /* before its descriptor is closed */
void guard_set(struct guard_entry *entry, enum guard_phase phase);
/* Connections with a request under way: whole heads only. */
unsigned guard_busy(struct guard *guard);

#endif
