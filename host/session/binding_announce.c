/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A row that went with its store, put back by the host that holds an operation in its session: what is kept of it, and
 * what of it is told to the new store. Pure, any thread. It never gives a session to a task that has another one.
 */
#include <string.h>

#include "session/binding_private.h"

int binding_keep(const struct binding *b, const char *op_id, struct buf *buf)
{
	struct binding kept = *b;
	struct binding_op *op = binding_find_op(b, op_id);

	kept.ops = op;
	kept.op_count = op ? 1 : 0;
	kept.warm = ""; /* its entry is gone, too */
	return binding_encode(&kept, buf);
}

static bool put_op(struct arena *a, struct binding *b, const struct binding_op *op)
{
	struct binding_op *ops = arena_alloc(a, (b->op_count + 1) * sizeof(*ops));

	if (!ops)
		return false;
	if (b->op_count)
		memcpy(ops, b->ops, b->op_count * sizeof(*ops));
	ops[b->op_count++] = *op;
	b->ops = ops;
	return true;
}

bool binding_announce(struct arena *a, struct binding *b, int64_t now, const struct binding_rules *r, bool existed,
		      const struct binding *kept, const char *op_id, const char *host, int64_t fence)
{
	struct binding_op *op = binding_find_op(kept, op_id);

	if (!op || kept->state != BINDING_LIVE)
		return false;
	if (!existed) {
		*b = *kept;
		b->fence = fence;
		b->op_count = 0;
	}
	if (b->state != BINDING_LIVE || b->incarnation != kept->incarnation || strcmp(b->ref, kept->ref) != 0)
		return false;
	if (!binding_find_op(b, op_id) && !put_op(a, b, op))
		return false;
	op = binding_find_op(b, op_id);
	op->host = host;
	op->waiting = false;
	return binding_renew(b, now, r, op_id, host);
}
