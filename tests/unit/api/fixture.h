/* SPDX-License-Identifier: Apache-2.0 */
/* A running server with routes whose handlers do nothing but what the tests of the server and its streams need. */
#ifndef TEST_API_FIXTURE_H
#define TEST_API_FIXTURE_H

#include <assert.h>
#include <stdatomic.h>

#include "api/req.h"
#include "api/server.h"
#include "api/wait.h"
#include "client.h"
#include "core/clock.h"
#include "core/limits.h"
#include "core/log.h"

#define TOKEN_ALL "all-0123456789abcdef0123456789abcdef01"
#define TOKEN_READ "read-0123456789abcdef0123456789abcdef0"
#define TOKEN_NARROW "narrow-0123456789abcdef0123456789abcde"
#define AUTH_ALL "Authorization: Bearer " TOKEN_ALL "\r\n"

/* What handlers and the test tell each other. */
struct fixture {
	struct server *server;
	struct watch *watch;
	struct lock lock;
	struct cond cond;
	/* under lock */
	unsigned blocked; /* handlers that wait in /block */
	bool open;	  /* the gate of /block */
	bool paused;	  /* the reader of /up waits */
	uint64_t read;	  /* bytes the reader of /up has taken */
	int up_code;	  /* how /up ended: 1 = not yet */
	unsigned ups;	  /* that have ended */
	int down_code;	  /* likewise of /down */
	unsigned downs;
	uint64_t downed;		/* bytes /down has written */
	atomic_uint looks;		/* of /wait */
	atomic_bool condition;		/* what /wait waits for */
	atomic_uint_fast64_t available; /* bytes /follow may give */
	atomic_bool ended;
	atomic_uint pumps;
};

static struct fixture fx;

static inline bool fx_until(bool (*check)(void))
{
	int64_t deadline = clock_after_ms(CLIENT_PATIENCE_S * 1000);
	bool ok = true;

	lock_take(&fx.lock);
	while (!check() && ok)
		ok = cond_wait_until(&fx.cond, &fx.lock, deadline);
	lock_drop(&fx.lock);
	return ok;
}

#define FX_LOCKED(...)                                                                                                 \
	do {                                                                                                           \
		lock_take(&fx.lock);                                                                                   \
		__VA_ARGS__;                                                                                           \
		cond_wake_all(&fx.cond);                                                                               \
		lock_drop(&fx.lock);                                                                                   \
	} while (0)

/* ---- handlers ---- */

static int get_inline(struct req *req, struct err *err)
{
	(void)err;
	buf_puts(&req->reply.body, "inline\n");
	req_json(req, 200);
	return REQ_DONE;
}

static int get_item(struct req *req, struct err *err)
{
	(void)err;
	buf_printf(&req->reply.body, "%s|%s|%s", req_param(req, "id"), req_query(req, "q") ? req_query(req, "q") : "-",
		   req->token->name);
	req_json(req, 200);
	return REQ_DONE;
}

static int post_echo(struct req *req, struct err *err)
{
	(void)err;
	buf_append(&req->reply.body, req->body.ptr, req->body.len);
	req_json(req, 200);
	return REQ_DONE;
}

static int get_fail(struct req *req, struct err *err)
{
	err_set(err, err_from_name(req_query(req, "code")), "the secret words of another program");
	err_reason(err, "why");
	err->retry_after_ms = req_query(req, "retry") ? 1500 : 0;
	return err->code;
}

static int get_block(struct req *req, struct err *err)
{
	(void)err;
	lock_take(&fx.lock);
	fx.blocked++;
	cond_wake_all(&fx.cond);
	while (!fx.open)
		cond_wait_until(&fx.cond, &fx.lock, INT64_MAX);
	fx.blocked--;
	lock_drop(&fx.lock);
	req_empty(req, 204);
	return REQ_DONE;
}

/* Reads all, or `stop` bytes and then fails. */
static int put_up(struct req *req, struct err *err)
{
	int64_t stop = 0;
	char piece[7000];
	uint64_t total = 0;
	uint64_t sum = 0;
	size_t len = 0;
	int r = req_query_number(req, "stop", 0, INT64_MAX, INT64_MAX, &stop, err);

	while (r == 0) {
		lock_take(&fx.lock);
		while (fx.paused)
			cond_wait_until(&fx.cond, &fx.lock, INT64_MAX);
		lock_drop(&fx.lock);
		r = stream_read(&req->stream, piece, sizeof(piece), &len);
		if (r != 0 || len == 0)
			break;
		for (size_t i = 0; i < len; i++)
			sum = sum * 31 + (unsigned char)piece[i];
		total += len;
		FX_LOCKED(fx.read = total);
		if (total >= (uint64_t)stop)
			r = err_set(err, ERR_PAYLOAD_TOO_LARGE, "stopped after %llu", (unsigned long long)total);
	}
	if (r == 0) {
		buf_printf(&req->reply.body, "%llu %llu", (unsigned long long)total, (unsigned long long)sum);
		req_json(req, 200);
	} else if (err->code == 0) {
		err_set(err, r, "the body did not come");
	}
	FX_LOCKED(fx.up_code = r; fx.ups++);
	return r;
}

static char pattern_byte(uint64_t at)
{
	return (char)('a' + (at * 7 + at / 251) % 26);
}

static void pattern(char *buf, uint64_t from, size_t len)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = pattern_byte(from + i);
}

/* Writes `size` bytes; `short` of them when that is given, then fails. */
static int get_down(struct req *req, struct err *err)
{
	int64_t size;
	int64_t cut;
	char piece[10000];
	uint64_t done = 0;
	int r = req_query_number(req, "size", 0, INT64_MAX, 0, &size, err);

	if (r == 0)
		r = req_query_number(req, "cut", 0, INT64_MAX, size, &cut, err);
	if (r != 0)
		return r;
	req_answer_stream(req, 200, "application/octet-stream", (uint64_t)size);
	while (r == 0 && done < (uint64_t)cut) {
		uint64_t left = (uint64_t)cut - done;
		size_t len = left < sizeof(piece) ? (size_t)left : sizeof(piece);

		pattern(piece, done, len);
		r = stream_write(&req->stream, piece, len);
		done += len;
		FX_LOCKED(fx.downed = done);
	}
	stream_write_end(&req->stream, r ? r : cut < size ? ERR_PROVIDER : 0);
	FX_LOCKED(fx.down_code = r; fx.downs++);
	return REQ_STREAMED;
}

static int look_wait(struct req *req, bool *ret_done, struct err *err)
{
	(void)req;
	(void)err;
	atomic_fetch_add(&fx.looks, 1);
	*ret_done = atomic_load(&fx.condition);
	FX_LOCKED(;);
	return 0;
}

static int get_wait(struct req *req, struct err *err)
{
	int64_t deadline;
	int r = req_query_wait(req, 0, &deadline, err);

	if (r == 0)
		r = wait_for(req, "exec:x", deadline, look_wait, err);
	if (r != 0)
		return r;
	buf_printf(&req->reply.body, "%s", atomic_load(&fx.condition) ? "changed" : "same");
	req_json(req, 200);
	return REQ_DONE;
}

struct follow {
	uint64_t offset;
};

static int fill_follow(struct req *req, bool *ret_done, struct err *err)
{
	struct follow *follow = req->state;
	bool ended = atomic_load(&fx.ended); /* before the bytes: what comes after it is nothing */
	uint64_t available = atomic_load(&fx.available);
	char piece[5000];

	if (stream_is_gone(&req->stream))
		return err_set(err, ERR_CANCELLED, "gone");
	while (follow->offset < available) {
		uint64_t left = available - follow->offset;
		size_t room = stream_room(&req->stream);
		size_t len = room < sizeof(piece) ? room : sizeof(piece);

		if (len == 0)
			return 0;
		len = left < len ? (size_t)left : len;
		pattern(piece, follow->offset, len);
		if (stream_write(&req->stream, piece, len) != 0)
			return err_set(err, ERR_CANCELLED, "gone");
		follow->offset += len;
		*ret_done = true;
	}
	if (ended) {
		stream_write_end(&req->stream, 0);
		*ret_done = true;
	}
	return 0;
}

static int pump_follow(struct req *req)
{
	struct err err = {0};

	do {
		int r = wait_for(req, "out:x", clock_after_ms(60000), fill_follow, &err);

		atomic_fetch_add(&fx.pumps, 1);
		if (r == REQ_PARKED)
			return r;
		if (r == 0 && atomic_load(&req->hurried))
			r = ERR_CANCELLED;
		if (r != 0)
			stream_write_end(&req->stream, r);
	} while (stream_pumped(&req->stream));
	return REQ_DONE;
}

static int get_follow(struct req *req, struct err *err)
{
	(void)err;
	req->state = arena_alloc(req->arena, sizeof(struct follow));
	atomic_store(&req->follows, true);
	req_answer_pulled(req, 200, "application/octet-stream", UINT64_MAX, pump_follow);
	return REQ_STREAMED;
}

static const struct route fx_routes[] = {
	{.method = "GET",
	 .pattern = "/inline",
	 .flags = ROUTE_INLINE | ROUTE_HEAD | ROUTE_ALWAYS,
	 .handler = get_inline},
	{.method = "GET", .pattern = "/items/:id", .scope = SCOPE_EXECUTION_READ, .query = "q", .handler = get_item},
	{.method = "POST", .pattern = "/echo", .scope = SCOPE_FILE_WRITE, .body_max = 100000, .handler = post_echo},
	{.method = "GET", .pattern = "/fail", .query = "code retry", .handler = get_fail},
	{.method = "GET", .pattern = "/block", .handler = get_block},
	{.method = "PUT",
	 .pattern = "/up",
	 .scope = SCOPE_FILE_WRITE,
	 .flags = ROUTE_LONG | ROUTE_STREAM_IN,
	 .query = "stop",
	 .handler = put_up},
	{.method = "GET", .pattern = "/down", .flags = ROUTE_LONG, .query = "size cut", .handler = get_down},
	{.method = "GET", .pattern = "/wait", .query = "wait", .handler = get_wait},
	{.method = "POST", .pattern = "/wait", .query = "wait", .body_max = 64 * LIMIT_MIB, .handler = get_wait},
	{.method = "GET", .pattern = "/follow", .flags = ROUTE_HEAD, .handler = get_follow},
	{.method = "DELETE", .pattern = "/echo", .handler = get_inline},
	{.method = "GET", .pattern = "/unset", .scope = SCOPE_SESSION_DELETE, .handler = get_inline},
	{0},
};

/* ---- start and stop ---- */

static char *fx_workspaces[] = {(char[]){"w1"}};
static struct conf_token fx_tokens[] = {
	{.name = (char[]){"all"}, .scopes = SCOPE_EXECUTION_READ | SCOPE_FILE_READ | SCOPE_FILE_WRITE},
	{.name = (char[]){"read"}, .scopes = SCOPE_FILE_READ},
	{.name = (char[]){"narrow"}, .scopes = SCOPE_EXECUTION_READ, .workspaces = fx_workspaces, .workspace_count = 1},
};

static inline int fx_start_with(int64_t idle_ms, unsigned connections)
{
	struct server_config config = {
		.routes = fx_routes,
		.auth = {.tokens = fx_tokens, .token_count = sizeof(fx_tokens) / sizeof(fx_tokens[0])},
		.address = "127.0.0.1",
		.workers = 2,
		.limits = {.head_ms = idle_ms,
			   .idle_ms = 2 * idle_ms,
			   .linger_ms = 5000,
			   .window_ms = idle_ms,
			   .rate = 1000,
			   .connections = connections},
	};
	struct err err = {0};

	memset(&fx, 0, sizeof(fx));
	lock_init(&fx.lock, LOCK_LEAF);
	cond_init(&fx.cond);
	fx.up_code = fx.down_code = 1;
	fx_tokens[0].secret = secret_new(TOKEN_ALL, strlen(TOKEN_ALL));
	fx_tokens[1].secret = secret_new(TOKEN_READ, strlen(TOKEN_READ));
	fx_tokens[2].secret = secret_new(TOKEN_NARROW, strlen(TOKEN_NARROW));
	fx.watch = watch_new();
	config.watch = fx.watch;
	if (!getenv("BERTH_TEST_LOG"))
		log_init(LOG_ERROR + 1, LOG_LOGFMT);
	if (server_new(&config, &fx.server, &err) != 0) {
		fprintf(stderr, "%s\n", err.msg);
		return -1;
	}
	return 0;
}

static inline int fx_start(void **state)
{
	(void)state;
	return fx_start_with(30000, 64);
}

static inline bool fx_stop_within(int64_t ms)
{
	return server_stop(fx.server, clock_after_ms(ms));
}

static inline void fx_free(void)
{
	server_free(fx.server);
	watch_free(fx.watch);
	for (size_t i = 0; i < sizeof(fx_tokens) / sizeof(fx_tokens[0]); i++)
		secret_free(fx_tokens[i].secret);
	cond_fini(&fx.cond);
	lock_fini(&fx.lock);
}

static inline int fx_stop(void **state)
{
	(void)state;
	if (!fx_stop_within(10000))
		return -1;
	fx_free();
	return 0;
}

/* One request on a connection of its own. */
__attribute__((format(printf, 2, 3))) static inline int fx_ask(struct answer *a, const char *fmt, ...)
{
	static struct client c;
	char text[20000];
	va_list args;

	va_start(args, fmt);

	int len = vsnprintf(text, sizeof(text), fmt, args);

	va_end(args);
	memset(a, 0, sizeof(*a));
	if (client_open(&c, server_port(fx.server)) && client_send(&c, text, (size_t)len))
		client_answer(&c, a);
	client_close(&c);
	return a->status;
}

#endif
