/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signed execution tokens, as the reference's clients make them: "<payload>.<signature>", both base64url without
 * padding; the payload is JSON claims, the signature HMAC-SHA256 of the encoded payload. Pure but for the time passed
 * in; any thread.
 */
#ifndef API_SIGNED_H
#define API_SIGNED_H

#include <stdint.h>

#include "conf/conf.h"
#include "core/arena.h"
#include "core/err.h"
#include "core/ident.h"

#define SIGNED_NONCE_MIN 16
#define SIGNED_NONCE_MAX 128
#define SIGNED_LIFE_MAX_MS INT64_C(86400000) /* how far ahead a token may end; its nonce is kept that long */

struct head;

struct signed_token {
	struct ident ident;
	const char *execution_id; /* NULL for a create */
	const char *body_sha256;
	const char *nonce_key; /* of the nonce's row: hex digits */
	int64_t expires_ms;
	struct conf_token token; /* what it amounts to: one scope, one workspace */
	char *workspaces[1];
};

/* `header` is the value of the one Authorization header, or NULL. ERR_UNAUTHORIZED for whatever does not verify: shape,
 * signature, version, time; ERR_FORBIDDEN: a good one of another scope. *ret is in the arena. */
int signed_check(const struct secret *control, const char *header, unsigned scope, int64_t now_ms, struct arena *arena,
		 struct signed_token **ret, struct err *err);
/* Does it speak of this request? `id` is the execution of the path, NULL for a create. Without a body the identity is in
 * two headers, and the digest is that of nothing. */
int signed_fits(const struct signed_token *token, const struct head *head, const char *id, struct err *err);
/* Does it speak of this body? */
int signed_body(const struct signed_token *token, const char sha256[65], struct err *err);

#endif
