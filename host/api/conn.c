/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns struct conn: its birth at accept and its end before the descriptor is closed. Entered from the loop threads.
 * Must never wait.
 */
#include "api/conn.h"

#include <netdb.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "api/acceptor.h"
#include "api/intake.h"
#include "api/tls.h"

static void name_peer(struct conn *conn, int fd)
{
	struct sockaddr_storage address = {0};
	socklen_t len = sizeof(address);

	if (getpeername(fd, (struct sockaddr *)&address, &len) == 0)
		getnameinfo((struct sockaddr *)&address, len, conn->peer, sizeof(conn->peer), NULL, 0, NI_NUMERICHOST);
}

static struct conn *begin(struct server *server, struct MHD_Connection *mhd)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct conn *conn = info ? calloc(1, sizeof(*conn)) : NULL;

	if (!conn)
		return NULL;
	conn->tls = server_tls(server);
	name_peer(conn, info->connect_fd);
	guard_add(server->guard, &conn->guard, info->connect_fd);
	return conn;
}

void conn_notify(void *cls, struct MHD_Connection *mhd, void **socket_context, enum MHD_ConnectionNotificationCode code)
{
	struct server *server = cls;
	struct conn *conn;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		*socket_context = begin(server, mhd);
		return;
	}
	acceptor_closed(server->acceptor);
	conn = *socket_context;
	*socket_context = NULL;
	if (!conn)
		return;
	guard_remove(server->guard, &conn->guard);
	tls_unref(conn->tls);
	free(conn);
}

struct conn *conn_of(struct MHD_Connection *mhd)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info ? info->socket_context : NULL;
}
