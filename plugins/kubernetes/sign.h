/* SPDX-License-Identifier: Apache-2.0 */
/* The key that executors trust, and the tokens it signs (docs/executor.md). Any thread. */
#ifndef KUBERNETES_SIGN_H
#define KUBERNETES_SIGN_H

#include "kube.h"

#define SIGN_TOKEN_MAX 4096

/* One request to be signed; digests are 32 bytes. */
struct sign_claims {
	const char *uid, *instance, *workspace, *task;
	const char *method, *path;
	const unsigned char *head;
	const unsigned char *body; /* NULL: the last frame carries a signature */
	const char *execution_id;  /* "-" without one */
	uint32_t attempt;
	int64_t expires_ms;
	const char *nonce; /* 32 lower-case hex digits */
};

struct sign_key; /* an Ed25519 private key */

/* The key as the secret option holds it now. */
int32_t sign_key_get(struct kube *k, struct sign_key **ret, struct kerr *err);
void sign_key_drop(struct sign_key *key);
/* The public key in base64, as BERTH_EXECUTOR_KEYS takes it. */
void sign_public(const struct sign_key *key, char ret[48]);

int32_t sign_token(const struct sign_key *key, const char *key_id, const struct sign_claims *claims,
		   char ret[SIGN_TOKEN_MAX + 1], struct kerr *err);
/* Of a body whose digest became known at its end. */
void sign_body(const struct sign_key *key, const char *nonce, const unsigned char digest[32],
	       unsigned char ret_signature[64]);

#endif
