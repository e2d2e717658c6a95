/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection, from accept to close; its requests come and go. Only its loop thread enters, but for the guard.
 */
#ifndef API_CONN_H
#define API_CONN_H

#include <microhttpd.h>

#include "api/guard.h"

struct server;
struct tls;

struct conn {
	struct guard_entry guard;
	struct tls *tls; /* the pair it began with; NULL without TLS */
	char peer[64];	 /* its address */
};

/* Callback of libmicrohttpd at both ends of a connection. */
void conn_notify(void *cls, struct MHD_Connection *mhd, void **socket_context,
		 enum MHD_ConnectionNotificationCode code);
/* NULL when memory was out at its start; such a connection is not served. */
struct conn *conn_of(struct MHD_Connection *mhd);

#endif
