/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state machine of a binding: the transition table and the events of operations (begin, end, renew). Pure functions of a
 * row, a time and arguments; they run inside store steps, on any thread, and may run again from the start. Never anything
 * here that waits, logs, draws a random number or calls a provider.
 */
#include "session/binding.h"

#include <assert.h>
#include <string.h>

#include "core/clock.h"
#include "session/binding_private.h"

#define TO(state) (1u << BINDING_##state)
static const unsigned transitions[BINDING_STATE_COUNT] = {
	[BINDING_GONE] = TO(PROVISIONING) | TO(RELEASING) | TO(LIVE),
	[BINDING_PROVISIONING] = TO(HYDRATING) | TO(LIVE) | TO(RELEASING) | TO(GONE) | TO(CONDEMNED),
	[BINDING_HYDRATING] = TO(LIVE) | TO(RELEASING) | TO(CONDEMNED),
	[BINDING_LIVE] = TO(CAPTURING) | TO(RELEASING) | TO(QUARANTINED),
	[BINDING_CAPTURING] = TO(LIVE) | TO(RELEASING),
	[BINDING_CONDEMNED] = TO(RELEASING),
	[BINDING_QUARANTINED] = TO(RELEASING),
	[BINDING_RELEASING] = TO(GONE),
};

bool binding_may_move(enum binding_state from, enum binding_state to)
{
	return transitions[from] & (1u << to);
}

void binding_move(struct binding *b, enum binding_state to, enum binding_cause cause, int64_t now)
{
	assert(binding_may_move(b->state, to));
	b->state = to;
	b->state_word = binding_state_word(to);
	b->cause = cause;
	b->cause_word = binding_cause_word(cause);
	b->updated_ms = now;
}

int64_t binding_after(int64_t a, int64_t ms)
{
	return ms > INT64_MAX - a ? INT64_MAX : a + ms;
}

int64_t binding_backoff(int64_t tries, int64_t first_ms, int64_t most_ms, uint64_t salt)
{
	int64_t wait = first_ms;

	for (int64_t i = 1; i < tries && wait < most_ms; i++)
		wait = binding_after(wait, wait);
	wait = binding_max(binding_min(wait, most_ms), 1);
	/* Rows that failed together must not come back together; the salt differs per row and try, and a step draws no lots. */
	return wait - (clock_spread_ms(wait, salt) - wait);
}

void binding_set_doom(struct binding *b, enum binding_cause doom)
{
	/* The strongest reason stays: unproven quiescence decides about quarantine. */
	static const unsigned char strength[CAUSE_COUNT] = {
		[CAUSE_CEILING] = 1, [CAUSE_TEARDOWN] = 2, [CAUSE_QUIESCENCE] = 3};

	if (strength[doom] > strength[b->doom]) {
		b->doom = doom;
		b->doom_word = binding_cause_word(doom);
	}
}

static void clear_doom(struct binding *b)
{
	b->doom = CAUSE_NONE;
	b->doom_word = binding_cause_word(CAUSE_NONE);
}

void binding_own(struct binding *b, const char *host, int64_t until_ms, int64_t fence)
{
	assert(fence > b->fence);
	b->owner = host;
	b->owner_until_ms = until_ms;
	b->fence = fence;
}

void binding_disown(struct binding *b)
{
	b->owner = "";
	b->owner_until_ms = 0;
}

/* ---- operations ---- */

struct binding_op *binding_find_op(const struct binding *b, const char *op_id)
{
	for (size_t i = 0; i < b->op_count; i++) {
		if (strcmp(b->ops[i].id, op_id) == 0)
			return &b->ops[i];
	}
	return NULL;
}

size_t binding_active_ops(const struct binding *b)
{
	size_t count = 0;

	for (size_t i = 0; i < b->op_count; i++)
		count += !b->ops[i].waiting;
	return count;
}

void binding_drop_op(struct binding *b, struct binding_op *op)
{
	size_t i = (size_t)(op - b->ops);

	memmove(op, op + 1, (b->op_count - i - 1) * sizeof(*op));
	b->op_count--;
}

static int add_op(struct arena *a, struct binding *b, int64_t now, const struct binding_rules *r,
		  const struct binding_begin *in, struct err *err)
{
	struct binding_op *ops = arena_alloc(a, (b->op_count + 1) * sizeof(*ops));

	if (!ops)
		return err_set(err, ERR_NOMEM, "binding: no memory is left for an operation");
	if (b->op_count)
		memcpy(ops, b->ops, b->op_count * sizeof(*ops));
	ops[b->op_count] = (struct binding_op){
		.id = in->op_id,
		.kind = in->op_kind,
		.host = in->host,
		.until_ms = binding_after(now, r->op_ttl_ms),
		.lasts_ms = in->lasts_ms,
		.waiting = true,
	};
	b->ops = ops;
	b->op_count++;
	return 0;
}

static void extend_lease(struct binding *b, int64_t now, const struct binding_rules *r)
{
	int64_t until = binding_min(binding_after(now, r->active_ms), b->ceiling_ms);

	b->active = true;
	b->lease_until_ms = binding_max(b->lease_until_ms, until);
}

static void activate(struct binding *b, struct binding_op *op, int64_t now, const struct binding_rules *r)
{
	op->waiting = false;
	op->until_ms = binding_max(op->until_ms, binding_after(now, r->op_ttl_ms));
	op->ends_ms = binding_after(now, op->lasts_ms);
	extend_lease(b, now, r);
}

static bool fits(const struct binding *b, int64_t now, int64_t lasts_ms)
{
	return now < b->ceiling_ms && lasts_ms <= b->ceiling_ms - now;
}

/* The provider grants less than the operation needs, so that the next session would not do either; but a warm one's time ran
 * before its task came. */
static bool never_fits(const struct binding *b, const struct binding_rules *r, int64_t lasts_ms)
{
	bool by_provider = !*b->warm && b->provider_expires_ms && b->ceiling_ms == b->provider_expires_ms - r->expiry_margin_ms;

	return by_provider && (b->ceiling_ms <= b->live_ms || lasts_ms > b->ceiling_ms - b->live_ms);
}

static void activate_waiting(struct binding *b, int64_t now, const struct binding_rules *r)
{
	size_t active = binding_active_ops(b);

	for (size_t i = 0; i < b->op_count && active < r->concurrency && b->doom == CAUSE_NONE;) {
		struct binding_op *op = &b->ops[i];

		if (!op->waiting) {
			i++;
		} else if (fits(b, now, op->lasts_ms)) {
			activate(b, op, now, r);
			active++;
			i++;
		} else if (never_fits(b, r, op->lasts_ms)) {
			binding_drop_op(b, op); /* its next begin tells why */
		} else {
			binding_set_doom(b, CAUSE_CEILING);
		}
	}
}

void binding_set_idle(struct binding *b, int64_t now, const struct binding_rules *r)
{
	b->active = false;
	b->lease_until_ms = binding_min(binding_after(now, r->idle_ms), b->ceiling_ms);
}

void binding_to_releasing(struct binding *b, enum binding_cause cause, int64_t now)
{
	binding_move(b, BINDING_RELEASING, cause, now);
	binding_disown(b);
	b->op_count = 0;
	b->active = false;
	b->lease_until_ms = 0;
	b->release_tries = 0;
	b->release_next_ms = now;
	b->release_error = "";
}

static void end_doomed(struct binding *b, int64_t now)
{
	if (b->doom != CAUSE_QUIESCENCE) {
		binding_to_releasing(b, b->doom, now);
		return;
	}
	binding_move(b, BINDING_QUARANTINED, CAUSE_QUIESCENCE, now);
	b->op_count = 0;
	b->active = false;
	b->lease_until_ms = 0;
}

void binding_settle(struct binding *b, int64_t now, const struct binding_rules *r)
{
	if (b->state != BINDING_LIVE)
		return;
	activate_waiting(b, now, r);
	if (binding_active_ops(b))
		return;
	if (b->doom != CAUSE_NONE)
		end_doomed(b, now);
	else if (b->active && r->idle_ms == 0)
		binding_to_releasing(b, CAUSE_EXPIRED, now);
	else if (b->active)
		binding_set_idle(b, now, r);
}

/* ---- begin ---- */

static int answer_failure(const struct binding *b, int64_t now, struct err *err)
{
	err_set(err, err_from_name(b->fail_code), "%s", b->fail_message);
	err_reason(err, b->fail_reason);
	if (err && b->fail_until_ms > now)
		err->retry_after_ms = b->fail_until_ms - now;
	return err_from_name(b->fail_code);
}

static bool waited_for_failure(const struct binding *b, const struct binding_begin *in)
{
	return in->seen_fence && in->seen_fence == b->fail_fence;
}

static int check_region(const struct binding *b, const struct binding_begin *in, struct err *err)
{
	if (!in->region || !*in->region || strcmp(in->region, b->region) == 0)
		return 0;
	return err_set(err, ERR_REGION_CONFLICT, "the task's session is in region \"%s\", not \"%s\"", b->region,
		       in->region);
}

static int refuse_life(const struct binding_rules *r, struct err *err)
{
	return err_set(err, ERR_SESSION_LIFE, "the operation may take longer than a session lives (%lld s)",
		       (long long)(r->max_age_ms / 1000));
}

static void start_incarnation(struct binding *b, int64_t now, const struct binding_rules *r,
			      const struct binding_begin *in)
{
	binding_move(b, BINDING_PROVISIONING, CAUSE_NONE, now);
	clear_doom(b);
	binding_own(b, in->host, binding_after(now, r->owner_ttl_ms), (int64_t)in->fence);
	b->incarnation = (int64_t)in->incarnation;
	b->target = in->target;
	b->region = in->target_region ? in->target_region : "";
	b->intent = in->intent;
	b->create_until_ms = 0;
	b->settle_ms = in->settle_ms;
	b->superseded_count = b->stray_count = b->op_count = 0;
	b->warm = in->warm ? in->warm : "";
	b->phase = b->ref = b->sealed_state = b->boot_id = b->root = b->isolation = "";
	b->created_ms = b->provider_expires_ms = b->live_ms = b->ceiling_ms = 0;
	b->active = false;
	b->lease_until_ms = b->teardown_ms = 0;
	b->release_tries = b->release_next_ms = 0;
	b->release_error = "";
}

static int begin_gone(struct arena *a, struct binding *b, int64_t now, const struct binding_rules *r,
		      const struct binding_begin *in, enum begin_outcome *ret, bool *changed, struct err *err)
{
	int code;

	if (waited_for_failure(b, in) || b->fail_until_ms > now)
		return answer_failure(b, now, err);
	if (!in->target) {
		if (err)
			*err = *in->place_err;
		return in->place_err->code;
	}
	start_incarnation(b, now, r, in);
	code = add_op(a, b, now, r, in, err);
	*changed = true;
	*ret = BEGIN_PROVISION;
	return code;
}

/* Whoever begins an operation renews it from now on: one that a former host registered, or that its publish activated, would
 * otherwise be lost at the first renewal. */
static void take_op(struct binding_op *op, int64_t now, const struct binding_rules *r, const struct binding_begin *in,
		    bool *changed)
{
	if (strcmp(op->host, in->host) == 0)
		return;
	op->host = in->host;
	op->until_ms = binding_max(op->until_ms, binding_after(now, r->op_ttl_ms));
	*changed = true;
}

/* Takes the operation in as a waiting one, unless it is there. */
static int wait_registered(struct arena *a, struct binding *b, int64_t now, const struct binding_rules *r,
			   const struct binding_begin *in, bool *changed, struct err *err)
{
	struct binding_op *op = binding_find_op(b, in->op_id);
	int code;

	if (op) {
		take_op(op, now, r, in, changed);
		return 0;
	}
	if (b->op_count - binding_active_ops(b) >= r->waiting_max) {
		err_set(err, ERR_SESSION_BUSY, "too many operations wait for this task's session");
		err_reason(err, "waiting_max");
		return ERR_SESSION_BUSY;
	}
	code = add_op(a, b, now, r, in, err);
	*changed = code == 0;
	return code;
}

static int begin_pending(struct arena *a, struct binding *b, int64_t now, const struct binding_rules *r,
			 const struct binding_begin *in, enum begin_outcome *ret, bool *changed, struct err *err)
{
	int code = check_region(b, in, err);

	if (code)
		return code;
	/* The very step that made this row, run again after its outcome was not known. */
	if (*in->intent && strcmp(b->intent, in->intent) == 0 && strcmp(b->owner, in->host) == 0) {
		*ret = BEGIN_PROVISION;
		return 0;
	}
	return wait_registered(a, b, now, r, in, changed, err);
}

/* The session would end before the operation does: this one is rotated, unless the next would not do either. */
static int begin_rotate(struct binding *b, int64_t now, const struct binding_rules *r, const struct binding_begin *in,
			bool *changed, struct err *err)
{
	if (never_fits(b, r, in->lasts_ms))
		return err_set(err, ERR_SESSION_LIFE,
			       "the operation may take longer than the provider lets a session live");
	binding_set_doom(b, CAUSE_CEILING);
	if (binding_active_ops(b) == 0)
		end_doomed(b, now);
	*changed = true;
	return 0;
}

static int begin_live(struct arena *a, struct binding *b, int64_t now, const struct binding_rules *r,
		      const struct binding_begin *in, enum begin_outcome *ret, bool *changed, struct err *err)
{
	struct binding_op *op = binding_find_op(b, in->op_id);
	int code = 0;

	if (op && !op->waiting) {
		take_op(op, now, r, in, changed);
		*ret = BEGIN_LIVE;
		return 0;
	}
	code = check_region(b, in, err);
	if (code || b->doom != CAUSE_NONE)
		return code;
	if (!fits(b, now, in->lasts_ms))
		return begin_rotate(b, now, r, in, changed, err);
	code = wait_registered(a, b, now, r, in, changed, err);
	op = binding_find_op(b, in->op_id);
	if (code || binding_active_ops(b) >= r->concurrency)
		return code;
	activate(b, op, now, r);
	*changed = true;
	*ret = BEGIN_LIVE;
	return 0;
}

int binding_begin(struct arena *a, struct binding *b, int64_t now, const struct binding_rules *r,
		  const struct binding_begin *in, enum begin_outcome *ret, int64_t *ret_retry_at, bool *changed,
		  struct err *err)
{
	*ret = BEGIN_WAIT;
	*ret_retry_at = binding_after(now, r->op_ttl_ms); /* a backstop; a change of the row is told */
	if (in->lasts_ms > r->max_age_ms)
		return refuse_life(r, err);
	if (b->state == BINDING_CAPTURING && b->cause == CAUSE_EXPIRED && check_region(b, in, err) == 0) {
		binding_move(b, BINDING_LIVE, CAUSE_NONE, now);
		binding_disown(b);
		*changed = true;
	}
	switch (b->state) {
	case BINDING_GONE:
		return begin_gone(a, b, now, r, in, ret, changed, err);
	case BINDING_PROVISIONING:
	case BINDING_HYDRATING:
		return begin_pending(a, b, now, r, in, ret, changed, err);
	case BINDING_LIVE:
		return begin_live(a, b, now, r, in, ret, changed, err);
	case BINDING_CAPTURING:
		if (b->cause == CAUSE_EXPIRED)
			return check_region(b, in, err);
		break;
	default:
		break;
	}
	return waited_for_failure(b, in) ? answer_failure(b, now, err) : 0;
}

/* ---- end and renew ---- */

void binding_end(struct binding *b, int64_t now, const struct binding_rules *r, const char *op_id, bool proven, bool lost,
		 bool *changed)
{
	struct binding_op *op = binding_find_op(b, op_id);
	bool held;

	if (!op)
		return;
	*changed = true;
	held = !op->waiting && b->state == BINDING_LIVE;
	binding_drop_op(b, op);
	if (!held)
		return;
	if (lost) {
		binding_to_releasing(b, CAUSE_LOST, now);
		return;
	}
	if (!proven)
		binding_set_doom(b, CAUSE_QUIESCENCE);
	binding_settle(b, now, r);
}

bool binding_renew(struct binding *b, int64_t now, const struct binding_rules *r, const char *op_id, const char *host)
{
	struct binding_op *op = binding_find_op(b, op_id);

	if (!op || strcmp(op->host, host) != 0)
		return false;
	op->until_ms = binding_max(op->until_ms, binding_after(now, r->op_ttl_ms));
	if (!op->waiting && b->state == BINDING_LIVE)
		extend_lease(b, now, r);
	return true;
}

bool binding_op_moved(const struct binding *b, const char *op_id, const char *host)
{
	const struct binding_op *op = binding_find_op(b, op_id);

	return op && !op->waiting && strcmp(op->host, host) != 0;
}

bool binding_resume(struct binding *b, int64_t now, const struct binding_rules *r, const char *op_id, const char *host)
{
	struct binding_op *op = binding_find_op(b, op_id);

	if (!op || op->waiting || b->state != BINDING_LIVE)
		return false;
	op->host = host;
	return binding_renew(b, now, r, op_id, host);
}

bool binding_renew_owner(struct binding *b, int64_t now, const struct binding_rules *r, int64_t fence, const char *host)
{
	if (b->fence != fence || !*b->owner || strcmp(b->owner, host) != 0)
		return false;
	b->owner_until_ms = binding_max(b->owner_until_ms, binding_after(now, r->owner_ttl_ms));
	return true;
}
