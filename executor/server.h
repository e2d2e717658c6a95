/* SPDX-License-Identifier: Apache-2.0 */
/* The listening socket, the connections, and the threads that serve them. */
#ifndef EXECUTOR_SERVER_H
#define EXECUTOR_SERVER_H

#include "executor.h"

struct server;

/* Listens and starts the threads. 0, or -1 with a sentence in text. The threads live as long as the process. */
int server_start(struct executor *executor, struct server **ret_server, char *text, size_t cap);
/* "address:port" that it listens on. */
void server_address(const struct server *server, char *text, size_t cap);
/* Closes connections that are past their time; to be called every few seconds. */
void server_sweep(struct server *server);

#endif
