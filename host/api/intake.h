/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of one request on its loop thread, and the state of the server that it touches. For server.c, intake.c,
 * reply.c and req.c only.
 */
#ifndef API_INTAKE_H
#define API_INTAKE_H

#include <microhttpd.h>
#include <stdatomic.h>

#include "api/req.h"
#include "api/server.h"
#include "core/thread.h"

/* Bodies held in memory by all requests together; beyond: queue_full. */
#define INTAKE_BODIES_MAX (256 * LIMIT_MIB)
/* A refused body up to this is read and dropped, so that the connection can go on; a larger one is answered at once. */
#define INTAKE_DISCARD_MAX (64 * LIMIT_KIB)
/* After such an answer the client's bytes are dropped for a while: closing at once would reset the answer away. */
#define INTAKE_LINGER_BYTES (64 * LIMIT_MIB)
#define INTAKE_LINGER_MS 5000

struct server {
	struct server_config config;
	struct MHD_Daemon *daemon;
	struct acceptor *acceptor;
	struct hangup *hangup;
	struct guard *guard;
	struct pool *shorts, *longs, *again;
	unsigned port;
	atomic_bool stopping;
	atomic_bool stuck; /* a stop found a suspended connection */
	atomic_size_t body_bytes;
	struct lock lock; /* class SERVER: the list of requests and their number */
	struct cond changed;
	struct req *reqs;
	unsigned req_count;
	struct auth_set *auth; /* under lock */
	struct tls *tls;       /* likewise */
};

void server_link(struct server *server, struct req *req);
void server_unlink(struct server *server, struct req *req);
/* Gives the request, with a reference of its own, to the pool its route wants; ERR_QUEUE_FULL or ERR_SHUTTING_DOWN. */
int server_submit(struct server *server, struct req *req);

/* The audit line of a request whose answer is made, when its route has one. */
void audit_log(const struct req *req);

/* Callbacks of libmicrohttpd. */
void *intake_target(void *cls, const char *uri, struct MHD_Connection *conn);
enum MHD_Result intake_request(void *cls, struct MHD_Connection *conn, const char *url, const char *method,
			       const char *version, const char *upload, size_t *upload_len, void **con_cls);
void intake_completed(void *cls, struct MHD_Connection *conn, void **con_cls, enum MHD_RequestTerminationCode code);

/* Queues req->reply on its suspended-no-more connection. */
enum MHD_Result reply_queue(struct req *req, struct MHD_Connection *conn);
/* Writes req->reply past libmicrohttpd, which cannot answer in the middle of a body, and closes our sending side. */
void reply_raw(struct req *req, struct MHD_Connection *conn);

#endif
