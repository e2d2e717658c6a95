/* SPDX-License-Identifier: Apache-2.0 */
/* A map from string to pointer, in the order of the keys. Keys are copied; values belong to the caller. Not thread-safe. */
#ifndef CORE_MAP_H
#define CORE_MAP_H

#include <stdbool.h>
#include <stddef.h>

struct map;
struct map *map_new(void);
void map_free(struct map *map);
void *map_get(const struct map *map, const char *key); /* NULL when absent */
int map_put(struct map *map, const char *key, void *value); /* replaces; 0 or ERR_NOMEM */
void *map_remove(struct map *map, const char *key); /* the value, or NULL */
size_t map_count(const struct map *map);
/* Visits every entry until fn returns false. The map must not change meanwhile. */
void map_each(const struct map *map, bool (*fn)(const char *key, void *value, void *arg), void *arg);

#endif
