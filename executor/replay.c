/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the nonces in use: a hash table that drops the expired whenever it has to grow. Any thread. Must never forget a
 * nonce whose token could still be accepted: then no new one is taken. Nonces come from holders of a private key,
 * so their own bytes are the hash.
 */
#include "replay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SIZE_MIN 256u

void replay_init(struct replay *replay, size_t max)
{
	*replay = (struct replay){.max = max};
	pthread_mutex_init(&replay->lock, NULL);
}

void replay_fini(struct replay *replay)
{
	free(replay->slots);
	pthread_mutex_destroy(&replay->lock);
}

static struct replay_slot *slot_of(struct replay_slot *slots, size_t size, const uint8_t *nonce)
{
	uint64_t hash;

	memcpy(&hash, nonce, sizeof(hash));
	for (size_t i = (size_t)hash & (size - 1);; i = (i + 1) & (size - 1))
		if (slots[i].expires_ms == 0 || memcmp(slots[i].nonce, nonce, TOKEN_NONCE) == 0)
			return &slots[i];
}

static size_t count_live(const struct replay *replay, int64_t now_ms)
{
	size_t live = 0;

	for (size_t i = 0; i < replay->size; i++)
		live += replay->slots[i].expires_ms >= now_ms && replay->slots[i].expires_ms != 0;
	return live;
}

/* A new table with what is still alive, at most half full. */
static int rebuild(struct replay *replay, int64_t now_ms)
{
	size_t live = count_live(replay, now_ms), size = SIZE_MIN;
	struct replay_slot *slots;

	if (live >= replay->max)
		return -ENOSPC;
	while (size < 2 * (live + 1))
		size *= 2;
	slots = calloc(size, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	for (size_t i = 0; i < replay->size; i++) {
		const struct replay_slot *old = &replay->slots[i];

		if (old->expires_ms != 0 && old->expires_ms >= now_ms)
			*slot_of(slots, size, old->nonce) = *old;
	}
	free(replay->slots);
	replay->slots = slots;
	replay->size = size;
	replay->used = live;
	return 0;
}

static int take_locked(struct replay *replay, const uint8_t *nonce, int64_t expires_ms, int64_t now_ms)
{
	struct replay_slot *slot;
	int rc = 0;

	if (replay->used >= replay->max || replay->used * 4 >= replay->size * 3)
		rc = rebuild(replay, now_ms);
	if (rc < 0)
		return rc;
	slot = slot_of(replay->slots, replay->size, nonce);
	if (slot->expires_ms != 0)
		return -EEXIST;
	memcpy(slot->nonce, nonce, TOKEN_NONCE);
	slot->expires_ms = expires_ms;
	replay->used++;
	return 0;
}

int replay_take(struct replay *replay, const uint8_t nonce[TOKEN_NONCE], int64_t expires_ms, int64_t now_ms)
{
	int rc;

	pthread_mutex_lock(&replay->lock);
	rc = take_locked(replay, nonce, expires_ms, now_ms);
	pthread_mutex_unlock(&replay->lock);
	return rc;
}
