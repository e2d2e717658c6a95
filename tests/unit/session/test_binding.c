/* SPDX-License-Identifier: Apache-2.0 */
/* Single rules of a binding that the tables do not show: leases and their extremes (T4), turns, ceilings, back-off, restart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>

#include "binding_rows.h"

static struct arena *arena;
static struct binding b;

static int begin_at(int64_t now, const struct binding_rules *r, const char *op, int64_t lasts, enum begin_outcome *ret)
{
	struct binding_begin in = begin_of(op);
	int64_t retry_at;
	bool changed = false;

	in.lasts_ms = lasts;
	return binding_begin(arena, &b, now, r, &in, ret, &retry_at, &changed, NULL);
}

static bool end_at(int64_t now, const struct binding_rules *r, const char *op)
{
	bool changed = false;

	binding_end(&b, now, r, op, true, false, &changed);
	return changed;
}

/* T4: whatever the durations, the lease lies between now and the ceiling. */
static void t4_extreme_durations(void **state)
{
	static const int64_t values[] = {0, 1, 1000, INT64_C(1000000000000), INT64_MAX / 2, INT64_MAX};
	enum begin_outcome outcome;

	(void)state;
	for (size_t active = 0; active < 6; active++) {
		for (size_t idle = 0; idle < 6; idle++) {
			struct binding_rules r = rules;

			r.active_ms = values[active];
			r.idle_ms = values[idle];
			row_live(arena, &b, "op-1");
			assert_int_equal(begin_at(T0, &r, "op-2", 0, &outcome), 0);
			assert_int_equal(outcome, BEGIN_LIVE);
			assert_in_range(b.lease_until_ms, T0, b.ceiling_ms);
			assert_true(binding_renew(&b, T0 + 5, &r, "op-2", HOST));
			assert_in_range(b.lease_until_ms, T0, b.ceiling_ms);
			end_at(T0 + 10, &r, "op-1");
			end_at(T0 + 10, &r, "op-2");
			if (values[idle] == 0) {
				assert_int_equal(b.state, BINDING_RELEASING);
				continue;
			}
			assert_int_equal(b.lease_until_ms, values[idle] > b.ceiling_ms - T0 - 10 ? b.ceiling_ms
												    : T0 + 10 + values[idle]);
		}
	}
}

static void a_life_of_any_length_is_possible(void **state)
{
	struct binding_rules r = rules;
	enum begin_outcome outcome;

	(void)state;
	r.max_age_ms = INT64_MAX;
	row_provisioning(arena, &b, "op-1");
	assert_int_equal(binding_publish(arena, &b, T0, &r, 10, session_of("ref-1"), NULL), 0);
	assert_int_equal(b.ceiling_ms, INT64_MAX);
	assert_int_equal(begin_at(T0, &r, "op-2", INT64_MAX - T0, &outcome), 0);
	assert_int_equal(outcome, BEGIN_LIVE);
}

static void an_idle_lease_that_has_passed_is_revived_until_it_is_collected(void **state)
{
	enum begin_outcome outcome;

	(void)state;
	row_live(arena, &b, NULL);
	assert_int_equal(begin_at(b.lease_until_ms + 5, &rules, "op-2", 0, &outcome), 0);
	assert_int_equal(outcome, BEGIN_LIVE);
	assert_true(b.active && b.lease_until_ms > T0 + rules.idle_ms + 5);
	/* But not past the ceiling. */
	row_live(arena, &b, NULL);
	assert_int_equal(begin_at(b.ceiling_ms, &rules, "op-2", 0, &outcome), 0);
	assert_int_equal(outcome, BEGIN_WAIT);
	assert_int_equal(b.state, BINDING_RELEASING);
	assert_int_equal(b.cause, CAUSE_CEILING);
}

static void operations_get_their_turn_in_order(void **state)
{
	static const char *const names[] = {"op-1", "op-2", "op-3", "op-4", "op-5"};
	enum begin_outcome outcome;

	(void)state;
	row_live(arena, &b, "op-1");
	for (size_t i = 1; i < 5; i++) {
		assert_int_equal(begin_at(T0, &rules, names[i], 0, &outcome), 0);
		assert_int_equal(outcome, i < rules.concurrency ? BEGIN_LIVE : BEGIN_WAIT);
	}
	assert_int_equal(begin_at(T0, &rules, "op-6", 0, &outcome), ERR_SESSION_BUSY);
	for (size_t i = 0; i < 3; i++) {
		assert_true(end_at(T0 + 1, &rules, names[i]));
		assert_false(binding_find_op(&b, names[i + 2])->waiting);
	}
	/* An end that comes twice is no second turn. */
	assert_false(end_at(T0 + 1, &rules, "op-1"));
	assert_int_equal(b.op_count, 2);
}

static void waiters_over_the_cap_are_refused(void **state)
{
	enum begin_outcome outcome;

	(void)state;
	row_provisioning(arena, &b, "op-1");
	assert_int_equal(begin_at(T0, &rules, "op-2", 0, &outcome), 0);
	assert_int_equal(begin_at(T0, &rules, "op-3", 0, &outcome), 0);
	assert_int_equal(begin_at(T0, &rules, "op-4", 0, &outcome), ERR_SESSION_BUSY);
	assert_int_equal(begin_at(T0, &rules, "op-2", 0, &outcome), 0);
}

static void a_provider_that_grants_too_little_is_no_reason_to_rotate(void **state)
{
	struct binding_session s = *session_of("ref-1");
	enum begin_outcome outcome;

	(void)state;
	s.provider_expires_ms = T0 + rules.expiry_margin_ms + 5000;
	row_provisioning(arena, &b, "op-1"); /* lasts 60 s */
	assert_int_equal(binding_publish(arena, &b, T0, &rules, 10, &s, NULL), 0);
	assert_int_equal(b.ceiling_ms, T0 + 5000);
	assert_int_equal(b.op_count, 0);
	assert_int_equal(begin_at(T0, &rules, "op-1", 60000, &outcome), ERR_SESSION_LIFE);
	assert_int_equal(b.state, BINDING_LIVE);
	assert_int_equal(begin_at(T0, &rules, "op-2", 5000, &outcome), 0);
	assert_int_equal(outcome, BEGIN_LIVE);
	/* What would fit into a fresh one rotates it. */
	assert_int_equal(begin_at(T0 + 1, &rules, "op-3", 5000, &outcome), 0);
	assert_int_equal(b.doom, CAUSE_CEILING);
	/* An expiry that can be moved is no ceiling. */
	row_provisioning(arena, &b, "op-1");
	s.renewable = true;
	assert_int_equal(binding_publish(arena, &b, T0, &rules, 10, &s, NULL), 0);
	assert_int_equal(b.ceiling_ms, T0 + rules.max_age_ms);
}

static void failures_back_off(void **state)
{
	static const int64_t waits[] = {1000, 2000, 4000, 8000, 16000, 30000, 30000};
	int64_t now = T0;
	struct err why = {0};
	enum begin_outcome outcome;

	(void)state;
	err_set(&why, ERR_PROVIDER, "it broke");
	row_empty(arena, &b);
	for (size_t i = 0; i < 7; i++) {
		struct binding_begin in = begin_of("op-1");
		int64_t retry_at;
		bool changed;

		in.fence = 10 + i;
		assert_int_equal(binding_begin(arena, &b, now, &rules, &in, &outcome, &retry_at, &changed, NULL), 0);
		assert_int_equal(binding_fail(arena, &b, now, (int64_t)in.fence, &why, NULL), 0);
		assert_int_equal(b.fail_until_ms - now, waits[i]);
		now = b.fail_until_ms;
	}
	/* The provider's own word counts, within reason. */
	why.retry_after_ms = INT64_MAX;
	struct binding_begin in = begin_of("op-1");
	int64_t retry_at;
	bool changed;

	in.fence = 50;
	assert_int_equal(binding_begin(arena, &b, now, &rules, &in, &outcome, &retry_at, &changed, NULL), 0);
	assert_int_equal(binding_fail(arena, &b, now, 50, &why, NULL), 0);
	assert_int_equal(b.fail_until_ms - now, 3600000);
}

/* P2: rows that failed together, their fences in a row, come back at times all over the last quarter of each wait. */
static void rows_that_failed_together_come_back_apart(void **state)
{
	static const int64_t most = 30000;

	(void)state;
	for (int64_t tries = 1; tries < 12; tries++) {
		int64_t full = tries < 6 ? INT64_C(1000) << (tries - 1) : most;
		unsigned char hit[20] = {0};
		size_t parts = 0;

		for (uint64_t fence = 40; fence < 190; fence++) {
			int64_t wait = binding_backoff(tries, 1000, most, fence + (uint64_t)tries);

			assert_in_range(wait, full - full / 4, full);
			hit[(full - wait) * 20 / (full / 4 + 1)] = 1;
		}
		for (size_t i = 0; i < sizeof(hit); i++)
			parts += hit[i];
		assert_int_equal(parts, sizeof(hit));
	}
}

/* Who waited for a provisioning learns of its failure even when the back-off is over. */
static void waiters_get_the_failure_they_waited_for(void **state)
{
	struct binding_begin in = begin_of("op-2");
	enum begin_outcome outcome;
	struct err err = {0};
	bool changed = false;
	int64_t retry_at;

	(void)state;
	row_failed(arena, &b, true);
	assert_int_equal(b.state, BINDING_RELEASING);
	in.seen_fence = 10;
	assert_int_equal(binding_begin(arena, &b, T0 + 3600000, &rules, &in, &outcome, &retry_at, &changed, &err),
			 ERR_CAPACITY);
	assert_string_equal(err.reason, "no_room");
	in.seen_fence = 0;
	assert_int_equal(binding_begin(arena, &b, T0 + 3600000, &rules, &in, &outcome, &retry_at, &changed, &err), 0);
	assert_int_equal(outcome, BEGIN_WAIT);
}

static void a_restart_drops_only_what_nobody_goes_on_with(void **state)
{
	struct binding_begin in = begin_of("op-2");
	enum begin_outcome outcome;
	bool changed = false;
	int64_t retry_at;

	(void)state;
	row_live(arena, &b, "op-1"); /* an execution */
	in.op_kind = "file";
	assert_int_equal(binding_begin(arena, &b, T0, &rules, &in, &outcome, &retry_at, &changed, NULL), 0);
	in.op_id = "op-3";
	in.op_kind = "execution";
	assert_int_equal(binding_begin(arena, &b, T0, &rules, &in, &outcome, &retry_at, &changed, NULL), 0);
	assert_int_equal(outcome, BEGIN_WAIT);
	changed = false;
	binding_restart(&b, T0 + 1, &rules, "host-b", &changed);
	assert_true(changed);
	assert_int_equal(b.op_count, 1);
	assert_string_equal(b.ops[0].id, "op-1");
	assert_true(binding_resume(&b, T0 + 2, &rules, "op-1", "host-b"));
	assert_false(binding_renew(&b, T0 + 3, &rules, "op-1", HOST));
	row_provisioning(arena, &b, "op-1");
	assert_int_equal(binding_creating(&b, 10, T0 + 60000, NULL), 0);
	binding_restart(&b, T0 + 1, &rules, "host-b", &changed);
	assert_int_equal(b.op_count, 0);
	assert_int_equal(b.owner_until_ms, T0 + 1);
	assert_int_equal(b.create_until_ms, T0 + 1);
}

/* A publish of the former host activated it; its record was not started, so it is begun again and not resumed. */
static void who_begins_an_operation_again_renews_it(void **state)
{
	struct binding_begin in = begin_of("op-1");
	enum begin_outcome outcome;
	bool changed = false;
	int64_t retry_at;

	(void)state;
	in.host = "host-b";
	row_live(arena, &b, "op-1");
	binding_restart(&b, T0 + 1, &rules, "host-b", &changed);
	changed = false;
	assert_int_equal(binding_begin(arena, &b, T0 + 2, &rules, &in, &outcome, &retry_at, &changed, NULL), 0);
	assert_int_equal(outcome, BEGIN_LIVE);
	assert_true(changed);
	assert_true(binding_renew(&b, T0 + 3, &rules, "op-1", "host-b"));
	changed = false;
	row_provisioning(arena, &b, "op-1");
	assert_int_equal(binding_begin(arena, &b, T0 + 2, &rules, &in, &outcome, &retry_at, &changed, NULL), 0);
	assert_true(changed);
	assert_true(binding_renew(&b, T0 + 3, &rules, "op-1", "host-b"));
	assert_int_equal(b.op_count, 1);
}

static bool all_open(void *arg, const struct binding_op *op)
{
	(void)op;
	return *(bool *)arg;
}

static void an_executions_operation_is_reaped_only_when_its_record_is_closed(void **state)
{
	bool open = true;
	struct binding_gc in = {.host = "host-b", .fence = 77, .open = all_open, .arg = &open};
	bool changed = false;

	(void)state;
	row_live(arena, &b, "op-1");
	assert_int_equal(binding_gc(&b, T0 + 3600000, &rules, &in, &changed), GC_NOTHING);
	assert_int_equal(b.op_count, 1);
	assert_true(b.ops[0].until_ms > T0 + 3600000);
	open = false;
	/* Its end was not seen: nothing proves that its processes are gone. */
	assert_int_equal(binding_gc(&b, T0 + 7200000, &rules, &in, &changed), GC_RELEASE);
	assert_int_equal(b.cause, CAUSE_QUIESCENCE);
}

static void a_condemned_create_is_looked_for_until_it_can_no_longer_appear(void **state)
{
	struct binding_gc in = {.host = "host-b", .fence = 77};
	bool changed = false;

	(void)state;
	row_provisioning(arena, &b, "op-1");
	assert_int_equal(binding_creating(&b, 10, T0 + 60000, NULL), 0);
	assert_int_equal(binding_teardown(&b, T0 + 1, &rules, false, 15, &changed), TEARDOWN_UNDER_WAY);
	assert_int_equal(binding_created(arena, &b, 10, session_of("ref-1"), NULL), ERR_CONFLICT);
	assert_int_equal(binding_gc(&b, T0 + 2, &rules, &in, &changed), GC_NOTHING);
	/* The provisioner reports what it made and that it has stopped: no need to wait for its time to pass. */
	const struct binding_stray made = {"ref-1", ""};

	assert_true(binding_let_go(arena, &b, T0 + 3, b.incarnation, HOST, &made));
	assert_int_equal(b.create_until_ms, T0 + 3);
	assert_int_equal(binding_gc(&b, T0 + 3, &rules, &in, &changed), GC_RELEASE);
	assert_int_equal(b.stray_count, 1);
	assert_int_equal(b.create_until_ms, T0 + 3);
}

static void a_row_that_cannot_be_understood_is_refused(void **state)
{
	static const char *const docs[] = {"", "{}", "[]", "{\"state\":\"sleeping\"}", "{\"state\":\"live\",\"cause\":\"?\"}",
					   "{\"state\":7}"};
	const struct ident ident = {"ws", "task"};

	(void)state;
	for (size_t i = 0; i < sizeof(docs) / sizeof(*docs); i++)
		assert_int_equal(binding_decode(arena, &ident, docs[i], strlen(docs[i]), &b, NULL), ERR_CORRUPT);
}

static void an_old_row_is_read(void **state)
{
	static const char old[] = "{\"state\":\"live\",\"cause\":\"\",\"fence\":5,\"begun\":1700000000000,\"ref\":\"r\"}";
	const struct ident ident = {"ws", "task"};

	(void)state;
	assert_int_equal(binding_decode(arena, &ident, old, strlen(old), &b, NULL), 0);
	assert_int_equal(b.fence, 5);
	assert_string_equal(b.ref, "r");
}

static void a_renewal_never_shortens_a_longer_idle_lease(void **state)
{
	struct binding_rules r = rules;
	enum begin_outcome outcome;
	int64_t lease;

	(void)state;
	r.active_ms = 1000;
	row_live(arena, &b, NULL);
	lease = b.lease_until_ms;
	assert_int_equal(begin_at(T0 + 1, &r, "op-2", 0, &outcome), 0);
	assert_true(binding_renew(&b, T0 + 2, &r, "op-2", HOST));
	assert_int_equal(b.lease_until_ms, lease);
}

static void a_stray_that_turns_out_to_be_the_session_is_none_any_more(void **state)
{
	const struct binding_stray strays[] = {{"ref-1", ""}, {"ref-2", ""}};

	(void)state;
	row_provisioning(arena, &b, "op-1");
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(binding_add_stray(arena, &b, 10, &strays[i], NULL), 0);
	assert_int_equal(binding_add_stray(arena, &b, 10, &strays[0], NULL), 0);
	assert_int_equal(b.stray_count, 2);
	assert_int_equal(binding_created(arena, &b, 10, session_of("ref-1"), NULL), 0);
	assert_int_equal(b.stray_count, 1);
	assert_string_equal(b.strays[0].ref, "ref-2");
	assert_int_equal(binding_add_stray(arena, &b, 10, &strays[0], NULL), 0);
	assert_int_equal(b.stray_count, 1);
}

static void whatever_may_exist_keeps_a_failed_row_from_being_gone(void **state)
{
	struct err why = {0};

	(void)state;
	err_set(&why, ERR_PROVIDER, "it broke");
	row_provisioning(arena, &b, "op-1");
	assert_int_equal(binding_creating(&b, 10, T0 + 5, NULL), 0);
	assert_int_equal(binding_fail(arena, &b, T0, 10, &why, NULL), 0);
	assert_int_equal(b.state, BINDING_RELEASING);
	row_provisioning(arena, &b, "op-1");
	assert_int_equal(binding_retoken(arena, &b, 10, "token-2", NULL), 0);
	assert_int_equal(binding_fail(arena, &b, T0, 10, &why, NULL), 0);
	assert_int_equal(b.state, BINDING_RELEASING);
	/* Certainly refused: nothing to look for. */
	row_provisioning(arena, &b, "op-1");
	assert_int_equal(binding_creating(&b, 10, T0 + 5, NULL), 0);
	assert_int_equal(binding_creating(&b, 10, 0, NULL), 0);
	assert_int_equal(binding_fail(arena, &b, T0, 10, &why, NULL), 0);
	assert_int_equal(b.state, BINDING_GONE);
}

static bool is_host_a(void *arg, const char *host)
{
	(void)arg;
	return strcmp(host, HOST) == 0;
}

/* Only who is certainly dead is certain to send nothing any more. */
static void a_takeover_waits_for_a_create_that_may_still_be_sent(void **state)
{
	struct binding_gc in = {.host = "host-b", .fence = 77, .dead = is_host_a};
	bool changed = false;

	(void)state;
	for (int certain = 0; certain < 2; certain++) {
		in.certain = certain;
		row_provisioning(arena, &b, "op-1");
		assert_int_equal(binding_creating(&b, 10, T0 + 60000, NULL), 0);
		assert_int_equal(binding_gc(&b, T0 + 1, &rules, &in, &changed), GC_TAKE_OVER);
		assert_int_equal(b.create_until_ms, certain ? T0 + 1 : T0 + 60000);
		assert_string_equal(b.owner, "host-b");
		assert_int_equal(b.fence, 77);
	}
}

/* What was not seen for a while may only have been unable to say that it lives. */
static void after_an_outage_only_what_was_asked_for_goes_on(void **state)
{
	struct binding_gc in = {.host = "host-b", .fence = 77, .dead = is_host_a, .hold = true};
	bool changed = false;

	(void)state;
	row_provisioning(arena, &b, "op-1");
	assert_int_equal(binding_gc(&b, T0 + 100000, &rules, &in, &changed), GC_NOTHING);
	row_make(arena, ROW_BUSY, &b);
	assert_int_equal(binding_gc(&b, b.ceiling_ms + 1, &rules, &in, &changed), GC_NOTHING);
	row_make(arena, ROW_IDLE, &b);
	assert_int_equal(binding_gc(&b, b.lease_until_ms + 1, &rules, &in, &changed), GC_NOTHING);
	assert_false(changed);
	row_make(arena, ROW_RELEASING, &b);
	assert_int_equal(binding_gc(&b, T0 + 100000, &rules, &in, &changed), GC_NOTHING); /* its owner may live */
	binding_disown(&b);
	assert_int_equal(binding_gc(&b, T0 + 100000, &rules, &in, &changed), GC_RELEASE);
}

static struct binding kept_of(const struct binding *from, const char *op_id)
{
	const struct ident ident = {"ws", "task"};
	struct binding kept;
	struct buf text;

	buf_init(&text, 1 << 20);
	assert_int_equal(binding_keep(from, op_id, &text), 0);
	assert_int_equal(binding_decode(arena, &ident, text.ptr, text.len, &kept, NULL), 0);
	buf_fini(&text);
	assert_int_equal(kept.op_count, 1);
	return kept;
}

/* A lost store's row comes back from those who hold operations in it, and from nobody else. */
static void a_lost_row_is_put_back_by_its_holders(void **state)
{
	struct binding one, two, now;

	(void)state;
	row_make(arena, ROW_BUSY, &b);
	one = kept_of(&b, b.ops[0].id);
	two = one;
	two.ops = arena_alloc(arena, sizeof(*two.ops));
	two.ops[0] = one.ops[0];
	two.ops[0].id = "op-two";
	row_empty(arena, &now);
	assert_true(binding_announce(arena, &now, T0 + 5000, &rules, false, &one, one.ops[0].id, "host-a", 500));
	assert_int_equal(now.state, BINDING_LIVE);
	assert_string_equal(now.ref, b.ref);
	assert_int_equal(now.incarnation, b.incarnation);
	assert_int_equal(now.fence, 500);
	assert_int_equal(now.op_count, 1);
	/* Told again, and by another host of another operation. */
	assert_true(binding_announce(arena, &now, T0 + 5000, &rules, true, &one, one.ops[0].id, "host-a", 501));
	assert_true(binding_announce(arena, &now, T0 + 6000, &rules, true, &two, "op-two", "host-b", 0));
	assert_int_equal(now.op_count, 2);
	assert_int_equal(now.fence, 500);
	assert_string_equal(binding_find_op(&now, "op-two")->host, "host-b");
	/* Somebody came for the task first. */
	now.incarnation++;
	assert_false(binding_announce(arena, &now, T0 + 7000, &rules, true, &one, one.ops[0].id, "host-a", 502));
	now.incarnation--;
	now.ref = "other";
	assert_false(binding_announce(arena, &now, T0 + 7000, &rules, true, &one, one.ops[0].id, "host-a", 502));
	row_make(arena, ROW_PROVISIONING, &now);
	assert_false(binding_announce(arena, &now, T0 + 7000, &rules, true, &one, one.ops[0].id, "host-a", 502));
}

static int make_arena(void **state)
{
	(void)state;
	arena = arena_new(64 << 20);
	return arena ? 0 : -1;
}

static int drop_arena(void **state)
{
	(void)state;
	arena_free(arena);
	return 0;
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, make_arena, drop_arena)
	const struct CMUnitTest tests[] = {
		TEST(t4_extreme_durations),
		TEST(a_life_of_any_length_is_possible),
		TEST(an_idle_lease_that_has_passed_is_revived_until_it_is_collected),
		TEST(operations_get_their_turn_in_order),
		TEST(waiters_over_the_cap_are_refused),
		TEST(a_provider_that_grants_too_little_is_no_reason_to_rotate),
		TEST(failures_back_off),
		TEST(rows_that_failed_together_come_back_apart),
		TEST(waiters_get_the_failure_they_waited_for),
		TEST(who_begins_an_operation_again_renews_it),
		TEST(a_restart_drops_only_what_nobody_goes_on_with),
		TEST(an_executions_operation_is_reaped_only_when_its_record_is_closed),
		TEST(a_condemned_create_is_looked_for_until_it_can_no_longer_appear),
		TEST(a_row_that_cannot_be_understood_is_refused),
		TEST(an_old_row_is_read),
		TEST(a_renewal_never_shortens_a_longer_idle_lease),
		TEST(a_stray_that_turns_out_to_be_the_session_is_none_any_more),
		TEST(whatever_may_exist_keeps_a_failed_row_from_being_gone),
		TEST(a_takeover_waits_for_a_create_that_may_still_be_sent),
		TEST(after_an_outage_only_what_was_asked_for_goes_on),
		TEST(a_lost_row_is_put_back_by_its_holders),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
