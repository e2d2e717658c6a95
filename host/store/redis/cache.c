/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows as this process last knew them, least recently used first to go. Any thread, under its lock. A hint only: what a
 * step decides by it is checked by the script that applies it. It must never replace what it knows of a later moment.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "store/redis/redis.h"

#define BUCKETS 32768 /* as many as 16 MiB hold rows of half a KiB: a chain is a miss of the processor's cache for each row */
#define ROW_MOST (64 * LIMIT_KIB) /* bigger ones are read once, if ever */

struct slot {
	struct slot *chain;
	struct slot *older, *newer;
	uint32_t hash;
	unsigned table;
	int64_t rev, asof, due_ms;
	size_t size, group_len, doc_len;
	bool exists;
	size_t key_len;
	char bytes[]; /* key, group, document, each with a NUL */
};

struct row_cache {
	struct lock lock;
	struct slot *buckets[BUCKETS];
	struct slot *oldest, *newest;
	size_t bytes, bytes_max;
};

struct row_cache *cache_new(size_t bytes_max)
{
	struct row_cache *cache = calloc(1, sizeof(*cache));

	if (cache == NULL)
		return NULL;
	lock_init(&cache->lock, LOCK_LEAF);
	cache->bytes_max = bytes_max;
	return cache;
}

static uint32_t hash_of(unsigned table, const char *key)
{
	uint32_t hash = 2166136261u ^ table;

	for (; *key != '\0'; key++)
		hash = (hash ^ (unsigned char)*key) * 16777619u;
	return hash;
}

static struct slot **find(struct row_cache *cache, unsigned table, const char *key, uint32_t hash)
{
	struct slot **at = &cache->buckets[hash % BUCKETS];

	while (*at != NULL && ((*at)->hash != hash || (*at)->table != table || strcmp((*at)->bytes, key) != 0))
		at = &(*at)->chain;
	return at;
}

static void unlink_slot(struct row_cache *cache, struct slot *slot)
{
	*(slot->older != NULL ? &slot->older->newer : &cache->oldest) = slot->newer;
	*(slot->newer != NULL ? &slot->newer->older : &cache->newest) = slot->older;
}

static void link_newest(struct row_cache *cache, struct slot *slot)
{
	slot->older = cache->newest;
	slot->newer = NULL;
	*(cache->newest != NULL ? &cache->newest->newer : &cache->oldest) = slot;
	cache->newest = slot;
}

static void remove_at(struct row_cache *cache, struct slot **at)
{
	struct slot *slot = *at;

	assert(slot != NULL);
	*at = slot->chain;
	unlink_slot(cache, slot);
	cache->bytes -= slot->size;
	free(slot);
}

static void make_room(struct row_cache *cache)
{
	while (cache->bytes > cache->bytes_max && cache->oldest != NULL)
		remove_at(cache, find(cache, cache->oldest->table, cache->oldest->bytes, cache->oldest->hash));
}

static bool copy_out(const struct slot *slot, struct arena *arena, struct cached_row *ret)
{
	const char *group = slot->bytes + slot->key_len + 1;
	struct store_row row = {.key = arena_strdup(arena, slot->bytes), .group = "", .due_ms = slot->due_ms};

	if (slot->group_len > 0)
		row.group = arena_strndup(arena, group, slot->group_len);
	if (slot->exists) {
		row.doc = arena_strndup(arena, group + slot->group_len + 1, slot->doc_len);
		row.doc_len = slot->doc_len;
	}
	if (row.key == NULL || row.group == NULL || (slot->exists && row.doc == NULL))
		return false;
	*ret = (struct cached_row){row, slot->rev};
	return true;
}

bool cache_get(struct row_cache *cache, unsigned table, const char *key, struct arena *arena, struct cached_row *ret)
{
	struct slot *slot;
	bool found = false;

	lock_take(&cache->lock);
	slot = *find(cache, table, key, hash_of(table, key));
	if (slot != NULL) {
		unlink_slot(cache, slot);
		link_newest(cache, slot);
		found = copy_out(slot, arena, ret);
	}
	lock_drop(&cache->lock);
	return found;
}

static struct slot *slot_new(unsigned table, const struct cached_row *row, int64_t asof)
{
	size_t key = strlen(row->row.key), group = strlen(row->row.group), doc = row->row.doc ? row->row.doc_len : 0;
	size_t size = sizeof(struct slot) + key + group + doc + 3;
	struct slot *slot = malloc(size);

	if (slot == NULL)
		return NULL;
	*slot = (struct slot){
		.hash = hash_of(table, row->row.key),
		.table = table,
		.rev = row->rev,
		.asof = asof,
		.due_ms = row->row.due_ms,
		.size = size,
		.key_len = key,
		.group_len = group,
		.doc_len = doc,
		.exists = row->row.doc != NULL,
	};
	memcpy(slot->bytes, row->row.key, key + 1);
	memcpy(slot->bytes + key + 1, row->row.group, group + 1);
	if (doc > 0)
		memcpy(slot->bytes + key + group + 2, row->row.doc, doc);
	slot->bytes[size - sizeof(struct slot) - 1] = '\0';
	return slot;
}

void cache_put(struct row_cache *cache, unsigned table, const struct cached_row *row, int64_t asof)
{
	bool fits = row->row.doc == NULL || row->row.doc_len <= ROW_MOST;
	struct slot *slot = fits ? slot_new(table, row, asof) : NULL;
	struct slot **at;

	lock_take(&cache->lock);
	at = find(cache, table, row->row.key, hash_of(table, row->row.key));
	if (*at != NULL && (*at)->asof > asof) {
		lock_drop(&cache->lock);
		free(slot);
		return;
	}
	if (*at != NULL)
		remove_at(cache, at);
	if (slot != NULL) {
		at = &cache->buckets[slot->hash % BUCKETS];
		slot->chain = *at;
		*at = slot;
		link_newest(cache, slot);
		cache->bytes += slot->size;
		make_room(cache);
	}
	lock_drop(&cache->lock);
}

void cache_drop(struct row_cache *cache, unsigned table, const char *key)
{
	struct slot **at;

	lock_take(&cache->lock);
	at = find(cache, table, key, hash_of(table, key));
	if (*at != NULL)
		remove_at(cache, at);
	lock_drop(&cache->lock);
}

void cache_clear(struct row_cache *cache)
{
	lock_take(&cache->lock);
	while (cache->oldest != NULL)
		remove_at(cache, find(cache, cache->oldest->table, cache->oldest->bytes, cache->oldest->hash));
	lock_drop(&cache->lock);
}

void cache_free(struct row_cache *cache)
{
	if (cache == NULL)
		return;
	cache_clear(cache);
	lock_fini(&cache->lock);
	free(cache);
}
