/* SPDX-License-Identifier: Apache-2.0 */
/* One answer: a plain body, or frames that are sent as they come. */
#ifndef EXECUTOR_REPLY_H
#define EXECUTOR_REPLY_H

#include "http.h"

/* What an operation came to. */
struct result {
	int32_t code; /* BERTH_ */
	char reason[32];
	char text[256];
	bool retryable;
	int64_t retry_after_ms;
};

/* Headers that do not depend on the operation. */
struct reply_facts {
	const char *pod_uid;
	const char *instance;
	const char *workspace_id; /* NULL or empty: none */
	const char *task_id;
	const char *nonce; /* NULL: no token was accepted */
};

struct reply {
	struct http_conn *conn;
	struct reply_facts facts;
	bool close;	/* the connection ends with this answer */
	bool head_only; /* HEAD */
	bool streaming; /* the head has been sent, chunks follow */
	bool done;
	bool tells_forgotten; /* the result says `forgotten` */
	uint32_t forgotten;
	bool owed; /* frames were gathered that are to go out whatever the result */
	int64_t sent_ns; /* when something was sent last */
	char *buf;	 /* frames not yet sent */
	size_t len;
	size_t cap;
};

void reply_init(struct reply *reply, struct http_conn *conn, const struct reply_facts *facts);
void reply_fini(struct reply *reply);

/* A whole answer that is no frame stream. */
void reply_plain(struct reply *reply, unsigned status, const char *type, const char *body, size_t len);
/* An error as a whole answer. */
void reply_error(struct reply *reply, unsigned status, const struct result *result, int64_t now_ms);

/* Appends one frame of two parts; sends what has gathered once it is much. 0, or -1 when nobody listens any more. */
int reply_frame(struct reply *reply, char type, const void *a, size_t a_len, const void *b, size_t b_len);
int reply_flush(struct reply *reply);
/* Ends the answer: with R behind the frames, or as a plain error when the operation failed without one that is owed. */
void reply_end(struct reply *reply, const struct result *result, int64_t now_ms);

#endif
