/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many sessions may be started for a pool now. A pool is filled for those who come later; who waits for a session
 * already goes first, where both want the same processors and the same provider. Pure, under sessions.lock. It must
 * never put a pool off without end: a crowd that stays is one that needs the pool.
 */
#include "session/warm.h"

#include "core/clock.h"

#define QUIET_NS (100 * CLOCK_NS_PER_MS)     /* a crowd that shrank for a moment is still there */
#define GIVE_WAY_NS (2000 * CLOCK_NS_PER_MS) /* what a pool may lose to a crowd, about what a pod needs to start */

size_t warm_pace(struct warm_pool *pool, int64_t crowd_ns, int64_t now_ns, int64_t *ret_again_ns)
{
	*ret_again_ns = INT64_MAX;
	if (pool->making >= WARM_MAKING_MAX || now_ns < pool->next_ns)
		return 0;
	/* After a failure one at a time, until one succeeds. */
	if (pool->fails)
		return pool->making ? 0 : 1;
	if (now_ns - crowd_ns >= QUIET_NS)
		return WARM_MAKING_MAX - pool->making;
	if (!pool->put_off_ns)
		pool->put_off_ns = now_ns + GIVE_WAY_NS;
	if (now_ns >= pool->put_off_ns)
		return WARM_MAKING_MAX - pool->making;
	*ret_again_ns = binding_min(pool->put_off_ns, crowd_ns + QUIET_NS);
	return 0;
}
