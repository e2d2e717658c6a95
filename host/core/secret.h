/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Secrets: held here, never formatted, wiped on free; and the one comparison of secrets, in constant time. No other
 * code compares a secret, token or digest of one (tests/unit/check_secrets.py looks).
 */
#ifndef CORE_SECRET_H
#define CORE_SECRET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

#define SECRET_MIN 32 /* bytes; shorter configured secrets refuse the start */
#define SECRET_MAX 4096

struct secret; /* opaque */

struct secret *secret_new(const void *ptr, size_t len);
void secret_free(struct secret *secret); /* wipes */
const void *secret_ptr(const struct secret *secret, size_t *ret_len);
/* "file:<path>" or "env:<NAME>". A file must be regular, not world-readable; one trailing newline is cut. ERR_CONFIG names the
 * place. An unset or empty secret gives *ret = NULL and 0. */
int secret_load(const char *source, struct secret **ret, struct err *err);
/* Refuses fewer than SECRET_MIN bytes and published defaults ("changeme…", one repeated byte, …), naming `name`. */
int secret_check(const struct secret *secret, const char *name, struct err *err);

/* The one comparison: SHA-256 of both sides, compared in constant time. NULL or empty never equals anything. */
bool secret_equal(const struct secret *secret, const void *ptr, size_t len);
/* Is `mac` the HMAC-SHA256 of the bytes under this secret? Constant time; NULL or another length never fits. */
bool secret_signed(const struct secret *secret, const void *ptr, size_t len, const void *mac, size_t mac_len);
void secret_wipe(void *ptr, size_t len);

void secret_sha256(const void *ptr, size_t len, uint8_t ret_digest[32]);
void secret_sha256_hex(const void *ptr, size_t len, char ret_hex[65]);
void secret_random(void *ptr, size_t len); /* aborts when the system has no randomness */

/* Sealing: AES-256-GCM, random 96-bit nonce, `bound` authenticated with it (the row the box belongs to). The box is
 * base64 text made of key id, nonce, ciphertext and tag. Two keys for rotation: boxes are made with the first. */
struct seal;
int seal_open_file(const char *path, const char *old_path_or_null, bool create, struct seal **ret, struct err *err);
void seal_free(struct seal *seal);
/* ret is malloc'ed and NUL-terminated. */
int seal_close_box(const struct seal *seal, const char *bound, const void *ptr, size_t len, char **ret, struct err *err);
/* ret is malloc'ed with a NUL after its *ret_len bytes. ERR_CORRUPT: not ours, or altered. */
int seal_open_box(const struct seal *seal, const char *bound, const char *box, char **ret, size_t *ret_len,
		  struct err *err);

#endif
