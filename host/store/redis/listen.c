/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What other processes of this store tell: one connection of its own, on which Redis sends the notices of their steps.
 * A notice may be lost (the connection was away), so after each connect the listener is told that anything may have
 * changed. The thread here calls the listener; it never writes to the store and holds no lock while it waits.
 *
 * A host that is alone would be told by Redis what it has just told itself. Redis says how many heard a notice; when it was this
 * process only, no more are sent for a second, or until somebody else says anything: who begins to listen says so first.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/log.h"
#include "store/redis/redis.h"

#define ALONE_MS 1000 /* a newcomer says so itself; this is for one that was not heard */
#define SILENCE_MS 10000 /* then the connection is asked whether it lives */
#define ANSWER_MS 5000
#define RETRY_FIRST_MS 100
#define RETRY_MOST_MS 5000

struct redis_listener {
	struct redis_store *store;
	void (*fn)(const char *key, void *arg);
	void *arg;
	struct rconn conn;
	int stop_fd;
	bool asked;   /* a PING is under way */
	bool refused; /* and that was told */
	pthread_t thread;
	char channel[160];
};

/* False: the listener is to end. */
static bool sleep_unless_stopped(struct redis_listener *l, int64_t ms)
{
	struct pollfd fd = {.fd = l->stop_fd, .events = POLLIN};

	return poll(&fd, 1, (int)ms) == 0;
}

static void take_refusal(struct redis_listener *l, const char *why)
{
	if (!l->refused)
		log_warn("Redis refuses the notices of other hosts; what they do is seen later", KS("error", why));
	l->refused = true;
}

/* What was told before nobody heard. */
static void take_start(struct redis_listener *l)
{
	atomic_store(&l->store->hears, true);
	l->refused = false;
	l->fn(NULL, l->arg);
}

/* The name of who tells, a blank, the keys of one step, a line each. What this process tells it has told itself. */
static void take_notice(struct redis_listener *l, char *text)
{
	size_t own = strlen(l->store->applier);
	char *key;

	if (strncmp(text, l->store->applier, own) == 0 && text[own] == ' ')
		return;
	atomic_fetch_add(&l->store->others, 1);
	atomic_store(&l->store->alone_until_ns, 0);
	text = strchr(text, ' ');
	text = text ? text + 1 : NULL;
	while ((key = strsep(&text, "\n")) != NULL)
		if (*key != '\0')
			l->fn(key, l->arg);
}

/* False: the connection is of no use. */
static bool take_message(struct redis_listener *l, const redisReply *reply)
{
	l->asked = false;
	if (reply->type == REDIS_REPLY_ERROR) {
		take_refusal(l, reply->str);
		return false;
	}
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 || !reply->element[0]->str)
		return true;
	if (strcmp(reply->element[0]->str, "subscribe") == 0)
		take_start(l);
	else if (strcmp(reply->element[0]->str, "message") == 0 && reply->element[2]->str)
		take_notice(l, reply->element[2]->str);
	return true;
}

/* One: this process, which listens. While it does not, the one is somebody else. */
void redis_heard_by(struct redis_store *store, int64_t receivers, unsigned others)
{
	bool alone = atomic_load(&store->hears) && receivers == 1 && atomic_load(&store->others) == others;

	atomic_store(&store->alone_until_ns, alone ? clock_after_ms(ALONE_MS) : 0);
}

static bool take_all(struct redis_listener *l)
{
	void *reply = NULL;
	bool good = true;

	while (good && redisGetReplyFromReader(l->conn.ctx, &reply) == REDIS_OK) {
		if (!reply)
			return true;
		good = take_message(l, reply);
		freeReplyObject(reply);
	}
	return false;
}

static bool send_all(redisContext *ctx)
{
	int done = 0;

	while (!done)
		if (redisBufferWrite(ctx, &done) != REDIS_OK)
			return false;
	return true;
}

/* Each silence is ended by a question; a second one without an answer ends the connection. */
static bool ask(struct redis_listener *l)
{
	if (l->asked)
		return false;
	l->asked = true;
	return redisAppendCommand(l->conn.ctx, "PING") == REDIS_OK && send_all(l->conn.ctx);
}

/* Until the connection breaks (true) or the listener is to end. */
static bool follow(struct redis_listener *l)
{
	struct pollfd fds[2] = {{.fd = l->stop_fd, .events = POLLIN}, {.fd = l->conn.ctx->fd, .events = POLLIN}};

	for (;;) {
		int n = poll(fds, 2, l->asked ? ANSWER_MS : SILENCE_MS);

		if (n < 0 && errno != EINTR)
			return true;
		if (n > 0 && fds[0].revents)
			return false;
		if (n == 0 && !ask(l))
			return true;
		if (n > 0 && fds[1].revents && (redisBufferRead(l->conn.ctx) != REDIS_OK || !take_all(l)))
			return true;
	}
}

static bool subscribe(struct redis_listener *l)
{
	struct redis_info info;
	struct err err = {0};
	char hello[128]; /* no keys: only that somebody is there */

	l->asked = false;
	snprintf(hello, sizeof(hello), "%s ", l->store->applier);
	if (wire_connect(&l->conn, &info, &err) != 0) {
		wire_drop(&l->conn);
		return false;
	}
	if (redisAppendCommand(l->conn.ctx, "PUBLISH %s %b", l->channel, hello, strlen(hello)) == REDIS_OK &&
	    redisAppendCommand(l->conn.ctx, "SUBSCRIBE %s", l->channel) == REDIS_OK && send_all(l->conn.ctx))
		return true;
	wire_drop(&l->conn);
	return false;
}

static void *listen_main(void *arg)
{
	struct redis_listener *l = arg;
	int64_t wait_ms = RETRY_FIRST_MS;
	bool go_on = true;

	while (go_on) {
		if (subscribe(l)) {
			go_on = follow(l);
			if (atomic_exchange(&l->store->hears, false))
				wait_ms = RETRY_FIRST_MS;
			atomic_store(&l->store->alone_until_ns, 0);
			wire_drop(&l->conn);
		}
		if (go_on)
			go_on = sleep_unless_stopped(l, wait_ms);
		wait_ms = wait_ms * 2 < RETRY_MOST_MS ? wait_ms * 2 : RETRY_MOST_MS;
	}
	return NULL;
}

static void listener_free(struct redis_listener *l)
{
	if (l->stop_fd >= 0)
		close(l->stop_fd);
	free(l);
}

static int start(struct redis_store *store, void (*fn)(const char *key, void *arg), void *arg, struct err *err)
{
	struct redis_listener *l = calloc(1, sizeof(*l));
	int rc = 0;

	if (!l)
		return err_set(err, ERR_NOMEM, "no memory to listen to Redis");
	*l = (struct redis_listener){.store = store, .fn = fn, .arg = arg, .conn = {.store = store}};
	snprintf(l->channel, sizeof(l->channel), "%.140s:notices", store->prefix);
	l->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->stop_fd < 0)
		rc = err_set(err, ERR_IO, "cannot make an eventfd: %s", strerror(errno));
	else if (thread_start(&l->thread, "notices", listen_main, l) != 0)
		rc = err_set(err, ERR_NOMEM, "no thread to listen to Redis");
	if (rc == 0)
		store->listener = l;
	else
		listener_free(l);
	return rc;
}

void redis_unlisten(struct redis_store *store)
{
	struct redis_listener *l = store->listener;

	if (!l)
		return;
	store->listener = NULL;
	eventfd_write(l->stop_fd, 1);
	pthread_join(l->thread, NULL);
	listener_free(l);
}

static int try_channel(struct rconn *conn, const char *channel, struct err *err)
{
	struct wire_args args = {0};
	redisReply *reply = NULL;
	char why[320];
	bool again;
	int rc;

	wire_text(&args, "SUBSCRIBE");
	wire_text(&args, channel);
	rc = args.error ? err_set(err, ERR_NOMEM, "no memory to talk to Redis")
			: wire_send(conn, &args, NULL, 0, &reply, NULL, err);
	wire_fini(&args);
	if (rc == 0 && reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOPERM ", 7) == 0) {
		snprintf(why, sizeof(why), "NOPERM SUBSCRIBE %.160s: %.120s", channel, reply->str + 7);
		rc = wire_error(why, &again, err);
	} else if (rc == 0 && reply->type == REDIS_REPLY_ERROR) {
		rc = wire_error(reply->str, &again, err);
	}
	freeReplyObject(reply);
	return rc;
}

/* A connection that has subscribed serves nothing else. Whoever may use a channel may publish there, too, which is not
 * tried: other programs would be told. */
int redis_try_channels(struct redis_store *store, struct err *err)
{
	struct rconn conn = {.store = store};
	struct redis_info info;
	char notices[160];
	int rc = wire_connect(&conn, &info, err);

	snprintf(notices, sizeof(notices), "%.140s:notices", store->prefix);
	if (rc == 0)
		rc = try_channel(&conn, notices, err);
	for (unsigned i = 0; rc == 0 && i < STREAM_COUNT; i++)
		rc = try_channel(&conn, store->streams[i], err);
	wire_drop(&conn);
	return rc;
}

int redis_listen(struct store *base, void (*fn)(const char *key, void *arg), void *arg, struct err *err)
{
	struct redis_store *store = redis_of(base);

	redis_unlisten(store);
	return fn ? start(store, fn, arg, err) : 0;
}
