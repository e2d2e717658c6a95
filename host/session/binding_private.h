/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the binding_*.c files: the one place that changes a state, and the operations' bookkeeping. Pure. */
#ifndef SESSION_BINDING_PRIVATE_H
#define SESSION_BINDING_PRIVATE_H

#include "session/binding.h"

/* a + ms for ms >= 0, saturating. */
int64_t binding_after(int64_t a, int64_t ms);
static inline int64_t binding_min(int64_t a, int64_t b)
{
	return a < b ? a : b;
}
static inline int64_t binding_max(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* Asserts the transition table. */
void binding_move(struct binding *b, enum binding_state to, enum binding_cause cause, int64_t now);
/* To releasing: operations dropped, nobody owns it, due at once. */
void binding_to_releasing(struct binding *b, enum binding_cause cause, int64_t now);
void binding_set_doom(struct binding *b, enum binding_cause doom);
void binding_own(struct binding *b, const char *host, int64_t until_ms, int64_t fence);
void binding_disown(struct binding *b);

struct binding_op *binding_find_op(const struct binding *b, const char *op_id);
size_t binding_active_ops(const struct binding *b);
void binding_drop_op(struct binding *b, struct binding_op *op);
/* After operations left or the session came to life: activates waiting ones while there is room, else ends the session if it
 * is doomed, else sets the idle lease. */
void binding_settle(struct binding *b, int64_t now, const struct binding_rules *r);
void binding_set_ceiling(struct binding *b, int64_t now, const struct binding_rules *r, bool renewable);
/* Unless it is there. */
int binding_put_stray(struct arena *a, struct binding *b, const struct binding_stray *stray, struct err *err);
void binding_set_idle(struct binding *b, int64_t now, const struct binding_rules *r);

/* Exponential wait before try number `tries` (from 1), first_ms doubling to most_ms, spread by `salt` over its last quarter. */
int64_t binding_backoff(int64_t tries, int64_t first_ms, int64_t most_ms, uint64_t salt);

#endif
