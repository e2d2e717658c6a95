/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Follows the deployment's pods, or claims, on a thread of its own: a list for the version to start at, then watches
 * that continue at the last version seen, bookmarks included; a version that the server has forgotten (410) means to
 * list again. What it sees wakes waiters and hints to the host. It must never be asked what exists. The lock is held
 * for moments only.
 */
#include "watch.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "api.h"
#include "backend.h"
#include "claims.h"

#define WATCH_SECONDS 25 /* an exchange outside of a call has 30 */
#define BACKOFF_FIRST_MS 200
#define BACKOFF_MOST_MS 30000
#define SEEN_MAX 512
#define SHORT_NS INT64_C(1000000000) /* a watch that ends sooner was refused */

/* Uids of pods, the oldest overwritten. */
struct seen {
	char uids[SEEN_MAX][64];
	unsigned count;
};

struct watch {
	struct kube *k;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond; /* stop */
	struct watch_waiter *waiters;
	bool running, stopping;
	struct seen ended;    /* were seen to go */
	struct seen news;     /* there was something to see while nobody waited */
	char collection[160]; /* pods, or claims */
	/* The thread's own. */
	char version[128]; /* empty: to be listed */
	bool gone;	   /* the server has forgotten the version */
};

/* ---- what is seen ---- */

static bool has_seen(const struct seen *seen, const char *uid)
{
	for (unsigned i = 0; i < SEEN_MAX && i < seen->count; i++)
		if (!strcmp(seen->uids[i], uid))
			return true;
	return false;
}

static void see(struct seen *seen, const char *uid)
{
	if (!has_seen(seen, uid))
		snprintf(seen->uids[seen->count++ % SEEN_MAX], sizeof(seen->uids[0]), "%s", uid);
}

/* NULL: whoever waits. A pod may be ready before its creator waits for it. */
static void wake(struct watch *watch, const char *uid)
{
	bool heard = !uid;

	pthread_mutex_lock(&watch->lock);
	for (struct watch_waiter *w = watch->waiters; w; w = w->next)
		if (w->fd >= 0 && (!uid || !strcmp(w->uid, uid))) {
			eventfd_write(w->fd, 1);
			heard = true;
		}
	if (!heard)
		see(&watch->news, uid);
	pthread_mutex_unlock(&watch->lock);
}

static bool is_stopping(struct watch *watch)
{
	bool stopping;

	pthread_mutex_lock(&watch->lock);
	stopping = watch->stopping;
	pthread_mutex_unlock(&watch->lock);
	return stopping;
}

static void remember(struct watch *watch, const char *uid)
{
	pthread_mutex_lock(&watch->lock);
	see(&watch->ended, uid);
	pthread_mutex_unlock(&watch->lock);
}

/* A pod that is going or dead is news for the host; the rest is for those who wait. */
static void take_event(struct watch *watch, const char *type, struct json_object *pod)
{
	struct podview view;

	podview_of(pod, watch->k->container, &view);
	/* That a pod exists and is on its way is known to those who wait for it: each look is a request, and of a look
	 * at each of its steps only the last is of use. */
	if (watch->k->claims || view.verdict.code || view.verdict.phase == BERTH_PHASE_READY)
		wake(watch, view.uid);
	if (!strcmp(type, "DELETED") || view.verdict.code == BERTH_SESSION_LOST) {
		remember(watch, view.uid);
		kube_host->changed(watch->k->target);
	}
}

static bool take_line(void *arg, struct json_object *line)
{
	struct watch *watch = arg;
	const char *type = api_text(line, "type");
	struct json_object *object = api_at(line, "object");
	const char *version = api_text(object, "metadata.resourceVersion");

	if (!strcmp(type, "ERROR")) {
		watch->gone = api_number(object, "code") == 410;
		return false;
	}
	if (*version)
		snprintf(watch->version, sizeof(watch->version), "%s", version);
	if (strcmp(type, "BOOKMARK"))
		take_event(watch, type, object);
	return !is_stopping(watch);
}

/* ---- the server ---- */

static int32_t list_once(struct watch *watch, struct kerr *err)
{
	struct buf url = {.max = 4096};
	const struct api_request request = {.method = "GET", .what = "list for the watch", .repeatable = true};
	struct api_request with_path = request;
	struct api_answer answer = {0};
	int32_t rc;

	/* One item is enough: what is wanted is the version. */
	buf_add(&url, "%s?limit=1&", watch->collection);
	rc = backend_select(watch->k, "", "", &url, err);
	with_path.path = url.ptr;
	if (!rc)
		rc = api_send(watch->k, NULL, &with_path, &answer, err);
	if (!rc)
		snprintf(watch->version, sizeof(watch->version), "%s",
			 api_text(answer.body, "metadata.resourceVersion"));
	api_drop(&answer);
	buf_wipe(&url);
	/* What happened in between nobody has seen. */
	if (!rc) {
		wake(watch, NULL);
		kube_host->changed(watch->k->target);
	}
	return rc;
}

static int32_t follow_once(struct watch *watch, struct kerr *err)
{
	struct buf url = {.max = 4096};
	int32_t rc;

	buf_add(&url, "%s?watch=1&allowWatchBookmarks=true&timeoutSeconds=%d&resourceVersion=", watch->collection,
		WATCH_SECONDS);
	buf_percent(&url, watch->version);
	buf_put(&url, "&", 1);
	rc = backend_select(watch->k, "", "", &url, err);
	if (!rc)
		rc = api_watch(watch->k, url.ptr, (int64_t)(WATCH_SECONDS + 4) * 1000, take_line, watch, err);
	buf_wipe(&url);
	return rc;
}

/* OK: go on at once. */
static int32_t step(struct watch *watch, struct kerr *err)
{
	int64_t began = text_boot_ns();
	int32_t rc;

	if (!*watch->version)
		return list_once(watch, err);
	watch->gone = false;
	rc = follow_once(watch, err);
	if (watch->gone || !strcmp(rc ? err->reason : "", "expired")) {
		watch->version[0] = '\0';
		kube_host->counter(watch->k->target, METRIC_WATCH_RESTARTS, 1);
		return BERTH_OK;
	}
	/* Silence until the limit is a half-open connection, or nothing happened at all. */
	if (rc == BERTH_TIMEOUT)
		return BERTH_OK;
	if (!rc && text_boot_ns() - began < SHORT_NS)
		return kerr_set(err, BERTH_UNAVAILABLE, "watch", "the watch was closed at once");
	return rc;
}

static void pause_for(struct watch *watch, int64_t ms)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += ms / 1000;
	until.tv_nsec += ms % 1000 * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	pthread_mutex_lock(&watch->lock);
	while (!watch->stopping && pthread_cond_timedwait(&watch->cond, &watch->lock, &until) != ETIMEDOUT)
		;
	pthread_mutex_unlock(&watch->lock);
}

static void *watch_main(void *arg)
{
	struct watch *watch = arg;
	int64_t backoff = BACKOFF_FIRST_MS;

	while (!is_stopping(watch)) {
		int64_t quiet = atomic_load(&watch->k->quiet_ns) - text_boot_ns();
		struct kerr err = {0};

		if (quiet > 0)
			pause_for(watch, quiet / 1000000 + 1);
		else if (!step(watch, &err))
			backoff = BACKOFF_FIRST_MS;
		else {
			kube_log(watch->k, NULL, BERTH_LOG_DEBUG, "the watch broke off", "error", err.text);
			pause_for(watch, backoff > err.retry_after_ms ? backoff : err.retry_after_ms);
			backoff = backoff * 2 < BACKOFF_MOST_MS ? backoff * 2 : BACKOFF_MOST_MS;
		}
	}
	return NULL;
}

/* ---- life ---- */

int32_t watch_start(struct kube *k, struct watch **ret, struct kerr *err)
{
	struct watch *watch = calloc(1, sizeof(*watch));
	pthread_condattr_t attr;

	if (!watch)
		return kerr_set(err, BERTH_UNAVAILABLE, "memory", "no memory");
	watch->k = k;
	snprintf(watch->collection, sizeof(watch->collection), k->claims ? CLAIMS_PATH : PODS_PATH, k->ns);
	pthread_mutex_init(&watch->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&watch->cond, &attr);
	pthread_condattr_destroy(&attr);
	*ret = watch;
	return BERTH_OK;
}

static void use(struct watch *watch)
{
	pthread_mutex_lock(&watch->lock);
	if (!watch->running && !watch->stopping)
		watch->running = !pthread_create(&watch->thread, NULL, watch_main, watch);
	pthread_mutex_unlock(&watch->lock);
}

bool watch_doubts(struct watch *watch, const char *uid)
{
	bool ended;

	use(watch);
	pthread_mutex_lock(&watch->lock);
	ended = has_seen(&watch->ended, uid);
	pthread_mutex_unlock(&watch->lock);
	return ended;
}

void watch_stop(struct watch *watch)
{
	bool running;

	if (!watch)
		return;
	pthread_mutex_lock(&watch->lock);
	watch->stopping = true;
	running = watch->running;
	pthread_cond_broadcast(&watch->cond);
	pthread_mutex_unlock(&watch->lock);
	if (running)
		pthread_join(watch->thread, NULL);
	pthread_cond_destroy(&watch->cond);
	pthread_mutex_destroy(&watch->lock);
	free(watch);
}

/* ---- waiting ---- */

void watch_listen(struct watch *watch, struct watch_waiter *waiter, const char *uid)
{
	*waiter = (struct watch_waiter){.uid = uid, .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
	use(watch);
	pthread_mutex_lock(&watch->lock);
	waiter->next = watch->waiters;
	watch->waiters = waiter;
	if (waiter->fd >= 0 && has_seen(&watch->news, uid))
		eventfd_write(waiter->fd, 1);
	pthread_mutex_unlock(&watch->lock);
}

void watch_unlisten(struct watch *watch, struct watch_waiter *waiter)
{
	pthread_mutex_lock(&watch->lock);
	for (struct watch_waiter **at = &watch->waiters; *at; at = &(*at)->next)
		if (*at == waiter) {
			*at = waiter->next;
			break;
		}
	pthread_mutex_unlock(&watch->lock);
	if (waiter->fd >= 0)
		close(waiter->fd);
}

int32_t watch_wait(struct watch_waiter *waiter, struct berth_call *call, int64_t until_ns, struct kerr *err)
{
	struct pollfd fds[2] = {{.fd = kube_host->cancel_fd(call), .events = POLLIN},
				{.fd = waiter->fd, .events = POLLIN}};
	int64_t deadline_ns = kube_deadline_ns(call);
	eventfd_t news;

	until_ns = until_ns < deadline_ns ? until_ns : deadline_ns;
	for (;;) {
		int32_t rc = kube_stopped(call, err);
		int64_t left = until_ns - text_boot_ns();

		if (rc || left <= 0 || (waiter->fd >= 0 && !eventfd_read(waiter->fd, &news)))
			return rc;
		left = fds[0].fd < 0 && left > 200000000 ? 200000000 : left;
		poll(fds, 2, (int)(left / 1000000) + 1);
	}
}
