/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The listening socket and the one thread that accepts from it. The loops of libmicrohttpd (0.9.75 to 1.0.1) could do
 * both, but what ends it there, MHD_quiesce_daemon, races with loops that are awake and aborts the process.
 */
#ifndef API_ACCEPTOR_H
#define API_ACCEPTOR_H

#include <microhttpd.h>

#include "core/err.h"

struct acceptor;

/* Takes over the listening, nonblocking descriptor, also by a failure. `most`: so many connections may be open. */
int acceptor_new(int fd, unsigned most, struct acceptor **ret, struct err *err);
/* Starts the thread; `daemon` listens to nothing itself and gets the connections. It outlives the thread. 0 or a
 * negative code. */
int acceptor_run(struct acceptor *acceptor, struct MHD_Daemon *daemon, struct err *err);
/* A connection that it has handed on has ended. Any thread. */
void acceptor_closed(struct acceptor *acceptor);
/* Connections now, those included that no loop has taken up yet. Any thread. */
unsigned acceptor_open(struct acceptor *acceptor);
/* Joins the thread and closes the descriptor: whoever connects from now on is refused by the kernel. */
void acceptor_stop(struct acceptor *acceptor);
void acceptor_free(struct acceptor *acceptor); /* stops; no connection is open any more. NULL is fine. */

#endif
