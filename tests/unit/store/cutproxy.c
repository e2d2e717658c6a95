/* SPDX-License-Identifier: Apache-2.0 */
/* One thread that carries bytes between pairs of sockets. The test's thread sets how often it cuts, and reads how often
 * it did. */
#include "cutproxy.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#define PAIRS 64

struct cutproxy {
	char socket[TEMPDIR_PATH], url[TEMPDIR_PATH + 32], server[TEMPDIR_PATH];
	int listener, stop;
	pthread_t thread;
	atomic_uint of, cuts, late_ms;
	char late_word[32]; /* written before late_ms, read after it */
	bool is_late;	    /* the request was there, its answer comes */
	unsigned dice;
	int client[PAIRS], upstream[PAIRS];
};

static struct sockaddr_un address(const char *path)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};

	snprintf(at.sun_path, sizeof(at.sun_path), "%.*s", (int)sizeof(at.sun_path) - 1, path);
	return at;
}

static void accept_one(struct cutproxy *proxy)
{
	struct sockaddr_un at = address(proxy->server);
	int fd = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC), up, i;

	for (i = 0; i < PAIRS && proxy->client[i] >= 0; i++)
		;
	up = i < PAIRS ? socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
	if (up < 0 || connect(up, (struct sockaddr *)&at, sizeof(at)) != 0) {
		close(up);
		close(fd);
		return;
	}
	proxy->client[i] = fd;
	proxy->upstream[i] = up;
}

static void end_pair(struct cutproxy *proxy, int i)
{
	close(proxy->client[i]);
	close(proxy->upstream[i]);
	proxy->client[i] = proxy->upstream[i] = -1;
}

static bool send_all(int fd, const char *bytes, ssize_t len)
{
	while (len > 0) {
		ssize_t sent = send(fd, bytes, (size_t)len, MSG_NOSIGNAL);

		if (sent <= 0)
			return false;
		bytes += sent;
		len -= sent;
	}
	return true;
}

static void be_late(struct cutproxy *proxy, const char *bytes, size_t len, bool is_answer)
{
	unsigned ms = atomic_load(&proxy->late_ms);

	if (ms == 0)
		return;
	if (!is_answer) {
		proxy->is_late |= memmem(bytes, len, proxy->late_word, strlen(proxy->late_word)) != NULL;
		return;
	}
	if (!proxy->is_late)
		return;
	proxy->is_late = false;
	atomic_store(&proxy->late_ms, 0);
	atomic_fetch_add(&proxy->cuts, 1);
	poll(NULL, 0, (int)ms);
}

/* False: the pair ends here. */
static bool carry(struct cutproxy *proxy, int from, int to, bool is_answer)
{
	char bytes[16384];
	ssize_t len = recv(from, bytes, sizeof(bytes), 0);
	unsigned of = atomic_load(&proxy->of);

	if (len <= 0)
		return false;
	be_late(proxy, bytes, (size_t)len, is_answer);
	proxy->dice = proxy->dice * 1664525u + 1013904223u;
	if (is_answer && of > 0 && (proxy->dice >> 8) % of == 0) {
		atomic_fetch_add(&proxy->cuts, 1);
		if (proxy->dice >> 31)
			send_all(to, bytes, len / 2);
		return false;
	}
	return send_all(to, bytes, len);
}

static void *proxy_main(void *arg)
{
	struct cutproxy *proxy = arg;
	struct pollfd fds[2 + 2 * PAIRS];
	int i;

	for (;;) {
		fds[0] = (struct pollfd){.fd = proxy->stop, .events = POLLIN};
		fds[1] = (struct pollfd){.fd = proxy->listener, .events = POLLIN};
		for (i = 0; i < PAIRS; i++) {
			fds[2 + 2 * i] = (struct pollfd){.fd = proxy->client[i], .events = POLLIN};
			fds[3 + 2 * i] = (struct pollfd){.fd = proxy->upstream[i], .events = POLLIN};
		}
		if (poll(fds, 2 + 2 * PAIRS, -1) < 0 || fds[0].revents != 0)
			return NULL;
		for (i = 0; i < PAIRS; i++) {
			bool good = true;

			if (fds[2 + 2 * i].revents != 0)
				good = carry(proxy, proxy->client[i], proxy->upstream[i], false);
			if (good && fds[3 + 2 * i].revents != 0)
				good = carry(proxy, proxy->upstream[i], proxy->client[i], true);
			if (!good)
				end_pair(proxy, i);
		}
		if (fds[1].revents != 0)
			accept_one(proxy);
	}
}

struct cutproxy *cutproxy_start(struct redis_server *server)
{
	struct cutproxy *proxy = calloc(1, sizeof(*proxy));
	struct sockaddr_un at;
	int i;

	assert_non_null(proxy);
	for (i = 0; i < PAIRS; i++)
		proxy->client[i] = proxy->upstream[i] = -1;
	proxy->dice = 12345;
	memcpy(proxy->server, server->socket, sizeof(proxy->server));
	tempdir_path(&server->dir, "cut.sock", proxy->socket);
	snprintf(proxy->url, sizeof(proxy->url), "unix://%s", proxy->socket);
	at = address(proxy->socket);
	proxy->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(proxy->listener, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(proxy->listener, PAIRS), 0);
	proxy->stop = eventfd(0, EFD_CLOEXEC);
	assert_int_equal(pthread_create(&proxy->thread, NULL, proxy_main, proxy), 0);
	return proxy;
}

void cutproxy_cut(struct cutproxy *proxy, unsigned of)
{
	atomic_store(&proxy->of, of);
}

void cutproxy_late(struct cutproxy *proxy, const char *word, unsigned ms)
{
	snprintf(proxy->late_word, sizeof(proxy->late_word), "%s", word);
	atomic_store(&proxy->late_ms, ms);
}

unsigned cutproxy_cuts(const struct cutproxy *proxy)
{
	return atomic_load(&proxy->cuts);
}

const char *cutproxy_url(const struct cutproxy *proxy)
{
	return proxy->url;
}

void cutproxy_stop(struct cutproxy *proxy)
{
	int i;

	assert_int_equal(eventfd_write(proxy->stop, 1), 0);
	pthread_join(proxy->thread, NULL);
	for (i = 0; i < PAIRS; i++)
		if (proxy->client[i] >= 0)
			end_pair(proxy, i);
	close(proxy->listener);
	close(proxy->stop);
	free(proxy);
}
