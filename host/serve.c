/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon as its service manager sees it: started, told ready, reloaded and stopped by signals. The main thread only,
 * the only one that takes signals.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "api/api.h"
#include "core/log.h"
#include "core/log_batch.h"
#include "daemon.h"
#include "plugin/target.h"

static void exit_at_once(int number)
{
	(void)number;
	_exit(1);
}

/* The handler has nothing to do until a stop unblocks its signals. It is there from the beginning, as a disposition that changes later
 * is taken for a plugin's doing, and put back. */
void serve_block_signals(struct host *host)
{
	sigemptyset(&host->signals);
	sigaddset(&host->signals, SIGTERM);
	sigaddset(&host->signals, SIGINT);
	sigaddset(&host->signals, SIGHUP);
	sigprocmask(SIG_BLOCK, &host->signals, NULL);

	struct sigaction ignore = {.sa_handler = SIG_IGN}, leave = {.sa_handler = exit_at_once};

	sigaction(SIGPIPE, &ignore, NULL);
	sigaction(SIGTERM, &leave, NULL);
	sigaction(SIGINT, &leave, NULL);
}

/* From here on a second signal ends the process. */
static void unblock_to_exit(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* systemd's notification protocol: one datagram. Without the variable nobody asked. */
static void notify(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t len = path ? strlen(path) : 0;

	if (len == 0 || len >= sizeof(address.sun_path))
		return;
	memcpy(address.sun_path, path, len);
	if (path[0] == '@')
		address.sun_path[0] = '\0';

	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);

	if (fd < 0)
		return;
	if (sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address, size) < 0)
		log_warn("cannot notify the service manager", KS("why", strerror(errno)));
	close(fd);
}

static int wait_for_stop(struct host *host)
{
	int number = 0;

	do {
		if (sigwait(&host->signals, &number) == 0 && number == SIGHUP)
			reload(host);
	} while (number != SIGTERM && number != SIGINT);
	return number;
}

static int give_up(struct host *host, const char *place, const struct err *err)
{
	int code = fail(place, err);

	if (parts_stop(host))
		parts_free(host);
	return code;
}

int serve(struct host *host)
{
	struct err err = {0};
	const char *place;

	if (parts_start(host, &place, &err) != 0)
		return give_up(host, place, &err);
	log_info("ready", KS("version", BERTH_VERSION), KS("address", host->conf->listen),
		 KI("port", api_port(host->api)), KI("targets", host->registry->target_count));
	notify("READY=1");
	log_info("stopping", KS("signal", wait_for_stop(host) == SIGTERM ? "TERM" : "INT"));
	unblock_to_exit();
	notify("STOPPING=1");
	if (!parts_stop(host)) {
		log_batch_rescue();
		fprintf(stderr, "berthd: stop: a thread is stuck\n");
		_exit(1);
	}
	parts_free(host);
	log_info("stopped");
	return 0;
}
