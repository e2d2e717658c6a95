/* SPDX-License-Identifier: Apache-2.0 */
/* Remembers nonces until their tokens expire, so that each token serves once. */
#ifndef EXECUTOR_REPLAY_H
#define EXECUTOR_REPLAY_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "token.h"

#define REPLAY_MAX 262144u

struct replay_slot {
	uint8_t nonce[TOKEN_NONCE];
	int64_t expires_ms; /* 0 = free */
};

struct replay {
	pthread_mutex_t lock;
	struct replay_slot *slots; /* open addressing; a power of two */
	size_t size;
	size_t used;
	size_t max;
};

void replay_init(struct replay *replay, size_t max);
void replay_fini(struct replay *replay);
/* 0 = taken now; -EEXIST = taken before; -ENOSPC = no more can be remembered; -ENOMEM. Any thread. */
int replay_take(struct replay *replay, const uint8_t nonce[TOKEN_NONCE], int64_t expires_ms, int64_t now_ms);

#endif
