/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns sealed boxes: what a store may hold but nobody may read there. AES-256-GCM with a random nonce; the header and the
 * row's name are authenticated, so a box moved to another row does not open. Any thread; keys never change after opening.
 * Never says why a box does not open beyond "not ours" and "altered".
 */
#include "core/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/buf.h"
#include "core/json.h"
#include "core/secret_file.h"

#define KEY_LEN 32
#define KEY_ID_LEN 8
#define NONCE_LEN 12
#define TAG_LEN 16
#define VERSION 1
#define HEAD_LEN (1 + KEY_ID_LEN)
#define BOX_OVERHEAD (HEAD_LEN + NONCE_LEN + TAG_LEN)
#define PLAIN_MAX (INT_MAX / 4)

struct key {
	uint8_t id[KEY_ID_LEN];
	uint8_t bytes[KEY_LEN];
};

struct seal {
	size_t count;
	struct key keys[2]; /* boxes are made with the first */
};

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool key_from_hex(struct key *key, const char *hex, size_t len)
{
	if (len == 2 * KEY_LEN + 1 && hex[len - 1] == '\n')
		len--;
	if (len != 2 * KEY_LEN)
		return false;
	for (size_t i = 0; i < KEY_LEN; i++) {
		int high = hex_value(hex[2 * i]);
		int low = hex_value(hex[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		key->bytes[i] = (uint8_t)(high * 16 + low);
	}
	return true;
}

/* Tells keys apart without telling anything about them. */
static void key_name(struct key *key)
{
	static const char label[] = "berth seal key";
	uint8_t text[sizeof(label) + KEY_LEN];
	uint8_t digest[32];

	memcpy(text, label, sizeof(label));
	memcpy(text + sizeof(label), key->bytes, KEY_LEN);
	secret_sha256(text, sizeof(text), digest);
	memcpy(key->id, digest, KEY_ID_LEN);
	secret_wipe(text, sizeof(text));
}

static int key_load(struct key *key, const char *path, struct err *err)
{
	char text[2 * KEY_LEN + 3];
	size_t len = 0;
	int r = secret_file_read(path, text, sizeof(text), &len, err);

	if (r == 0 && !key_from_hex(key, text, len))
		r = err_set(err, ERR_CONFIG, "%s: a key is 64 lower-case hex digits", path);
	if (r == 0)
		key_name(key);
	secret_wipe(text, sizeof(text));
	return r;
}

static int write_synced(int fd, const char *ptr, size_t len)
{
	ssize_t n = write(fd, ptr, len);

	if (n < 0)
		return -1;
	if ((size_t)n != len) {
		errno = ENOSPC;
		return -1;
	}
	return fsync(fd);
}

static int sync_parent(const char *path)
{
	char dir[PATH_MAX];
	const char *slash = strrchr(path, '/');
	int len = slash ? (int)(slash - path) : 0;

	snprintf(dir, sizeof(dir), "%.*s", len ? len : 1, slash && len ? path : slash ? "/" : ".");

	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = fd < 0 ? -1 : fsync(fd);

	if (fd >= 0)
		close(fd);
	return r;
}

/* Made under another name and linked: a key file is there whole or not at all, and an existing one is never replaced. */
static int key_create(const char *path, struct err *err)
{
	char temp[PATH_MAX];
	uint8_t bytes[KEY_LEN];
	char hex[2 * KEY_LEN + 2];
	int r = 0;

	if ((size_t)snprintf(temp, sizeof(temp), "%s.new-XXXXXX", path) >= sizeof(temp))
		return err_set(err, ERR_CONFIG, "the path of the state key is too long");

	int fd = mkostemp(temp, O_CLOEXEC); /* mode 0600 */

	if (fd < 0)
		return err_set(err, ERR_CONFIG, "%s: %s", path, strerror(errno));
	secret_random(bytes, sizeof(bytes));
	for (size_t i = 0; i < KEY_LEN; i++)
		snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
	hex[2 * KEY_LEN] = '\n';
	if (write_synced(fd, hex, 2 * KEY_LEN + 1) < 0)
		r = err_set(err, ERR_CONFIG, "%s: %s", temp, strerror(errno));
	else if (link(temp, path) < 0 && errno != EEXIST)
		r = err_set(err, ERR_CONFIG, "%s: %s", path, strerror(errno));
	close(fd);
	unlink(temp);
	if (r == 0 && sync_parent(path) < 0)
		r = err_set(err, ERR_CONFIG, "%s: %s", path, strerror(errno));
	secret_wipe(bytes, sizeof(bytes));
	secret_wipe(hex, sizeof(hex));
	return r;
}

int seal_open_file(const char *path, const char *old_path_or_null, bool create, struct seal **ret, struct err *err)
{
	struct seal *seal = calloc(1, sizeof(*seal));
	int r = 0;

	if (!seal)
		return err_set(err, ERR_NOMEM, "out of memory");
	if (create && access(path, F_OK) < 0 && errno == ENOENT)
		r = key_create(path, err);
	if (r == 0)
		r = key_load(&seal->keys[0], path, err);
	if (r == 0 && old_path_or_null) {
		r = key_load(&seal->keys[1], old_path_or_null, err);
		seal->count = 1;
	}
	seal->count++;
	if (r)
		seal_free(seal);
	else
		*ret = seal;
	return r;
}

void seal_free(struct seal *seal)
{
	if (!seal)
		return;
	secret_wipe(seal, sizeof(*seal));
	free(seal);
}

/* Starts `ctx` in either direction and feeds it what is authenticated but not hidden. */
static bool begin(EVP_CIPHER_CTX *ctx, const struct key *key, const uint8_t *head, const char *bound, bool encrypt)
{
	int n;

	return EVP_CipherInit_ex(ctx, EVP_aes_256_gcm(), NULL, key->bytes, head + HEAD_LEN, encrypt) == 1 &&
	       EVP_CipherUpdate(ctx, NULL, &n, head, HEAD_LEN) == 1 &&
	       (!*bound || EVP_CipherUpdate(ctx, NULL, &n, (const uint8_t *)bound, (int)strlen(bound)) == 1);
}

static bool encrypt_into(uint8_t *box, const struct key *key, const char *bound, const void *ptr, size_t len)
{
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
	uint8_t *at = box + HEAD_LEN + NONCE_LEN;
	int n = 0;

	box[0] = VERSION;
	memcpy(box + 1, key->id, KEY_ID_LEN);
	secret_random(box + HEAD_LEN, NONCE_LEN);

	bool ok = ctx && begin(ctx, key, box, bound, true) &&
		  (len == 0 || EVP_CipherUpdate(ctx, at, &n, ptr, (int)len) == 1) &&
		  EVP_CipherFinal_ex(ctx, at + len, &n) == 1 &&
		  EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_GET_TAG, TAG_LEN, at + len) == 1;

	EVP_CIPHER_CTX_free(ctx);
	return ok;
}

static bool decrypt_into(char *out, const struct key *key, const char *bound, uint8_t *box, size_t len)
{
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
	uint8_t *at = box + HEAD_LEN + NONCE_LEN;
	int n = 0;
	bool ok = ctx && begin(ctx, key, box, bound, false) &&
		  (len == 0 || EVP_CipherUpdate(ctx, (uint8_t *)out, &n, at, (int)len) == 1) &&
		  EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_SET_TAG, TAG_LEN, at + len) == 1 &&
		  EVP_CipherFinal_ex(ctx, (uint8_t *)out + len, &n) == 1;

	EVP_CIPHER_CTX_free(ctx);
	return ok;
}

int seal_close_box(const struct seal *seal, const char *bound, const void *ptr, size_t len, char **ret, struct err *err)
{
	struct buf text;
	uint8_t *box;

	if (len > PLAIN_MAX)
		return err_set(err, ERR_PAYLOAD_TOO_LARGE, "too long to be sealed");
	box = malloc(BOX_OVERHEAD + len);
	if (!box)
		return err_set(err, ERR_NOMEM, "out of memory");
	if (!encrypt_into(box, &seal->keys[0], bound, ptr, len)) {
		free(box);
		return err_set(err, ERR_INTERNAL, "sealing failed");
	}
	buf_init(&text, (BOX_OVERHEAD + len) * 2);
	json_base64_encode(&text, box, BOX_OVERHEAD + len);
	free(box);

	char *taken = buf_take(&text);

	if (!taken)
		return err_set(err, ERR_NOMEM, "out of memory");
	*ret = taken;
	return 0;
}

static const struct key *key_of(const struct seal *seal, const char *box, size_t len)
{
	if (len < BOX_OVERHEAD || (uint8_t)box[0] != VERSION)
		return NULL;
	for (size_t i = 0; i < seal->count; i++) {
		if (memcmp(box + 1, seal->keys[i].id, KEY_ID_LEN) == 0)
			return &seal->keys[i];
	}
	return NULL;
}

int seal_open_box(const struct seal *seal, const char *bound, const char *box, char **ret, size_t *ret_len,
		  struct err *err)
{
	char *bytes = NULL;
	size_t len = 0;

	if (json_base64_decode(box, strlen(box), &bytes, &len, NULL))
		return err_set(err, ERR_CORRUPT, "not a sealed box");

	const struct key *key = key_of(seal, bytes, len);
	size_t plain_len = key ? len - BOX_OVERHEAD : 0;
	char *out = key ? malloc(plain_len + 1) : NULL;
	int r = 0;

	if (!key)
		r = err_set(err, ERR_CORRUPT, "the box was sealed with a key that is not configured");
	else if (!out)
		r = err_set(err, ERR_NOMEM, "out of memory");
	else if (!decrypt_into(out, key, bound, (uint8_t *)bytes, plain_len))
		r = err_set(err, ERR_CORRUPT, "the box was altered or belongs to another row");
	free(bytes);
	if (r) {
		secret_wipe(out, out ? plain_len : 0);
		free(out);
		return r;
	}
	out[plain_len] = '\0';
	*ret = out;
	*ret_len = plain_len;
	return 0;
}
