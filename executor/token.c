/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the token's format. Any thread; no state, no allocation: it parses what anybody may send. Must never let a value
 * through that could not be written into a file name, a header or a line.
 */
#include "token.h"

#include <sodium.h>
#include <string.h>

static const char prefix[] = "berth-executor-token-v1\n";
#define PREFIX_LEN (sizeof(prefix) - 1)
#define LINES 13

struct line {
	const char *ptr;
	size_t len;
};

static bool plain(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
	       c == '-';
}

bool token_id_ok(const char *text, size_t len)
{
	if (len == 0 || len > TOKEN_ID_MAX || text[0] == '.' || text[0] == '-')
		return false;
	for (size_t i = 0; i < len; i++)
		if (!plain(text[i]))
			return false;
	return true;
}

static int copy_plain(char *out, size_t cap, const struct line *line)
{
	if (line->len == 0 || line->len >= cap)
		return -1;
	for (size_t i = 0; i < line->len; i++)
		if (!plain(line->ptr[i]) && line->ptr[i] != '/')
			return -1;
	memcpy(out, line->ptr, line->len);
	out[line->len] = '\0';
	return 0;
}

static int copy_id(char out[TOKEN_ID_MAX + 1], const struct line *line)
{
	if (!token_id_ok(line->ptr, line->len))
		return -1;
	memcpy(out, line->ptr, line->len);
	out[line->len] = '\0';
	return 0;
}

/* Lower-case digits only: one value has one spelling. */
static int copy_hex(uint8_t *out, size_t size, const struct line *line)
{
	if (line->len != 2 * size)
		return -1;
	for (size_t i = 0; i < line->len; i++) {
		char c = line->ptr[i];
		int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;

		if (digit < 0)
			return -1;
		out[i / 2] = (uint8_t)(i % 2 ? out[i / 2] | digit : digit << 4);
	}
	return 0;
}

static int copy_number(int64_t max, const struct line *line, int64_t *ret_value)
{
	int64_t value = 0;

	if (line->len == 0 || line->len > 18 || (line->len > 1 && line->ptr[0] == '0'))
		return -1;
	for (size_t i = 0; i < line->len; i++) {
		if (line->ptr[i] < '0' || line->ptr[i] > '9')
			return -1;
		value = value * 10 + (line->ptr[i] - '0');
	}
	if (value > max)
		return -1;
	*ret_value = value;
	return 0;
}

static bool is(const struct line *line, const char *word)
{
	return line->len == strlen(word) && memcmp(line->ptr, word, line->len) == 0;
}

static int split(const struct token *token, struct line lines[LINES])
{
	const char *at = (const char *)token->message + PREFIX_LEN;
	const char *end = (const char *)token->message + token->message_len;

	for (size_t i = 0; i < LINES; i++) {
		const char *lf = memchr(at, '\n', (size_t)(end - at));

		if (!lf)
			return -1;
		lines[i] = (struct line){at, (size_t)(lf - at)};
		at = lf + 1;
	}
	return at == end ? 0 : -1;
}

static int take_identity(struct token *token, const struct line *workspace, const struct line *task)
{
	token->workspace_id[0] = token->task_id[0] = '\0';
	if (workspace->len == 0 && task->len == 0)
		return 0;
	if (copy_id(token->workspace_id, workspace) < 0 || copy_id(token->task_id, task) < 0)
		return -1;
	return token->workspace_id[0] == '_' || token->task_id[0] == '_' ? -1 : 0;
}

static int take_execution(struct token *token, const struct line *id, const struct line *attempt)
{
	int64_t number = 0;

	token->execution_id[0] = '\0';
	if (!is(id, "-") && copy_id(token->execution_id, id) < 0)
		return -1;
	if (copy_number(UINT32_MAX, attempt, &number) < 0)
		return -1;
	token->attempt = (uint32_t)number;
	return 0;
}

static int take_lines(struct token *token, const struct line l[LINES])
{
	if (copy_plain(token->key_id, sizeof(token->key_id), &l[0]) < 0 ||
	    copy_plain(token->pod_uid, sizeof(token->pod_uid), &l[1]) < 0 ||
	    copy_plain(token->instance, sizeof(token->instance), &l[2]) < 0 || take_identity(token, &l[3], &l[4]) < 0 ||
	    copy_plain(token->method, sizeof(token->method), &l[5]) < 0 ||
	    copy_plain(token->path, sizeof(token->path), &l[6]) < 0 ||
	    copy_hex(token->head, sizeof(token->head), &l[7]) < 0)
		return -1;
	token->body_signed = is(&l[8], "signed");
	if (!token->body_signed && copy_hex(token->body, sizeof(token->body), &l[8]) < 0)
		return -1;
	if (take_execution(token, &l[9], &l[10]) < 0 || copy_number(INT64_MAX, &l[11], &token->expires_ms) < 0 ||
	    copy_hex(token->nonce, sizeof(token->nonce), &l[12]) < 0)
		return -1;
	memcpy(token->nonce_hex, l[12].ptr, l[12].len);
	token->nonce_hex[l[12].len] = '\0';
	return 0;
}

static int decode(const char *text, size_t len, uint8_t *out, size_t cap, size_t *ret_len)
{
	const char *end;

	if (sodium_base642bin(out, cap, text, len, NULL, ret_len, &end, sodium_base64_VARIANT_URLSAFE_NO_PADDING) != 0)
		return -1;
	return end == text + len ? 0 : -1;
}

int token_parse(const char *text, size_t len, struct token *ret_token)
{
	const char *dot = len <= TOKEN_MAX ? memchr(text, '.', len) : NULL;
	struct line lines[LINES];
	size_t claims, signature;

	if (!dot)
		return -1;
	memcpy(ret_token->message, prefix, PREFIX_LEN);
	if (decode(text, (size_t)(dot - text), ret_token->message + PREFIX_LEN, TOKEN_MAX, &claims) < 0 ||
	    decode(dot + 1, len - (size_t)(dot - text) - 1, ret_token->signature, TOKEN_SIGNATURE, &signature) < 0 ||
	    signature != TOKEN_SIGNATURE)
		return -1;
	ret_token->message_len = PREFIX_LEN + claims;
	return split(ret_token, lines) < 0 ? -1 : take_lines(ret_token, lines);
}

const char *token_judge(const struct token *token, const struct token_facts *facts)
{
	if (strcmp(token->pod_uid, facts->pod_uid) != 0)
		return "pod_uid";
	if (strcmp(token->instance, facts->instance) != 0)
		return "instance";
	if (strcmp(token->method, facts->method) != 0)
		return "method";
	if (strcmp(token->path, facts->path) != 0)
		return "path";
	if (facts->now_ms > token->expires_ms)
		return "expired";
	return token->expires_ms - facts->now_ms > TOKEN_LIFE_MAX_MS ? "expires_far" : NULL;
}
