/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the reading of a request's frames and the proof that they are what the token's signer meant. Any worker, one at
 * a time. Must never report the end of a body that was not verified, nor hold more of one than the limits of its
 * frames.
 */
#include "frame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <berth/types.h>

static const char prefix[] = "berth-executor-body-v1\n";
#define PREFIX_LEN (sizeof(prefix) - 1)

static const struct {
	char type;
	size_t max;
	size_t offset;
} blobs[] = {
	{'C', 1u << 20, offsetof(struct frame_body, script)},
	{'V', 2u << 20, offsetof(struct frame_body, env)},
	{'P', 8u << 20, offsetof(struct frame_body, paths)},
};
#define BLOBS (sizeof(blobs) / sizeof(blobs[0]))

void frame_body_init(struct frame_body *body, struct http_conn *conn, const struct token *token, struct keys *keys)
{
	*body = (struct frame_body){.conn = conn, .token = token, .keys = keys};
	crypto_hash_sha256_init(&body->hash);
}

void frame_body_fini(struct frame_body *body)
{
	free(body->args.ptr);
	free(body->script.ptr);
	free(body->env.ptr);
	free(body->paths.ptr);
}

/* -1: the zero bytes are not zero. */
static int read_header(const uint8_t header[FRAME_HEADER], char *ret_type, size_t *ret_len)
{
	if (header[1] || header[2] || header[3])
		return -1;
	*ret_type = (char)header[0];
	*ret_len = (size_t)header[4] << 24 | (size_t)header[5] << 16 | (size_t)header[6] << 8 | header[7];
	return 0;
}

void frame_header_write(uint8_t header[FRAME_HEADER], char type, size_t len)
{
	memset(header, 0, FRAME_HEADER);
	header[0] = (uint8_t)type;
	for (int i = 0; i < 4; i++)
		header[4 + i] = (uint8_t)(len >> (24 - 8 * i));
}

static int32_t fault(struct frame_body *body, int32_t code, const char *reason, const char *text)
{
	body->fault = (struct frame_fault){code, reason, text};
	return code;
}

static int32_t bad_frame(struct frame_body *body, const char *text)
{
	return fault(body, BERTH_INVALID, "frame", text);
}

static int32_t read_all(struct frame_body *body, void *buf, size_t len)
{
	char *at = buf;

	while (len > 0) {
		ssize_t n = http_body_read(body->conn, at, len);

		if (n == -EBADMSG)
			return fault(body, BERTH_INVALID, "http", "the body is not well-formed HTTP");
		if (n < 0)
			return fault(body, BERTH_CANCELLED, "disconnected", "the body did not arrive");
		if (n == 0)
			return bad_frame(body, "the body ends before its last frame");
		at += n;
		len -= (size_t)n;
	}
	return BERTH_OK;
}

static int32_t next_frame(struct frame_body *body)
{
	uint8_t header[FRAME_HEADER];
	int32_t rc = read_all(body, header, sizeof(header));

	if (rc)
		return rc;
	if (read_header(header, &body->type, &body->left) < 0)
		return bad_frame(body, "a frame's header has other than zeros in bytes 1 to 3");
	if (body->left > FRAME_PAYLOAD_MAX)
		return fault(body, BERTH_INVALID, "limit", "a frame is larger than 1 MiB");
	if (body->type != 'Z' || !body->token->body_signed)
		crypto_hash_sha256_update(&body->hash, header, sizeof(header));
	return BERTH_OK;
}

static int32_t check_signature(struct frame_body *body, const uint8_t *digest)
{
	uint8_t message[PREFIX_LEN + TOKEN_NONCE + TOKEN_SHA256], signature[TOKEN_SIGNATURE];
	int32_t rc;

	if (body->left != sizeof(signature))
		return bad_frame(body, "the last frame holds no signature");
	rc = read_all(body, signature, sizeof(signature));
	if (rc)
		return rc;
	memcpy(message, prefix, PREFIX_LEN);
	memcpy(message + PREFIX_LEN, body->token->nonce, TOKEN_NONCE);
	memcpy(message + PREFIX_LEN + TOKEN_NONCE, digest, TOKEN_SHA256);
	if (keys_verify(body->keys, body->token->key_id, signature, message, sizeof(message)) < 0)
		return fault(body, BERTH_UNAUTHENTICATED, "body", "the body's signature does not fit");
	return BERTH_OK;
}

/* The last frame's header has been read. */
static int32_t finish(struct frame_body *body)
{
	uint8_t digest[TOKEN_SHA256];
	char byte;
	int32_t rc = BERTH_OK;
	ssize_t n;

	crypto_hash_sha256_final(&body->hash, digest);
	if (body->token->body_signed)
		rc = check_signature(body, digest);
	else if (body->left != 0)
		rc = bad_frame(body, "the last frame is not empty");
	else if (sodium_memcmp(digest, body->token->body, sizeof(digest)) != 0)
		rc = fault(body, BERTH_UNAUTHENTICATED, "body", "the body is not the one that was signed");
	if (rc)
		return rc;
	n = http_body_read(body->conn, &byte, 1);
	if (n == 1)
		return bad_frame(body, "there are bytes behind the last frame");
	if (n < 0)
		return fault(body, BERTH_CANCELLED, "disconnected", "the body did not end");
	body->verified = true;
	return BERTH_OK;
}

/* Appends the payload of the current frame, and a NUL that does not count. */
static int32_t read_blob(struct frame_body *body, struct frame_blob *blob, size_t max)
{
	size_t len = body->left;
	char *grown;
	int32_t rc;

	if (len > max - blob->len)
		return fault(body, BERTH_INVALID, "limit", "a part of the body is larger than its limit");
	grown = realloc(blob->ptr, blob->len + len + 1);
	if (!grown)
		return fault(body, BERTH_UNAVAILABLE, "memory", "no memory for the body");
	blob->ptr = grown;
	rc = read_all(body, grown + blob->len, len);
	if (rc)
		return rc;
	crypto_hash_sha256_update(&body->hash, (const uint8_t *)grown + blob->len, len);
	blob->len += len;
	grown[blob->len] = '\0';
	body->left = 0;
	return BERTH_OK;
}

static int32_t read_args(struct frame_body *body)
{
	uint8_t digest[TOKEN_SHA256];
	crypto_hash_sha256_state hash;
	int32_t rc = next_frame(body);

	if (rc)
		return rc;
	if (body->type != 'A')
		return bad_frame(body, "the first frame is not the arguments");
	rc = read_blob(body, &body->args, FRAME_ARGS_MAX);
	if (rc)
		return rc;
	hash = body->hash;
	crypto_hash_sha256_final(&hash, digest);
	if (sodium_memcmp(digest, body->token->head, sizeof(digest)) != 0)
		return fault(body, BERTH_UNAUTHENTICATED, "head", "the arguments are not the ones that were signed");
	return BERTH_OK;
}

static int32_t read_named(struct frame_body *body, const char *allowed, const char **at)
{
	const char *place = body->type ? strchr(*at, body->type) : NULL;

	if (!place || !strchr(allowed, body->type))
		return bad_frame(body, "a frame of this type does not belong here");
	*at = place;
	for (size_t i = 0; i < BLOBS; i++)
		if (blobs[i].type == body->type)
			return read_blob(body, (struct frame_blob *)(void *)((char *)body + blobs[i].offset),
					 blobs[i].max);
	return bad_frame(body, "a frame's type is not known");
}

int32_t frame_body_begin(struct frame_body *body, const char *allowed, bool data)
{
	const char *at = "CVP"; /* their order */
	int32_t rc = read_args(body);

	while (rc == BERTH_OK) {
		rc = next_frame(body);
		if (rc)
			break;
		if (body->type == 'Z')
			return finish(body);
		if (body->type == 'D' && data)
			return BERTH_OK;
		rc = read_named(body, allowed, &at);
	}
	return rc;
}

/* A payload byte, or the end. */
static int32_t skip_empty(struct frame_body *body)
{
	while (body->left == 0 && !body->verified) {
		int32_t rc = next_frame(body);

		if (rc == BERTH_OK && body->type == 'Z')
			rc = finish(body);
		else if (rc == BERTH_OK && body->type != 'D')
			rc = bad_frame(body, "only data and the end may follow data");
		if (rc)
			return rc;
	}
	return BERTH_OK;
}

int32_t frame_body_data(struct frame_body *body, void *buf, size_t cap, size_t *ret_len)
{
	int32_t rc = body->fault.code ? body->fault.code : skip_empty(body);
	size_t len;

	*ret_len = 0;
	if (rc || body->verified)
		return rc;
	len = body->left < cap ? body->left : cap;
	rc = read_all(body, buf, len);
	if (rc)
		return rc;
	crypto_hash_sha256_update(&body->hash, buf, len);
	body->left -= len;
	*ret_len = len;
	return BERTH_OK;
}
