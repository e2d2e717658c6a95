/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the idle handles of short exchanges, by owner and peer, last in first out: the warmest connection is used first and
 * the others grow old. Any thread; nothing is closed under the lock. A key is only a hint: libcurl itself compares peer,
 * proxy and TLS identity before it reuses the one connection that a handle keeps.
 */
#include "net/private.h"

static struct handle **bucket_of(struct net *net, uint64_t key)
{
	return &net->pool.idle[key % NET_POOL_BUCKETS];
}

static void close_handle(struct net *net, struct handle *handle)
{
	curl_easy_cleanup(handle->easy);
	curl_multi_cleanup(handle->multi);
	free(handle);
	net_unreserve(net, NET_SHORT_DESCRIPTORS);
}

static struct handle *open_handle(struct net *net, uint64_t key)
{
	struct handle *handle;

	if (!net_reserve(net, NET_SHORT_DESCRIPTORS))
		return NULL;
	handle = calloc(1, sizeof(*handle));
	if (!handle) {
		net_unreserve(net, NET_SHORT_DESCRIPTORS);
		return NULL;
	}
	handle->key = key;
	handle->easy = curl_easy_init();
	handle->multi = curl_multi_init();
	/* Without descriptors libcurl makes a multi that cannot be woken, and says so only here. */
	if (!handle->easy || !handle->multi || curl_multi_wakeup(handle->multi) != CURLM_OK) {
		close_handle(net, handle);
		return NULL;
	}
	curl_multi_setopt(handle->multi, CURLMOPT_MAXCONNECTS, 1L);
	return handle;
}

static void join_locked(struct pool_idle *pool, struct handle *handle, struct handle **bucket)
{
	handle->next = *bucket;
	*bucket = handle;
	handle->older = pool->youngest;
	handle->younger = NULL;
	*(pool->youngest ? &pool->youngest->younger : &pool->oldest) = handle;
	pool->youngest = handle;
	pool->count++;
}

/* `at` is where its bucket names it. */
static struct handle *leave_locked(struct pool_idle *pool, struct handle **at)
{
	struct handle *handle = *at;

	*at = handle->next;
	*(handle->older ? &handle->older->younger : &pool->oldest) = handle->younger;
	*(handle->younger ? &handle->younger->older : &pool->youngest) = handle->older;
	pool->count--;
	return handle;
}

static struct handle *leave_oldest_locked(struct net *net)
{
	struct handle **at = bucket_of(net, net->pool.oldest->key);

	while (*at != net->pool.oldest)
		at = &(*at)->next;
	return leave_locked(&net->pool, at);
}

struct handle *pool_take(struct net *net, uint64_t key)
{
	struct handle **at = bucket_of(net, key);
	struct handle *found;

	lock_take(&net->pool.lock);
	while (*at && (*at)->key != key)
		at = &(*at)->next;
	found = *at ? leave_locked(&net->pool, at) : NULL;
	lock_drop(&net->pool.lock);
	return found ? found : open_handle(net, key);
}

/* Above the limit the one that was idle longest goes, never the one that was just used: many peers that are asked once
 * would keep out the one that is asked all the time. */
void pool_give(struct net *net, struct handle *handle)
{
	struct handle *surplus = NULL;
	bool poke;

	curl_easy_reset(handle->easy); /* the connection stays with the multi */
	handle->idle_since_ns = clock_boot_ns();
	lock_take(&net->pool.lock);
	if (net->pool.count >= NET_POOL_MAX)
		surplus = leave_oldest_locked(net);
	join_locked(&net->pool, handle, bucket_of(net, handle->key));
	poke = !net->pool.swept;
	net->pool.swept = true;
	lock_drop(&net->pool.lock);
	if (surplus)
		close_handle(net, surplus);
	if (poke)
		loop_poke(net->loops[0]);
}

/* Takes off the oldest one if it was idle before `until_ns`. */
static struct handle *take_oldest(struct net *net, int64_t until_ns, int64_t *ret_next_ns)
{
	struct handle *handle = NULL;

	lock_take(&net->pool.lock);
	*ret_next_ns = net->pool.oldest ? net->pool.oldest->idle_since_ns : INT64_MAX;
	if (!net->pool.oldest)
		net->pool.swept = false;
	else if (*ret_next_ns <= until_ns)
		handle = leave_oldest_locked(net);
	lock_drop(&net->pool.lock);
	return handle;
}

bool pool_evict(struct net *net)
{
	int64_t next;
	struct handle *handle = take_oldest(net, INT64_MAX, &next);

	if (handle)
		close_handle(net, handle);
	return handle != NULL;
}

int64_t pool_sweep(struct net *net, int64_t now_ns)
{
	const int64_t keep_ns = (NET_KEEP_S + 1) * CLOCK_NS_PER_S; /* libcurl counts whole seconds */
	struct handle *handle;
	int64_t next;

	while ((handle = take_oldest(net, now_ns - keep_ns, &next)) != NULL)
		close_handle(net, handle);
	return next == INT64_MAX ? INT64_MAX : next + keep_ns;
}

void pool_clear(struct net *net)
{
	while (pool_evict(net))
		;
}
