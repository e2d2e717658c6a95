/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the records of ended executions that are kept in memory: an ended record never changes, so it can be shown without
 * asking the store again, also from a thread that must not wait. What was read last stays longest. Any thread. Must never
 * hold one that is not terminal, nor show one beyond its retention.
 */
#include "execution/ended.h"

#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/limits.h"
#include "core/map.h"
#include "core/thread.h"

#define DOC_MAX (64 * LIMIT_KIB)
#define ENTRY_COST 160 /* of the map and the allocator, about */

struct entry {
	struct entry *newer, *older;
	char id[IDENT_ID_MAX + 1];
	struct execution_head head;
	int64_t until_ns;
	size_t len;
	char doc[];
};

struct ended {
	struct lock lock;
	size_t max_bytes;
	/* Under the lock. */
	struct map *entries;
	struct entry *newest, *oldest;
	size_t bytes;
};

static size_t cost(const struct entry *entry)
{
	return sizeof(*entry) + entry->len + ENTRY_COST;
}

static void link_locked(struct ended *ended, struct entry *entry)
{
	entry->newer = NULL;
	entry->older = ended->newest;
	if (ended->newest)
		ended->newest->newer = entry;
	else
		ended->oldest = entry;
	ended->newest = entry;
}

static void unlink_locked(struct ended *ended, struct entry *entry)
{
	if (entry->newer)
		entry->newer->older = entry->older;
	else
		ended->newest = entry->older;
	if (entry->older)
		entry->older->newer = entry->newer;
	else
		ended->oldest = entry->newer;
}

static void drop_locked(struct ended *ended, struct entry *entry)
{
	unlink_locked(ended, entry);
	map_remove(ended->entries, entry->id);
	ended->bytes -= cost(entry);
	free(entry);
}

static void drop_all_locked(struct ended *ended)
{
	while (ended->oldest)
		drop_locked(ended, ended->oldest);
}

struct ended *ended_new(size_t max_bytes)
{
	struct ended *ended = calloc(1, sizeof(*ended));

	if (!ended)
		return NULL;
	lock_init(&ended->lock, LOCK_LEAF);
	ended->max_bytes = max_bytes;
	ended->entries = map_new();
	if (!ended->entries) {
		ended_free(ended);
		return NULL;
	}
	return ended;
}

void ended_clear(struct ended *ended)
{
	lock_take(&ended->lock);
	drop_all_locked(ended);
	lock_drop(&ended->lock);
}

void ended_free(struct ended *ended)
{
	if (!ended)
		return;
	ended_clear(ended);
	lock_fini(&ended->lock);
	map_free(ended->entries);
	free(ended);
}

static struct entry *entry_new(const char *id, const struct execution_head *head, int64_t lasts_ms, const char *doc,
			       size_t len)
{
	struct entry *entry = malloc(sizeof(*entry) + len);

	if (!entry)
		return NULL;
	snprintf(entry->id, sizeof(entry->id), "%s", id);
	entry->head = *head;
	entry->until_ns = clock_after_ms(lasts_ms);
	entry->len = len;
	memcpy(entry->doc, doc, len);
	return entry;
}

void ended_put(struct ended *ended, const char *id, const struct execution_head *head, int64_t lasts_ms, const char *doc,
	       size_t len)
{
	struct entry *entry = NULL;

	if (head->terminal && lasts_ms > 0 && len > 0 && len <= DOC_MAX)
		entry = entry_new(id, head, lasts_ms, doc, len);
	if (!entry)
		return;
	lock_take(&ended->lock);
	if (map_get(ended->entries, id) || cost(entry) > ended->max_bytes || map_put(ended->entries, id, entry)) {
		free(entry); /* the one that is there says the same */
	} else {
		link_locked(ended, entry);
		ended->bytes += cost(entry);
		while (ended->bytes > ended->max_bytes)
			drop_locked(ended, ended->oldest);
	}
	lock_drop(&ended->lock);
}

bool ended_get(struct ended *ended, const char *id, struct execution_head *ret, struct buf *buf)
{
	struct entry *entry;
	bool found;

	lock_take(&ended->lock);
	entry = map_get(ended->entries, id);
	if (entry && clock_boot_ns() >= entry->until_ns) {
		drop_locked(ended, entry);
		entry = NULL;
	}
	found = entry && (!buf || buf_append(buf, entry->doc, entry->len) == 0);
	if (found) {
		*ret = entry->head;
		unlink_locked(ended, entry);
		link_locked(ended, entry);
	}
	lock_drop(&ended->lock);
	return found;
}

void ended_drop(struct ended *ended, const char *id)
{
	struct entry *entry;

	lock_take(&ended->lock);
	entry = map_get(ended->entries, id);
	if (entry)
		drop_locked(ended, entry);
	lock_drop(&ended->lock);
}
