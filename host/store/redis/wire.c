/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection: finding the master, logging in, sending a command and taking its answer. Entered by the thread that
 * holds the connection. After any error of a connection it is closed: a late answer must never be taken for another's.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/time.h>

#include "core/log.h"
#include "obs/metrics.h"
#include "store/redis/redis.h"

#define CONNECT_S 1 /* also of a login's answers */
#define ANSWER_S 5

/* ---- arguments ---- */

static bool grow(struct wire_args *args)
{
	size_t room = args->room == 0 ? 64 : (size_t)args->room * 2;
	const char **ptr = realloc(args->ptr, room * sizeof(*ptr));
	size_t *len;

	if (ptr == NULL)
		return false;
	args->ptr = ptr;
	len = realloc(args->len, room * sizeof(*len));
	if (len == NULL)
		return false;
	args->len = len;
	args->room = (int)room;
	return true;
}

void wire_arg(struct wire_args *args, const char *ptr, size_t len)
{
	if (args->count == args->room && !grow(args)) {
		args->error = ERR_NOMEM;
		return;
	}
	args->ptr[args->count] = ptr;
	args->len[args->count++] = len;
}

void wire_text(struct wire_args *args, const char *text)
{
	wire_arg(args, text, strlen(text));
}

void wire_fini(struct wire_args *args)
{
	free(args->ptr);
	free(args->len);
	*args = (struct wire_args){0};
}

/* ---- errors ---- */

static const struct {
	const char *word;
	const char *reason;
	bool again; /* passes by itself: worth a wait */
	const char *sentence;
} troubles[] = {
	{"LOADING", "loading", true, "Redis is still reading its data"},
	{"READONLY", "read_only", true, "this Redis is a replica; the master is being looked for"},
	{"MASTERDOWN", "read_only", true, "this Redis is a replica without a master"},
	{"BUSY", "busy", true, "Redis is busy with a script of somebody"},
	{"OOM", "full", false, "Redis has no memory left (maxmemory)"},
	{"MISCONF", "disk", false, "Redis cannot write its data to disk"},
	{"NOREPLICAS", "replicas", false, "Redis has fewer replicas than min-replicas-to-write asks for"},
	{"NOPERM", "denied", false, "the Redis user may not do what the store needs"},
	{"NOAUTH", "denied", false, "Redis asks for a password"},
	{"WRONGPASS", "denied", false, "Redis refuses the password"},
	{"WRONGTYPE", "corrupt", false, "a key of the store holds something else"},
	{"MOVED", "cluster", false, "this is a Redis Cluster, which cannot be used"},
	{"CLUSTERDOWN", "cluster", false, "this is a Redis Cluster, which cannot be used"},
};

/* The word at the beginning; older versions put a script's error into a sentence, as "-WORD …". */
static bool says(const char *text, const char *word)
{
	size_t len = strlen(word);
	const char *at = text;

	if (strncmp(text, word, len) == 0 && (text[len] == ' ' || text[len] == '\0'))
		return true;
	while ((at = strchr(at, '-')) != NULL)
		if (strncmp(++at, word, len) == 0 && at[len] == ' ')
			return true;
	return false;
}

int wire_error(const char *text, bool *ret_again, struct err *err)
{
	size_t i;

	*ret_again = false;
	for (i = 0; i < sizeof(troubles) / sizeof(troubles[0]); i++) {
		if (!says(text, troubles[i].word))
			continue;
		*ret_again = troubles[i].again;
		err_set(err, ERR_STORE, "the state store: %s: %.120s", troubles[i].sentence, text);
		err_reason(err, troubles[i].reason);
		return ERR_STORE;
	}
	err_set(err, ERR_STORE, "the state store: Redis answers: %.160s", text);
	err_reason(err, "redis");
	return ERR_STORE;
}

static int away(struct err *err, const char *where, const char *why)
{
	err_set(err, ERR_STORE, "the state store: Redis%s%.64s cannot be reached: %.120s", where != NULL ? " at " : "",
		where != NULL ? where : "", why);
	err_reason(err, "away");
	return ERR_STORE;
}

/* ---- one exchange ---- */

void wire_drop(struct rconn *conn)
{
	if (conn->ctx != NULL)
		redisFree(conn->ctx);
	conn->ctx = NULL;
}

static int get_reply(redisContext *ctx, redisReply **ret, struct err *err)
{
	void *reply = NULL;

	if (redisGetReply(ctx, &reply) != REDIS_OK) {
		away(err, NULL, ctx->err == REDIS_ERR_IO && errno == EAGAIN ? "no answer in time" : ctx->errstr);
		return WIRE_BROKEN;
	}
	*ret = reply;
	return 0;
}

/* Redis says nothing unasked: what can be read on an idle connection is its end. */
void wire_check_idle(struct rconn *conn)
{
	struct pollfd fd = {.events = POLLIN};

	if (conn->ctx == NULL)
		return;
	fd.fd = conn->ctx->fd;
	if (poll(&fd, 1, 0) != 0)
		wire_drop(conn);
}

/* An answer that may take `ms` longer than others. */
static int get_late_reply(redisContext *ctx, int64_t ms, redisReply **ret, struct err *err)
{
	struct timeval usual = {.tv_sec = ANSWER_S}, longer = {.tv_sec = ANSWER_S + ms / 1000 + 1};
	redisReply *reply = NULL;
	int rc;

	if (redisSetTimeout(ctx, longer) != REDIS_OK) {
		away(err, NULL, ctx->errstr);
		return WIRE_BROKEN;
	}
	rc = get_reply(ctx, &reply, err);
	if (rc == 0 && redisSetTimeout(ctx, usual) != REDIS_OK) {
		away(err, NULL, ctx->errstr);
		rc = WIRE_BROKEN;
	}
	if (rc == 0)
		*ret = reply;
	else
		freeReplyObject(reply);
	return rc;
}

int wire_send(struct rconn *conn, const struct wire_args *args, const struct wire_args *then, int64_t then_ms,
	      redisReply **ret, redisReply **ret_then, struct err *err)
{
	int rc = 0;

	if (redisAppendCommandArgv(conn->ctx, args->count, args->ptr, args->len) != REDIS_OK ||
	    (then != NULL && redisAppendCommandArgv(conn->ctx, then->count, then->ptr, then->len) != REDIS_OK)) {
		wire_drop(conn);
		return err_set(err, ERR_NOMEM, "no memory to talk to Redis");
	}
	metric_add(METRIC_STORE_ROUND_TRIPS, 0, 0, 1);
	rc = get_reply(conn->ctx, ret, err);
	if (rc == 0 && then != NULL) {
		rc = get_late_reply(conn->ctx, then_ms, ret_then, err);
		if (rc != 0) {
			freeReplyObject(*ret);
			*ret = NULL;
		}
	}
	if (rc != 0)
		wire_drop(conn);
	return rc;
}

/* ---- connecting ---- */

static int open_context(const struct redis_address *at, redisContext **ret, struct err *err)
{
	struct timeval limit = {.tv_sec = CONNECT_S};
	redisContext *ctx = at->port != 0 ? redisConnectWithTimeout(at->host, at->port, limit)
					  : redisConnectUnixWithTimeout(at->host, limit);
	int rc = 0;

	if (ctx == NULL)
		return err_set(err, ERR_NOMEM, "no memory to talk to Redis");
	if (ctx->err != 0)
		rc = away(err, at->host, ctx->errstr);
	else if (redisSetTimeout(ctx, limit) != REDIS_OK || (at->port != 0 && redisEnableKeepAlive(ctx) != REDIS_OK))
		rc = away(err, at->host, ctx->errstr);
	if (rc != 0)
		redisFree(ctx);
	else
		*ret = ctx;
	return rc;
}

/* A command of a login; the answer must be no error. */
static int ask(redisContext *ctx, int count, const char *const *words, redisReply **ret, struct err *err)
{
	redisReply *reply = NULL;
	bool again;
	int rc;

	if (redisAppendCommandArgv(ctx, count, (const char **)(uintptr_t)words, NULL) != REDIS_OK)
		return err_set(err, ERR_NOMEM, "no memory to talk to Redis");
	rc = get_reply(ctx, &reply, err);
	if (rc != 0)
		return ERR_STORE;
	if (reply->type == REDIS_REPLY_ERROR)
		rc = wire_error(reply->str, &again, err);
	if (rc == 0 && ret != NULL)
		*ret = reply;
	else
		freeReplyObject(reply);
	return rc;
}

#define ASK(ctx, ret, err, ...)                                                                                        \
	ask((ctx), (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)),                                 \
	    (const char *const[]){__VA_ARGS__}, (ret), (err))

static int log_in(redisContext *ctx, const struct redis_url *url, struct err *err)
{
	char number[16];
	size_t len;
	int rc = 0;

	/* Decoded text without a zero byte, with one after it (secret.c keeps one). */
	if (url->password != NULL && url->user != NULL)
		rc = ASK(ctx, NULL, err, "AUTH", url->user, secret_ptr(url->password, &len));
	else if (url->password != NULL)
		rc = ASK(ctx, NULL, err, "AUTH", secret_ptr(url->password, &len));
	if (rc != 0 || url->database == 0)
		return rc;
	snprintf(number, sizeof(number), "%d", url->database);
	return ASK(ctx, NULL, err, "SELECT", number);
}

static int read_info(redisContext *ctx, struct redis_info *ret, struct err *err)
{
	redisReply *reply = NULL;
	bool again;
	int rc = ASK(ctx, &reply, err, "INFO");

	if (rc != 0)
		return rc;
	info_parse(reply->str != NULL ? reply->str : "", ret);
	freeReplyObject(reply);
	if (ret->loading)
		return wire_error("LOADING by what INFO says", &again, err);
	if (strcmp(ret->role, "slave") == 0)
		return wire_error("READONLY by what INFO says", &again, err);
	return 0;
}

/* ---- sentinels ---- */

static int ask_sentinel(const struct redis_address *at, const char *master, struct redis_address *ret, struct err *err)
{
	redisContext *ctx = NULL;
	redisReply *reply = NULL;
	int rc = open_context(at, &ctx, err);

	if (rc != 0)
		return rc;
	rc = ASK(ctx, &reply, err, "SENTINEL", "get-master-addr-by-name", master);
	redisFree(ctx);
	if (rc != 0)
		return rc;
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2)
		rc = err_set(err, ERR_STORE, "the state store: the sentinel %.64s knows no master \"%.64s\"", at->host,
			     master);
	if (rc == 0) {
		ret->host = strdup(reply->element[0]->str);
		ret->port = (int)strtol(reply->element[1]->str, NULL, 10);
		if (ret->host == NULL)
			rc = err_set(err, ERR_NOMEM, "no memory for an address");
	}
	freeReplyObject(reply);
	return rc;
}

static int find_master(struct redis_store *store, struct redis_address *ret, struct err *err)
{
	const struct redis_url *url = &store->url;
	int rc = ERR_STORE;
	size_t i;

	for (i = 0; rc != 0 && i < url->sentinel_count; i++)
		rc = ask_sentinel(&url->sentinels[i], url->master, ret, err);
	return rc;
}

int wire_connect(struct rconn *conn, struct redis_info *ret_info, struct err *err)
{
	struct redis_store *store = conn->store;
	struct redis_address found = {0};
	struct timeval limit = {.tv_sec = ANSWER_S};
	const struct redis_address *at = &store->url.server;
	redisContext *ctx = NULL;
	int rc = 0;

	if (store->url.sentinel_count > 0) {
		rc = find_master(store, &found, err);
		at = &found;
	}
	if (rc == 0)
		rc = open_context(at, &ctx, err);
	if (rc == 0)
		rc = log_in(ctx, &store->url, err);
	if (rc == 0)
		rc = read_info(ctx, ret_info, err);
	if (rc == 0 && redisSetTimeout(ctx, limit) != REDIS_OK)
		rc = away(err, at->host, ctx->errstr);
	if (rc == 0)
		conn->ctx = ctx;
	else if (ctx != NULL)
		redisFree(ctx);
	free(found.host);
	return rc;
}
