/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Teardown of a task: asked for in one step whatever the state, then waited for. Any thread that may block. The release
 * itself is the GC's, so that a hundred requests lead to one delete; a task is reported gone only when the row says so.
 */
#include <assert.h>
#include <string.h>

#include "session/session_private.h"

struct teardown {
	struct sessions *s;
	const struct ident *ident;
	bool force;
	/* Results. */
	enum teardown_outcome outcome;
	int64_t incarnation; /* the one that must go */
	bool gone;
	int code;
	struct err err;
};

static int set_teardown(struct sessions *s, struct txn *txn, struct row *row, void *arg, struct err *err)
{
	struct teardown *teardown = arg;
	bool pending = row->b.state == BINDING_PROVISIONING || row->b.state == BINDING_HYDRATING;
	uint64_t fence = 0;
	int r = pending ? row_next_fence(txn, row, &fence, err) : 0;

	if (r)
		return r;
	teardown->incarnation = row->b.incarnation;
	teardown->outcome = binding_teardown(&row->b, row->now, &s->rules, teardown->force, fence, &row->changed);
	row->notify = row->changed;
	return 0;
}

static int look_step(struct txn *txn, void *arg, struct err *err)
{
	struct teardown *teardown = arg;
	struct row row;
	int r = row_get(teardown->s, txn, teardown->ident, &row, err);

	if (r == 0)
		teardown->gone = row.b.state == BINDING_GONE || row.b.incarnation != teardown->incarnation;
	return r;
}

/* Ends the wait also when the row cannot be read. */
static bool is_over(void *arg)
{
	struct teardown *teardown = arg;

	teardown->code = store_view(teardown->s->config.store, look_step, teardown, &teardown->err);
	return teardown->code || teardown->gone || atomic_load(&teardown->s->stopping);
}

int session_teardown(struct sessions *s, const struct ident *ident, bool force, int64_t deadline_ns, bool *ret_gone,
		     struct err *err)
{
	struct teardown teardown = {.s = s, .ident = ident, .force = force};
	char key[WATCH_KEY_MAX];
	int r;

	assert(s->magic == SESSIONS_MAGIC);
	if (s->hooks.teardown)
		s->hooks.teardown(ident, force, s->hooks.arg);
	r = row_update(s, ident, set_teardown, &teardown, err);
	if (r)
		return r;
	*ret_gone = teardown.outcome == TEARDOWN_GONE;
	if (*ret_gone)
		return 0;
	session_kick_gc(s);
	task_watch_key(ident, key);
	watch_block(s->config.watch, key, is_over, &teardown, deadline_ns);
	*ret_gone = teardown.gone;
	if (teardown.code && err)
		*err = teardown.err;
	return teardown.code;
}
