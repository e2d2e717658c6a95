/* SPDX-License-Identifier: Apache-2.0 */
/* One connection of HTTP/1.1: heads, bodies by pulling, and sending. */
#ifndef EXECUTOR_HTTP_H
#define EXECUTOR_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <http_parser.h>

#define HTTP_HEAD_MAX 16384u
/* For a head, and for each further piece to move. */
#define HTTP_STALL_MS 60000
#define HTTP_IDLE_MS 300000

struct http_request {
	char method[8];
	char path[64];
	const char *token; /* in the connection's buffer: until the body is read */
	size_t token_len;
	bool expect_continue;
	bool has_body;
	bool keep_alive;
};

struct http_conn {
	int fd;
	size_t pos; /* buf[pos, len) has not been parsed */
	size_t len;
	bool failed; /* nothing more can be sent or read */
	bool patient; /* the request's token was accepted: its peer is waited for */
	bool trusted; /* any request's was */
	/* Of the request in work. */
	http_parser parser;
	bool ended;	   /* the request was parsed to its end */
	bool unread;	   /* its rest was given up */
	const char *slice; /* body bytes in buf, not yet taken */
	size_t slice_len;
	char buf[HTTP_HEAD_MAX];
};

void http_conn_init(struct http_conn *conn, int fd);
void http_conn_fini(struct http_conn *conn);

/* Takes in what has arrived, without waiting. 1 = a whole head is there, 0 = not yet, -EMSGSIZE, or another negative
 * errno: the peer is gone. */
int http_conn_fill(struct http_conn *conn);

/* Whether the buffer holds a whole head. */
bool http_head_there(const struct http_conn *conn);

/* Parses the head in the buffer. 0, or the status to answer, after which the connection must be closed. */
unsigned http_head_parse(struct http_conn *conn, struct http_request *ret_request);

/* The next bytes of the body, waiting for them; 0 = its end. Negative errno: -EBADMSG malformed, -ETIMEDOUT, … */
ssize_t http_body_read(struct http_conn *conn, void *buf, size_t cap);

/* Reads on to the end of the request so that the peer gets to the answer: 0 when it came, else it cannot be waited for.
 */
int http_body_drain(struct http_conn *conn);

/* Sends all of it, or fails the connection: also when a peer without a token does not read. iov is used up. */
int http_send(struct http_conn *conn, struct iovec *iov, int count);

/* Whether the peer closed its side or broke the rule of one request at a time. */
bool http_peer_gone(const struct http_conn *conn);

#endif
