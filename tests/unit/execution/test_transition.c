/* SPDX-License-Identifier: Apache-2.0 */
/* Every event from every status, against the table as people agreed on it; attempts, replays, times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "execution/transition.h"

/* Rows: status before; columns: events in their order. '-' = refused, else the first letter of the status after (x =
 * cancelled). */
static const char *const expected[RECORD_STATUS_COUNT] = {
	[RECORD_NONE] = "q--------",	  [RECORD_QUEUED] = "-c-----fx",    [RECORD_CLAIMED] = "--c-r--fx",
	[RECORD_RUNNING] = "--rr-rdfx",	  [RECORD_COMPLETED] = "---------", [RECORD_FAILED] = "---------",
	[RECORD_CANCELLED] = "---------",
};
static const char letters[RECORD_STATUS_COUNT] = {'-', 'q', 'c', 'r', 'd', 'f', 'x'};

static struct record record_in(enum record_status status)
{
	return (struct record){
		.id = "sexec_000000000000000000000001",
		.revision = status == RECORD_NONE ? 0 : 3,
		.status = status,
		.attempt = status == RECORD_NONE || status == RECORD_QUEUED ? 0 : 2,
		.command.timeout_seconds = 60,
	};
}

static int64_t right_attempt(const struct record *r, enum record_event event)
{
	return event == EVENT_CLAIMED || event == EVENT_RECLAIMED ? r->attempt + 1 : r->attempt;
}

static void every_pair_follows_the_table(void **state)
{
	(void)state;
	for (unsigned from = 0; from < RECORD_STATUS_COUNT; from++) {
		for (unsigned event = 0; event < RECORD_EVENT_COUNT; event++) {
			struct record r = record_in(from), before = r;
			struct record_change change = {.attempt = right_attempt(&r, event), .reason = "why"};
			char want = expected[from][event];
			bool replay = false;
			struct err err = {0};
			int rc = transition_apply(&r, event, &change, 1000, &replay, &err);

			assert_false(replay);
			assert_int_equal(letters[transition_next(from, event)], want);
			if (want == '-') {
				assert_int_equal(rc, ERR_EXECUTION_CONFLICT);
				assert_memory_equal(&r, &before, sizeof(r));
				continue;
			}
			assert_int_equal(rc, 0);
			assert_int_equal(letters[r.status], want);
			assert_int_equal(r.revision, before.revision + 1);
			assert_int_equal(r.updated_ms, 1000);
		}
	}
}

static void a_former_owner_is_refused(void **state)
{
	static const enum record_event events[] = {EVENT_STARTED,   EVENT_PROGRESS,  EVENT_COMPLETED, EVENT_FAILED,
						   EVENT_CANCELLED, EVENT_RESTARTED, EVENT_RECLAIMED};
	(void)state;
	for (unsigned i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
		struct record r = record_in(events[i] == EVENT_STARTED ? RECORD_CLAIMED : RECORD_RUNNING), before = r;
		struct record_change change = {.attempt = 1};
		bool replay;

		assert_int_equal(transition_apply(&r, events[i], &change, 5, &replay, NULL), ERR_EXECUTION_CONFLICT);
		assert_memory_equal(&r, &before, sizeof(r));
	}
}

static void an_end_without_an_owner_is_taken(void **state)
{
	struct record r = record_in(RECORD_CLAIMED);
	struct record_change change = {.reason = "task_deleted"};
	bool replay;

	(void)state;
	assert_int_equal(transition_apply(&r, EVENT_CANCELLED, &change, 5, &replay, NULL), 0);
	assert_int_equal(r.status, RECORD_CANCELLED);
	assert_int_equal(r.completed_ms, 5);
	assert_string_equal(r.reason, "task_deleted");
}

static void an_exact_replay_changes_nothing(void **state)
{
	struct record_result result = {.exit_code = 3, .stdout_ref = "executions/x/stdout", .stdout_bytes = 9};
	struct record_ending ending = {.kind = "exit", .exit_code = 3};
	struct record_change change = {.attempt = 2, .result = &result, .ending = &ending};
	struct record r = record_in(RECORD_RUNNING), before;
	bool replay;

	(void)state;
	assert_int_equal(transition_apply(&r, EVENT_COMPLETED, &change, 5, &replay, NULL), 0);
	assert_false(replay);
	before = r;
	assert_int_equal(transition_apply(&r, EVENT_COMPLETED, &change, 900, &replay, NULL), 0);
	assert_true(replay);
	assert_memory_equal(&r, &before, sizeof(r));

	struct record_result other = result;

	other.exit_code = 4;
	change.result = &other;
	assert_int_equal(transition_apply(&r, EVENT_COMPLETED, &change, 900, &replay, NULL), ERR_EXECUTION_CONFLICT);
	change.result = &result;
	change.reason = "other";
	assert_int_equal(transition_apply(&r, EVENT_COMPLETED, &change, 900, &replay, NULL), ERR_EXECUTION_CONFLICT);
	change.reason = NULL;
	assert_int_equal(transition_apply(&r, EVENT_FAILED, &change, 900, &replay, NULL), ERR_EXECUTION_CONFLICT);
	assert_memory_equal(&r, &before, sizeof(r));
}

static void a_restart_keeps_the_deadline(void **state)
{
	struct record_change started = {.attempt = 2, .incarnation = 7, .target = "a", .grace_ms = 10000};
	struct record_change reclaimed = {.attempt = 3};
	struct record_change restarted = {.attempt = 3, .incarnation = 7, .target = "a", .grace_ms = 10000};
	struct record r = record_in(RECORD_CLAIMED);
	bool replay;

	(void)state;
	assert_int_equal(transition_apply(&r, EVENT_STARTED, &started, 100, &replay, NULL), 0);
	assert_int_equal(r.started_ms, 100);
	assert_int_equal(r.execution_expires_ms, 100 + 60000 + 10000);
	assert_int_equal(r.incarnation, 7);
	assert_int_equal(transition_apply(&r, EVENT_RECLAIMED, &reclaimed, 200, &replay, NULL), 0);
	assert_int_equal(r.attempt, 3);
	assert_int_equal(transition_apply(&r, EVENT_RESTARTED, &restarted, 300, &replay, NULL), 0);
	assert_int_equal(r.started_ms, 100);
	assert_int_equal(r.execution_expires_ms, 100 + 60000 + 10000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_pair_follows_the_table),	    cmocka_unit_test(a_former_owner_is_refused),
		cmocka_unit_test(an_end_without_an_owner_is_taken), cmocka_unit_test(an_exact_replay_changes_nothing),
		cmocka_unit_test(a_restart_keeps_the_deadline),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
