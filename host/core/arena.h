/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is freed all at once, with a hard cap. Not thread-safe. */
#ifndef CORE_ARENA_H
#define CORE_ARENA_H

#include <stddef.h>

struct arena;

struct arena *arena_new(size_t cap); /* cap: most bytes it will ever hold; NULL when memory is out */
void arena_free(struct arena *arena);
void arena_reset(struct arena *arena); /* frees what was allocated, keeps the arena */
void *arena_alloc(struct arena *arena, size_t size); /* zeroed, aligned for anything; NULL past the cap */
char *arena_strndup(struct arena *arena, const char *ptr, size_t len); /* NUL-terminated; NULL past the cap */
char *arena_strdup(struct arena *arena, const char *str);
char *arena_printf(struct arena *arena, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
size_t arena_used(const struct arena *arena);

#endif
