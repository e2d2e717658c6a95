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

struct handle *pool_take(struct net *net, uint64_t key)
{
	struct handle **at = bucket_of(net, key);
	struct handle *found;

	lock_take(&net->pool.lock);
	while (*at && (*at)->key != key)
		at = &(*at)->next;
	found = *at;
	if (found) {
		*at = found->next;
		net->pool.count--;
	}
	lock_drop(&net->pool.lock);
	return found ? found : open_handle(net, key);
}

void pool_give(struct net *net, struct handle *handle)
{
	struct handle **bucket = bucket_of(net, handle->key);
	bool full, poke;

	curl_easy_reset(handle->easy); /* the connection stays with the multi */
	handle->idle_since_ns = clock_boot_ns();
	lock_take(&net->pool.lock);
	full = net->pool.count >= NET_POOL_MAX;
	poke = !full && !net->pool.swept;
	if (!full) {
		handle->next = *bucket;
		*bucket = handle;
		net->pool.count++;
		net->pool.swept = true;
	}
	lock_drop(&net->pool.lock);
	if (full)
		close_handle(net, handle);
	if (poke)
		loop_poke(net->loops[0]);
}

/* The last of a bucket is its oldest. */
static struct handle **oldest_locked(struct net *net)
{
	struct handle **oldest = NULL;

	for (size_t i = 0; i < NET_POOL_BUCKETS; i++) {
		struct handle **at = &net->pool.idle[i];

		if (!*at)
			continue;
		while ((*at)->next)
			at = &(*at)->next;
		if (!oldest || (*at)->idle_since_ns < (*oldest)->idle_since_ns)
			oldest = at;
	}
	return oldest;
}

/* Takes off the oldest one that was idle before `until_ns`. */
static struct handle *take_oldest(struct net *net, int64_t until_ns, int64_t *ret_next_ns)
{
	struct handle **at, *handle = NULL;

	lock_take(&net->pool.lock);
	at = oldest_locked(net);
	*ret_next_ns = at ? (*at)->idle_since_ns : INT64_MAX;
	if (at && (*at)->idle_since_ns <= until_ns) {
		handle = *at;
		*at = NULL;
		net->pool.count--;
	}
	if (!at)
		net->pool.swept = false;
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
