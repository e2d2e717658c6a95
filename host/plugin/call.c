/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a call: bulkhead, turn, deadline, cancel, and the frame around the plugin. call_cancel enters from any
 * thread, the rest from the call's own. Holds no lock while the plugin runs.
 */
#include "plugin/call.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/limits.h"
#include "core/log.h"
#include "plugin/crash.h"
#include "plugin/private.h"

struct call *call_new(struct target *target, int64_t deadline_ns, const struct call_sink *sink)
{
	struct call *call = calloc(1, sizeof(*call));

	assert(target->magic == TARGET_MAGIC);
	if (!call)
		return NULL;
	call->results.arena = arena_new(LIMIT_CALL_ARENA);
	if (!call->results.arena) {
		free(call);
		return NULL;
	}
	call->magic = CALL_MAGIC;
	call->target = target;
	call->deadline_ns = deadline_ns;
	call->cancel_fd = -1;
	if (sink)
		call->sink = *sink;
	snprintf(call->request_id, sizeof(call->request_id), "%s", log_request() ? log_request() : "");
	snprintf(call->traceparent, sizeof(call->traceparent), "%s", log_trace());
	lock_init(&call->lock, LOCK_CALL);
	cond_init(&call->back);
	return call;
}

static void free_results(struct call_results *results)
{
	free(results->sessions);
	free(results->files);
	free(results->changes);
	if (results->arena)
		arena_free(results->arena);
	memset(results, 0, sizeof(*results));
}

void call_set_apart(struct call *call)
{
	call->apart = true;
}

void call_destroy(struct call *call)
{
	assert(call->magic == CALL_MAGIC && !call->op);
	free_results(&call->results);
	free_results(&call->before);
	if (call->args.arena)
		arena_free(call->args.arena);
	if (call->cancel_fd >= 0)
		close(call->cancel_fd);
	cond_fini(&call->back);
	lock_fini(&call->lock);
	call->magic = 0;
	free(call);
}

void call_free(struct call *call)
{
	bool orphan = false;

	if (!call)
		return;
	assert(call->magic == CALL_MAGIC);
	if (call->left) {
		lock_take(&call->lock);
		orphan = call->orphan = !call->over;
		lock_drop(&call->lock);
	}
	if (!orphan)
		call_destroy(call);
}

static int reset(struct call *call, struct err *err)
{
	if (arena_used(call->results.arena)) {
		struct arena *arena = arena_new(LIMIT_CALL_ARENA);

		if (!arena)
			return err_set(err, ERR_NOMEM, "memory is out");
		free_results(&call->before);
		call->before = call->results;
		call->results = (struct call_results){.arena = arena};
	}
	atomic_store(&call->violated, false);
	call->gone = call->returned = call->ends_apart = false;
	call->sink_ns = call->stalled_ns = 0;
	call->violation[0] = '\0';
	call->sink_code = 0;
	call->fail_code = 0;
	call->fail_retryable = 0;
	call->fail_retry_after_ms = 0;
	call->fail_reason[0] = call->fail_text[0] = '\0';
	memset(call->counts, 0, sizeof(call->counts));
	memset(&call->ending, 0, sizeof(call->ending));
	call->cursor = call->token = NULL;
	call->expiry_ms = 0;
	return 0;
}

void call_cancel(struct call *call, uint32_t state)
{
	struct target_state *ts = call->target->state;
	uint32_t now = atomic_load(&call->cancel);
	const uint64_t one = 1;

	assert(call->magic == CALL_MAGIC);
	while (now < state && !atomic_compare_exchange_weak(&call->cancel, &now, state))
		;
	lock_take(&call->lock);
	if (call->cancel_fd >= 0)
		(void)!write(call->cancel_fd, &one, sizeof(one));
	http_wake_locked(call);
	lock_drop(&call->lock);
	lock_take(&ts->lock);
	cond_wake_all(&ts->cond); /* it may be waiting its turn */
	lock_drop(&ts->lock);
}

void call_violate(struct call *call, const char *fmt, ...)
{
	const struct target *target = call->target;
	char text[sizeof(call->violation)];
	const struct op *op = call->op;
	va_list ap;

	if (atomic_exchange(&call->violated, true))
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	lock_take(&call->lock);
	snprintf(call->violation, sizeof(call->violation), "%s", text);
	lock_drop(&call->lock);
	log_error("a plugin broke a rule", KS("plugin", target->conf->provider), KS("target", target->conf->name),
		  KS("operation", op ? op->name : "none"), KS("rule", text));
}

static int stopped(struct call *call, struct err *err)
{
	uint32_t cancel = atomic_load(&call->cancel);

	if (cancel == BERTH_CANCEL_NONE)
		return 0;
	if (cancel == BERTH_CANCEL_STOP)
		err_set(err, ERR_CANCELLED, "the call was cancelled before it reached the provider");
	else
		err_set(err, ERR_DETACHED, "the call was detached before it reached the provider");
	err_reason(err, "not_sent");
	return cancel == BERTH_CANCEL_STOP ? ERR_CANCELLED : ERR_DETACHED;
}

/* ---- given up ---- */

bool call_sink_enter(struct call *call)
{
	bool there;

	lock_take(&call->lock);
	there = call->in_sink = !call->gone;
	lock_drop(&call->lock);
	return there;
}

bool call_is_late(const struct call *call)
{
	return clock_boot_ns() >= call->deadline_ns;
}

bool call_sink_enter_in_time(struct call *call)
{
	if (!call_is_late(call))
		return call_sink_enter(call);
	call->sink_code = ERR_PROVIDER_TIMEOUT;
	return false;
}

void call_sink_leave(struct call *call)
{
	lock_take(&call->lock);
	call->in_sink = false;
	call->sink_ns = clock_boot_ns();
	lock_drop(&call->lock);
}

bool call_is_gone(struct call *call)
{
	bool gone;

	lock_take(&call->lock);
	gone = call->gone;
	lock_drop(&call->lock);
	return gone;
}

bool call_given_up(struct call *call)
{
	return call->left || call_is_gone(call);
}

int call_gave_up(const struct call *call, struct err *err)
{
	err_set(err, ERR_PROVIDER_TIMEOUT, "target %s: the plugin did not come back from its call by the deadline",
		call->target->conf->name);
	err_reason(err, "provider_stuck");
	return ERR_PROVIDER_TIMEOUT;
}

static bool has_stalled(struct call *call)
{
	bool stalled;

	lock_take(&call->lock);
	stalled = call->stalled_ns != 0 && !call->gone;
	lock_drop(&call->lock);
	return stalled;
}

static int call_stalled(const struct call *call, struct err *err)
{
	err_set(err, ERR_PROVIDER_TIMEOUT, "target %s: nothing moved for %lld s", call->target->conf->name,
		(long long)(call->patience_ns / CLOCK_NS_PER_S));
	err_reason(err, "no_progress");
	return ERR_PROVIDER_TIMEOUT;
}

/* It is told to stop, as it would be by its caller. */
static void stop_it_locked(struct call *call)
{
	uint32_t none = BERTH_CANCEL_NONE;
	const uint64_t one = 1;

	atomic_compare_exchange_strong(&call->cancel, &none, BERTH_CANCEL_STOP);
	if (call->cancel_fd >= 0)
		(void)!write(call->cancel_fd, &one, sizeof(one));
	http_wake_locked(call);
}

void call_set_patience(struct call *call, int64_t ms)
{
	call->patience_ns = ms * CLOCK_NS_PER_MS;
}

static int64_t stall_locked(struct call *call, int64_t now, int64_t grace)
{
	int64_t last = call->sink_ns > call->begun_ns ? call->sink_ns : call->begun_ns;

	if (call->in_sink)
		return now + call->patience_ns;
	if (!call->stalled_ns && now - last >= call->patience_ns) {
		call->stalled_ns = now;
		stop_it_locked(call);
	}
	return call->stalled_ns ? call->stalled_ns + grace : last + call->patience_ns;
}

int64_t call_expires_locked(struct call *call, int64_t now)
{
	const int64_t grace = CALL_STUCK_AFTER_MS * CLOCK_NS_PER_MS;
	int64_t when = call->deadline_ns > INT64_MAX - grace ? INT64_MAX : call->deadline_ns + grace;
	int64_t stall;

	if (!call->patience_ns)
		return when;
	lock_take(&call->lock);
	stall = stall_locked(call, now, grace);
	lock_drop(&call->lock);
	return stall < when ? stall : when;
}

bool call_give_up_locked(struct call *call, int64_t now)
{
	bool host;

	lock_take(&call->lock);
	host = call->in_sink || now - call->sink_ns < CALL_STUCK_AFTER_MS * CLOCK_NS_PER_MS;
	if (!host && (call->apart || call->sink.stuck)) {
		call->gone = true;
		stop_it_locked(call);
		cond_wake_all(&call->back);
	}
	lock_drop(&call->lock);
	return !host;
}

int call_late(const struct target *target, const char *what, struct err *err)
{
	err_set(err, ERR_PROVIDER_TIMEOUT, "target %s: the deadline passed before %s", target->conf->name, what);
	err_reason(err, "deadline");
	return ERR_PROVIDER_TIMEOUT;
}

/* Not THREADSAFE: one call is inside at a time; the wait keeps the deadline and hears a cancel. */
static int wait_turn_locked(struct call *call, struct err *err)
{
	struct target_state *ts = call->target->state;
	int rc;

	while (ts->turn_taken) {
		rc = stopped(call, err);
		if (rc)
			return rc;
		if (ts->closing)
			return err_set(err, ERR_SHUTTING_DOWN, "target %s: is closing", call->target->conf->name);
		if (!cond_wait_until(&ts->cond, &ts->lock, call->deadline_ns) && ts->turn_taken)
			return call_late(call->target, "its turn came", err);
	}
	ts->turn_taken = true;
	return 0;
}

static void join_inside_locked(struct call *call)
{
	struct target_state *ts = call->target->state;

	call->prev = NULL;
	call->next = ts->inside;
	if (ts->inside)
		ts->inside->prev = call;
	ts->inside = call;
	call->stuck = call->telling = false;
	call->begun_ns = clock_boot_ns();
	ts->calls++;
}

static int enter_locked(struct call *call, struct err *err)
{
	const struct target *target = call->target;
	struct target_state *ts = target->state;
	int rc = 0;

	if (ts->closing)
		return err_set(err, ERR_SHUTTING_DOWN, "target %s: is closing", target->conf->name);
	if (ts->running >= (unsigned)target->conf->max_operations) {
		err_set(err, ERR_QUEUE_FULL, "target %s: %u operations run, the most it takes", target->conf->name,
			ts->running);
		err_reason(err, "target_busy");
		return ERR_QUEUE_FULL;
	}
	ts->running++;
	if (!target_can(target, BERTH_CAP_THREADSAFE))
		rc = wait_turn_locked(call, err);
	if (rc) {
		ts->running--;
		cond_wake_all(&ts->cond);
		return rc;
	}
	join_inside_locked(call);
	return 0;
}

static bool has_slot(const struct plugin *plugin, const struct op *op)
{
	void (*slot)(void);

	memcpy(&slot, (const char *)&plugin->ops + op->off, sizeof(slot));
	return slot != NULL;
}

/* While calls of its are stuck a target gets no work that may leave more of them; what is there can be put away. */
static int check_stuck(const struct target *target, const struct op *op, struct err *err)
{
	if ((op != &op_table[OP_PROVISION] && op != &op_table[OP_EXECUTE]) || !target_is_stuck(target))
		return 0;
	err_set(err, ERR_PROVIDER_UNAVAILABLE, "target %s: too many of its calls are stuck", target->conf->name);
	err_reason(err, "target_degraded");
	return ERR_PROVIDER_UNAVAILABLE;
}

static int check_able(struct call *call, const struct op *op, struct err *err)
{
	const struct target *target = call->target;
	char why[256];

	if (!target->plugin) {
		lock_take(&target->state->lock);
		snprintf(why, sizeof(why), "%s", target->state->why);
		lock_drop(&target->state->lock);
		err_set(err, ERR_PROVIDER_UNAVAILABLE, "target %s: %.200s", target->conf->name, why);
		err_reason(err, "target_degraded");
		return ERR_PROVIDER_UNAVAILABLE;
	}
	if (!target_can(target, op->capability) || !has_slot(target->plugin, op))
		return err_set(err, ERR_UNSUPPORTED, "target %s: the provider cannot %s", target->conf->name, op->name);
	return check_stuck(target, op, err);
}

int call_begin(struct call *call, enum op_kind kind, struct err *err)
{
	struct target_state *ts = call->target->state;
	const struct op *op = &op_table[kind];
	int rc;

	assert(call->magic == CALL_MAGIC && !call->op && !call->left);
	if ((rc = reset(call, err)) || (rc = check_able(call, op, err)) || (rc = stopped(call, err)) ||
	    (rc = args_keep(call, err)))
		return rc;
	if (clock_boot_ns() >= call->deadline_ns)
		return call_late(call->target, "its turn came", err);
	call->op = op;
	call->thread = pthread_self();
	lock_take(&ts->lock);
	rc = enter_locked(call, err);
	lock_drop(&ts->lock);
	if (rc) {
		call->op = NULL;
	} else if (ts->watchdog) {
		int64_t when = call->deadline_ns;

		if (when < INT64_MAX - CALL_STUCK_AFTER_MS * CLOCK_NS_PER_MS)
			watchdog_expect(ts->watchdog, when + CALL_STUCK_AFTER_MS * CLOCK_NS_PER_MS);
		if (call->patience_ns)
			watchdog_expect(ts->watchdog, call->begun_ns + call->patience_ns);
	}
	return rc;
}

static void leave_locked(struct call *call)
{
	struct target_state *ts = call->target->state;

	while (call->telling) /* the sink is there until its receiver was told */
		cond_wait_until(&ts->cond, &ts->lock, INT64_MAX);
	if (call->prev)
		call->prev->next = call->next;
	else
		ts->inside = call->next;
	if (call->next)
		call->next->prev = call->prev;
	if (call->stuck) {
		ts->stuck--;
		target_judge_locked(call->target);
		log_info("a stuck call came back", KS("plugin", call->target->conf->provider),
			 KS("target", call->target->conf->name), KS("operation", call->op->name),
			 KI("stuck", ts->stuck));
	}
	ts->running--;
	ts->turn_taken = false;
	cond_wake_all(&ts->cond);
}

#ifdef PLUGIN_GUARD_CALLS
static void check_process(const struct call *call)
{
	const struct guard *base = call->target->state->base;
	struct guard own;
	char changed[128];

	if (!base)
		return;
	own = *base;
	own.mask = call->mask;
	if (guard_restore(&own, changed, sizeof(changed)))
		log_error("a plugin changed the process; it was put back", KS("plugin", call->target->conf->provider),
			  KS("target", call->target->conf->name), KS("operation", call->op->name),
			  KS("changed", changed));
}
#endif

int call_not_run(struct call *call, struct err *err)
{
	struct target_state *ts = call->target->state;

	lock_take(&ts->lock);
	leave_locked(call);
	lock_drop(&ts->lock);
	call->op = NULL;
	err_set(err, ERR_QUEUE_FULL, "target %s: there is no thread for the call", call->target->conf->name);
	err_reason(err, "target_busy");
	return ERR_QUEUE_FULL;
}

void call_inside(struct call *call)
{
	call->thread = pthread_self();
	crash_enter(call->target->plugin->name, call->op->name, call->target->conf->name);
#ifdef PLUGIN_GUARD_CALLS
	pthread_sigmask(SIG_SETMASK, NULL, &call->mask);
#endif
}

void call_outside(struct call *call)
{
	crash_leave();
#ifdef PLUGIN_GUARD_CALLS
	check_process(call);
#endif
	(void)call;
}

/* What is not there, a file that is not as its caller thinks, and a call that the host ended itself are no failures of a target. */
static bool has_failed(const struct call *call, int32_t code, int rc)
{
	bool of_files = call->op >= &op_table[OP_FILE_READ] && call->op <= &op_table[OP_CHANGES];

	if (of_files && ((code == BERTH_INVALID && rc == ERR_PROVIDER) || rc == ERR_CONFLICT))
		return false;
	return rc != 0 && rc != ERR_NOT_FOUND && rc != ERR_CANCELLED && rc != ERR_DETACHED;
}

int call_end(struct call *call, int32_t code, struct err *err)
{
	struct target_state *ts = call->target->state;
	int rc;

	lock_take(&ts->lock);
	leave_locked(call); /* from here on it is not given up any more */
	lock_drop(&ts->lock);
	rc = call_is_gone(call) ? call_gave_up(call, err) : call_judge(call, code, err);
	if (rc != 0 && has_stalled(call))
		rc = call_stalled(call, err);
	lock_take(&ts->lock);
	ts->failures += has_failed(call, code, rc);
	lock_drop(&ts->lock);
	call->op = NULL;
	free_results(&call->before);
	return rc;
}

const struct berth_session_info *call_sessions(const struct call *call, size_t *ret_count)
{
	*ret_count = call->left ? 0 : call->results.session_count;
	return call->left ? NULL : call->results.sessions;
}

const struct berth_file_info *call_files(const struct call *call, size_t *ret_count)
{
	*ret_count = call->left ? 0 : call->results.file_count;
	return call->left ? NULL : call->results.files;
}

const struct berth_change *call_changes(const struct call *call, size_t *ret_count)
{
	*ret_count = call->left ? 0 : call->results.change_count;
	return call->left ? NULL : call->results.changes;
}

const struct berth_ending *call_ending(const struct call *call)
{
	return !call->left && call->ending.kind ? &call->ending : NULL;
}

const char *call_cursor(const struct call *call)
{
	return call->left ? NULL : call->cursor;
}

const char *call_token(const struct call *call)
{
	return call->left ? NULL : call->token;
}

int64_t call_expiry(const struct call *call)
{
	return call->left ? 0 : call->expiry_ms;
}
