/* SPDX-License-Identifier: Apache-2.0 */
/* One request from its head to its answer. */
#ifndef EXECUTOR_REQUEST_H
#define EXECUTOR_REQUEST_H

#include "executor.h"
#include "http.h"

/* Whether one more operation may begin: some thread has to stay free for the others. */
struct request_room {
	bool (*spare)(void *ctx);
	void *ctx;
};

/* Serves the request whose head is in the connection's buffer. Returns whether the connection may take another. */
bool request_serve(struct executor *executor, struct http_conn *conn, const struct request_room *room);
/* Answers a head that is too large. */
void request_refuse_head(struct executor *executor, struct http_conn *conn);

#endif
