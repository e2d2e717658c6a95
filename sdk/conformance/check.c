/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rule while it runs: its verdict, and everything it owns. Threads of the rule may fail it and allocate; init and
 * fini are the main thread's. Must leave no session behind, however the rule ended.
 */
#include "kit.h"

#include <stdarg.h>

#define BUF_MAX ((size_t)256 << 20)

/* One thing to give back. */
struct owned {
	struct owned *next;
	struct call *call; /* or NULL: memory follows */
	bool is_buf;	   /* which is a struct buf */
	max_align_t data[];
};

void check_init(struct check *check, struct kit *kit, const struct rule *rule)
{
	memset(check, 0, sizeof(*check));
	check->kit = kit;
	check->rule = rule;
	lock_init(&check->lock, LOCK_SERVER);
}

static void set_verdict(struct check *check, enum verdict verdict, const char *fmt, va_list ap)
{
	char text[KIT_TEXT_MAX];

	vsnprintf(text, sizeof(text), fmt, ap);
	lock_take(&check->lock);
	if (check->verdict == PASSED) {
		check->verdict = verdict;
		memcpy(check->message, text, sizeof(text));
	}
	lock_drop(&check->lock);
}

void check_fail(struct check *check, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	set_verdict(check, FAILED, fmt, ap);
	va_end(ap);
}

void check_skip(struct check *check, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	set_verdict(check, SKIPPED, fmt, ap);
	va_end(ap);
}

bool check_failed(struct check *check)
{
	bool failed;

	lock_take(&check->lock);
	failed = check->verdict == FAILED;
	lock_drop(&check->lock);
	return failed;
}

static struct owned *own(struct check *check, size_t size)
{
	struct owned *owned = calloc(1, sizeof(*owned) + size);

	if (!owned)
		abort(); /* the kit is a short program: without memory it has nothing to say */
	lock_take(&check->lock);
	owned->next = check->owned;
	check->owned = owned;
	lock_drop(&check->lock);
	return owned;
}

void *check_alloc(struct check *check, size_t size)
{
	return own(check, size)->data;
}

const struct berth_execution *check_execution(struct check *check, const char *id, uint32_t attempt)
{
	struct berth_execution *execution = check_alloc(check, sizeof(*execution));

	*execution = (struct berth_execution){
		.struct_size = sizeof(*execution), .attempt = attempt, .id = {.ptr = id, .len = strlen(id)}};
	return execution;
}

char *check_printf(struct check *check, const char *fmt, ...)
{
	va_list ap, again;
	char *text;
	int len;

	va_start(ap, fmt);
	va_copy(again, ap);
	len = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	text = check_alloc(check, (size_t)len + 1);
	vsnprintf(text, (size_t)len + 1, fmt, again);
	va_end(again);
	return text;
}

struct buf *check_buf(struct check *check)
{
	struct owned *owned = own(check, sizeof(struct buf));
	struct buf *buf = (struct buf *)(void *)owned->data;

	buf_init(buf, BUF_MAX);
	owned->is_buf = true;
	return buf;
}

struct call *check_call_ms(struct check *check, int64_t ms, const struct call_sink *sink)
{
	struct call *call = call_new(check->kit->target, clock_after_ms(ms), sink);

	if (!call)
		abort();
	own(check, 0)->call = call;
	return call;
}

struct call *check_call(struct check *check)
{
	return check_call_ms(check, kit_ms(check->kit, 30000), NULL);
}

struct crowd {
	struct check *check;
	void (*fn)(struct check *check, void *arg, unsigned i);
	void *arg;
	pthread_barrier_t barrier;
	_Atomic unsigned next;
};

static void *crowd_main(void *arg)
{
	struct crowd *crowd = arg;
	unsigned i = crowd->next++;

	pthread_barrier_wait(&crowd->barrier);
	crowd->fn(crowd->check, crowd->arg, i);
	return NULL;
}

void check_threads(struct check *check, unsigned count, void (*fn)(struct check *check, void *arg, unsigned i),
		   void *arg)
{
	struct crowd crowd = {.check = check, .fn = fn, .arg = arg};
	pthread_t *threads = check_alloc(check, count * sizeof(*threads));

	pthread_barrier_init(&crowd.barrier, NULL, count);
	for (unsigned i = 0; i < count; i++)
		if (thread_start(&threads[i], "crowd", crowd_main, &crowd))
			abort();
	for (unsigned i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&crowd.barrier);
}

/* A rule that leaves a session which cannot be released has found something, too. */
static void release_all(struct check *check)
{
	struct session *session = check->sessions, *next;
	struct err err = {0};

	for (; session; session = next) {
		next = session->next;
		if (session->ref[0] && !session->gone && session_release(check->kit, session, &err))
			check_fail(check, "its session %s cannot be released: %s", session->ref, err.msg);
		free(session);
	}
}

void check_fini(struct check *check)
{
	struct owned *owned, *next;
	bool stuck = false;

	for (struct run *run = check->runs; run; run = run->next) {
		run_end(run);
		stuck = stuck || !run->done;
	}
	release_all(check);
	if (stuck) { /* its thread still uses what it was given */
		check->kit->stuck = true;
		check_fail(check, "a call did not come back long after its deadline");
		return;
	}
	for (struct run *run = check->runs, *after; run; run = after) {
		after = run->next;
		run_free(run);
	}
	for (owned = check->owned; owned; owned = next) {
		next = owned->next;
		call_free(owned->call);
		if (owned->is_buf)
			buf_fini((struct buf *)(void *)owned->data);
		free(owned);
	}
	if (check->verdict == FAILED)
		session_drop_shared(check->kit);
	lock_fini(&check->lock);
}
