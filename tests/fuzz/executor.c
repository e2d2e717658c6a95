/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: what berth-executor reads of its clients, by the first byte: a token's claims ('c': signed form, as
 * claims that are encoded here, or 't': the header's text), a list of keys ('k'), arguments ('a'), a whole HTTP request
 * ('h'), frames of a body ('f': digests are made to fit, so that the frames are reached; 's': the same, signed at its
 * end).
 */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <berth/types.h>

#include "args.h"
#include "frame.h"
#include "fuzz.h"
#include "http.h"
#include "ops.h"
#include "token.h"

#define INPUT_MAX 60000u

static uint8_t public_key[crypto_sign_PUBLICKEYBYTES], secret_key[crypto_sign_SECRETKEYBYTES];
static struct keys keys;

static void once(void)
{
	static char entry[128] = "k:";
	uint8_t seed[crypto_sign_SEEDBYTES] = {1};
	char why[256];

	if (keys.fixed_count)
		return;
	FUZZ_CHECK(sodium_init() >= 0);
	crypto_sign_seed_keypair(public_key, secret_key, seed);
	sodium_bin2base64(entry + 2, sizeof(entry) - 2, public_key, sizeof(public_key), sodium_base64_VARIANT_ORIGINAL);
	FUZZ_CHECK(keys_init(&keys, entry, NULL, why, sizeof(why)) == 0);
}

static void check_id(const char *id)
{
	FUZZ_CHECK(!*id || token_id_ok(id, strlen(id)));
	FUZZ_CHECK(!strpbrk(id, "/\n\r \t") && id[0] != '.');
}

static void check_token(const char *text, size_t len)
{
	static struct token token, again;
	struct token_facts facts = {"uid", "instance", "POST", "/v1/check", 1000};

	memset(&token, 0xa5, sizeof(token));
	if (token_parse(text, len, &token) != 0)
		return;
	FUZZ_CHECK(len <= TOKEN_MAX && token.message_len <= sizeof(token.message));
	check_id(token.workspace_id);
	check_id(token.task_id);
	check_id(token.execution_id);
	FUZZ_CHECK(!token.workspace_id[0] == !token.task_id[0]);
	FUZZ_CHECK(strlen(token.nonce_hex) == 2 * TOKEN_NONCE && token.expires_ms >= 0);
	FUZZ_PLANTED(token.workspace_id, strlen(token.workspace_id));
	/* Whatever it says, it is not signed by anybody. */
	FUZZ_CHECK(keys_verify(&keys, token.key_id, token.signature, token.message, token.message_len) != 0);
	(void)token_judge(&token, &facts);
	FUZZ_CHECK(token_parse(text, len, &again) == 0 && again.attempt == token.attempt);
	FUZZ_CHECK(memcmp(again.message, token.message, token.message_len) == 0);
}

static void fuzz_claims(const struct fuzz_input *in)
{
	static char text[2 * TOKEN_MAX];
	size_t len;

	if (in->len > 3000)
		return;
	sodium_bin2base64(text, sizeof(text), in->ptr, in->len, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	len = strlen(text);
	text[len++] = '.';
	memset(text + len, 'A', 86);
	check_token(text, len + 86);
}

static void fuzz_keys(const struct fuzz_input *in)
{
	char *text = fuzz_copy(in->ptr, in->len);
	struct key parsed[KEYS_MAX];
	size_t bad = 0;
	int count = keys_parse(text, parsed, &bad);

	FUZZ_CHECK(count <= (int)KEYS_MAX && (count >= 0 || bad > 0));
	for (int i = 0; i < count; i++)
		check_id(parsed[i].id);
	free(text);
}

/* Every route's table. */
static void fuzz_args(const struct fuzz_input *in)
{
	static const char *const paths[] = {"/v1/check",     "/v1/execute",   "/v1/reattach",
					    "/v1/signal",    "/v1/file/read", "/v1/file/write",
					    "/v1/file/list", "/v1/file/move", "/v1/changes"};
	char *text = fuzz_copy(in->ptr, in->len);

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		const struct ops_route *route = ops_find(paths[i]);
		struct args args;
		char why[128] = "";

		if (args_parse(text, in->len, route->keys, &args, why, sizeof(why)) != 0)
			FUZZ_CHECK(why[0] && strlen(why) < sizeof(why));
		else if (route->execution)
			FUZZ_CHECK(args.attempt >= 0 && args.attempt <= UINT32_MAX);
		FUZZ_CHECK(!args.path.ptr || !memchr(args.path.ptr, '\0', args.path.len));
		args_fini(&args);
	}
	free(text);
}

/* A connection that holds these bytes, and then ends. */
static void connect_to(struct http_conn *conn, const uint8_t *ptr, size_t len, int *ret_peer)
{
	int ends[2], size = 1 << 20;

	FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
	setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	FUZZ_CHECK(len == 0 || send(ends[1], ptr, len, MSG_DONTWAIT) == (ssize_t)len);
	shutdown(ends[1], SHUT_WR);
	http_conn_init(conn, ends[0]);
	*ret_peer = ends[1];
}

static size_t read_body(struct http_conn *conn)
{
	char block[777];
	size_t total = 0;
	ssize_t n;

	while ((n = http_body_read(conn, block, sizeof(block))) > 0)
		total += (size_t)n;
	if (n == 0)
		FUZZ_CHECK(conn->ended && http_body_read(conn, block, 1) == 0);
	return total;
}

static void fuzz_http(const struct fuzz_input *in)
{
	static struct http_conn conn;
	struct http_request request;
	int peer, rc;

	connect_to(&conn, in->ptr, in->len, &peer);
	while ((rc = http_conn_fill(&conn)) == 1) {
		if (http_head_parse(&conn, &request) != 0)
			break;
		FUZZ_CHECK(strlen(request.method) < sizeof(request.method) &&
			   strlen(request.path) < sizeof(request.path));
		if (request.token)
			FUZZ_CHECK(request.token >= conn.buf &&
				   request.token + request.token_len <= conn.buf + sizeof(conn.buf));
		FUZZ_CHECK(read_body(&conn) <= in->len);
		if (!conn.ended)
			break;
	}
	FUZZ_CHECK(conn.pos <= conn.len && conn.len <= sizeof(conn.buf));
	(void)http_peer_gone(&conn);
	http_conn_fini(&conn);
	close(peer);
}

/* The digests of what is there, so that only the frames decide. */
static void sign(struct token *token, const uint8_t *body, size_t len, bool with_signature, uint8_t *signature)
{
	uint8_t message[23 + TOKEN_NONCE + TOKEN_SHA256] = "berth-executor-body-v1\n";
	size_t head = len >= FRAME_HEADER ? FRAME_HEADER + (size_t)(body[6] << 8 | body[7]) : len;

	memset(token, 0, sizeof(*token));
	snprintf(token->key_id, sizeof(token->key_id), "k");
	crypto_hash_sha256(token->head, body, head < len ? head : len);
	crypto_hash_sha256(token->body, body, len);
	token->body_signed = with_signature;
	memcpy(message + 23 + TOKEN_NONCE, token->body, TOKEN_SHA256);
	crypto_sign_detached(signature, NULL, message, sizeof(message), secret_key);
}

static void check_blobs(const struct frame_body *body, size_t len)
{
	const struct frame_blob *blobs[] = {&body->args, &body->script, &body->env, &body->paths};

	for (size_t i = 0; i < sizeof(blobs) / sizeof(blobs[0]); i++)
		FUZZ_CHECK(blobs[i]->len <= len &&
			   (!body->verified || !blobs[i]->ptr || !blobs[i]->ptr[blobs[i]->len]));
	FUZZ_CHECK(body->args.len <= FRAME_ARGS_MAX);
}

static void read_frames(struct http_conn *conn, const struct token *token, size_t len, const char *allowed, bool data)
{
	struct http_request request;
	struct frame_body body;
	char block[999];
	size_t got = 1, total = 0;
	int32_t rc;

	FUZZ_CHECK(http_conn_fill(conn) == 1 && http_head_parse(conn, &request) == 0);
	frame_body_init(&body, conn, token, &keys);
	rc = frame_body_begin(&body, allowed, data);
	while (rc == BERTH_OK && got > 0) {
		rc = frame_body_data(&body, block, sizeof(block), &got);
		total += got;
	}
	FUZZ_CHECK((rc == BERTH_OK) == body.verified && (rc != BERTH_OK) == (body.fault.code != 0));
	FUZZ_CHECK(total <= len && (data || total == 0));
	check_blobs(&body, len);
	frame_body_fini(&body);
}

static void fuzz_frames(const struct fuzz_input *in, bool with_signature)
{
	static uint8_t raw[INPUT_MAX + 512];
	static struct http_conn conn;
	static struct token token;
	uint8_t signature[TOKEN_SIGNATURE];
	size_t len = in->len, at;
	int peer;

	for (int i = 0; i < 3; i++) {
		sign(&token, in->ptr, in->len, with_signature, signature);
		len = in->len + (with_signature ? FRAME_HEADER + TOKEN_SIGNATURE : 0);
		at = (size_t)snprintf((char *)raw, 128, "POST /v1/x HTTP/1.1\r\nContent-Length: %zu\r\n\r\n", len);
		if (in->len)
			memcpy(raw + at, in->ptr, in->len);
		frame_header_write(raw + at + in->len, 'Z', TOKEN_SIGNATURE);
		memcpy(raw + at + in->len + FRAME_HEADER, signature, sizeof(signature));
		connect_to(&conn, raw, at + len, &peer);
		read_frames(&conn, &token, len, i == 0 ? "CV" : i == 1 ? "P" : "", i != 1);
		http_conn_fini(&conn);
		close(peer);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	uint8_t kind = fuzz_byte(&in);

	once();
	if (in.len > INPUT_MAX)
		return 0;
	if (kind == 'c')
		fuzz_claims(&in);
	else if (kind == 't')
		check_token((const char *)in.ptr, in.len);
	else if (kind == 'k')
		fuzz_keys(&in);
	else if (kind == 'a')
		fuzz_args(&in);
	else if (kind == 'h')
		fuzz_http(&in);
	else if (kind == 'f' || kind == 's')
		fuzz_frames(&in, kind == 's');
	return 0;
}
