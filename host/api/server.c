/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the daemon of libmicrohttpd, the worker pools and the list of requests under way. Entered from main (new, stop),
 * from the loop threads and from workers. Loops poll with epoll: libmicrohttpd 0.9.75 loses connections when they are
 * suspended under select. Must never stop the daemon while a connection is suspended.
 */
#include "api/server.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/acceptor.h"
#include "api/conn.h"
#include "api/intake.h"
#include "api/tls.h"
#include "api/wait.h"
#include "core/clock.h"
#include "core/limits.h"
#include "core/log.h"

#define LOOPS 2
#define LOOP_STACK (512 * LIMIT_KIB)
/* Request head, a note for each of its headers (a hundred beside a head of full size) and the answer's head share it;
 * libmicrohttpd clears all of it twice per request, so each KiB costs. */
#define CONNECTION_MEMORY (LIMIT_HEADERS + 8 * LIMIT_KIB)
#define SPARE_CONNECTIONS 64 /* past the limit they are told so, with 503 */
/* The acceptor counts. A loop at libmicrohttpd's own limit (0.9.75) would keep a lock for ever. */
#define LIMIT_NEVER_REACHED ((unsigned)INT_MAX)
#define UNSENT_MOST (128 * 1024)
#define KEEPALIVE_S 60
#define QUEUE_PER_WORKER 4
#define ABORT_BEFORE_MS 1000 /* transfers are cut this long before a stop's deadline */

/* ---- requests under way ---- */

void server_link(struct server *server, struct req *req)
{
	lock_take(&server->lock);
	req->next = server->reqs;
	if (req->next)
		req->next->prev = req;
	server->reqs = req;
	server->req_count++;
	lock_drop(&server->lock);
}

void server_unlink(struct server *server, struct req *req)
{
	lock_take(&server->lock);
	if (req->prev)
		req->prev->next = req->next;
	else
		server->reqs = req->next;
	if (req->next)
		req->next->prev = req->prev;
	server->req_count--;
	cond_wake_all(&server->changed);
	lock_drop(&server->lock);
}

static void answer_refused(struct req *req)
{
	struct err err;

	err_set(&err, ERR_SHUTTING_DOWN, "the server is stopping");
	if (req->pump) {
		stream_write_end(&req->stream, ERR_SHUTTING_DOWN);
		stream_pumped(&req->stream);
		return;
	}
	req_error(req, &err);
	audit_log(req);
	stream_answer(&req->stream);
}

static void run(void *arg)
{
	struct req *req = arg;
	struct err err = {0};
	bool pump = req->pump;

	log_set_request(req->id);
	log_set_trace(req->trace);

	int r = pump ? req->pump(req) : req->route->handler(req, &err);

	if (r == REQ_PARKED)
		return; /* the wait has our reference, and may have used it already */
	if (!pump && r < 0) {
		if (err.code != r)
			err_set(&err, r, "%s", err_word(r));
		req_error(req, &err);
	}
	if (!pump)
		audit_log(req);
	if (!pump && r != REQ_STREAMED)
		stream_answer(&req->stream);
	req_unref(req);
}

int server_submit(struct server *server, struct req *req)
{
	struct pool *pool = req->route->flags & ROUTE_LONG ? server->longs : server->shorts;

	req_ref(req);

	int r = pool_submit(pool, run, req);

	if (r != 0)
		req_unref(req);
	return r;
}

void server_again(struct server *server, struct req *req)
{
	/* Room for every connection, so only a stop refuses. */
	if (pool_submit(server->again, run, req) == 0)
		return;
	answer_refused(req);
	req_unref(req);
}

void server_set_auth(struct server *server, struct auth_set *set)
{
	struct auth_set *before;

	lock_take(&server->lock);
	before = server->auth;
	server->auth = set;
	lock_drop(&server->lock);
	auth_set_unref(before);
}

struct auth_set *server_auth(struct server *server)
{
	struct auth_set *set;

	lock_take(&server->lock);
	set = auth_set_ref(server->auth);
	lock_drop(&server->lock);
	return set;
}

void server_set_tls(struct server *server, struct tls *tls)
{
	struct tls *before;

	lock_take(&server->lock);
	before = server->tls;
	assert(before);
	server->tls = tls;
	lock_drop(&server->lock);
	tls_unref(before);
}

struct tls *server_tls(struct server *server)
{
	struct tls *tls;

	lock_take(&server->lock);
	tls = tls_ref(server->tls);
	lock_drop(&server->lock);
	return tls;
}

bool server_has_tls(const struct server *server)
{
	return server->config.tls;
}

struct watch *server_watch(struct server *server)
{
	return server->config.watch;
}

int64_t server_look_ms(const struct server *server)
{
	return server->config.look_ms;
}

/* ---- start ---- */

static size_t keep_escapes(void *cls, struct MHD_Connection *conn, char *text)
{
	(void)cls;
	(void)conn;
	return strlen(text);
}

__attribute__((format(printf, 2, 0))) static void log_library(void *cls, const char *fmt, va_list args)
{
	char text[512];

	(void)cls;
	vsnprintf(text, sizeof(text), fmt, args);
	log_debug("libmicrohttpd", KS("text", text));
}

/* Connections inherit them: what a slow reader leaves in the kernel's buffer stays small, and a peer that is gone
 * without a word is noticed although nothing is sent to it, as by the follower of a silent command. */
static void set_options(int fd)
{
	static const struct {
		int level, name, value;
	} options[] = {
		{SOL_SOCKET, SO_REUSEADDR, 1},
		{IPPROTO_TCP, TCP_NOTSENT_LOWAT, UNSENT_MOST},
		{SOL_SOCKET, SO_KEEPALIVE, 1},
		{IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_S},
		{IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_S / 4},
		{IPPROTO_TCP, TCP_KEEPCNT, 4},
	};

	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(options[i].value));
}

static int bind_address(const struct addrinfo *info, struct err *err, const struct server_config *config)
{
	int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return err_set(err, ERR_IO, "cannot make a socket: %s", strerror(errno));
	set_options(fd);
	if (bind(fd, info->ai_addr, info->ai_addrlen) != 0 || listen(fd, SOMAXCONN) != 0) {
		int code = errno == EADDRINUSE ? ERR_IN_USE : ERR_CONFIG;

		err_set(err, code, "cannot listen on %s port %u: %s", config->address, config->port, strerror(errno));
		close(fd);
		return code;
	}
	return fd;
}

/* A descriptor, or a negative code. */
static int open_listener(const struct server_config *config, struct err *err)
{
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
	struct addrinfo *info = NULL;
	char port[16];

	snprintf(port, sizeof(port), "%u", config->port);

	int r = getaddrinfo(config->address, port, &hints, &info);

	if (r != 0)
		return err_set(err, ERR_CONFIG, "%s is not a numeric address: %s", config->address, gai_strerror(r));
	r = bind_address(info, err, config);
	freeaddrinfo(info);
	return r;
}

static unsigned bound_port(int fd)
{
	struct sockaddr_storage address;
	socklen_t len = sizeof(address);
	char port[16] = "0";

	getsockname(fd, (struct sockaddr *)&address, &len);
	getnameinfo((struct sockaddr *)&address, len, NULL, 0, port, sizeof(port), NI_NUMERICSERV);
	return (unsigned)strtoul(port, NULL, 10);
}

static int start_daemon(struct server *server, struct err *err)
{
	const struct server_config *config = &server->config;
	unsigned flags = MHD_USE_EPOLL | MHD_USE_INTERNAL_POLLING_THREAD | MHD_ALLOW_SUSPEND_RESUME |
			 MHD_USE_ERROR_LOG | MHD_USE_NO_LISTEN_SOCKET;

	flags |= config->tls ? MHD_USE_TLS : 0;
	server->daemon = MHD_start_daemon(
		flags, 0, NULL, NULL, intake_request, server, MHD_OPTION_EXTERNAL_LOGGER, log_library, NULL,
		MHD_OPTION_THREAD_POOL_SIZE, (unsigned)LOOPS, MHD_OPTION_THREAD_STACK_SIZE, LOOP_STACK,
		MHD_OPTION_CONNECTION_LIMIT, LIMIT_NEVER_REACHED, MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_MEMORY,
		MHD_OPTION_NOTIFY_COMPLETED, intake_completed, server, MHD_OPTION_NOTIFY_CONNECTION, conn_notify,
		server, MHD_OPTION_URI_LOG_CALLBACK, intake_target, server, MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes,
		NULL, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1,
		config->tls ? MHD_OPTION_HTTPS_CERT_CALLBACK : MHD_OPTION_END, tls_retrieve,
		MHD_OPTION_HTTPS_PRIORITIES, TLS_PRIORITIES, MHD_OPTION_END);
	if (!server->daemon)
		return err_set(err, ERR_IO, "libmicrohttpd cannot start");

	int r = acceptor_run(server->acceptor, server->daemon, err);

	if (r != 0) {
		MHD_stop_daemon(server->daemon);
		server->daemon = NULL;
	}
	return r;
}

static int start_pools(struct server *server, struct err *err)
{
	const struct server_config *config = &server->config;
	unsigned queue = config->workers * QUEUE_PER_WORKER;

	server->shorts = pool_new("http", config->workers, queue);
	server->longs = pool_new("http-long", config->workers, queue);
	server->again = pool_new("http-again", config->workers, 2 * (config->limits.connections + SPARE_CONNECTIONS));
	return server->shorts && server->longs && server->again ? 0 : err_set(err, ERR_NOMEM, "out of memory");
}

int server_new(const struct server_config *config, struct server **ret, struct err *err)
{
	struct server *server = calloc(1, sizeof(*server));

	if (!server) {
		tls_unref(config->tls);
		return err_set(err, ERR_NOMEM, "out of memory");
	}
	server->config = *config;
	server->tls = config->tls;
	lock_init(&server->lock, LOCK_SERVER);
	cond_init(&server->changed);
	server->auth = auth_set_new(&config->auth, NULL);

	int r = server->auth ? open_listener(config, err) : err_set(err, ERR_NOMEM, "out of memory");

	if (r >= 0) {
		server->port = bound_port(r);
		r = acceptor_new(r, config->limits.connections + SPARE_CONNECTIONS, &server->acceptor, err);
	}
	if (r == 0)
		r = hangup_new(&server->hangup, err);
	if (r == 0)
		r = guard_new(&config->limits, &server->guard, err);
	if (r == 0)
		r = start_pools(server, err);
	if (r == 0)
		r = start_daemon(server, err);
	if (r != 0) {
		server_free(server);
		return r;
	}
	*ret = server;
	return 0;
}

unsigned server_port(const struct server *server)
{
	return server->port;
}

void server_stat(struct server *server, struct server_stat *ret)
{
	lock_take(&server->lock);
	ret->requests = server->req_count;
	lock_drop(&server->lock);
	ret->connections = acceptor_open(server->acceptor);
	ret->busy = pool_busy(server->shorts) + pool_busy(server->longs) + pool_busy(server->again);
	ret->queued = pool_queued(server->shorts) + pool_queued(server->longs) + pool_queued(server->again);
}

/* ---- stop ---- */

void server_refuse(struct server *server)
{
	atomic_store(&server->stopping, true);
}

static void hurry(struct req *req)
{
	wait_hurry(req);
	if (atomic_load(&req->follows))
		stream_abort(&req->stream);
}

static void cut(struct req *req)
{
	stream_abort(&req->stream);
}

/* Requests cannot end while the list is held, so they are collected with a reference first. */
static void each_request(struct server *server, void (*fn)(struct req *req))
{
	struct req **list;
	size_t count = 0;

	lock_take(&server->lock);
	list = calloc(server->req_count + 1, sizeof(struct req *));
	for (struct req *req = server->reqs; list && req; req = req->next) {
		req_ref(req);
		list[count++] = req;
	}
	lock_drop(&server->lock);
	for (size_t i = 0; i < count; i++) {
		fn(list[i]);
		req_unref(list[i]);
	}
	free(list);
}

static bool wait_for_requests(struct server *server, int64_t deadline_ns)
{
	bool in_time = true;

	lock_take(&server->lock);
	while (server->req_count && in_time)
		in_time = cond_wait_until(&server->changed, &server->lock, deadline_ns);

	bool done = server->req_count == 0;

	lock_drop(&server->lock);
	return done;
}

static void name_stuck(struct req *req)
{
	log_set_request(req->id);
	log_error("request is stuck at stop", KS("route", req->route ? req->route->pattern : "-"));
	log_set_request(NULL);
}

static void name_suspended(struct req *req)
{
	if (stream_is_suspended(&req->stream)) {
		atomic_store(&req->server->stuck, true);
		name_stuck(req);
	}
}

static bool stop_pools(struct server *server, int64_t deadline_ns)
{
	struct pool *pools[] = {server->shorts, server->longs, server->again};
	bool stopped = true;

	for (size_t i = 0; i < sizeof(pools) / sizeof(pools[0]); i++)
		stopped &= pool_stop(pools[i], deadline_ns);
	return stopped;
}

bool server_stop(struct server *server, int64_t deadline_ns)
{
	server_refuse(server);
	acceptor_stop(server->acceptor);
	each_request(server, hurry);
	if (!wait_for_requests(server, deadline_ns - ABORT_BEFORE_MS * CLOCK_NS_PER_MS))
		each_request(server, cut);
	/* With the workers done no connection is suspended any more; one that only sends to a slow client is closed
	 * by the daemon. */
	if (!stop_pools(server, deadline_ns)) {
		each_request(server, name_stuck);
		return false;
	}
	atomic_store(&server->stuck, false);
	each_request(server, name_suspended);
	if (atomic_load(&server->stuck))
		return false;
	MHD_stop_daemon(server->daemon);
	server->daemon = NULL;
	return true;
}

void server_free(struct server *server)
{
	if (!server)
		return;
	assert(!server->daemon);
	hangup_free(server->hangup);
	guard_free(server->guard);
	pool_free(server->shorts);
	pool_free(server->longs);
	pool_free(server->again);
	acceptor_free(server->acceptor);
	auth_set_unref(server->auth);
	tls_unref(server->tls);
	cond_fini(&server->changed);
	lock_fini(&server->lock);
	free(server);
}
