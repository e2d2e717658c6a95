/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the verification of signed execution tokens. Entered from the loop threads and from workers; holds no state. Must
 * never look into a payload whose signature was not proven, and never tell a caller which check failed.
 */
#include "api/signed.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/auth.h"
#include "api/head.h"
#include "core/json.h"
#include "core/secret.h"

#define PAYLOAD_MAX 4096
#define SIGNATURE_LEN 43 /* 32 bytes in base64url */
#define EXECUTION_SCOPES (SCOPE_EXECUTION_CREATE | SCOPE_EXECUTION_READ | SCOPE_EXECUTION_CANCEL)
#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

struct claims {
	int64_t version, expires;
	const char *scope, *workspace, *task, *execution, *digest, *nonce;
};

#define FIELD(member_, name_, type_, flags_)                                                                           \
	{                                                                                                              \
		.name = name_, .type = type_, .flags = flags_, .off = offsetof(struct claims, member_)                 \
	}

static const struct json_field claim_fields[] = {
	FIELD(version, "v", JSON_I64, JSON_REQUIRED),
	FIELD(scope, "scope", JSON_STR, JSON_REQUIRED),
	FIELD(workspace, "workspace_id", JSON_STR, JSON_REQUIRED),
	FIELD(task, "task_id", JSON_STR, JSON_REQUIRED),
	FIELD(execution, "execution_id", JSON_STR, 0),
	FIELD(digest, "body_sha256", JSON_STR, JSON_REQUIRED),
	FIELD(expires, "expires_at", JSON_I64, JSON_REQUIRED),
	FIELD(nonce, "nonce", JSON_STR, JSON_REQUIRED),
	{0},
};

static int refuse(struct err *err)
{
	return err_set(err, ERR_UNAUTHORIZED, "a valid bearer token is needed");
}

/* The payload's bytes, once its signature is proven. */
static int open_payload(const struct secret *control, const char *header, char **ret, size_t *ret_len)
{
	const char *text = header && strncasecmp(header, "Bearer ", 7) == 0 ? header + 7 : "";
	const char *dot;
	char *mac = NULL;
	size_t mac_len = 0;
	bool good;

	text += strspn(text, " ");
	dot = strchr(text, '.');
	if (!dot || dot == text || dot - text > PAYLOAD_MAX || strlen(dot + 1) != SIGNATURE_LEN ||
	    json_base64url_decode(dot + 1, SIGNATURE_LEN, &mac, &mac_len, NULL))
		return ERR_UNAUTHORIZED;
	good = secret_signed(control, text, (size_t)(dot - text), mac, mac_len);
	free(mac);
	if (!good || json_base64url_decode(text, (size_t)(dot - text), ret, ret_len, NULL))
		return ERR_UNAUTHORIZED;
	return 0;
}

static int read_claims(const struct secret *control, const char *header, struct arena *arena, struct claims *ret)
{
	struct json_object *json = NULL;
	char *payload = NULL;
	size_t len = 0;
	int rc = open_payload(control, header, &payload, &len);

	if (rc == 0)
		rc = json_parse(payload, len, &json, NULL);
	if (rc == 0)
		rc = json_decode(arena, claim_fields, json, "", JSON_STRICT_KEYS, ret, sizeof(*ret), NULL);
	json_object_put(json);
	free(payload);
	return rc;
}

static bool is_digest(const char *text)
{
	return strlen(text) == 64 && strspn(text, "0123456789abcdef") == 64;
}

static bool is_current(const struct claims *claims, int64_t now_ms)
{
	return claims->expires > now_ms / 1000 && claims->expires <= (now_ms + SIGNED_LIFE_MAX_MS) / 1000;
}

/* A create makes its execution; every other scope speaks of one. */
static bool is_whole(const struct claims *claims)
{
	bool create = strcmp(claims->scope, conf_scope_word(SCOPE_ORDINAL_EXECUTION_CREATE)) == 0;
	size_t nonce_len = strlen(claims->nonce);

	return claims->version == 1 && is_digest(claims->digest) && nonce_len >= SIGNED_NONCE_MIN &&
	       nonce_len <= SIGNED_NONCE_MAX && create == !claims->execution;
}

static unsigned scope_of(const char *word)
{
	for (unsigned i = SCOPE_ORDINAL_EXECUTION_CREATE; i <= SCOPE_ORDINAL_EXECUTION_CANCEL; i++) {
		if (strcmp(conf_scope_word(i), word) == 0)
			return 1u << i;
	}
	return 0;
}

/* One key per task and nonce: tokens of different tasks cannot use up each other's. */
static const char *nonce_key(struct arena *arena, const struct claims *claims)
{
	const char *text = arena_printf(arena, "%s/%s/%s", claims->workspace, claims->task, claims->nonce);
	char hex[65];

	if (!text)
		return NULL;
	secret_sha256_hex(text, strlen(text), hex);
	return arena_strdup(arena, hex);
}

static int make(struct arena *arena, const struct claims *claims, struct signed_token **ret, struct err *err)
{
	struct signed_token *token = arena_alloc(arena, sizeof(*token));

	if (!token || !(token->nonce_key = nonce_key(arena, claims)))
		return err_set(err, ERR_NOMEM, "out of memory");
	if (ident_make(&token->ident, claims->workspace, claims->task, NULL))
		return refuse(err);
	token->execution_id = claims->execution;
	token->body_sha256 = claims->digest;
	token->expires_ms = claims->expires * 1000;
	token->workspaces[0] = token->ident.workspace;
	token->token.name = arena_strdup(arena, "signed");
	token->token.scopes = scope_of(claims->scope);
	token->token.workspaces = token->workspaces;
	token->token.workspace_count = 1;
	*ret = token;
	return token->token.name ? 0 : err_set(err, ERR_NOMEM, "out of memory");
}

int signed_check(const struct secret *control, const char *header, unsigned scope, int64_t now_ms, struct arena *arena,
		 struct signed_token **ret, struct err *err)
{
	struct claims claims;

	if (!control || !(scope & EXECUTION_SCOPES) || read_claims(control, header, arena, &claims) || !is_current(&claims, now_ms) ||
	    !is_whole(&claims))
		return refuse(err);
	if (scope_of(claims.scope) != scope)
		return auth_lacks(scope, err);
	return make(arena, &claims, ret, err);
}

int signed_fits(const struct signed_token *token, const struct head *head, const char *id, struct err *err)
{
	if (!token->execution_id)
		return 0; /* its body tells, see signed_body */
	if (!id)
		return err_set(err, ERR_FORBIDDEN, "a signed token speaks of one execution");
	if (strcmp(token->execution_id, id) != 0 || strcmp(token->body_sha256, EMPTY_SHA256) != 0 || !head->workspace ||
	    !head->task || strcmp(head->workspace, token->ident.workspace) != 0 ||
	    strcmp(head->task, token->ident.task) != 0)
		return refuse(err);
	return 0;
}

int signed_body(const struct signed_token *token, const char sha256[65], struct err *err)
{
	return strcmp(token->body_sha256, sha256) == 0 ? 0 : refuse(err);
}
