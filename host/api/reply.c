/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the way of an answer onto the wire: as a response of libmicrohttpd, or raw where that cannot answer any more.
 * Entered from the loop threads only. Must never block: the raw answer goes into an empty socket buffer or is cut.
 */
#include <string.h>
#include <sys/socket.h>

#include "api/conn.h"
#include "api/intake.h"
#include "api/tls.h"
#include "core/limits.h"

#define READER_BLOCK (32 * LIMIT_KIB)

static ssize_t read_window(void *cls, uint64_t pos, char *buf, size_t max)
{
	struct req *req = cls;
	bool pump = false;
	ptrdiff_t taken = stream_take(&req->stream, buf, max, &pump);

	(void)pos;
	if (taken > 0) {
		atomic_fetch_add(&req->sent, (uint64_t)taken);
		return (ssize_t)taken;
	}
	if (taken == 0) {
		if (pump && req->pump) {
			req_ref(req);
			server_again(req->server, req);
		}
		return 0;
	}
	return taken == STREAM_END ? MHD_CONTENT_READER_END_OF_STREAM : MHD_CONTENT_READER_END_WITH_ERROR;
}

static struct MHD_Response *make_response(struct req *req)
{
	struct reply *reply = &req->reply;

	if (reply->stream)
		return MHD_create_response_from_callback(reply->size, READER_BLOCK, read_window, req, NULL);
	atomic_store(&req->sent, reply->body.len);
	/* The request outlives its response: both end in the loop thread, the request with the completed callback. */
	return MHD_create_response_from_buffer(reply->body.len, reply->body.ptr, MHD_RESPMEM_PERSISTENT);
}

enum MHD_Result reply_queue(struct req *req, struct MHD_Connection *conn)
{
	struct reply *reply = &req->reply;
	struct MHD_Response *response = make_response(req);
	enum MHD_Result result;

	if (!response)
		return MHD_NO;
	MHD_add_response_header(response, "X-Request-Id", req->id);
	if (reply->content_type)
		MHD_add_response_header(response, "Content-Type", reply->content_type);
	for (size_t i = 0; i < reply->header_count; i++)
		MHD_add_response_header(response, reply->headers[i].name, reply->headers[i].value);
	/* libmicrohttpd ends a chunked answer to HEAD like one with bytes; nothing may follow it on the connection. */
	if (reply->close || (reply->stream && reply->size == MHD_SIZE_UNKNOWN && strcmp(req->method, "HEAD") == 0))
		MHD_add_response_header(response, "Connection", "close");
	result = MHD_queue_response(conn, reply->status, response);
	MHD_destroy_response(response);
	return result;
}

static void put_head(struct req *req, struct buf *out)
{
	struct reply *reply = &req->reply;

	buf_printf(out, "HTTP/1.1 %u %s\r\nConnection: close\r\nX-Request-Id: %s\r\nContent-Length: %zu\r\n",
		   reply->status, MHD_get_reason_phrase_for(reply->status), req->id, reply->body.len);
	if (reply->content_type)
		buf_printf(out, "Content-Type: %s\r\n", reply->content_type);
	for (size_t i = 0; i < reply->header_count; i++)
		buf_printf(out, "%s: %s\r\n", reply->headers[i].name, reply->headers[i].value);
	buf_puts(out, "\r\n");
}

static ptrdiff_t send_last(struct req *req, struct MHD_Connection *conn, const struct buf *out)
{
	int fd = req->conn->guard.fd;
	ptrdiff_t sent;

	if (req->conn->tls) {
		const union MHD_ConnectionInfo *info =
			MHD_get_connection_info(conn, MHD_CONNECTION_INFO_GNUTLS_SESSION);

		sent = tls_send(info->tls_session, out->ptr, out->len);
		tls_end(info->tls_session);
	} else {
		sent = send(fd, out->ptr, out->len, MSG_NOSIGNAL | MSG_DONTWAIT);
	}
	shutdown(fd, SHUT_WR);
	return sent;
}

void reply_raw(struct req *req, struct MHD_Connection *conn)
{
	struct buf out;

	buf_init(&out, LIMIT_HEADERS + req->reply.body.len);
	put_head(req, &out);
	if (strcmp(req->method, "HEAD") != 0)
		buf_append(&out, req->reply.body.ptr, req->reply.body.len);
	if (!out.error)
		atomic_store(&req->sent, send_last(req, conn, &out) > 0 ? req->reply.body.len : 0);
	buf_fini(&out);
}
