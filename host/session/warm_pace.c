/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many sessions may be started for a pool now. A pool is filled for those who come later; who waits for a session
 * already goes first, where both want the same processors and the same provider. Nobody tells how much of them there
 * is, so it is felt: while a crowd stays, the pool makes fewer at once, and after it one more for each that was made.
 * Pure, under sessions.lock. It must never put a pool off without end: a crowd that stays is one that needs the pool.
 */
#include "session/warm.h"

#include "core/clock.h"

#define QUIET_NS (100 * CLOCK_NS_PER_MS)     /* a crowd that shrank for a moment is still there */
#define GIVE_WAY_NS (2000 * CLOCK_NS_PER_MS) /* what a pool may lose to a crowd, about what a pod needs to start */

#define FEW 2 /* what even a crowd that stays leaves to the pool */

/* Half as many at once, each time that the crowd had the time to feel it. */
static void shrink(struct warm_pool *pool, int64_t now_ns)
{
	size_t half = (WARM_MAKING_MAX - pool->given_up) / 2;

	if (now_ns < pool->shrink_ns)
		return;
	pool->shrink_ns = now_ns + QUIET_NS;
	pool->given_up = WARM_MAKING_MAX - (half > FEW ? half : FEW);
}

void warm_pace_made(struct warm_pool *pool, bool crowded)
{
	pool->given_up -= !crowded && pool->given_up > 0;
}

bool warm_pace_is_crowd(int64_t crowd_ns, int64_t now_ns)
{
	return now_ns - crowd_ns < QUIET_NS;
}

static size_t room(const struct warm_pool *pool)
{
	size_t most = WARM_MAKING_MAX - pool->given_up;

	return pool->making < most ? most - pool->making : 0;
}

size_t warm_pace(struct warm_pool *pool, int64_t crowd_ns, int64_t now_ns, int64_t *ret_again_ns)
{
	*ret_again_ns = INT64_MAX;
	if (warm_pace_is_crowd(crowd_ns, now_ns))
		shrink(pool, now_ns);
	if (!room(pool) || now_ns < pool->next_ns)
		return 0;
	/* After a failure one at a time, until one succeeds. */
	if (pool->fails)
		return pool->making ? 0 : 1;
	if (!warm_pace_is_crowd(crowd_ns, now_ns))
		return room(pool);
	if (!pool->put_off_ns)
		pool->put_off_ns = now_ns + GIVE_WAY_NS;
	if (now_ns >= pool->put_off_ns)
		return room(pool);
	*ret_again_ns = binding_min(pool->put_off_ns, crowd_ns + QUIET_NS);
	return 0;
}
