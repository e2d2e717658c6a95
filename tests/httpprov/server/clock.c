/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clock's thread: ends timers when their time comes, and says something on streams that were silent for long, by
 * which a client that left is noticed. A timer is a command without a process or a thread, so that many thousand may
 * run at once; it is kept until its session is released. One lock over all, taken before a request's.
 */
#include "server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BUCKETS 16384u
#define LOOK_MS 50
#define ALIVE_LEAST 64 /* streams that may be kept alive in one look, however few there are */
#define OUT_MOST 60000u

struct viewer {
	struct viewer *next;
	struct req *req;
};

struct timer {
	struct timer *next;		     /* of its bucket */
	struct timer *same_next, *same_prev; /* of the same session's bucket */
	char *ref, *id;
	uint32_t attempt, poison; /* attempt 0: it has not started */
	struct timer_spec spec;
	int64_t begin_ns, end_ns;
	size_t heap_at; /* 0: not in it */
	bool ended;
	struct berth_ending ending;
	struct viewer *viewers;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	pthread_t thread;
	bool running, stop;
	struct timer *buckets[BUCKETS], *sessions[BUCKETS];
	struct timer **heap; /* from 1 */
	size_t heap_len, heap_cap;
	uint64_t known;
	struct req *streams;
} at = {.lock = PTHREAD_MUTEX_INITIALIZER};

static unsigned hash(const char *a, const char *b)
{
	unsigned h = 2166136261u;

	for (; *a; a++)
		h = (h ^ (unsigned char)*a) * 16777619u;
	for (; *b; b++)
		h = (h ^ (unsigned char)*b) * 16777619u;
	return h % BUCKETS;
}

/* ---- heap, by end_ns ---- */

static void heap_place(struct timer *timer, size_t i)
{
	at.heap[i] = timer;
	timer->heap_at = i;
}

static void heap_sift(struct timer *timer, size_t i)
{
	while (i > 1 && at.heap[i / 2]->end_ns > timer->end_ns) {
		heap_place(at.heap[i / 2], i);
		i /= 2;
	}
	for (;;) {
		size_t child = 2 * i;

		if (child < at.heap_len && at.heap[child + 1]->end_ns < at.heap[child]->end_ns)
			child++;
		if (child > at.heap_len || at.heap[child]->end_ns >= timer->end_ns)
			break;
		heap_place(at.heap[child], i);
		i = child;
	}
	heap_place(timer, i);
}

static bool heap_add(struct timer *timer)
{
	if (at.heap_len + 2 > at.heap_cap) {
		size_t cap = at.heap_cap ? 2 * at.heap_cap : 1024;
		struct timer **grown = realloc(at.heap, cap * sizeof(*grown));

		if (!grown)
			return false;
		at.heap = grown;
		at.heap_cap = cap;
	}
	heap_sift(timer, ++at.heap_len);
	return true;
}

static void heap_remove(struct timer *timer)
{
	size_t i = timer->heap_at;
	struct timer *last = at.heap[at.heap_len--];

	timer->heap_at = 0;
	if (last != timer)
		heap_sift(last, i);
}

/* ---- viewers ---- */

static void send_ending(struct req *req, const struct berth_ending *ending)
{
	struct json_object *json = json_object_new_object();
	const char *text;

	command_ending(json, ending);
	text = json_object_to_json_string_ext(json, JSON_C_TO_STRING_PLAIN);
	req_frame_now(req, WIRE_ENDING, text, strlen(text));
	json_object_put(json);
	req_end(req);
}

static void unwatch_locked(struct req *req)
{
	if (at.streams != req && !req->prev)
		return;
	if (req->prev)
		req->prev->next = req->next;
	else
		at.streams = req->next;
	if (req->next)
		req->next->prev = req->prev;
	req->prev = req->next = NULL;
}

static void watch_locked(struct req *req)
{
	req->next = at.streams;
	if (at.streams)
		at.streams->prev = req;
	at.streams = req;
}

static void drop_viewers(struct timer *timer)
{
	struct viewer *next;

	for (struct viewer *viewer = timer->viewers; viewer; viewer = next) {
		next = viewer->next;
		unwatch_locked(viewer->req);
		req_unref(viewer->req);
		free(viewer);
	}
	timer->viewers = NULL;
}

static void end_timer(struct timer *timer, uint32_t kind, int number)
{
	if (timer->heap_at)
		heap_remove(timer);
	timer->ended = true;
	timer->ending.struct_size = sizeof(timer->ending);
	timer->ending.kind = kind;
	timer->ending.exit_code = kind == BERTH_ENDING_EXIT ? number : 0;
	timer->ending.signal = kind == BERTH_ENDING_SIGNAL ? number : 0;
	timer->ending.quiescent = BERTH_QUIESCENT_YES;
	timer->ending.duration_ms = (now_ns() - timer->begin_ns) / 1000000;
	for (struct viewer *viewer = timer->viewers; viewer; viewer = viewer->next)
		send_ending(viewer->req, &timer->ending);
	drop_viewers(timer);
}

/* ---- table ---- */

static struct timer *find(const char *ref, const char *id)
{
	struct timer *timer = at.buckets[hash(ref, id)];

	while (timer && (strcmp(timer->ref, ref) != 0 || strcmp(timer->id, id) != 0))
		timer = timer->next;
	return timer;
}

static void free_timer(struct timer *timer)
{
	free(timer->ref);
	free(timer->id);
	free(timer);
}

static struct timer *find_or_add(const char *ref, const char *id)
{
	struct timer *timer = find(ref, id), **bucket = &at.buckets[hash(ref, id)],
		     **same = &at.sessions[hash(ref, "")];

	if (timer)
		return timer;
	timer = calloc(1, sizeof(*timer));
	if (!timer)
		return NULL;
	timer->ref = strdup(ref);
	timer->id = strdup(id);
	if (!timer->ref || !timer->id) {
		free_timer(timer);
		return NULL;
	}
	timer->next = *bucket;
	*bucket = timer;
	timer->same_next = *same;
	if (*same)
		(*same)->same_prev = timer;
	*same = timer;
	at.known++;
	return timer;
}

static void remove_timer(struct timer *timer)
{
	struct timer **bucket = &at.buckets[hash(timer->ref, timer->id)];

	while (*bucket != timer)
		bucket = &(*bucket)->next;
	*bucket = timer->next;
	if (timer->same_prev)
		timer->same_prev->same_next = timer->same_next;
	else
		at.sessions[hash(timer->ref, "")] = timer->same_next;
	if (timer->same_next)
		timer->same_next->same_prev = timer->same_prev;
	at.known--;
	free_timer(timer);
}

/* ---- for the routes ---- */

static int64_t left_ms(int64_t until_unix_ms)
{
	struct timespec now;
	int64_t left;

	clock_gettime(CLOCK_REALTIME, &now);
	left = until_unix_ms - (now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000);
	return left > 0 ? left : 0;
}

bool timer_parse(struct berth_str script, struct timer_spec *ret)
{
	char line[128];
	size_t len = 0;
	long long ms = -1, code = 0, out = 0;
	char *word, *rest = line;

	while (len < script.len && script.ptr[len] != '\n')
		len++;
	if (len < 6 || len >= sizeof(line) || memcmp(script.ptr, "#timer", 6) != 0)
		return false;
	memcpy(line, script.ptr, len);
	line[len] = '\0';
	strtok_r(rest, " ", &rest);
	while ((word = strtok_r(rest, " ", &rest))) {
		if (!strncmp(word, "ms=", 3))
			ms = strtoll(word + 3, NULL, 10);
		else if (!strncmp(word, "until=", 6))
			ms = left_ms(strtoll(word + 6, NULL, 10));
		else if (!strncmp(word, "exit=", 5))
			code = strtoll(word + 5, NULL, 10);
		else if (!strncmp(word, "out=", 4))
			out = strtoll(word + 4, NULL, 10);
		else
			return false;
	}
	*ret = (struct timer_spec){.ms = ms, .exit_code = (int)code, .out = (uint64_t)out};
	return ms >= 0 && ms < INT64_C(1) << 40 && code >= 0 && code <= 255 && out >= 0 && out <= OUT_MOST;
}

static void send_output(struct req *req, const struct timer *timer, uint64_t offset)
{
	char text[OUT_MOST];
	uint64_t kept = timer->spec.out < timer->spec.out_max ? timer->spec.out : timer->spec.out_max;

	if (offset >= kept)
		return;
	memset(text, 'x', (size_t)(kept - offset));
	req_frame_now(req, WIRE_STDOUT, text, (size_t)(kept - offset));
}

static bool view(struct timer *timer, struct req *req, uint64_t offset)
{
	struct viewer *viewer = malloc(sizeof(*viewer));

	if (!viewer)
		return false;
	req_head(req, 200, "application/octet-stream");
	req_frame_now(req, WIRE_STARTED, "timer", 5);
	send_output(req, timer, offset);
	if (timer->ended) {
		free(viewer);
		send_ending(req, &timer->ending);
		return true;
	}
	req_ref(req);
	*viewer = (struct viewer){timer->viewers, req};
	timer->viewers = viewer;
	watch_locked(req);
	return true;
}

static int32_t begin_locked(struct req *req, const struct timer_spec *spec, uint32_t attempt)
{
	struct timer *timer = find_or_add(req->ref, req->id);
	int64_t ms = spec->ms < spec->timeout_ms ? spec->ms : spec->timeout_ms;

	if (!timer)
		return BERTH_UNAVAILABLE;
	if (timer->attempt || attempt <= timer->poison)
		return BERTH_CONFLICT;
	timer->spec = *spec;
	timer->begin_ns = now_ns();
	timer->end_ns = timer->begin_ns + ms * 1000000;
	timer->ending.stdout_dropped = spec->out > spec->out_max ? spec->out - spec->out_max : 0;
	if (!heap_add(timer))
		return BERTH_UNAVAILABLE;
	timer->attempt = attempt;
	if (!view(timer, req, 0))
		return BERTH_UNAVAILABLE;
	if (at.heap[1] == timer)
		pthread_cond_signal(&at.cond);
	return BERTH_OK;
}

int32_t timer_begin(struct req *req, const struct timer_spec *spec, uint32_t attempt)
{
	int32_t rc;

	pthread_mutex_lock(&at.lock);
	rc = begin_locked(req, spec, attempt);
	pthread_mutex_unlock(&at.lock);
	return rc;
}

int32_t timer_resume(struct req *req, uint32_t attempt, uint64_t offset)
{
	struct timer *timer;
	int32_t rc = BERTH_NOT_FOUND;

	pthread_mutex_lock(&at.lock);
	timer = find_or_add(req->ref, req->id);
	if (timer && timer->attempt)
		rc = view(timer, req, offset) ? BERTH_OK : BERTH_UNAVAILABLE;
	else if (timer && timer->poison < attempt)
		timer->poison = attempt;
	pthread_mutex_unlock(&at.lock);
	return rc;
}

int32_t timer_signal(struct req *req, bool kill)
{
	struct timer *timer;
	int32_t rc = BERTH_NOT_FOUND;

	pthread_mutex_lock(&at.lock);
	timer = find(req->ref, req->id);
	if (timer && timer->attempt && !timer->ended) {
		end_timer(timer, kill ? BERTH_ENDING_SIGNAL : BERTH_ENDING_CANCELLED, kill ? 9 : 0);
		rc = BERTH_OK;
	}
	pthread_mutex_unlock(&at.lock);
	return rc;
}

int32_t timer_forget(struct req *req)
{
	struct timer *timer;
	int32_t rc = BERTH_NOT_FOUND;

	pthread_mutex_lock(&at.lock);
	timer = find(req->ref, req->id);
	if (timer && timer->attempt)
		rc = timer->ended ? BERTH_OK : BERTH_CONFLICT;
	pthread_mutex_unlock(&at.lock);
	return rc;
}

void timer_release(const char *ref)
{
	struct timer *timer, *next;

	pthread_mutex_lock(&at.lock);
	for (timer = at.sessions[hash(ref, "")]; timer; timer = next) {
		next = timer->same_next;
		if (strcmp(timer->ref, ref) != 0)
			continue;
		if (timer->attempt && !timer->ended)
			end_timer(timer, BERTH_ENDING_SESSION_LOST, 0);
		remove_timer(timer);
	}
	pthread_mutex_unlock(&at.lock);
}

void timer_counts(uint64_t *ret_known, uint64_t *ret_running)
{
	pthread_mutex_lock(&at.lock);
	*ret_known = at.known;
	*ret_running = at.heap_len;
	pthread_mutex_unlock(&at.lock);
}

void clock_watch(struct req *req)
{
	pthread_mutex_lock(&at.lock);
	watch_locked(req);
	pthread_mutex_unlock(&at.lock);
}

void clock_unwatch(struct req *req)
{
	pthread_mutex_lock(&at.lock);
	unwatch_locked(req);
	pthread_mutex_unlock(&at.lock);
}

/* ---- the thread ---- */

/* Not all at once where thousands began together: whoever reads them would be busy with that for a while. `most` is twice what
 * comes due in one look. Returns it for the next one. */
static int64_t keep_alive(int64_t now, int64_t most)
{
	int64_t streams = 0, said = 0;

	for (struct req *req = at.streams; req; req = req->next, streams++) {
		bool silent;

		pthread_mutex_lock(&req->lock);
		silent = req->status && !req->out_end && now - req->wrote_ns > options.keepalive_ms * 1000000;
		pthread_mutex_unlock(&req->lock);
		if (silent && said++ < most)
			req_frame_now(req, WIRE_ALIVE, "", 0);
	}
	return ALIVE_LEAST + 2 * streams * LOOK_MS / options.keepalive_ms;
}

static void end_due(int64_t now)
{
	while (at.heap_len && at.heap[1]->end_ns <= now) {
		struct timer *timer = at.heap[1];
		bool late = timer->spec.ms > timer->spec.timeout_ms;

		end_timer(timer, late ? BERTH_ENDING_TIMEOUT : BERTH_ENDING_EXIT, timer->spec.exit_code);
	}
}

static void *clock_main(void *arg)
{
	int64_t look_ns = 0, most = ALIVE_LEAST;

	(void)arg;
	pthread_mutex_lock(&at.lock);
	while (!at.stop) {
		int64_t now = now_ns(), until;
		struct timespec ts;

		end_due(now);
		if (now >= look_ns) {
			most = keep_alive(now, most);
			look_ns = now + LOOK_MS * INT64_C(1000000);
		}
		until = at.heap_len && at.heap[1]->end_ns < look_ns ? at.heap[1]->end_ns : look_ns;
		clock_gettime(CLOCK_MONOTONIC, &ts);
		until = ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec + (until > now ? until - now : 0);
		ts.tv_sec = until / 1000000000;
		ts.tv_nsec = until % 1000000000;
		pthread_cond_timedwait(&at.cond, &at.lock, &ts);
	}
	pthread_mutex_unlock(&at.lock);
	return NULL;
}

bool clock_start(void)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&at.cond, &attr);
	pthread_condattr_destroy(&attr);
	at.running = !pthread_create(&at.thread, NULL, clock_main, NULL);
	return at.running;
}

void clock_stop(void)
{
	if (!at.running)
		return;
	pthread_mutex_lock(&at.lock);
	at.stop = true;
	pthread_cond_signal(&at.cond);
	pthread_mutex_unlock(&at.lock);
	pthread_join(at.thread, NULL);
	for (unsigned i = 0; i < BUCKETS; i++)
		while (at.sessions[i]) {
			struct timer *timer = at.sessions[i];

			drop_viewers(timer);
			remove_timer(timer);
		}
	free(at.heap);
}
