/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns request-scoped memory: chunks that are freed all at once. One thread at a time per arena. Never gives out more
 * bytes than its cap; a big block gets a chunk of its own, so that at most a quarter of a chunk is ever left unused.
 */
#include "core/arena.h"

#include <assert.h>
#include <stdarg.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC 0x6172656eu
#define CHUNK_FIRST ((size_t)1024)
#define CHUNK_MOST ((size_t)64 * 1024)
#define ALIGN alignof(max_align_t)
/* With AddressSanitizer every block is an allocation of its own: else nobody sees a step past its end. */
#if defined(__SANITIZE_ADDRESS__)
#define OWN_CHUNKS true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define OWN_CHUNKS true
#endif
#endif
#ifndef OWN_CHUNKS
#define OWN_CHUNKS false
#endif

struct chunk {
	struct chunk *next;
	size_t size, used;
	alignas(max_align_t) unsigned char data[];
};

struct arena {
	unsigned magic;
	size_t cap, used;
	size_t chunk_size;    /* of the next ordinary chunk */
	struct chunk *chunks; /* the first is the one small blocks come from */
};

struct arena *arena_new(size_t cap)
{
	struct arena *arena = calloc(1, sizeof(*arena));

	if (!arena)
		return NULL;
	arena->magic = MAGIC;
	arena->cap = cap;
	arena->chunk_size = CHUNK_FIRST;
	return arena;
}

void arena_reset(struct arena *arena)
{
	assert(arena->magic == MAGIC);
	while (arena->chunks) {
		struct chunk *chunk = arena->chunks;

		arena->chunks = chunk->next;
		free(chunk);
	}
	arena->used = 0;
	arena->chunk_size = CHUNK_FIRST;
}

void arena_free(struct arena *arena)
{
	if (!arena)
		return;
	arena_reset(arena);
	arena->magic = 0;
	free(arena);
}

static struct chunk *chunk_new(size_t size)
{
	if (size > SIZE_MAX - sizeof(struct chunk))
		return NULL;

	struct chunk *chunk = calloc(1, sizeof(*chunk) + size);

	if (chunk)
		chunk->size = size;
	return chunk;
}

/* Behind the first one, which stays in use for small blocks. */
static struct chunk *chunk_for_big(struct arena *arena, size_t size)
{
	struct chunk *chunk = chunk_new(size);

	if (!chunk)
		return NULL;
	if (arena->chunks) {
		chunk->next = arena->chunks->next;
		arena->chunks->next = chunk;
	} else {
		arena->chunks = chunk;
	}
	return chunk;
}

static struct chunk *chunk_for_small(struct arena *arena, size_t size)
{
	struct chunk *chunk = arena->chunks;

	if (chunk && chunk->size - chunk->used >= size)
		return chunk;
	chunk = chunk_new(arena->chunk_size);
	if (!chunk)
		return NULL;
	if (arena->chunk_size < CHUNK_MOST)
		arena->chunk_size *= 2;
	chunk->next = arena->chunks;
	arena->chunks = chunk;
	return chunk;
}

void *arena_alloc(struct arena *arena, size_t size)
{
	assert(arena->magic == MAGIC);
	size = size ? size : 1;
	if (size > arena->cap - arena->used)
		return NULL;

	/* The padding counts too, but the last block may fill the cap to the byte. */
	size_t left = arena->cap - arena->used;
	size_t padded = (size + ALIGN - 1) / ALIGN * ALIGN;

	if (padded < size)
		return NULL;

	struct chunk *chunk = OWN_CHUNKS ? chunk_for_big(arena, size)
			      : padded > arena->chunk_size / 4 ? chunk_for_big(arena, padded)
							       : chunk_for_small(arena, padded);

	if (!chunk)
		return NULL;

	void *ptr = chunk->data + chunk->used;

	chunk->used = chunk->size < chunk->used + padded ? chunk->size : chunk->used + padded;
	arena->used += padded < left ? padded : left;
	return ptr;
}

char *arena_strndup(struct arena *arena, const char *ptr, size_t len)
{
	if (len == SIZE_MAX)
		return NULL;

	char *copy = arena_alloc(arena, len + 1);

	if (copy && len)
		memcpy(copy, ptr, len);
	return copy;
}

char *arena_strdup(struct arena *arena, const char *str)
{
	return arena_strndup(arena, str, strlen(str));
}

char *arena_printf(struct arena *arena, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	int n = vsnprintf(NULL, 0, fmt, args);
	va_end(args);
	if (n < 0)
		return NULL;

	char *text = arena_alloc(arena, (size_t)n + 1);

	if (!text)
		return NULL;
	va_start(args, fmt);
	vsnprintf(text, (size_t)n + 1, fmt, args);
	va_end(args);
	return text;
}

size_t arena_used(const struct arena *arena)
{
	assert(arena->magic == MAGIC);
	return arena->used;
}
