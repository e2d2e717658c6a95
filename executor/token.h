/* SPDX-License-Identifier: Apache-2.0 */
/* The token of a request, as docs/executor.md describes it, and the public keys it is judged by. */
#ifndef EXECUTOR_TOKEN_H
#define EXECUTOR_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOKEN_MAX 4096u
#define TOKEN_LIFE_MAX_MS INT64_C(600000)
#define TOKEN_ID_MAX 128u /* workspace, task, execution id */
#define TOKEN_KEY_ID_MAX 64u
#define TOKEN_UID_MAX 64u
#define TOKEN_NONCE 16u
#define TOKEN_SIGNATURE 64u
#define TOKEN_SHA256 32u

struct token {
	char key_id[TOKEN_KEY_ID_MAX + 1];
	char pod_uid[TOKEN_UID_MAX + 1];
	char instance[33];
	char workspace_id[TOKEN_ID_MAX + 1]; /* empty with task_id: no identity */
	char task_id[TOKEN_ID_MAX + 1];
	char method[8];
	char path[32];
	char execution_id[TOKEN_ID_MAX + 1]; /* empty: none */
	char nonce_hex[2 * TOKEN_NONCE + 1];
	uint8_t nonce[TOKEN_NONCE];
	uint8_t head[TOKEN_SHA256];
	uint8_t body[TOKEN_SHA256];
	bool body_signed; /* body is not known yet: its last frame is signed */
	uint32_t attempt;
	int64_t expires_ms;
	/* What the signature is over, and the signature. */
	uint8_t message[TOKEN_MAX + 32];
	size_t message_len;
	uint8_t signature[TOKEN_SIGNATURE];
};

/* 0, or -1 when it is not a well-formed token; then *ret_token is not to be used. */
int token_parse(const char *text, size_t len, struct token *ret_token);

/* What a token is compared with. */
struct token_facts {
	const char *pod_uid;
	const char *instance;
	const char *method;
	const char *path;
	int64_t now_ms;
};
/* The reason word of the first fact that differs, or NULL. The signature is judged elsewhere. */
const char *token_judge(const struct token *token, const struct token_facts *facts);

/* An execution id, workspace or task: first A-Za-z0-9 (or _ for an execution id), then A-Za-z0-9._-, at most 128. */
bool token_id_ok(const char *text, size_t len);

#endif
