/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP server: libmicrohttpd's loop threads, worker pools, the watcher of hang-ups, start and stop. Knows routes
 * and tokens, not what the routes do.
 */
#ifndef API_SERVER_H
#define API_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/auth.h"
#include "api/guard.h"
#include "api/router.h"
#include "conf/address.h"
#include "core/err.h"

struct server;
struct req;
struct tls;
struct watch;

struct server_config {
	const struct route *routes;
	struct auth auth; /* borrowed until server_set_auth */
	struct watch *watch;
	int64_t look_ms;     /* who waits looks again after so long, told or not; 0: is told of everything */
	const char *address; /* numeric */
	unsigned port;	     /* 0: a free one */
	unsigned workers; /* threads of each of the two pools: short and long requests */
	struct guard_limits limits;
	struct address_list proxies; /* whose X-Forwarded-For counts */
	bool (*closed)(void *ctx); /* nothing but routes with ROUTE_EVERY_HOST is served now; may be NULL */
	bool narrow; /* only routes with ROUTE_EVERY_HOST are served */
	struct tls *tls; /* taken over, also by a failure; NULL: plain HTTP */
	void *ctx; /* into struct req */
};

/* Listens and serves when it returns 0. */
int server_new(const struct server_config *config, struct server **ret, struct err *err);
unsigned server_port(const struct server *server);
/* Requests whose head is read from now on are judged by `set`, whose reference is taken over. Any thread. */
void server_set_auth(struct server *server, struct auth_set *set);
/* Connections that begin from now on get this certificate; the reference is taken over. Only where there was one. */
void server_set_tls(struct server *server, struct tls *tls);
bool server_has_tls(const struct server *server);
/* From now on new requests are answered shutting_down (but routes with ROUTE_ALWAYS); those under way go on. */
void server_refuse(struct server *server);
/* Refuses, stops listening, answers what waits, aborts transfers shortly before the deadline, joins. False: a
 * request or worker is stuck (named in the log); then the server must not be freed and the process should exit. */
bool server_stop(struct server *server, int64_t deadline_ns);
void server_free(struct server *server); /* after server_stop returned true; NULL is fine */

/* For tests and /ready. */
struct server_stat {
	unsigned connections, requests, busy, queued;
};
void server_stat(struct server *server, struct server_stat *ret);

/* ---- for the other files of this folder ---- */
struct auth_set *server_auth(struct server *server); /* a reference */
struct tls *server_tls(struct server *server);	     /* a reference, or NULL */
struct watch *server_watch(struct server *server);
int64_t server_look_ms(const struct server *server);
/* Runs the request's handler (or pump) on a worker; takes over the caller's reference of req. */
void server_again(struct server *server, struct req *req);

#endif
