/* SPDX-License-Identifier: Apache-2.0 */
/* Which target a new session goes to. Pure. */
#ifndef SESSION_PLACEMENT_H
#define SESSION_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

struct placement_target { /* in the order of the configuration */
	const char *name;
	const char *region; /* "" = none */
	bool down;          /* its plugin was refused */
	bool drained;
	bool degraded;	      /* too many of its calls are stuck; passes when they come back */
	int64_t sessions;     /* that it has now */
	int64_t max_sessions; /* 0 = no limit */
};

/* Exact match of the region; no region asked: the first target. Drained, refused and degraded ones are passed over.
 * With pin, of several that match the one with the most room. ERR_NO_TARGET, ERR_CAPACITY with reason "max_sessions",
 * or ERR_PROVIDER_UNAVAILABLE with reason "target_degraded" when only degraded ones are left. */
int placement_pick(const struct placement_target *targets, size_t count, const char *region, bool pin, size_t *ret,
		   struct err *err);

#endif
