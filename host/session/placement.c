/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placement of new sessions. Pure functions, any thread. A region is matched exactly or not at all: there is no fallback to
 * another region, nor from a region to a target that has none.
 */
#include "session/placement.h"

#include <string.h>

static bool serves(const struct placement_target *target, const char *region)
{
	return !*region || strcmp(target->region, region) == 0;
}

static bool open_for(const struct placement_target *target)
{
	return !target->down && !target->drained && !target->degraded;
}

static int64_t room(const struct placement_target *target)
{
	return target->max_sessions ? target->max_sessions - target->sessions : INT64_MAX - target->sessions;
}

static int refuse(const struct placement_target *closed, const char *region, struct err *err)
{
	const char *why;

	if (!closed && *region)
		return err_set(err, ERR_NO_TARGET, "no target serves region \"%.64s\"", region);
	if (!closed)
		return err_set(err, ERR_NO_TARGET, "no target is configured");
	if (closed->degraded && !closed->down && !closed->drained) {
		err_set(err, ERR_PROVIDER_UNAVAILABLE, "target %.64s does not come back from its calls", closed->name);
		err_reason(err, "target_degraded");
		return ERR_PROVIDER_UNAVAILABLE;
	}
	why = closed->down ? "not available: its plugin was refused" : "drained";
	if (!*region)
		return err_set(err, ERR_NO_TARGET, "every target is closed; %.64s is %s", closed->name, why);
	return err_set(err, ERR_NO_TARGET, "target %.64s of region \"%.64s\" is %s", closed->name, region, why);
}

static int refuse_full(const struct placement_target *target, struct err *err)
{
	err_set(err, ERR_CAPACITY, "target %.64s has its %lld sessions", target->name,
		(long long)target->max_sessions);
	err_reason(err, "max_sessions");
	return ERR_CAPACITY;
}

int placement_pick(const struct placement_target *targets, size_t count, const char *region, bool pin, size_t *ret,
		   struct err *err)
{
	const struct placement_target *best = NULL;
	const struct placement_target *closed = NULL;

	region = region ? region : "";
	for (size_t i = 0; i < count; i++) {
		const struct placement_target *target = &targets[i];

		if (!serves(target, region))
			continue;
		if (!open_for(target))
			closed = !closed || target->degraded ? target : closed; /* one that may come back says more */
		else if (!best || (pin && room(target) > room(best)))
			best = target;
	}
	if (!best)
		return refuse(closed, region, err);
	if (room(best) <= 0)
		return refuse_full(best, err);
	*ret = (size_t)(best - targets);
	return 0;
}
