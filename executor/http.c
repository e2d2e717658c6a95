/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns a connection's bytes. One thread at a time: the one that took the connection from the queue of ready ones.
 * Sockets never block; waiting is bounded by HTTP_STALL_MS, and nobody waits for a peer without a token. Must never hand
 * on a byte that the parser has not judged, nor begin with a next request before it is asked to.
 */
#include "http.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../sdk/lib/supervised_files.h"

/* What a peer may still send after it was refused. */
#define DRAIN_MAX (256u << 10)
#define DRAIN_MS 500

struct head {
	struct http_request *request;
	enum { FIELD_OTHER, FIELD_TOKEN, FIELD_EXPECT } field;
	bool complete;
	bool bad;
	size_t tokens;
};

void http_conn_init(struct http_conn *conn, int fd)
{
	memset(conn, 0, offsetof(struct http_conn, buf));
	conn->fd = fd;
}

/* A close with unread bytes would reset the connection, and the answer might never be seen. */
static void linger(const struct http_conn *conn)
{
	int64_t until = sup_now_ns() + DRAIN_MS * INT64_C(1000000);
	struct pollfd poller = {.fd = conn->fd, .events = POLLIN};
	char block[4096];

	shutdown(conn->fd, SHUT_WR);
	while (sup_now_ns() < until && poll(&poller, 1, DRAIN_MS) > 0)
		if (recv(conn->fd, block, sizeof(block), MSG_DONTWAIT) <= 0)
			break;
}

void http_conn_fini(struct http_conn *conn)
{
	if (conn->fd >= 0 && conn->unread && conn->patient && !conn->failed)
		linger(conn);
	if (conn->fd >= 0)
		close(conn->fd);
	conn->fd = -1;
}

static ssize_t receive(struct http_conn *conn)
{
	ssize_t n;

	if (conn->pos == conn->len)
		conn->pos = conn->len = 0;
	do {
		n = recv(conn->fd, conn->buf + conn->len, sizeof(conn->buf) - conn->len, MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n == 0)
		return -ECONNRESET;
	if (n < 0)
		return -errno;
	conn->len += (size_t)n;
	return n;
}

bool http_head_there(const struct http_conn *conn)
{
	return memmem(conn->buf + conn->pos, conn->len - conn->pos, "\r\n\r\n", 4) != NULL;
}

static void compact(struct http_conn *conn)
{
	if (conn->pos == 0)
		return;
	memmove(conn->buf, conn->buf + conn->pos, conn->len - conn->pos);
	conn->len -= conn->pos;
	conn->pos = 0;
}

int http_conn_fill(struct http_conn *conn)
{
	ssize_t n;

	if (http_head_there(conn))
		return 1;
	compact(conn);
	n = receive(conn);
	if (n == -EAGAIN || n == -EWOULDBLOCK)
		return 0;
	if (n < 0)
		return (int)n;
	if (http_head_there(conn))
		return 1;
	return conn->len == sizeof(conn->buf) ? -EMSGSIZE : 0;
}

static bool same_word(const char *at, size_t len, const char *word)
{
	return len == strlen(word) && strncasecmp(at, word, len) == 0;
}

/* The whole head is in the buffer, so each callback gets a whole element. */
static int on_url(http_parser *parser, const char *at, size_t len)
{
	struct head *head = parser->data;

	if (len >= sizeof(head->request->path))
		len = 0; /* no route is as long */
	memcpy(head->request->path, at, len);
	head->request->path[len] = '\0';
	return 0;
}

static int on_field(http_parser *parser, const char *at, size_t len)
{
	struct head *head = parser->data;

	head->field = FIELD_OTHER;
	if (same_word(at, len, "Berth-Token"))
		head->field = FIELD_TOKEN;
	else if (same_word(at, len, "Expect"))
		head->field = FIELD_EXPECT;
	return 0;
}

static int on_value(http_parser *parser, const char *at, size_t len)
{
	struct head *head = parser->data;

	if (head->field == FIELD_TOKEN) {
		head->request->token = at;
		head->request->token_len = len;
		head->bad |= head->tokens++ > 0;
	} else if (head->field == FIELD_EXPECT) {
		head->request->expect_continue = same_word(at, len, "100-continue");
		head->bad |= !head->request->expect_continue;
	}
	return 0;
}

static int on_headers_complete(http_parser *parser)
{
	struct head *head = parser->data;

	head->complete = true;
	head->request->keep_alive = http_should_keep_alive(parser);
	http_parser_pause(parser, 1);
	return 0;
}

static int on_body(http_parser *parser, const char *at, size_t len)
{
	struct http_conn *conn = parser->data;

	conn->slice = at;
	conn->slice_len = len;
	http_parser_pause(parser, 1);
	return 0;
}

static int on_message_complete(http_parser *parser)
{
	struct http_conn *conn = parser->data;

	conn->ended = true;
	http_parser_pause(parser, 1);
	return 0;
}

static const http_parser_settings head_settings = {
	.on_url = on_url,
	.on_header_field = on_field,
	.on_header_value = on_value,
	.on_headers_complete = on_headers_complete,
};

static const http_parser_settings body_settings = {
	.on_body = on_body,
	.on_message_complete = on_message_complete,
};

static unsigned judge_head(const http_parser *parser, const struct head *head)
{
	if (!head->complete || head->bad || parser->upgrade)
		return 400;
	if (parser->http_major != 1 || parser->http_minor != 1)
		return 505;
	/* Both lengths at once is how requests are smuggled past a proxy. */
	if ((parser->flags & F_CHUNKED) && (parser->flags & F_CONTENTLENGTH))
		return 400;
	if (parser->uses_transfer_encoding && !(parser->flags & F_CHUNKED))
		return 400;
	return 0;
}

unsigned http_head_parse(struct http_conn *conn, struct http_request *ret_request)
{
	struct head head = {.request = ret_request};
	unsigned status;

	memset(ret_request, 0, sizeof(*ret_request));
	conn->ended = conn->patient = false;
	conn->slice_len = 0;
	http_parser_init(&conn->parser, HTTP_REQUEST);
	conn->parser.data = &head;
	conn->pos += http_parser_execute(&conn->parser, &head_settings, conn->buf + conn->pos, conn->len - conn->pos);
	status = judge_head(&conn->parser, &head);
	conn->parser.data = conn;
	if (status)
		return status;
	strncpy(ret_request->method, http_method_str((enum http_method)conn->parser.method),
		sizeof(ret_request->method) - 1);
	ret_request->has_body = (conn->parser.flags & F_CHUNKED) ||
				((conn->parser.flags & F_CONTENTLENGTH) && conn->parser.content_length > 0);
	return 0;
}

static int wait_for(const struct http_conn *conn, short events, int timeout_ms)
{
	struct pollfd poller = {.fd = conn->fd, .events = events};
	int n;

	do {
		n = poll(&poller, 1, timeout_ms);
	} while (n < 0 && errno == EINTR);
	if (n == 0)
		return -ETIMEDOUT;
	return n < 0 ? -errno : 0;
}

/* Parses what is in the buffer up to the next piece of body or the end. */
static int advance(struct http_conn *conn)
{
	http_parser_pause(&conn->parser, 0);
	conn->pos += http_parser_execute(&conn->parser, &body_settings, conn->buf + conn->pos, conn->len - conn->pos);
	if (HTTP_PARSER_ERRNO(&conn->parser) != HPE_OK && HTTP_PARSER_ERRNO(&conn->parser) != HPE_PAUSED)
		return -EBADMSG;
	return 0;
}

/* At least one byte in the slice, or ended. */
static int await_body(struct http_conn *conn, int timeout_ms)
{
	while (conn->slice_len == 0 && !conn->ended) {
		ssize_t n;
		int rc;

		if (conn->pos < conn->len) {
			rc = advance(conn);
			if (rc < 0)
				return rc;
			continue;
		}
		n = receive(conn);
		if (n >= 0)
			continue;
		if (n != -EAGAIN && n != -EWOULDBLOCK)
			return (int)n;
		rc = wait_for(conn, POLLIN, timeout_ms);
		if (rc < 0)
			return rc;
	}
	return 0;
}

ssize_t http_body_read(struct http_conn *conn, void *buf, size_t cap)
{
	int rc = conn->failed ? -ECONNRESET : await_body(conn, HTTP_STALL_MS);
	size_t n;

	if (rc < 0) {
		conn->failed |= rc != -EBADMSG;
		return rc;
	}
	n = conn->slice_len < cap ? conn->slice_len : cap;
	if (n == 0)
		return 0;
	memcpy(buf, conn->slice, n);
	conn->slice += n;
	conn->slice_len -= n;
	return (ssize_t)n;
}

int http_body_drain(struct http_conn *conn)
{
	int64_t until = sup_now_ns() + DRAIN_MS * INT64_C(1000000);
	size_t drained = 0;

	while (!conn->failed && !conn->ended && drained < DRAIN_MAX && sup_now_ns() < until) {
		if (await_body(conn, conn->patient ? DRAIN_MS : 0) < 0)
			break;
		drained += conn->slice_len;
		conn->slice_len = 0;
	}
	conn->unread = !conn->ended;
	return conn->ended && !conn->failed ? 0 : -1;
}

static int skip(struct iovec **iov, int count, size_t done)
{
	while (count > 0 && done >= (*iov)->iov_len) {
		done -= (*iov)->iov_len;
		(*iov)++;
		count--;
	}
	if (count > 0) {
		(*iov)->iov_base = (char *)(*iov)->iov_base + done;
		(*iov)->iov_len -= done;
	}
	return count;
}

int http_send(struct http_conn *conn, struct iovec *iov, int count)
{
	count = skip(&iov, count, 0);
	while (count > 0 && !conn->failed) {
		struct msghdr message = {.msg_iov = iov, .msg_iovlen = (size_t)count};
		ssize_t n = sendmsg(conn->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n >= 0)
			count = skip(&iov, count, (size_t)n);
		else if ((errno == EAGAIN || errno == EWOULDBLOCK) && conn->patient)
			conn->failed = wait_for(conn, POLLOUT, HTTP_STALL_MS) < 0;
		else
			conn->failed = errno != EINTR;
	}
	return conn->failed ? -ECONNRESET : 0;
}

bool http_peer_gone(const struct http_conn *conn)
{
	char byte;
	ssize_t n;

	if (conn->failed)
		return true;
	/* Only once the request is over its next bytes mean anything else than the body. */
	if (!conn->ended)
		return false;
	if (conn->pos < conn->len)
		return true;
	n = recv(conn->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	return n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}
