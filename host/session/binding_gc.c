/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ends a session: teardown, expiry, ceiling, dead holders, and the release until it is confirmed. Pure, any thread. A
 * running operation of a living host is ended only by the ceiling or a forced teardown, and a row leaves "releasing" only by
 * a confirmed release.
 */
#include "session/binding.h"

#include <string.h>

#include "session/binding_private.h"

#define RELEASE_FIRST_MS 1000

/* ---- teardown ---- */

/* The owner's fence is old from here on; who waited for it is told why nothing came of it. */
static void condemn(struct binding *b, int64_t now, uint64_t fence)
{
	b->fail_code = err_name(ERR_SESSION_GONE);
	b->fail_reason = binding_cause_word(CAUSE_TEARDOWN);
	b->fail_message = "the task was torn down while its session was provisioned";
	b->fail_fence = b->fence;
	b->fail_until_ms = b->fail_count = 0;
	binding_move(b, BINDING_CONDEMNED, CAUSE_TEARDOWN, now);
	b->fence = (int64_t)fence;
	b->op_count = 0;
}

static bool teardown_waited(const struct binding *b, int64_t now, const struct binding_rules *r)
{
	return b->teardown_ms && now >= binding_after(b->teardown_ms, r->teardown_wait_ms);
}

static enum teardown_outcome teardown_live(struct binding *b, int64_t now, const struct binding_rules *r, bool force,
					   bool *changed)
{
	*changed |= !b->teardown_ms;
	if (!b->teardown_ms)
		b->teardown_ms = now;
	if (force || binding_active_ops(b) == 0 || teardown_waited(b, now, r)) {
		binding_to_releasing(b, CAUSE_TEARDOWN, now);
		*changed = true;
		return TEARDOWN_UNDER_WAY;
	}
	binding_set_doom(b, CAUSE_TEARDOWN);
	return TEARDOWN_WAITS;
}

enum teardown_outcome binding_teardown(struct binding *b, int64_t now, const struct binding_rules *r, bool force,
				       uint64_t fence, bool *changed)
{
	switch (b->state) {
	case BINDING_GONE:
		return TEARDOWN_GONE;
	case BINDING_PROVISIONING:
	case BINDING_HYDRATING:
		b->teardown_ms = now;
		condemn(b, now, fence);
		*changed = true;
		return TEARDOWN_UNDER_WAY;
	case BINDING_LIVE:
		return teardown_live(b, now, r, force, changed);
	case BINDING_CAPTURING:
		if (force)
			binding_to_releasing(b, CAUSE_TEARDOWN, now);
		b->cause = CAUSE_TEARDOWN; /* a begin does not revive it any more */
		b->cause_word = binding_cause_word(b->cause);
		*changed = true;
		break;
	default:
		break;
	}
	if (!b->teardown_ms) {
		b->teardown_ms = now;
		*changed = true;
	}
	return TEARDOWN_UNDER_WAY;
}

/* ---- what is due ---- */

static bool is_dead(const struct binding_gc *in, const char *host)
{
	return in->dead && *host && in->dead(in->arg, host);
}

static bool is_held(const struct binding_gc *in, const char *op_id)
{
	for (size_t i = 0; i < in->held_count; i++) {
		if (strcmp(in->held[i], op_id) == 0)
			return true;
	}
	return false;
}

static bool is_file(const struct binding_op *op)
{
	return strcmp(op->kind, "file") == 0;
}

/* A file access leaves no process behind; whatever else ended unseen may have. */
static void reap_op(struct binding *b, struct binding_op *op)
{
	if (b->state == BINDING_LIVE && !op->waiting && !is_file(op))
		binding_set_doom(b, CAUSE_QUIESCENCE);
	binding_drop_op(b, op);
}

static bool reap(struct binding *b, int64_t now, const struct binding_rules *r, const struct binding_gc *in)
{
	bool changed = false;

	for (size_t i = 0; i < b->op_count;) {
		struct binding_op *op = &b->ops[i];
		bool over = op->until_ms <= now || is_dead(in, op->host);

		if (!over || is_held(in, op->id)) {
			i++;
			continue;
		}
		if (!is_file(op) && in->open && in->open(in->arg, op)) {
			/* Its open record keeps it; whoever runs it next finds it by this. */
			changed |= op->until_ms <= now;
			op->until_ms = binding_max(op->until_ms, binding_after(now, r->op_ttl_ms));
			i++;
			continue;
		}
		reap_op(b, op);
		changed = true;
	}
	if (changed)
		binding_settle(b, now, r);
	return changed;
}

static bool owner_lives(const struct binding *b, int64_t now, const struct binding_gc *in)
{
	return in->owned || (*b->owner && b->owner_until_ms > now && !is_dead(in, b->owner));
}

/* A dead owner sends no create any more, nor does this process without a job; another host whose time is up may still wake
 * and send it. */
static void judge_create(struct binding *b, int64_t now, const struct binding_gc *in)
{
	if (in->certain && (is_dead(in, b->owner) || strcmp(b->owner, in->host) == 0))
		b->create_until_ms = binding_min(b->create_until_ms, now);
}

static void claim(struct binding *b, int64_t now, const struct binding_rules *r, const struct binding_gc *in)
{
	binding_own(b, in->host, binding_after(now, r->owner_ttl_ms), (int64_t)in->fence);
}

static enum gc_action gc_pending(struct binding *b, int64_t now, const struct binding_rules *r,
				 const struct binding_gc *in, bool *changed)
{
	*changed |= reap(b, now, r, in);
	if (owner_lives(b, now, in))
		return GC_NOTHING;
	judge_create(b, now, in);
	claim(b, now, r, in);
	*changed = true;
	return GC_TAKE_OVER;
}

static enum gc_action gc_releasing(struct binding *b, int64_t now, const struct binding_rules *r,
				   const struct binding_gc *in, bool *changed)
{
	if (owner_lives(b, now, in) || b->release_next_ms > now)
		return GC_NOTHING;
	judge_create(b, now, in);
	claim(b, now, r, in);
	*changed = true;
	return GC_RELEASE;
}

static void end_live(struct binding *b, int64_t now, const struct binding_rules *r)
{
	bool busy = binding_active_ops(b) > 0;

	if (now >= b->ceiling_ms)
		binding_to_releasing(b, CAUSE_CEILING, now);
	else if (busy && teardown_waited(b, now, r))
		binding_to_releasing(b, CAUSE_TEARDOWN, now);
	else if (!busy && now >= b->lease_until_ms)
		binding_to_releasing(b, CAUSE_EXPIRED, now);
}

static enum gc_action gc_live(struct binding *b, int64_t now, const struct binding_rules *r, const struct binding_gc *in,
			      bool *changed)
{
	*changed |= reap(b, now, r, in);
	if (b->state == BINDING_LIVE)
		end_live(b, now, r);
	if (b->state == BINDING_QUARANTINED)
		binding_to_releasing(b, b->cause, now);
	if (b->state == BINDING_RELEASING) {
		*changed = true;
		return gc_releasing(b, now, r, in, changed);
	}
	if (b->stray_count == 0 || b->release_next_ms > now)
		return GC_NOTHING;
	binding_stray_tried(b, now, r, NULL); /* others look again only after a while */
	*changed = true;
	return GC_STRAYS;
}

/* Is it time alone that asks for something here? What was asked for by somebody goes on. */
static bool is_by_time(const struct binding *b)
{
	return b->state == BINDING_LIVE || b->state == BINDING_PROVISIONING || b->state == BINDING_HYDRATING || *b->owner;
}

enum gc_action binding_gc(struct binding *b, int64_t now, const struct binding_rules *r, const struct binding_gc *in,
			  bool *changed)
{
	if (in->hold && is_by_time(b))
		return GC_NOTHING;
	switch (b->state) {
	case BINDING_GONE:
		return binding_due(b, r) <= now ? GC_DELETE_ROW : GC_NOTHING;
	case BINDING_PROVISIONING:
	case BINDING_HYDRATING:
		return gc_pending(b, now, r, in, changed);
	case BINDING_LIVE:
		return gc_live(b, now, r, in, changed);
	case BINDING_CONDEMNED:
	case BINDING_CAPTURING:
	case BINDING_QUARANTINED:
		if (owner_lives(b, now, in))
			return GC_NOTHING;
		judge_create(b, now, in);
		binding_to_releasing(b, b->cause, now);
		return gc_releasing(b, now, r, in, changed);
	case BINDING_RELEASING:
		return gc_releasing(b, now, r, in, changed);
	case BINDING_STATE_COUNT:
		break;
	}
	return GC_NOTHING;
}

/* ---- sessions found at the provider ---- */

bool binding_names_superseded(const struct binding *b)
{
	return b->state != BINDING_LIVE;
}

static bool names_token(const struct binding *b, const char *intent)
{
	if (!*intent)
		return false;
	for (size_t i = 0; i < b->superseded_count && binding_names_superseded(b); i++) {
		if (strcmp(b->superseded[i], intent) == 0)
			return true;
	}
	return strcmp(b->intent, intent) == 0;
}

bool binding_names(const struct binding *b, const char *ref, const char *intent)
{
	for (size_t i = 0; i < b->stray_count; i++) {
		if (strcmp(b->strays[i].ref, ref) == 0)
			return true;
	}
	return strcmp(b->ref, ref) == 0 || names_token(b, intent);
}

/* The found session becomes the row's own, under fresh numbers. */
static void take_found(struct binding *b, const struct binding_found *found)
{
	const struct binding_session *session = found->session;

	b->fence = (int64_t)found->fence;
	b->incarnation = (int64_t)found->incarnation;
	b->target = found->target;
	b->region = found->region;
	b->intent = found->intent;
	b->ref = session->ref;
	b->sealed_state = session->sealed_state;
	b->boot_id = session->boot_id;
	b->root = session->root;
	b->isolation = session->isolation;
	b->created_ms = session->created_ms;
	b->provider_expires_ms = binding_expiry(session->provider_expires_ms);
	b->teardown_ms = 0;
}

bool binding_claim_orphan(struct arena *a, struct binding *b, int64_t now, const struct binding_found *found, struct err *err)
{
	const struct binding_stray stray = {found->session->ref, found->session->sealed_state};

	if (binding_names(b, stray.ref, found->intent))
		return false;
	if (b->state == BINDING_GONE) {
		take_found(b, found);
		binding_to_releasing(b, CAUSE_ORPHAN, now);
		return true;
	}
	/* Whoever provisions looks for what carries the identity; whoever releases comes back to gone. */
	if (b->state != BINDING_LIVE || strcmp(b->target, found->target) != 0)
		return false;
	if (binding_put_stray(a, b, &stray, err))
		return false;
	b->release_tries = 0;
	b->release_next_ms = now;
	return true;
}

int binding_adopt(struct binding *b, int64_t now, const struct binding_rules *r, const struct binding_found *found,
		  struct err *err)
{
	if (b->state != BINDING_GONE)
		return err_set(err, ERR_CONFLICT, "the task has a session");
	take_found(b, found);
	binding_move(b, BINDING_LIVE, CAUSE_NONE, now);
	binding_set_ceiling(b, now, r, found->session->renewable);
	b->release_next_ms = now;
	binding_set_idle(b, now, r);
	return 0;
}

/* ---- restart and release ---- */

void binding_restart(struct binding *b, int64_t now, const struct binding_rules *r, const char *host, bool *changed)
{
	bool dropped = false;

	for (size_t i = 0; i < b->op_count;) {
		struct binding_op *op = &b->ops[i];

		if (strcmp(op->host, host) == 0 || (!is_file(op) && !op->waiting)) {
			i++;
			continue;
		}
		binding_drop_op(b, op);
		dropped = true;
	}
	if (dropped)
		binding_settle(b, now, r);
	*changed |= dropped;
	if (*b->owner && strcmp(b->owner, host) != 0) {
		b->owner_until_ms = binding_min(b->owner_until_ms, now);
		b->create_until_ms = binding_min(b->create_until_ms, now);
		*changed = true;
	}
}

static void forget_session(struct binding *b)
{
	b->ref = b->sealed_state = b->boot_id = b->root = b->isolation = b->phase = b->intent = "";
	b->stray_count = b->superseded_count = 0;
	b->created_ms = b->provider_expires_ms = b->live_ms = b->ceiling_ms = b->create_until_ms = 0;
	b->release_tries = b->release_next_ms = 0;
	b->release_error = "";
}

int binding_released(struct arena *a, struct binding *b, int64_t now, const struct binding_rules *r, int64_t fence, bool ok,
		     const struct err *why, struct err *err)
{
	if (b->state == BINDING_GONE && b->fence == fence)
		return 0;
	if (b->state != BINDING_RELEASING || b->fence != fence)
		return err_set(err, ERR_CONFLICT, "the session is no longer released under this fence");
	binding_disown(b);
	if (ok) {
		binding_move(b, BINDING_GONE, b->cause, now);
		forget_session(b);
		return 0;
	}
	b->release_error = why ? arena_printf(a, "%s: %s", err_name(why->code), why->msg) : "not confirmed";
	if (!b->release_error)
		return err_set(err, ERR_NOMEM, "binding: no memory is left for the release error");
	b->release_tries++;
	b->release_next_ms = binding_after(now, binding_backoff(b->release_tries, RELEASE_FIRST_MS,
								r->release_retry_max_ms, (uint64_t)fence));
	return 0;
}
