/* SPDX-License-Identifier: Apache-2.0 */
/* A hostile peer, a service, and one exchange with all that came of it. */
#ifndef NET_FIXTURE_H
#define NET_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>

#include "../../peers/peer.h"
#include "core/buf.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/thread.h"
#include "net/net.h"

#define BOTH_MODES(flags) for (uint32_t flags = 0; flags <= BERTH_HTTP_LONG; flags++)
#define EXPECT_IN(text, part)                                                                                          \
	do {                                                                                                           \
		if (!strstr(text, part))                                                                               \
			fail_msg("\"%s\" is not in: %s", part, text);                                                  \
	} while (0)

static struct peer peer;
static struct net *net;

struct ask {
	struct berth_http_request request;
	char url[1024];
	struct net_caller caller;
	/* A cancel, as a call has one. */
	struct lock lock;
	struct net_waker *wakers;
	atomic_bool cancel;
	/* What came. */
	int32_t code;
	struct berth_http_response response;
	struct net_failure failure;
	struct buf body;
	char head[8192]; /* "name: value\n" each */
	unsigned heads;
	pthread_t thread; /* all callbacks must be on it */
	int32_t refuse_head, refuse_write;
	int64_t took_ms;
};

static inline struct berth_str str(const char *text)
{
	return (struct berth_str){.ptr = text, .len = strlen(text)};
}

static inline int32_t take_head(void *ctx, uint32_t status, const struct berth_pair *headers, size_t count)
{
	struct ask *ask = ctx;
	size_t at = strlen(ask->head);

	if (!pthread_equal(ask->thread, pthread_self()) || status < 200)
		return BERTH_INTERNAL;
	ask->heads++;
	for (size_t i = 0; i < count && at < sizeof(ask->head); i++)
		at += (size_t)snprintf(ask->head + at, sizeof(ask->head) - at, "%.*s: %.*s\n",
				       (int)headers[i].name.len, headers[i].name.ptr, (int)headers[i].value.len,
				       headers[i].value.ptr);
	return ask->refuse_head;
}

static inline int32_t take_body(void *ctx, const void *ptr, size_t len)
{
	struct ask *ask = ctx;

	if (!pthread_equal(ask->thread, pthread_self()) || !ask->heads)
		return BERTH_INTERNAL;
	if (ask->refuse_write)
		return ask->refuse_write;
	return buf_append(&ask->body, ptr, len) ? BERTH_INTERNAL : BERTH_OK;
}

static inline bool ask_cancelled(void *arg)
{
	return atomic_load(&((struct ask *)arg)->cancel);
}

static inline void ask_listen(void *arg, struct net_waker *waker)
{
	struct ask *ask = arg;

	lock_take(&ask->lock);
	waker->next = ask->wakers;
	ask->wakers = waker;
	lock_drop(&ask->lock);
}

static inline void ask_unlisten(void *arg, struct net_waker *waker)
{
	struct ask *ask = arg;

	lock_take(&ask->lock);
	ask->wakers = waker->next;
	lock_drop(&ask->lock);
}

static inline void ask_cancel(struct ask *ask)
{
	atomic_store(&ask->cancel, true);
	lock_take(&ask->lock);
	for (struct net_waker *waker = ask->wakers; waker; waker = waker->next)
		waker->fn(waker->arg);
	lock_drop(&ask->lock);
}

static inline void ask_init(struct ask *ask, uint32_t flags, const char *method, const char *fmt, ...)
{
	va_list ap;

	memset(ask, 0, sizeof(*ask));
	va_start(ap, fmt);
	vsnprintf(ask->url, sizeof(ask->url), fmt, ap);
	va_end(ap);
	lock_init(&ask->lock, LOCK_CALL);
	buf_init(&ask->body, (size_t)1 << 30);
	ask->request = (struct berth_http_request){
	    .struct_size = sizeof(ask->request),
	    .flags = flags,
	    .method = str(method),
	    .url = str(ask->url),
	    .write = take_body,
	    .head = take_head,
	    .ctx = ask,
	};
	ask->caller = (struct net_caller){
	    .owner = "one",
	    .deadline_ns = clock_after_ms(60000),
	    .cancelled = ask_cancelled,
	    .listen = ask_listen,
	    .unlisten = ask_unlisten,
	    .arg = ask,
	};
}

static inline int32_t ask_run(struct ask *ask)
{
	int64_t begin = clock_boot_ns();

	ask->thread = pthread_self();
	ask->code = net_exchange(net, &ask->caller, &ask->request, &ask->response, &ask->failure);
	ask->took_ms = (clock_boot_ns() - begin) / CLOCK_NS_PER_MS;
	return ask->code;
}

static inline const char *ask_text(const struct ask *ask)
{
	return ask->body.ptr ? ask->body.ptr : "";
}

static inline void ask_fini(struct ask *ask)
{
	assert_null(ask->wakers);
	buf_fini(&ask->body);
	lock_fini(&ask->lock);
}

/* GET path of the plain peer; the code. */
static inline int32_t get(struct ask *ask, uint32_t flags, const char *path)
{
	ask_init(ask, flags, "GET", "http://127.0.0.1:%u%s", peer.plain, path);
	return ask_run(ask);
}

static inline void expect_failure(const struct ask *ask, int32_t code, const char *reason, uint32_t sent)
{
	if (ask->code != code || strcmp(ask->failure.reason ? ask->failure.reason : "", reason) ||
	    ask->response.sent != sent)
		fail_msg("%s: code %d, reason %s, sent %u instead of %d, %s, %u: %s", ask->url, ask->code,
			 ask->failure.reason, ask->response.sent, code, reason, sent, ask->failure.text);
}

/* For what the test itself wants of the peer, on connections of its own. */
static inline void tell(const char *path)
{
	struct ask ask;

	ask_init(&ask, 0, "GET", "http://127.0.0.1:%u%s", peer.plain, path);
	ask.caller.owner = "control";
	if (ask_run(&ask) || ask.response.status != 200)
		fail_msg("%s: %s", path, ask.failure.text);
	ask_fini(&ask);
}

static inline char *stats(void)
{
	struct ask ask;
	char *text;

	ask_init(&ask, 0, "GET", "http://127.0.0.1:%u/stats", peer.plain);
	ask.caller.owner = "control";
	assert_int_equal(ask_run(&ask), BERTH_OK);
	text = strdup(ask_text(&ask));
	ask_fini(&ask);
	return text;
}

static inline unsigned long seen(const char *name)
{
	char *text = stats(), key[64];
	const char *at;
	unsigned long value = 0;

	snprintf(key, sizeof(key), "%s=", name);
	for (at = text; at && *at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
		if (!strncmp(at, key, strlen(key)))
			value = strtoul(at + strlen(key), NULL, 10);
	free(text);
	return value;
}

static inline unsigned open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned count = 0;

	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

/* One beat of a wait on a condition. */
static inline void tick(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

/* Limits of time grow under sanitizers and on busy machines. */
static inline int64_t patience(int64_t ms)
{
	const char *factor = getenv("BERTH_PATIENCE");

	return ms * (factor ? strtol(factor, NULL, 10) : 1);
}

static inline int net_setup(void **state)
{
	struct err err;

	(void)state;
	return net_new(&(struct net_config){.loops = 4}, &net, &err);
}

static inline int net_teardown(void **state)
{
	(void)state;
	net_free(net);
	net = NULL;
	return 0;
}

static inline int group_setup(void **state)
{
	(void)state;
	signal(SIGPIPE, SIG_IGN);
	log_init(LOG_INFO, LOG_LOGFMT);
	setenv("http_proxy", "http://127.0.0.1:1", 1); /* must not matter */
	setenv("HTTPS_PROXY", "http://127.0.0.1:1", 1);
	return peer_start(&peer, 0);
}

static inline int group_setup_tls(void **state)
{
	(void)state;
	signal(SIGPIPE, SIG_IGN);
	log_init(LOG_INFO, LOG_LOGFMT);
	return peer_start(&peer, 1);
}

static inline int group_teardown(void **state)
{
	(void)state;
	return peer_stop(&peer);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, net_setup, net_teardown)

#endif
