/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the public keys. Entered by any worker; the lock is held for look-ups and the re-reading of a small file, never
 * while a signature is checked. Must never hold a private key, nor drop the old keys because a new file is bad.
 */
#include "keys.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "../sdk/lib/supervised_files.h"

#define FILE_MAX 8192u
#define LOOK_AGAIN_NS INT64_C(1000000000)

static int parse_entry(const char *text, size_t len, struct key *key)
{
	const char *colon = memchr(text, ':', len);
	size_t id_len = colon ? (size_t)(colon - text) : 0, size;
	const char *end;

	if (!token_id_ok(text, id_len) || id_len > TOKEN_KEY_ID_MAX)
		return -EINVAL;
	memcpy(key->id, text, id_len);
	key->id[id_len] = '\0';
	text = colon + 1;
	len -= id_len + 1;
	while (len > 0 && text[len - 1] == '=')
		len--;
	if (sodium_base642bin(key->bytes, sizeof(key->bytes), text, len, NULL, &size, &end,
			      sodium_base64_VARIANT_ORIGINAL_NO_PADDING) != 0 ||
	    end != text + len || size != sizeof(key->bytes))
		return -EINVAL;
	return 0;
}

int keys_parse(const char *text, struct key keys[KEYS_MAX], size_t *ret_bad)
{
	size_t count = 0;

	*ret_bad = 0;
	while (*text) {
		size_t len = strcspn(text, ",\n");
		size_t from = strspn(text, " \t\r"), to = len;

		while (to > from && strchr(" \t\r", text[to - 1]))
			to--;
		if (to > from && text[from] != '#') {
			*ret_bad = count + 1;
			if (count == KEYS_MAX)
				return -E2BIG;
			if (parse_entry(text + from, to - from, &keys[count]) < 0)
				return -EINVAL;
			count++;
		}
		text += len + (text[len] != '\0');
	}
	return (int)count;
}

static int read_file(struct keys *keys, size_t *ret_bad)
{
	char text[FILE_MAX];
	struct key parsed[KEYS_MAX];
	int count;
	int rc = sup_read_file(AT_FDCWD, keys->path, text, sizeof(text));

	*ret_bad = 0;
	if (rc < 0)
		return rc;
	count = keys_parse(text, parsed, ret_bad);
	if (count < 0)
		return count;
	memcpy(keys->read, parsed, sizeof(parsed));
	keys->read_count = (size_t)count;
	return 0;
}

int keys_init(struct keys *keys, const char *list, const char *path, char *text, size_t cap)
{
	size_t bad = 0;
	int rc = list ? keys_parse(list, keys->fixed, &bad) : 0;

	pthread_mutex_init(&keys->lock, NULL);
	keys->path = path;
	keys->fixed_count = rc > 0 ? (size_t)rc : 0;
	if (rc >= 0 && path)
		rc = read_file(keys, &bad);
	if (rc < 0 && bad)
		snprintf(text, cap, "%s: entry %zu is not id:base64 of 32 bytes, or there are more than %u",
			 path && keys->fixed_count + !list ? path : "BERTH_EXECUTOR_KEYS", bad, KEYS_MAX);
	else if (rc < 0)
		snprintf(text, cap, "%s: %s", path, strerror(-rc));
	else if (keys->fixed_count + keys->read_count == 0)
		snprintf(text, cap, "no public key was given: set BERTH_EXECUTOR_KEYS or --keys");
	else
		return 0;
	return -1;
}

static bool find_in(const struct key *keys, size_t count, const char *id, uint8_t ret_key[KEY_BYTES])
{
	for (size_t i = 0; i < count; i++) {
		if (strcmp(keys[i].id, id) == 0) {
			memcpy(ret_key, keys[i].bytes, KEY_BYTES);
			return true;
		}
	}
	return false;
}

static bool find(struct keys *keys, const char *id, uint8_t ret_key[KEY_BYTES])
{
	return find_in(keys->fixed, keys->fixed_count, id, ret_key) ||
	       find_in(keys->read, keys->read_count, id, ret_key);
}

int keys_verify(struct keys *keys, const char *id, const uint8_t signature[TOKEN_SIGNATURE], const void *message,
		size_t len)
{
	uint8_t key[KEY_BYTES];
	bool known;

	pthread_mutex_lock(&keys->lock);
	known = find(keys, id, key);
	if (!known && keys->path && sup_now_ns() - keys->looked_ns > LOOK_AGAIN_NS) {
		size_t bad;

		keys->looked_ns = sup_now_ns();
		known = read_file(keys, &bad) == 0 && find(keys, id, key);
	}
	pthread_mutex_unlock(&keys->lock);
	if (!known)
		return -ENOKEY;
	return crypto_sign_verify_detached(signature, message, len, key) == 0 ? 0 : -EBADMSG;
}
