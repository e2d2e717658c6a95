/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the map from string to pointer. One thread at a time per map. It is the C library's balanced tree: keys that clients
 * choose cannot make it slow, which a hash without a secret would allow. Never touches the values.
 */
#include "core/map.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "core/err.h"

struct item {
	const char *key; /* points at `copy`; a look-up key borrows the caller's */
	void *value;
	char copy[];
};

struct map {
	void *root;
	size_t count;
};

struct visit {
	bool (*fn)(const char *key, void *value, void *arg);
	void *arg;
	bool stopped;
};

static int compare(const void *a, const void *b)
{
	return strcmp(((const struct item *)a)->key, ((const struct item *)b)->key);
}

static struct item *find(const struct map *map, const char *key)
{
	struct item want = {.key = key};
	void *node = tfind(&want, &map->root, compare);

	return node ? *(struct item **)node : NULL;
}

struct map *map_new(void)
{
	return calloc(1, sizeof(struct map));
}

void map_free(struct map *map)
{
	if (!map)
		return;
	tdestroy(map->root, free);
	free(map);
}

void *map_get(const struct map *map, const char *key)
{
	struct item *item = find(map, key);

	return item ? item->value : NULL;
}

int map_put(struct map *map, const char *key, void *value)
{
	struct item *item = find(map, key);

	if (item) {
		item->value = value;
		return 0;
	}

	size_t size = strlen(key) + 1;

	item = malloc(sizeof(*item) + size);
	if (!item)
		return ERR_NOMEM;
	memcpy(item->copy, key, size);
	item->key = item->copy;
	item->value = value;
	if (!tsearch(item, &map->root, compare)) {
		free(item);
		return ERR_NOMEM;
	}
	map->count++;
	return 0;
}

void *map_remove(struct map *map, const char *key)
{
	struct item *item = find(map, key);

	if (!item)
		return NULL;

	void *value = item->value;

	tdelete(item, &map->root, compare);
	free(item);
	map->count--;
	return value;
}

size_t map_count(const struct map *map)
{
	return map->count;
}

static void visit(const void *node, VISIT which, void *closure)
{
	struct visit *v = closure;
	const struct item *item = *(struct item *const *)node;

	if ((which == postorder || which == leaf) && !v->stopped)
		v->stopped = !v->fn(item->key, item->value, v->arg);
}

void map_each(const struct map *map, bool (*fn)(const char *key, void *value, void *arg), void *arg)
{
	struct visit v = {.fn = fn, .arg = arg};

	twalk_r(map->root, visit, &v);
}
