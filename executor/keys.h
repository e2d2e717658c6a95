/* SPDX-License-Identifier: Apache-2.0 */
/* The public keys that tokens may be signed with. */
#ifndef EXECUTOR_KEYS_H
#define EXECUTOR_KEYS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "token.h"

#define KEYS_MAX 16u
#define KEY_BYTES 32u

struct key {
	char id[TOKEN_KEY_ID_MAX + 1];
	uint8_t bytes[KEY_BYTES];
};

struct keys {
	pthread_mutex_t lock;
	const char *path; /* NULL: only what the environment gave */
	int64_t looked_ns;
	struct key fixed[KEYS_MAX];
	size_t fixed_count;
	struct key read[KEYS_MAX]; /* from the file */
	size_t read_count;
};

/* text: id:base64, separated by commas or newlines; '#' starts a comment line. Returns how many, or a negative errno
 * and the number of the bad entry in *ret_bad, from 1. */
int keys_parse(const char *text, struct key keys[KEYS_MAX], size_t *ret_bad);

/* Either may be NULL, not both. 0, or -1 with a sentence in text. */
int keys_init(struct keys *keys, const char *list, const char *path, char *text, size_t cap);

/* 0 when signature is that of the key over message; -ENOKEY, -EBADMSG. Any thread. An id that is not known makes the
 * file be read again, at most once a second. */
int keys_verify(struct keys *keys, const char *id, const uint8_t signature[TOKEN_SIGNATURE], const void *message,
		size_t len);

#endif
