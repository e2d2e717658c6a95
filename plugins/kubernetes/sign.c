/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ed25519 signatures for executors. The private key is read through the host each time it is needed, so that a replaced
 * file counts at once; only when the text is another one it is decoded again, which costs more than all the rest of a
 * short request. libcrypto decodes it; libsodium signs, in less than half of libcrypto's time. Any thread. Never logs a
 * key or a token.
 */
#include "sign.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"

#define PEM_MAX 4096
#define TOKEN_DOMAIN "berth-executor-token-v1\n"
#define BODY_DOMAIN "berth-executor-body-v1\n"

_Static_assert(crypto_sign_BYTES == 64 && crypto_sign_PUBLICKEYBYTES == 32, "tokens and keys of docs/executor.md");

struct sign_key {
	unsigned char public[crypto_sign_PUBLICKEYBYTES];
	unsigned char secret[crypto_sign_SECRETKEYBYTES];
};

static bool take_private(const EVP_PKEY *pkey, struct sign_key *key)
{
	unsigned char seed[crypto_sign_SEEDBYTES];
	size_t len = sizeof(seed);
	bool ok = pkey && EVP_PKEY_id(pkey) == EVP_PKEY_ED25519 &&
		  EVP_PKEY_get_raw_private_key(pkey, seed, &len) == 1 && len == sizeof(seed) && sodium_init() >= 0 &&
		  crypto_sign_seed_keypair(key->public, key->secret, seed) == 0;

	explicit_bzero(seed, sizeof(seed));
	return ok;
}

static int32_t key_of(const char *pem, size_t len, struct sign_key **ret, struct kerr *err)
{
	BIO *bio = BIO_new_mem_buf(pem, (int)len);
	EVP_PKEY *pkey = bio ? PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL) : NULL;
	struct sign_key *key = calloc(1, sizeof(*key));
	bool ok = key && take_private(pkey, key);

	BIO_free(bio);
	EVP_PKEY_free(pkey);
	if (!ok) {
		sign_key_drop(key);
		return kerr_set(err, BERTH_INVALID, "signing_key",
				"signing_key holds no Ed25519 private key in PEM (openssl genpkey -algorithm ed25519)");
	}
	*ret = key;
	return BERTH_OK;
}

/* The key that was decoded from the same text before; NULL: none was, or there is no memory. */
static struct sign_key *recall(struct kube *k, const unsigned char digest[32])
{
	struct sign_key *key = calloc(1, sizeof(*key));
	bool known;

	pthread_mutex_lock(&k->lock);
	known = key && k->sign_key && !memcmp(k->sign_digest, digest, sizeof(k->sign_digest));
	if (known)
		*key = *k->sign_key;
	pthread_mutex_unlock(&k->lock);
	if (known)
		return key;
	free(key);
	return NULL;
}

static void keep(struct kube *k, const unsigned char digest[32], const struct sign_key *key)
{
	struct sign_key *kept = malloc(sizeof(*kept)), *before;

	if (!kept)
		return;
	*kept = *key;
	pthread_mutex_lock(&k->lock);
	before = k->sign_key;
	k->sign_key = kept;
	memcpy(k->sign_digest, digest, sizeof(k->sign_digest));
	pthread_mutex_unlock(&k->lock);
	sign_key_drop(before);
}

static int32_t decode(struct kube *k, const char *pem, size_t len, struct sign_key **ret, struct kerr *err)
{
	unsigned char digest[32];
	unsigned size;
	int32_t rc;

	if (EVP_Digest(pem, len, digest, &size, EVP_sha256(), NULL) != 1)
		return key_of(pem, len, ret, err);
	*ret = recall(k, digest);
	if (*ret)
		return BERTH_OK;
	rc = key_of(pem, len, ret, err);
	if (!rc)
		keep(k, digest, *ret);
	return rc;
}

int32_t sign_key_get(struct kube *k, struct sign_key **ret, struct kerr *err)
{
	char *pem = malloc(PEM_MAX);
	size_t len = 0;
	int32_t rc;

	if (!pem)
		return kerr_set(err, BERTH_UNAVAILABLE, "memory", "no memory");
	rc = kube_host->secret(k->target, OPTION_SIGNING_KEY, pem, PEM_MAX, &len);
	if (rc)
		kerr_set(err, BERTH_INVALID, "signing_key",
			 "the option signing_key cannot be read: is it set, and at most %d bytes?", PEM_MAX);
	else
		rc = decode(k, pem, len, ret, err);
	explicit_bzero(pem, PEM_MAX);
	free(pem);
	return rc ? err->code : BERTH_OK;
}

void sign_key_drop(struct sign_key *key)
{
	if (key)
		explicit_bzero(key, sizeof(*key));
	free(key);
}

void sign_public(const struct sign_key *key, char ret[48])
{
	EVP_EncodeBlock((unsigned char *)ret, key->public, sizeof(key->public));
}

static void sign(const struct sign_key *key, const void *ptr, size_t len, unsigned char ret[64])
{
	crypto_sign_detached(ret, NULL, ptr, len, key->secret);
}

static void put_base64url(struct buf *out, const void *ptr, size_t len)
{
	unsigned char *text = malloc(len / 3 * 4 + 8);
	size_t size;

	if (!text) {
		out->bad = true;
		return;
	}
	size = (size_t)EVP_EncodeBlock(text, ptr, (int)len);
	while (size && text[size - 1] == '=')
		size--;
	for (size_t i = 0; i < size; i++)
		text[i] = text[i] == '+' ? '-' : text[i] == '/' ? '_' : text[i];
	buf_put(out, text, size);
	free(text);
}

static void put_hex(struct buf *out, const unsigned char digest[32])
{
	char hex[2 * 32 + 1];

	sodium_bin2hex(hex, sizeof(hex), digest, 32);
	buf_put(out, hex, 2 * (size_t)32);
	buf_put(out, "\n", 1);
}

static void put_claims(struct buf *out, const char *key_id, const struct sign_claims *c)
{
	buf_add(out, "%s\n%s\n%s\n%s\n%s\n%s\n%s\n", key_id, c->uid, c->instance, c->workspace, c->task, c->method,
		c->path);
	put_hex(out, c->head);
	if (c->body)
		put_hex(out, c->body);
	else
		buf_add(out, "signed\n");
	buf_add(out, "%s\n%u\n%lld\n%s\n", c->execution_id, c->attempt, (long long)c->expires_ms, c->nonce);
}

int32_t sign_token(const struct sign_key *key, const char *key_id, const struct sign_claims *claims,
		   char ret[SIGN_TOKEN_MAX + 1], struct kerr *err)
{
	struct buf text = {.max = 8192}, token = {.max = SIGN_TOKEN_MAX};
	const size_t skip = strlen(TOKEN_DOMAIN);
	unsigned char signature[64];
	int32_t rc = BERTH_OK;

	buf_add(&text, "%s", TOKEN_DOMAIN);
	put_claims(&text, key_id, claims);
	if (text.bad)
		rc = kerr_set(err, BERTH_INTERNAL, "token", "the claims are too long");
	if (!rc) {
		sign(key, text.ptr, text.len, signature);
		put_base64url(&token, text.ptr + skip, text.len - skip);
		buf_put(&token, ".", 1);
		put_base64url(&token, signature, sizeof(signature));
		if (token.bad)
			rc = kerr_set(err, BERTH_INTERNAL, "token", "the token is too long");
		else
			memcpy(ret, token.ptr, token.len + 1);
	}
	buf_wipe(&text);
	buf_wipe(&token);
	return rc;
}

void sign_body(const struct sign_key *key, const char *nonce, const unsigned char digest[32],
	       unsigned char ret_signature[64])
{
	const size_t domain = strlen(BODY_DOMAIN);
	unsigned char text[sizeof(BODY_DOMAIN) - 1 + 16 + 32];

	memcpy(text, BODY_DOMAIN, domain);
	sodium_hex2bin(text + domain, 16, nonce, strlen(nonce), NULL, NULL, NULL);
	memcpy(text + domain + 16, digest, 32);
	sign(key, text, sizeof(text), ret_signature);
}
