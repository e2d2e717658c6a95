/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: signed execution tokens. First byte 's': the rest is a payload, which is signed here as a client would,
 * so that the claims are reached; else the rest is the Authorization header as it came, which must never verify.
 */
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/head.h"
#include "api/signed.h"
#include "fuzz.h"

#define KEY "0f1e2d3c4b5a69788796a5b4c3d2e1f001"
#define NOW INT64_C(1700000000000)

static struct secret *key;

/* base64url without padding. */
static char *encode(const void *ptr, size_t len)
{
	char *text = malloc((len + 2) / 3 * 4 + 1);

	FUZZ_CHECK(text != NULL);
	EVP_EncodeBlock((unsigned char *)text, ptr, (int)len);
	for (char *c = text; *c; c++)
		*c = (char)(*c == '+' ? '-' : *c == '/' ? '_' : *c == '=' ? '\0' : *c);
	return text;
}

static char *sign(const struct fuzz_input *in)
{
	unsigned char mac[32];
	unsigned mac_len = sizeof(mac);
	char *payload = encode(in->len ? in->ptr : (const uint8_t *)"", in->len);
	size_t size = strlen(payload) + 64;
	char *header = malloc(size), *signature;

	FUZZ_CHECK(header != NULL);
	FUZZ_CHECK(HMAC(EVP_sha256(), KEY, (int)strlen(KEY), (unsigned char *)payload, strlen(payload), mac, &mac_len));
	signature = encode(mac, mac_len);
	snprintf(header, size, "Bearer %s.%s", payload, signature);
	free(signature);
	free(payload);
	return header;
}

static void check_token(const struct signed_token *token, unsigned scope)
{
	struct head head = {.workspace = token->ident.workspace, .task = token->ident.task};
	char other[65];

	FUZZ_CHECK(token->token.scopes == scope && token->token.workspace_count == 1);
	FUZZ_CHECK(strcmp(token->token.workspaces[0], token->ident.workspace) == 0);
	FUZZ_CHECK(ident_part_valid(token->ident.workspace, strlen(token->ident.workspace)));
	FUZZ_CHECK(ident_part_valid(token->ident.task, strlen(token->ident.task)));
	FUZZ_CHECK(token->expires_ms > NOW - 1000 && token->expires_ms <= NOW + SIGNED_LIFE_MAX_MS);
	FUZZ_CHECK(strlen(token->nonce_key) == 64 && strlen(token->body_sha256) == 64);
	FUZZ_CHECK((scope == SCOPE_EXECUTION_CREATE) == !token->execution_id);
	FUZZ_PLANTED(token->ident.task, strlen(token->ident.task));
	snprintf(other, sizeof(other), "%s", token->body_sha256);
	FUZZ_CHECK(signed_body(token, other, NULL) == 0);
	other[7] = other[7] == '0' ? '1' : '0';
	FUZZ_CHECK(signed_body(token, other, NULL) != 0);
	if (token->execution_id)
		FUZZ_CHECK(signed_fits(token, &head, "sexec_another", NULL) != 0 ||
			   !strcmp(token->execution_id, "sexec_another"));
}

static void check_header(const char *header, unsigned scope, bool ours)
{
	struct arena *arena = arena_new(1 << 20);
	struct signed_token *token = NULL;
	struct err err = {0};

	if (signed_check(key, header, scope, NOW, arena, &token, &err) == 0) {
		FUZZ_CHECK(ours);
		check_token(token, scope);
	} else {
		FUZZ_CHECK(err.code == ERR_UNAUTHORIZED || err.code == ERR_FORBIDDEN);
		FUZZ_CHECK(ours || err.code == ERR_UNAUTHORIZED);
	}
	arena_free(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	bool ours = fuzz_byte(&in) == 's';
	char *header = ours ? sign(&in) : fuzz_copy(in.ptr, in.len);

	if (!key)
		key = secret_new(KEY, strlen(KEY));
	check_header(header, SCOPE_EXECUTION_CREATE, ours);
	check_header(header, SCOPE_EXECUTION_READ, ours);
	check_header(header, SCOPE_EXECUTION_CANCEL, ours);
	check_header(header, SCOPE_FILE_READ, false);
	free(header);
	return 0;
}
