/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread that notices calls which have not come back a second after their deadline. It counts and names them, and
 * has those go on that wait for one: a stuck call keeps its thread, and its slot in the bulkhead, until it returns.
 * Takes one target's lock at a time, and none while it tells a receiver.
 */
#include "plugin/private.h"

#include "core/clock.h"
#include "core/log.h"

struct watchdog {
	struct registry *registry;
	pthread_t thread;
	struct lock lock; /* LOCK_LEAF */
	struct cond cond;
	_Atomic int64_t next_ns; /* when it looks again */
	bool stop;
};

static void mark_locked(struct target *target, struct call *call)
{
	struct target_state *ts = target->state;

	call->stuck = true;
	ts->stuck++;
	log_error("a plugin's call is stuck past its deadline", KS("plugin", target->conf->provider),
		  KS("target", target->conf->name), KS("operation", call->op->name), KI("stuck", ts->stuck));
	target_judge_locked(target);
}

/* Its receiver takes locks of its own; until it has returned the call does not leave. */
static void tell_locked(struct target_state *ts, struct call *call)
{
	call->telling = true;
	lock_drop(&ts->lock);
	call->sink.stuck(call->sink.arg);
	lock_take(&ts->lock);
	call->telling = false;
	cond_wake_all(&ts->cond);
}

/* False: a receiver was told, with the lock dropped, so that the list may be another one now. *next: when to look
 * again. */
static bool look_locked(struct target *target, int64_t now, int64_t *next)
{
	struct target_state *ts = target->state;
	const int64_t grace = CALL_STUCK_AFTER_MS * CLOCK_NS_PER_MS;

	*next = INT64_MAX;
	for (struct call *call = ts->inside; call; call = call->next) {
		int64_t when;

		if (call->stuck)
			continue;
		when = call_expires_locked(call, now);
		if (when <= now && !call_give_up_locked(call, now))
			when = now + grace; /* it is in the host, or was a moment ago */
		if (when > now) {
			*next = when < *next ? when : *next;
			continue;
		}
		mark_locked(target, call);
		if (call->sink.stuck && !call->apart) {
			tell_locked(ts, call);
			return false;
		}
	}
	return true;
}

/* When the next call of the target would count as stuck. */
static int64_t look(struct target *target)
{
	int64_t next;

	lock_take(&target->state->lock);
	while (!look_locked(target, clock_boot_ns(), &next))
		continue;
	lock_drop(&target->state->lock);
	return next;
}

static void *watchdog_main(void *arg)
{
	struct watchdog *watchdog = arg;
	bool stop = false;

	while (!stop) {
		int64_t next = INT64_MAX;

		/* Before looking: a call that begins meanwhile then lowers it again. */
		atomic_store(&watchdog->next_ns, INT64_MAX);
		for (size_t i = 0; i < watchdog->registry->target_count; i++) {
			int64_t when = look(watchdog->registry->targets[i]);

			next = when < next ? when : next;
		}
		lock_take(&watchdog->lock);
		if (next < atomic_load(&watchdog->next_ns))
			atomic_store(&watchdog->next_ns, next);
		while (!watchdog->stop && atomic_load(&watchdog->next_ns) > clock_boot_ns())
			cond_wait_until(&watchdog->cond, &watchdog->lock, atomic_load(&watchdog->next_ns));
		stop = watchdog->stop;
		lock_drop(&watchdog->lock);
	}
	return NULL;
}

struct watchdog *watchdog_new(struct registry *registry)
{
	struct watchdog *watchdog = calloc(1, sizeof(*watchdog));

	if (!watchdog)
		return NULL;
	watchdog->registry = registry;
	lock_init(&watchdog->lock, LOCK_LEAF);
	cond_init(&watchdog->cond);
	if (!thread_start(&watchdog->thread, "plugin-watch", watchdog_main, watchdog))
		return watchdog;
	cond_fini(&watchdog->cond);
	lock_fini(&watchdog->lock);
	free(watchdog);
	return NULL;
}

void watchdog_expect(struct watchdog *watchdog, int64_t when_ns)
{
	if (when_ns >= atomic_load(&watchdog->next_ns))
		return;
	lock_take(&watchdog->lock);
	if (when_ns < atomic_load(&watchdog->next_ns)) {
		atomic_store(&watchdog->next_ns, when_ns);
		cond_wake_all(&watchdog->cond);
	}
	lock_drop(&watchdog->lock);
}

void watchdog_stop(struct watchdog *watchdog)
{
	lock_take(&watchdog->lock);
	watchdog->stop = true;
	cond_wake_all(&watchdog->cond);
	lock_drop(&watchdog->lock);
	pthread_join(watchdog->thread, NULL);
}

void watchdog_free(struct watchdog *watchdog)
{
	cond_fini(&watchdog->cond);
	lock_fini(&watchdog->lock);
	free(watchdog);
}
