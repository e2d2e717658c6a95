/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random sequences of events on one binding beside a model of the provider: after each event the invariants I1 and I6 hold, a
 * doom is never lost, a session is never forgotten, and what the GC would do now is due now. The seed is printed on failure.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "binding_rows.h"

#define STEPS 400
#define SEQUENCES 300
#define OPS 6
#define REFS_MAX 4096

struct world {
	uint64_t seed;
	struct arena *arena;
	struct binding b;
	int64_t now;
	uint64_t next; /* fences, incarnations, refs */
	int64_t fence; /* that the provisioner works under */
	char refs[REFS_MAX][16];
	size_t ref_count; /* sessions that exist at the provider */
	char intent[24];
	bool held[OPS]; /* operations of this, living, host */
};

static uint64_t roll(struct world *w, uint64_t n)
{
	w->seed ^= w->seed << 13;
	w->seed ^= w->seed >> 7;
	w->seed ^= w->seed << 17;
	return w->seed % n;
}

static const char *op_name(uint64_t i)
{
	static const char *const names[OPS] = {"op-0", "op-1", "op-2", "op-3", "op-4", "op-5"};

	return names[i];
}

#define REQUIRE(w, cond)                                                                                            \
	do {                                                                                                        \
		if (!(cond))                                                                                        \
			fail_msg("seed state %llu, state %s: %s", (unsigned long long)(w)->seed,                     \
				 (w)->b.state_word, #cond);                                                         \
	} while (0)

static void ev_begin(struct world *w)
{
	uint64_t i = roll(w, OPS);
	struct binding_begin in = begin_of(op_name(i));
	enum begin_outcome outcome = BEGIN_WAIT;
	bool changed = false;
	int64_t retry_at;

	snprintf(w->intent, sizeof(w->intent), "i-%llu", (unsigned long long)w->next++);
	in.intent = arena_strdup(w->arena, w->intent);
	in.op_kind = i % 2 ? "file" : "execution";
	in.fence = w->next++;
	in.incarnation = w->next++;
	in.lasts_ms = (int64_t)roll(w, 10) == 0 ? rules.max_age_ms : (int64_t)roll(w, 600000);
	if (binding_begin(w->arena, &w->b, w->now, &rules, &in, &outcome, &retry_at, &changed, NULL) == 0) {
		if (outcome == BEGIN_LIVE)
			w->held[i] = true;
		if (outcome == BEGIN_PROVISION) {
			REQUIRE(w, w->ref_count == 0); /* I1: none is made while one may exist */
			w->fence = w->b.fence;
		}
	}
}

static void ev_end(struct world *w)
{
	uint64_t i = roll(w, OPS);
	bool changed = false;

	binding_end(&w->b, w->now, &rules, op_name(i), roll(w, 6) != 0, roll(w, 20) == 0, &changed);
	w->held[i] = false;
}

static void ev_renew(struct world *w)
{
	uint64_t i = roll(w, OPS);
	int64_t lease = w->b.lease_until_ms;
	const struct binding_op *op = binding_find_op(&w->b, op_name(i));
	int64_t until = op ? op->until_ms : 0;

	if (binding_renew(&w->b, w->now, &rules, op_name(i), HOST)) {
		REQUIRE(w, w->b.lease_until_ms >= lease);
		REQUIRE(w, binding_find_op(&w->b, op_name(i))->until_ms >= until);
	} else {
		REQUIRE(w, !op);
		w->held[i] = false;
	}
	binding_renew_owner(&w->b, w->now, &rules, w->fence, HOST);
}

static const struct binding_session *new_session(struct world *w)
{
	snprintf(w->refs[w->ref_count], sizeof(*w->refs), "ref-%llu", (unsigned long long)w->next++);
	return session_of(w->refs[w->ref_count]);
}

static void ev_created(struct world *w)
{
	const struct binding_session *s = new_session(w);

	if (binding_created(w->arena, &w->b, w->fence, s, NULL) == 0)
		w->ref_count++;
}

static void ev_stray(struct world *w)
{
	struct binding_stray stray = {new_session(w)->ref, ""};

	if (binding_add_stray(w->arena, &w->b, w->fence, &stray, NULL) == 0)
		w->ref_count++;
}

static void ev_publish(struct world *w)
{
	struct binding_session s = *session_of(w->b.ref);

	s.provider_expires_ms = roll(w, 3) ? 0 : w->now + (int64_t)roll(w, 3600000);
	s.renewable = roll(w, 2);
	binding_publish(w->arena, &w->b, w->now, &rules, w->fence, &s, NULL);
}

static void ev_creating(struct world *w)
{
	binding_creating(&w->b, w->fence, w->now + 1000, NULL);
}

static void ev_retoken(struct world *w)
{
	snprintf(w->intent, sizeof(w->intent), "i-%llu", (unsigned long long)w->next++);
	binding_retoken(w->arena, &w->b, w->fence, w->intent, NULL);
}

static void ev_fail(struct world *w)
{
	struct err why = {0};

	err_set(&why, ERR_PROVIDER, "it broke");
	binding_fail(w->arena, &w->b, w->now, w->fence, &why, NULL);
}

static void ev_let_go(struct world *w)
{
	binding_let_go(w->arena, &w->b, w->now, w->b.incarnation, HOST, NULL);
}

static void ev_teardown(struct world *w)
{
	bool changed = false;

	binding_teardown(&w->b, w->now, &rules, roll(w, 2), w->next++, &changed);
}

static void ev_released(struct world *w)
{
	bool ok = roll(w, 3);
	struct err why = {0};

	err_set(&why, ERR_PROVIDER, "it broke");
	if (binding_released(w->arena, &w->b, w->now, &rules, w->b.fence, ok, &why, NULL) == 0 &&
	    w->b.state == BINDING_GONE)
		w->ref_count = 0;
}

static void ev_stray_tried(struct world *w)
{
	char ref[16];

	if (w->b.stray_count == 0)
		return;
	snprintf(ref, sizeof(ref), "%s", w->b.strays[0].ref);
	binding_stray_tried(&w->b, w->now, &rules, ref);
	for (size_t i = 0; i < w->ref_count; i++) {
		if (strcmp(w->refs[i], ref) == 0) {
			memmove(&w->refs[i], &w->refs[--w->ref_count], sizeof(*w->refs));
			return;
		}
	}
}

static void ev_extended(struct world *w)
{
	int64_t asked = w->now + (int64_t)roll(w, 3600000);

	binding_extended(&w->b, &rules, asked, roll(w, 2) ? asked : asked - (int64_t)roll(w, 600000));
}

static enum gc_action run_gc(struct world *w, struct binding *b, bool *changed)
{
	const char *held[OPS];
	struct binding_gc in = {.host = HOST, .fence = w->next++, .held = held};

	for (uint64_t i = 0; i < OPS; i++) {
		if (w->held[i])
			held[in.held_count++] = op_name(i);
	}
	return binding_gc(b, w->now, &rules, &in, changed);
}

static void ev_gc(struct world *w)
{
	struct binding before = w->b;
	bool changed = false;
	enum gc_action action = run_gc(w, &w->b, &changed);

	if (action == GC_TAKE_OVER)
		w->fence = w->b.fence;
	if (action == GC_DELETE_ROW) {
		REQUIRE(w, w->ref_count == 0);
		row_empty(w->arena, &w->b);
		return;
	}
	for (uint64_t i = 0; i < OPS && before.state == BINDING_LIVE; i++) {
		struct binding_op *op = binding_find_op(&before, op_name(i));

		/* I6: nothing is taken from a living holder but at the ceiling or after a teardown's wait. */
		if (!w->held[i] || !op || binding_find_op(&w->b, op_name(i)))
			continue;
		REQUIRE(w, w->b.state == BINDING_RELEASING);
		REQUIRE(w, w->b.cause == CAUSE_CEILING ? w->now >= before.ceiling_ms
						       : w->b.cause == CAUSE_TEARDOWN && before.teardown_ms > 0);
		w->held[i] = false;
	}
}

static void ev_time(struct world *w)
{
	static const int64_t spans[] = {1, 500, 5000, 31000, 1000000, 90000000};
	static const unsigned likely[] = {0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4, 5};

	w->now += (int64_t)roll(w, (uint64_t)spans[likely[roll(w, 12)]]) + 1;
}

static const struct {
	void (*run)(struct world *w);
	unsigned weight;
} events[] = {
	{ev_begin, 12},  {ev_end, 8},     {ev_renew, 6},    {ev_created, 4},     {ev_stray, 1},    {ev_publish, 6},
	{ev_creating, 1}, {ev_retoken, 1}, {ev_fail, 1},     {ev_let_go, 1},      {ev_gc, 6},       {ev_teardown, 1},
	{ev_released, 4}, {ev_time, 6},    {ev_extended, 2}, {ev_stray_tried, 2},
};

static void run_random_event(struct world *w)
{
	unsigned total = 0;
	uint64_t at;

	for (size_t i = 0; i < sizeof(events) / sizeof(*events); i++)
		total += events[i].weight;
	at = roll(w, total);
	for (size_t i = 0;; i++) {
		if (at < events[i].weight) {
			events[i].run(w);
			return;
		}
		at -= events[i].weight;
	}
}

static bool row_names(const struct binding *b, const char *ref)
{
	if (strcmp(b->ref, ref) == 0)
		return true;
	for (size_t i = 0; i < b->stray_count; i++) {
		if (strcmp(b->strays[i].ref, ref) == 0)
			return true;
	}
	return false;
}

static bool may_reach(enum binding_state from, enum binding_state to)
{
	if (from == to || binding_may_move(from, to) || (from == BINDING_GONE && to == BINDING_GONE))
		return true;
	for (int via = 0; via < BINDING_STATE_COUNT; via++) {
		if (binding_may_move(from, (enum binding_state)via) && binding_may_move((enum binding_state)via, to))
			return true;
	}
	return false;
}

static void check_live(struct world *w)
{
	const struct binding *b = &w->b;
	size_t active = binding_active_ops(b);

	REQUIRE(w, *b->ref);
	REQUIRE(w, b->lease_until_ms <= b->ceiling_ms);
	REQUIRE(w, active <= rules.concurrency);
	REQUIRE(w, b->active == (active > 0));
	REQUIRE(w, b->op_count == active || b->doom != CAUSE_NONE || active == rules.concurrency);
	REQUIRE(w, b->doom == CAUSE_NONE || active > 0);
}

static void check_doom(struct world *w, const struct binding *before)
{
	if (before->state != BINDING_LIVE || before->doom == CAUSE_NONE || w->b.incarnation != before->incarnation)
		return;
	if (w->b.state == BINDING_LIVE) {
		REQUIRE(w, w->b.doom != CAUSE_NONE);
		REQUIRE(w, before->doom != CAUSE_QUIESCENCE || w->b.doom == CAUSE_QUIESCENCE);
		REQUIRE(w, binding_active_ops(&w->b) <= binding_active_ops(before));
	}
}

static void check_due(struct world *w)
{
	int64_t due = binding_due(&w->b, &rules);
	struct binding copy = w->b;
	struct binding_op ops[16];
	bool changed = false;
	enum gc_action action;

	REQUIRE(w, w->b.state == BINDING_GONE || due > 0);
	if (copy.op_count)
		memcpy(ops, copy.ops, copy.op_count * sizeof(*ops));
	copy.ops = ops;
	action = run_gc(w, &copy, &changed);
	REQUIRE(w, due <= w->now || (action == GC_NOTHING && !changed));
}

static void check(struct world *w, const struct binding *before)
{
	if (w->b.fence != 0) { /* not a fresh row */
		REQUIRE(w, w->b.fence >= before->fence);
		REQUIRE(w, w->b.incarnation >= before->incarnation);
	}
	REQUIRE(w, may_reach(before->state, w->b.state));
	for (size_t i = 0; i < w->ref_count; i++)
		REQUIRE(w, row_names(&w->b, w->refs[i]));
	for (size_t i = 0; i < w->b.stray_count; i++)
		REQUIRE(w, strcmp(w->b.strays[i].ref, w->b.ref) != 0);
	REQUIRE(w, w->b.op_count == 0 || w->b.state == BINDING_LIVE || w->b.state == BINDING_PROVISIONING ||
			   w->b.state == BINDING_HYDRATING);
	if (w->b.state == BINDING_LIVE)
		check_live(w);
	check_doom(w, before);
	check_due(w);
}

/* Each step starts from the stored form, as in the store; this also proves that encoding loses nothing. */
static void reload(struct world *w, struct arena *fresh)
{
	struct ident ident = {"ws", "task"};
	struct buf doc, again;

	buf_init(&doc, 1 << 20);
	buf_init(&again, 1 << 20);
	assert_int_equal(binding_encode(&w->b, &doc), 0);
	assert_int_equal(binding_decode(fresh, &ident, doc.ptr, doc.len, &w->b, NULL), 0);
	assert_int_equal(binding_encode(&w->b, &again), 0);
	assert_string_equal(doc.ptr, again.ptr);
	buf_fini(&doc);
	buf_fini(&again);
	w->arena = fresh;
}

/* Holders of operations that another event took away know by now. */
static void forget_lost_holds(struct world *w)
{
	for (uint64_t i = 0; i < OPS; i++) {
		const struct binding_op *op = binding_find_op(&w->b, op_name(i));

		w->held[i] = w->held[i] && op && !op->waiting;
	}
}

static void run_sequence(struct world *w, struct arena *arenas[2], size_t seen[BINDING_STATE_COUNT])
{
	for (size_t step = 0; step < STEPS && w->ref_count + 2 < REFS_MAX; step++) {
		struct arena *fresh = arenas[step % 2];
		struct binding before;

		arena_reset(fresh);
		reload(w, fresh);
		before = w->b;
		before.ops = arena_alloc(fresh, (before.op_count + 1) * sizeof(*before.ops));
		assert_non_null(before.ops);
		if (before.op_count)
			memcpy(before.ops, w->b.ops, before.op_count * sizeof(*before.ops));
		forget_lost_holds(w);
		run_random_event(w);
		check(w, &before);
		seen[w->b.state]++;
	}
}

static void invariants_hold_under_random_events(void **state)
{
	struct arena *arenas[2] = {arena_new(16 << 20), arena_new(16 << 20)};
	struct world *w = calloc(1, sizeof(*w));
	size_t seen[BINDING_STATE_COUNT] = {0};

	(void)state;
	assert_non_null(w);
	for (uint64_t i = 1; i <= SEQUENCES; i++) {
		memset(w, 0, sizeof(*w));
		w->seed = i * UINT64_C(0x9e3779b97f4a7c15);
		w->now = T0;
		w->next = 1;
		w->arena = arenas[1];
		arena_reset(w->arena);
		row_empty(w->arena, &w->b);
		run_sequence(w, arenas, seen);
	}
	/* A walk that never comes by a state proves nothing about it. */
	for (int i = 0; i < BINDING_STATE_COUNT; i++) {
		if (i != BINDING_HYDRATING && i != BINDING_CAPTURING)
			assert_true(seen[i] > 100);
	}
	free(w);
	arena_free(arenas[0]);
	arena_free(arenas[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(invariants_hold_under_random_events)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
