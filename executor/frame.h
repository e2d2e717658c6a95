/* SPDX-License-Identifier: Apache-2.0 */
/* The frames of requests: arguments, named blobs, data, and the proof at the end. */
#ifndef EXECUTOR_FRAME_H
#define EXECUTOR_FRAME_H

#include <sodium.h>

#include "http.h"
#include "keys.h"
#include "token.h"

#define FRAME_HEADER 8u
#define FRAME_PAYLOAD_MAX (1u << 20)
#define FRAME_ARGS_MAX 65536u

struct frame_blob {
	char *ptr;
	size_t len;
};

/* Why a body was refused: the code and words for the answer. */
struct frame_fault {
	int32_t code; /* BERTH_ */
	const char *reason;
	const char *text;
};

/* The body of one request while it is read. */
struct frame_body {
	struct http_conn *conn;
	const struct token *token;
	struct keys *keys;
	crypto_hash_sha256_state hash;
	char type; /* of the frame whose payload is next; '\0' = none read */
	size_t left;
	bool verified; /* Z came and fits */
	struct frame_blob args, script, env, paths;
	struct frame_fault fault; /* code 0 = none */
};

void frame_body_init(struct frame_body *body, struct http_conn *conn, const struct token *token, struct keys *keys);
void frame_body_fini(struct frame_body *body);

/* Header of a frame. */
void frame_header_write(uint8_t header[FRAME_HEADER], char type, size_t len);

/* Reads the arguments and the blobs that `allowed` names (a subset of "CVP") up to the first D or Z; without `data` the
 * whole body. Returns 0, or a code with body->fault set. */
int32_t frame_body_begin(struct frame_body *body, const char *allowed, bool data);
/* Data of a body with data; *ret_len = 0 at its verified end. */
int32_t frame_body_data(struct frame_body *body, void *buf, size_t cap, size_t *ret_len);

#endif
