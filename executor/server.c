/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns connections and threads. All workers wait on one epoll set; who gets a connection serves one request to its end
 * and puts it back, behind the others. A worker is always left waiting, so that health and signals get through while
 * commands run, also when no new thread can be had. The main thread only sweeps. Must never touch a connection that it
 * has not taken, nor wait for a peer that showed no token.
 */
#include "server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../sdk/lib/supervised_files.h"
#include "inside.h"
#include "request.h"

#define CONNS_MAX 512u
#define THREADS_KEPT 4u
#define THREAD_IDLE_MS 10000
#define STACK_BYTES (256u * 1024u)
#define LISTENER UINT64_MAX
#define MS INT64_C(1000000)

struct slot {
	struct http_conn *conn; /* NULL = free */
	uint32_t generation;
	uint64_t since; /* the number of its connection */
	bool waiting; /* in the epoll set, taken by nobody */
	bool begun;   /* a part of a head is there */
	bool inside;  /* the peer is in this sandbox */
	int64_t until_ns;
};

struct server {
	struct executor *executor;
	struct sockaddr_storage address;
	socklen_t address_len;
	int epoll;
	int listener;
	pthread_mutex_t lock; /* what follows */
	struct slot slots[CONNS_MAX];
	size_t conns_max;
	size_t inside; /* of them, from inside */
	uint64_t accepted;
	bool paused; /* the listener is not in the set: no descriptor was left */
	unsigned threads;
	unsigned idle;
	unsigned threads_max;
};

static void arm(struct server *server, int fd, uint64_t data, uint32_t what, int how)
{
	struct epoll_event event = {.events = what | EPOLLRDHUP | EPOLLONESHOT, .data.u64 = data};

	(void)epoll_ctl(server->epoll, how, fd, &event);
}

static void rearm_listener_locked(struct server *server)
{
	arm(server, server->listener, LISTENER, EPOLLIN, EPOLL_CTL_MOD);
	server->paused = false;
}

static uint64_t key_of(const struct server *server, const struct slot *slot)
{
	return (uint64_t)slot->generation << 32 | (uint64_t)(slot - server->slots);
}

/* The connection goes back to the set; who gets it next may be another thread at once. */
static void put_back(struct server *server, struct slot *slot, bool fresh)
{
	struct http_conn *conn = slot->conn;
	bool begun = conn->pos < conn->len;
	/* What is there already is no event any more; that an answer to it could be sent is one. */
	uint32_t what = http_head_there(conn) ? EPOLLOUT : EPOLLIN;
	int fd = conn->fd;
	uint64_t key;

	pthread_mutex_lock(&server->lock);
	if (!begun || !slot->begun)
		slot->until_ns = sup_now_ns() + (begun || fresh ? HTTP_STALL_MS : HTTP_IDLE_MS) * MS;
	slot->begun = begun;
	slot->waiting = true;
	key = key_of(server, slot);
	arm(server, fd, key, what, fresh ? EPOLL_CTL_ADD : EPOLL_CTL_MOD);
	pthread_mutex_unlock(&server->lock);
}

static void drop(struct server *server, struct slot *slot)
{
	struct http_conn *conn = slot->conn;

	http_conn_fini(conn);
	free(conn);
	pthread_mutex_lock(&server->lock);
	slot->conn = NULL;
	slot->generation++;
	server->inside -= slot->inside;
	if (server->paused)
		rearm_listener_locked(server);
	pthread_mutex_unlock(&server->lock);
}

static struct slot *take(struct server *server, uint64_t key)
{
	size_t index = key & UINT32_MAX;
	struct slot *slot = index < CONNS_MAX ? &server->slots[index] : NULL;

	pthread_mutex_lock(&server->lock);
	if (slot && slot->waiting && slot->generation == key >> 32)
		slot->waiting = false;
	else
		slot = NULL;
	pthread_mutex_unlock(&server->lock);
	return slot;
}

static void *worker(void *arg);

/* Called with the lock. */
static bool spawn_locked(struct server *server)
{
	pthread_attr_t attr;
	pthread_t thread;
	int rc;

	if (server->threads >= server->threads_max)
		return false;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	rc = pthread_create(&thread, &attr, worker, server);
	pthread_attr_destroy(&attr);
	if (rc == 0) {
		server->threads++;
		server->idle++; /* it is on its way to wait */
	}
	return rc == 0;
}

/* Whether a thread waits for others while the caller is busy. */
static bool spare(void *ctx)
{
	struct server *server = ctx;
	bool ok;

	pthread_mutex_lock(&server->lock);
	ok = server->idle > 0 || spawn_locked(server);
	pthread_mutex_unlock(&server->lock);
	return ok;
}

static void serve(struct server *server, struct slot *slot)
{
	struct request_room room = {spare, server};
	struct http_conn *conn = slot->conn;
	int rc = http_conn_fill(conn);

	/* One a turn: requests in a row do not keep this thread from what others ask. */
	if (rc == 1) {
		slot->begun = false;
		rc = request_serve(server->executor, conn, &room) ? 0 : -ECONNRESET;
	}
	if (rc == -EMSGSIZE)
		request_refuse_head(server->executor, conn);
	if (rc == 0)
		put_back(server, slot, false);
	else
		drop(server, slot);
}

static struct slot *free_slot(struct server *server, bool inside)
{
	/* What runs in the sandbox must not keep its owner out. */
	if (inside && server->inside >= server->conns_max / 2)
		return NULL;
	for (size_t i = 0; i < server->conns_max; i++)
		if (!server->slots[i].conn)
			return &server->slots[i];
	return NULL;
}

/* Takes the one that has been here longest of those that wait and never showed a token, for its place. Who has one asks
 * at once, and needs its place only for so long. */
static struct slot *take_oldest(struct server *server, bool inside)
{
	struct slot *oldest = NULL;

	pthread_mutex_lock(&server->lock);
	for (size_t i = 0; i < server->conns_max; i++) {
		struct slot *slot = &server->slots[i];

		if (slot->waiting && !slot->conn->trusted && slot->inside >= inside &&
		    (!oldest || slot->since < oldest->since))
			oldest = slot;
	}
	if (oldest)
		oldest->waiting = false;
	pthread_mutex_unlock(&server->lock);
	return oldest;
}

static struct slot *fill_slot(struct server *server, struct http_conn *conn, bool inside)
{
	struct slot *slot;

	pthread_mutex_lock(&server->lock);
	slot = free_slot(server, inside);
	if (slot) {
		slot->conn = conn;
		slot->since = ++server->accepted;
		slot->begun = slot->waiting = false;
		slot->inside = inside;
		server->inside += inside;
	}
	pthread_mutex_unlock(&server->lock);
	return slot;
}

static struct slot *slot_for(struct server *server, int fd, bool inside)
{
	struct http_conn *conn = malloc(sizeof(*conn));
	struct slot *slot, *oldest;

	if (!conn)
		return NULL;
	http_conn_init(conn, fd);
	slot = fill_slot(server, conn, inside);
	if (!slot && (oldest = take_oldest(server, inside))) {
		drop(server, oldest);
		slot = fill_slot(server, conn, inside);
	}
	if (!slot)
		free(conn);
	return slot;
}

static void prepare(int fd)
{
	int one = 1;
	unsigned dead_ms = HTTP_STALL_MS;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	/* A peer that vanished without a word is noticed by the heartbeat that it does not acknowledge. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &dead_ms, sizeof(dead_ms));
}

static void accept_some(struct server *server)
{
	bool out_of_room = false;

	for (int i = 0; i < 64; i++) {
		struct sockaddr_storage peer = {0};
		socklen_t len = sizeof(peer);
		int fd = accept4(server->listener, (struct sockaddr *)&peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
		struct slot *slot;

		if (fd < 0) {
			out_of_room = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
			break;
		}
		prepare(fd);
		slot = slot_for(server, fd, inside_has(&peer));
		if (slot)
			put_back(server, slot, true);
		else
			close(fd);
	}
	pthread_mutex_lock(&server->lock);
	if (out_of_room)
		server->paused = true; /* until a connection ends, or the sweep */
	else
		rearm_listener_locked(server);
	pthread_mutex_unlock(&server->lock);
}

static void *worker(void *arg)
{
	struct server *server = arg;
	struct epoll_event event;

	for (;;) {
		int n = epoll_wait(server->epoll, &event, 1, THREAD_IDLE_MS);
		struct slot *slot;

		pthread_mutex_lock(&server->lock);
		if (n == 0 && server->idle > THREADS_KEPT) {
			server->idle--;
			server->threads--;
			pthread_mutex_unlock(&server->lock);
			return NULL;
		}
		if (n > 0)
			server->idle--;
		pthread_mutex_unlock(&server->lock);
		if (n <= 0)
			continue;
		if (event.data.u64 == LISTENER)
			accept_some(server);
		else if ((slot = take(server, event.data.u64)))
			serve(server, slot);
		pthread_mutex_lock(&server->lock);
		server->idle++;
		pthread_mutex_unlock(&server->lock);
	}
}

/* "[address]:port" or "address:port". */
static int parse_address(const char *text, struct sockaddr_storage *ret, socklen_t *ret_len)
{
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)ret;
	struct sockaddr_in *four = (struct sockaddr_in *)ret;
	const char *colon = strrchr(text, ':');
	char host[64], *end;
	unsigned long port;
	size_t len;

	if (!colon || (size_t)(colon - text) >= sizeof(host))
		return -1;
	port = strtoul(colon + 1, &end, 10);
	if (colon[1] < '0' || colon[1] > '9' || *end || port > 65535)
		return -1;
	memset(ret, 0, sizeof(*ret));
	len = (size_t)(colon - text);
	if (len >= 2 && text[0] == '[' && text[len - 1] == ']') {
		snprintf(host, sizeof(host), "%.*s", (int)len - 2, text + 1);
		six->sin6_family = AF_INET6;
		six->sin6_port = htons((uint16_t)port);
		*ret_len = sizeof(*six);
		return inet_pton(AF_INET6, host, &six->sin6_addr) == 1 ? 0 : -1;
	}
	snprintf(host, sizeof(host), "%.*s", (int)len, text);
	four->sin_family = AF_INET;
	four->sin_port = htons((uint16_t)port);
	*ret_len = sizeof(*four);
	return inet_pton(AF_INET, host, &four->sin_addr) == 1 ? 0 : -1;
}

static int try_listen(struct server *server)
{
	const struct sockaddr *address = (const struct sockaddr *)&server->address;
	int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int one = 1, zero = 0;

	if (fd < 0)
		return -errno;
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (address->sa_family == AF_INET6)
		(void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
	if (bind(fd, address, server->address_len) < 0 || listen(fd, 128) < 0) {
		int err = errno;

		close(fd);
		return -err;
	}
	return fd;
}

/* Without IPv6, "every address" means every IPv4 one. */
static int listen_on(struct server *server, const char *text)
{
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)&server->address;
	bool any;
	int fd;

	if (parse_address(text, &server->address, &server->address_len) < 0)
		return -EINVAL;
	any = six->sin6_family == AF_INET6 && memcmp(&six->sin6_addr, &in6addr_any, sizeof(in6addr_any)) == 0;
	fd = try_listen(server);
	if (any && (fd == -EAFNOSUPPORT || fd == -EADDRNOTAVAIL)) {
		struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = six->sin6_port};

		memcpy(&server->address, &four, sizeof(four));
		server->address_len = sizeof(four);
		fd = try_listen(server);
	}
	if (fd >= 0)
		getsockname(fd, (struct sockaddr *)&server->address, &server->address_len);
	return fd;
}

void server_address(const struct server *server, char *text, size_t cap)
{
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&server->address;
	const struct sockaddr_in *four = (const struct sockaddr_in *)&server->address;
	char host[INET6_ADDRSTRLEN];

	if (server->address.ss_family == AF_INET6)
		snprintf(text, cap, "[%s]:%u", inet_ntop(AF_INET6, &six->sin6_addr, host, sizeof(host)),
			 ntohs(six->sin6_port));
	else
		snprintf(text, cap, "%s:%u", inet_ntop(AF_INET, &four->sin_addr, host, sizeof(host)),
			 ntohs(four->sin_port));
}

/* Each connection may need three more descriptors for its operation, and commands inherit the limit: it is not raised.
 */
static size_t conns_for_limit(void)
{
	struct rlimit limit;
	rlim_t room;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
		return CONNS_MAX;
	room = limit.rlim_cur > 96 ? (limit.rlim_cur - 64) / 4 : 8;
	return room < CONNS_MAX ? (size_t)room : CONNS_MAX;
}

int server_start(struct executor *executor, struct server **ret_server, char *text, size_t cap)
{
	struct server *server = calloc(1, sizeof(*server));
	bool ok = true;

	if (!server) {
		snprintf(text, cap, "no memory");
		return -1;
	}
	pthread_mutex_init(&server->lock, NULL);
	server->executor = executor;
	server->conns_max = conns_for_limit();
	server->threads_max = executor->options.max_operations + 2;
	server->listener = listen_on(server, executor->options.listen);
	server->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (server->listener < 0 || server->epoll < 0) {
		snprintf(text, cap, "listen on %s: %s", executor->options.listen,
			 server->listener < 0 ? strerror(-server->listener) : "no descriptor left");
		return -1;
	}
	arm(server, server->listener, LISTENER, EPOLLIN, EPOLL_CTL_ADD);
	pthread_mutex_lock(&server->lock);
	while (ok && server->threads < THREADS_KEPT && server->threads < server->threads_max)
		ok = spawn_locked(server);
	pthread_mutex_unlock(&server->lock);
	if (!ok) {
		snprintf(text, cap, "no thread can be made");
		return -1;
	}
	*ret_server = server;
	return 0;
}

void server_sweep(struct server *server)
{
	for (size_t i = 0; i < server->conns_max; i++) {
		struct slot *slot = &server->slots[i];
		bool due;

		pthread_mutex_lock(&server->lock);
		due = slot->waiting && sup_now_ns() >= slot->until_ns;
		if (due)
			slot->waiting = false;
		pthread_mutex_unlock(&server->lock);
		if (due)
			drop(server, slot);
	}
	pthread_mutex_lock(&server->lock);
	if (server->paused)
		rearm_listener_locked(server);
	pthread_mutex_unlock(&server->lock);
}
