/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The events of a provisioner: create under way, created, published, failed. Each checks the fence, so that whoever lost the
 * row changes nothing, and each may be repeated after an unknown outcome. Pure, any thread. A ref is never forgotten here: it
 * leaves the row only as a stray or once its release was confirmed.
 */
#include "session/binding.h"

#include <string.h>

#include "session/binding_private.h"

#define FAIL_FIRST_MS 1000
#define FAIL_MOST_MS 30000
#define FAIL_RETRY_MAX_MS (60 * 60 * 1000) /* a provider cannot put a task off for longer */

static int refuse(struct err *err)
{
	return err_set(err, ERR_CONFLICT, "the session is no longer provisioned under this fence");
}

static bool provisioning(const struct binding *b)
{
	return b->state == BINDING_PROVISIONING || b->state == BINDING_HYDRATING;
}

static int no_memory(struct err *err)
{
	return err_set(err, ERR_NOMEM, "binding: no memory is left for the session");
}

/* Copies *str into the arena; empty when NULL. */
static int keep(struct arena *a, const char **ret, const char *str)
{
	const char *copy = str && *str ? arena_strdup(a, str) : "";

	if (!copy)
		return ERR_NOMEM;
	*ret = copy;
	return 0;
}

int binding_creating(struct binding *b, int64_t fence, int64_t until_ms, struct err *err)
{
	if (!provisioning(b) || b->fence != fence)
		return refuse(err);
	b->create_until_ms = until_ms;
	return 0;
}

static bool has_stray(const struct binding *b, const char *ref)
{
	for (size_t i = 0; i < b->stray_count; i++) {
		if (strcmp(b->strays[i].ref, ref) == 0)
			return true;
	}
	return false;
}

int binding_put_stray(struct arena *a, struct binding *b, const struct binding_stray *stray, struct err *err)
{
	struct binding_stray *strays;

	if (!*stray->ref || strcmp(stray->ref, b->ref) == 0 || has_stray(b, stray->ref))
		return 0;
	strays = arena_alloc(a, (b->stray_count + 1) * sizeof(*strays));
	if (!strays)
		return no_memory(err);
	if (b->stray_count)
		memcpy(strays, b->strays, b->stray_count * sizeof(*strays));
	if (keep(a, &strays[b->stray_count].ref, stray->ref) || keep(a, &strays[b->stray_count].state, stray->state))
		return no_memory(err);
	b->strays = strays;
	b->stray_count++;
	return 0;
}

static void forget_stray(struct binding *b, const char *ref)
{
	for (size_t i = 0; i < b->stray_count; i++) {
		if (strcmp(b->strays[i].ref, ref) == 0) {
			memmove(&b->strays[i], &b->strays[i + 1], (b->stray_count - i - 1) * sizeof(*b->strays));
			b->stray_count--;
			return;
		}
	}
}

/* The ref the row has, if any, becomes a stray. */
static int set_aside(struct arena *a, struct binding *b, struct err *err)
{
	struct binding_stray old = {b->ref, b->sealed_state};

	b->ref = b->sealed_state = "";
	return binding_put_stray(a, b, &old, err);
}

static int take_session(struct arena *a, struct binding *b, const struct binding_session *s, struct err *err)
{
	if (keep(a, &b->ref, s->ref))
		return no_memory(err);
	/* A later word about the same session may leave out what an earlier one told. */
	if ((s->sealed_state && *s->sealed_state && keep(a, &b->sealed_state, s->sealed_state)) ||
	    (s->boot_id && *s->boot_id && keep(a, &b->boot_id, s->boot_id)) ||
	    (s->root && *s->root && keep(a, &b->root, s->root)) ||
	    (s->isolation && *s->isolation && keep(a, &b->isolation, s->isolation)))
		return no_memory(err);
	b->created_ms = s->created_ms ? s->created_ms : b->created_ms;
	if (s->provider_expires_ms)
		b->provider_expires_ms = binding_expiry(s->provider_expires_ms);
	return 0;
}

int binding_created(struct arena *a, struct binding *b, int64_t fence, const struct binding_session *s,
		    struct err *err)
{
	if (!provisioning(b) || b->fence != fence)
		return refuse(err);
	if (!s->ref || !*s->ref)
		return err_set(err, ERR_PROVIDER, "the provider named no session");
	if (*b->ref && strcmp(b->ref, s->ref) != 0) {
		int code = set_aside(a, b, err);

		if (code)
			return code;
		b->boot_id = b->root = b->isolation = "";
		b->created_ms = b->provider_expires_ms = 0;
	}
	forget_stray(b, s->ref);
	return take_session(a, b, s, err);
}

static void clear_failure(struct binding *b)
{
	b->fail_code = b->fail_reason = b->fail_message = "";
	b->fail_fence = b->fail_until_ms = b->fail_count = 0;
}

void binding_set_ceiling(struct binding *b, int64_t now, const struct binding_rules *r, bool renewable)
{
	b->live_ms = now;
	b->ceiling_ms = binding_after(now, r->max_age_ms);
	if (b->provider_expires_ms && !renewable)
		b->ceiling_ms = binding_min(b->ceiling_ms, b->provider_expires_ms - r->expiry_margin_ms);
	b->ceiling_ms = binding_max(b->ceiling_ms, 1);
}

int binding_publish(struct arena *a, struct binding *b, int64_t now, const struct binding_rules *r, int64_t fence,
		    const struct binding_session *s, struct err *err)
{
	int code;

	if (b->state == BINDING_LIVE && b->fence == fence && strcmp(b->ref, s->ref) == 0)
		return 0;
	code = binding_created(a, b, fence, s, err);
	if (code)
		return code;
	binding_move(b, BINDING_LIVE, CAUSE_NONE, now);
	binding_disown(b);
	clear_failure(b);
	b->phase = "";
	b->create_until_ms = 0;
	b->release_next_ms = now;
	binding_set_ceiling(b, now, r, s->renewable);
	binding_settle(b, now, r);
	if (b->state == BINDING_LIVE && binding_active_ops(b) == 0)
		binding_set_idle(b, now, r);
	return 0;
}

static int keep_failure(struct arena *a, struct binding *b, int64_t now, int64_t fence, const struct err *why,
			struct err *err)
{
	int64_t wait = binding_min(why->retry_after_ms, FAIL_RETRY_MAX_MS);

	if (keep(a, &b->fail_reason, why->reason) || keep(a, &b->fail_message, why->msg))
		return no_memory(err);
	b->fail_code = err_name(why->code);
	b->fail_fence = fence;
	b->fail_count++;
	if (wait <= 0)
		wait = binding_backoff(b->fail_count, FAIL_FIRST_MS, FAIL_MOST_MS, 0);
	b->fail_until_ms = binding_after(now, wait);
	return 0;
}

int binding_fail(struct arena *a, struct binding *b, int64_t now, int64_t fence, const struct err *why, struct err *err)
{
	int code;

	if (!provisioning(b) && fence && b->fence == fence && b->fail_fence == fence)
		return 0;
	if (!provisioning(b) || b->fence != fence)
		return refuse(err);
	code = keep_failure(a, b, now, fence, why, err);
	if (code)
		return code;
	if (*b->ref || b->stray_count || b->create_until_ms || b->superseded_count) {
		binding_to_releasing(b, CAUSE_FAILED, now);
		return 0;
	}
	binding_move(b, BINDING_GONE, CAUSE_FAILED, now);
	binding_disown(b);
	b->op_count = 0;
	return 0;
}

int binding_retoken(struct arena *a, struct binding *b, int64_t fence, const char *intent, struct err *err)
{
	const char **tokens;

	if (!provisioning(b) || b->fence != fence)
		return refuse(err);
	if (strcmp(b->intent, intent) == 0)
		return 0;
	tokens = arena_alloc(a, (b->superseded_count + 1) * sizeof(*tokens));
	if (!tokens)
		return no_memory(err);
	if (b->superseded_count)
		memcpy(tokens, b->superseded, b->superseded_count * sizeof(*tokens));
	tokens[b->superseded_count] = b->intent;
	b->superseded = tokens;
	b->superseded_count++;
	b->create_until_ms = 0;
	b->boot_id = b->root = b->isolation = "";
	b->created_ms = b->provider_expires_ms = 0;
	if (keep(a, &b->intent, intent))
		return no_memory(err);
	return set_aside(a, b, err);
}

int binding_add_stray(struct arena *a, struct binding *b, int64_t fence, const struct binding_stray *stray,
		      struct err *err)
{
	if (!provisioning(b) || b->fence != fence)
		return refuse(err);
	return binding_put_stray(a, b, stray, err);
}

int binding_disclaim(struct binding *b, int64_t fence, struct err *err)
{
	if (!provisioning(b) || b->fence != fence)
		return refuse(err);
	b->ref = b->sealed_state = b->boot_id = b->root = b->isolation = "";
	b->created_ms = b->provider_expires_ms = 0;
	return 0;
}

bool binding_let_go(struct arena *a, struct binding *b, int64_t now, int64_t incarnation, const char *host,
		    const struct binding_stray *made)
{
	size_t strays = b->stray_count;
	bool changed = false;

	if (b->incarnation != incarnation || b->state == BINDING_GONE)
		return false;
	if (made && binding_put_stray(a, b, made, NULL) == 0 && b->stray_count != strays) {
		b->release_next_ms = binding_min(b->release_next_ms, now);
		changed = true;
	}
	if (b->state == BINDING_CONDEMNED && strcmp(b->owner, host) == 0) {
		b->create_until_ms = binding_min(b->create_until_ms, now);
		binding_disown(b);
		changed = true;
	}
	return changed;
}

void binding_stray_tried(struct binding *b, int64_t now, const struct binding_rules *r, const char *ref)
{
	if (ref) {
		forget_stray(b, ref);
		return;
	}
	b->release_tries++;
	b->release_next_ms = binding_after(now, binding_backoff(b->release_tries, FAIL_FIRST_MS, r->release_retry_max_ms,
								(uint64_t)(b->fence + b->release_tries)));
}

void binding_extended(struct binding *b, const struct binding_rules *r, int64_t asked_ms, int64_t effective_ms)
{
	if (b->state != BINDING_LIVE || effective_ms <= 0)
		return;
	b->provider_expires_ms = binding_expiry(effective_ms);
	if (effective_ms >= asked_ms)
		return;
	b->ceiling_ms = binding_max(binding_min(b->ceiling_ms, effective_ms - r->expiry_margin_ms), 1);
	b->lease_until_ms = binding_min(b->lease_until_ms, b->ceiling_ms);
}
