/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One task, one session: behaviours O1, O4 (lost reply), O5, O6, O7, L7 on the real store and the mock provider.
 */
#include "world.h"

static struct world w;

static void restart_with(void (*change)(void))
{
	world_down(&w, 5000);
	change();
	world_up(&w);
}

/* ---- O1 ---- */

struct racer {
	pthread_t thread;
	char op_id[16];
	struct session_hold *hold;
	struct err err;
	int code;
};

static void *race(void *arg)
{
	struct racer *racer = arg;

	racer->code = world_acquire(&w, "o1", racer->op_id, &racer->hold, &racer->err);
	return NULL;
}

static void o1_sixty_four_first_requests_make_one_session(void **state)
{
	static struct racer racers[64];

	(void)state;
	memset(racers, 0, sizeof(racers));
	for (size_t i = 0; i < 64; i++) {
		snprintf(racers[i].op_id, sizeof(racers[i].op_id), "op_%zu", i);
		assert_int_equal(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
	}
	for (size_t i = 0; i < 64; i++)
		pthread_join(racers[i].thread, NULL);
	for (size_t i = 0; i < 64; i++) {
		assert_int_equal(racers[i].code, 0);
		assert_int_equal(racers[i].hold->session.ref.len, racers[0].hold->session.ref.len);
		assert_memory_equal(racers[i].hold->session.ref.ptr, racers[0].hold->session.ref.ptr,
				    racers[0].hold->session.ref.len);
		assert_int_equal(racers[i].hold->incarnation, racers[0].hold->incarnation);
	}
	assert_int_equal(world_counter(&w, "provision"), 1);
	assert_int_equal(world_sessions(&w, NULL), 1);
	for (size_t i = 0; i < 64; i++)
		world_release(&w, racers[i].hold);
	assert_true(world_says(&w, "o1", "\"stage\":\"idle\""));
	assert_true(world_agrees(&w));
}

/* More waiters than may run at once: each gets its turn when another one ends. */
static void *race_and_end(void *arg)
{
	struct racer *racer = arg;

	racer->code = world_acquire(&w, "narrow", racer->op_id, &racer->hold, &racer->err);
	if (racer->code == 0)
		world_release(&w, racer->hold);
	return NULL;
}

static void two_at_once(void)
{
	w.conf.task_concurrency = 2;
}

static void operations_over_the_concurrency_take_turns(void **state)
{
	static struct racer racers[16];

	(void)state;
	restart_with(two_at_once);
	memset(racers, 0, sizeof(racers));
	for (size_t i = 0; i < 16; i++) {
		snprintf(racers[i].op_id, sizeof(racers[i].op_id), "op_%zu", i);
		assert_int_equal(pthread_create(&racers[i].thread, NULL, race_and_end, &racers[i]), 0);
	}
	for (size_t i = 0; i < 16; i++) {
		pthread_join(racers[i].thread, NULL);
		assert_int_equal(racers[i].code, 0);
	}
	assert_int_equal(world_counter(&w, "created"), 1);
	assert_true(world_says(&w, "narrow", "\"operations\":[]"));
}

/* ---- O4: the reply of a create is lost ---- */

static void slow_to_settle(void)
{
	static char settle[] = "2s";

	w.settings[2].value = settle;
}

static void o4_a_create_whose_reply_was_lost_is_found(void **state)
{
	struct session_hold *hold;
	struct err err = {0};

	(void)state;
	restart_with(slow_to_settle);
	world_faults(&w, "provision nth=1 lost_reply\n");
	assert_int_equal(world_acquire(&w, "o4", "op_1", &hold, &err), 0);
	assert_int_equal(world_counter(&w, "created"), 1);
	assert_int_equal(world_sessions(&w, NULL), 1);
	world_release(&w, hold);
}

static void o4_a_create_that_appears_late_is_found(void **state)
{
	struct session_hold *hold;
	struct err err = {0};

	(void)state;
	restart_with(slow_to_settle);
	world_faults(&w, "provision nth=1 lost_reply late=600ms\n");
	assert_int_equal(world_acquire(&w, "o4", "op_1", &hold, &err), 0);
	assert_int_equal(world_counter(&w, "created"), 1);
	assert_int_equal(world_sessions(&w, NULL), 1);
	world_release(&w, hold);
	assert_true(world_agrees(&w));
}

/* Nothing came of the first create: settled, its token is superseded, and one more is sent. */
static void o4_a_create_that_never_happened_is_sent_again(void **state)
{
	struct session_hold *hold;
	struct err err = {0};

	(void)state;
	world_faults(&w, "provision nth=1 code=UNKNOWN\n");
	assert_int_equal(world_acquire(&w, "o4", "op_1", &hold, &err), 0);
	assert_int_equal(world_counter(&w, "provision"), 2);
	assert_int_equal(world_sessions(&w, NULL), 1);
	world_release(&w, hold);
}

/* A provider that breaks its promise: the session appears after the settle time. It is never used, and goes. */
static void a_create_later_than_promised_is_deleted_and_not_adopted(void **state)
{
	const struct ident ident = world_ident("late");
	struct session_hold *hold;
	struct err err = {0};
	bool gone = false;

	(void)state;
	world_faults(&w, "provision nth=1 lost_reply late=300ms\n");
	assert_int_equal(world_acquire(&w, "late", "op_1", &hold, &err), 0);
	assert_int_equal(world_counter(&w, "created"), 2);
	world_release(&w, hold);
	/* By the time of the release it can be seen, and carries a superseded token. */
	world_faults(&w, "release nth=1 delay=400ms\n");
	assert_int_equal(session_teardown(w.s, &ident, true, clock_after_ms(WAIT_MS), &gone, &err), 0);
	assert_true(gone);
	assert_int_equal(world_sessions(&w, NULL), 0);
}

static bool verifies(void)
{
	struct buf buf;
	bool ok;

	buf_init(&buf, 1 << 20);
	assert_int_equal(session_verify(w.s, clock_after_ms(WAIT_MS), &buf, &ok, NULL), 0);
	buf_fini(&buf);
	return ok;
}

static void soon_old(void)
{
	w.conf.scheduling_ms = w.conf.starting_ms = 500;
}

/* Its task goes on in the next session: that one keeps nobody from seeing the first, nor from deleting it. */
static void a_create_later_than_promised_does_not_live_beside_the_next(void **state)
{
	struct session_hold *hold;
	struct err err = {0};
	int64_t end;

	(void)state;
	world_faults(&w, "provision nth=1 lost_reply late=300ms\n");
	assert_int_equal(world_acquire(&w, "late", "op_1", &hold, &err), 0);
	world_release(&w, hold);
	for (end = clock_after_ms(WAIT_MS); verifies() && clock_left_ms(end) > 0;)
		continue;
	assert_false(verifies());
	assert_int_equal(world_sessions(&w, NULL), 2);
	restart_with(soon_old);
	assert_int_equal(session_recover(w.s, &err), 0);
	assert_true(world_agrees(&w));
	for (end = clock_after_ms(WAIT_MS); world_sessions(&w, NULL) > 1 && clock_left_ms(end) > 0;)
		session_kick_gc(w.s);
	assert_int_equal(world_sessions(&w, NULL), 1);
	assert_true(world_says(&w, "late", "\"state\":\"live\""));
	assert_int_equal(world_acquire(&w, "late", "op_2", &hold, &err), 0);
	assert_int_equal(world_counter(&w, "created"), 2);
	world_release(&w, hold);
}

static void creates_are_bounded(void **state)
{
	struct session_hold *hold;
	struct err err = {0};

	(void)state;
	world_faults(&w, "provision code=UNKNOWN\n");
	assert_int_equal(world_acquire(&w, "bounded", "op_1", &hold, &err), ERR_PROVIDER);
	assert_int_equal(world_counter(&w, "provision"), 3);
	assert_true(world_until(&w, "bounded", "\"state\":\"gone\""));
}

/* ---- O5 ---- */

static void o5_an_error_of_the_lookup_is_never_absence(void **state)
{
	static const struct {
		const char *rule;
		int code;
	} cases[] = {
		{"find code=UNAUTHENTICATED\n", ERR_PROVIDER_AUTH},
		{"find code=FORBIDDEN\n", ERR_PROVIDER_AUTH},
		{"find code=RATE_LIMITED retry_after=3s\n", ERR_RATE_LIMITED},
		{"find code=UNAVAILABLE reason=http_500\n", ERR_PROVIDER_UNAVAILABLE},
		{"find code=TIMEOUT\n", ERR_PROVIDER_TIMEOUT},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct session_hold *hold = NULL;
		struct err err = {0};
		char task[16];

		snprintf(task, sizeof(task), "o5-%zu", i);
		world_faults(&w, cases[i].rule);
		assert_int_equal(world_acquire(&w, task, "op_1", &hold, &err), cases[i].code);
		assert_null(hold);
		assert_true(err.reason[0] != '\0');
		assert_true(err.retry_after_ms > 0);
		if (cases[i].code == ERR_RATE_LIMITED)
			assert_in_range(err.retry_after_ms, 2000, 3000);
	}
	assert_int_equal(world_counter(&w, "provision"), 0);
	assert_int_equal(world_sessions(&w, NULL), 0);
}

/* A look that hangs is given up and repeated, within the time that the task has. */
static void a_look_that_hangs_is_repeated(void **state)
{
	struct session_hold *hold;
	struct err err = {0};

	(void)state;
	w.s->find_ms = 200;
	world_faults(&w, "find nth=1 hang\n");
	assert_int_equal(world_acquire(&w, "hangs", "op_1", &hold, &err), 0);
	assert_true(world_counter(&w, "find") >= 2);
	assert_int_equal(world_sessions(&w, NULL), 1);
	world_release(&w, hold);
}

/* Within the back-off the same failure is answered without asking the provider. */
static void a_failure_is_answered_to_newcomers_for_a_while(void **state)
{
	struct session_hold *hold = NULL;
	struct err err = {0};
	long finds;

	(void)state;
	world_faults(&w, "find code=RATE_LIMITED retry_after=60s\n");
	assert_int_equal(world_acquire(&w, "back-off", "op_1", &hold, &err), ERR_RATE_LIMITED);
	finds = world_counter(&w, "find");
	assert_int_equal(world_acquire(&w, "back-off", "op_2", &hold, &err), ERR_RATE_LIMITED);
	assert_int_equal(world_counter(&w, "find"), finds);
	assert_true(world_says(&w, "back-off", "\"code\":\"rate_limited\""));
}

/* ---- O6 ---- */

static void o6_the_loser_of_a_race_adopts_the_winners_session(void **state)
{
	struct session_hold *hold;
	struct err err = {0};

	(void)state;
	world_plant(&w, "o6", "mock-00000000000000aa", "winner", 300);
	world_faults(&w, "provision nth=1 delay=600ms code=CONFLICT\n");
	assert_int_equal(world_acquire(&w, "o6", "op_1", &hold, &err), 0);
	assert_memory_equal(hold->session.ref.ptr, "mock-00000000000000aa", hold->session.ref.len);
	assert_int_equal(world_counter(&w, "created"), 0);
	assert_int_equal(world_counter(&w, "release"), 0);
	assert_int_equal(world_sessions(&w, NULL), 1);
	world_release(&w, hold);
}

/* Two sessions carry the task: the older one is used, the other one deleted while the first lives on. */
static void of_two_sessions_one_is_adopted_and_one_deleted(void **state)
{
	struct session_hold *hold;
	struct err err = {0};
	char ref[64];

	(void)state;
	world_plant(&w, "two", "mock-00000000000000aa", "someone", 0);
	world_plant(&w, "two", "mock-00000000000000bb", "someone", 0);
	assert_int_equal(world_acquire(&w, "two", "op_1", &hold, &err), 0);
	assert_true(world_agrees(&w));
	/* A round that meets the provisioner still at work leaves the row for a later one. */
	for (int64_t end = clock_after_ms(WAIT_MS); world_sessions(&w, ref) > 1 && clock_left_ms(end) > 0;) {
		session_kick_gc(w.s);
		world_until(&w, "two", "\"state\":\"live\"");
	}
	assert_int_equal(world_sessions(&w, ref), 1);
	assert_memory_equal(hold->session.ref.ptr, ref, hold->session.ref.len);
	assert_int_equal(world_counter(&w, "created"), 0);
	world_release(&w, hold);
}

/* ---- O7 ---- */

static void idle_not_at_all(void)
{
	w.conf.lease_idle_ms = 0;
}

static void idle_a_second(void)
{
	w.conf.lease_idle_ms = 1000;
}

static void overlapping_operations(const char *task)
{
	struct session_hold *first, *second;
	struct err err = {0};
	int64_t incarnation;

	assert_int_equal(world_acquire(&w, task, "op_1", &first, &err), 0);
	assert_int_equal(world_acquire(&w, task, "op_2", &second, &err), 0);
	incarnation = first->incarnation;
	world_release(&w, first);
	/* Two rounds of the GC and more pass by while the second goes on. */
	for (int64_t end = clock_after_ms(1500); clock_left_ms(end) > 0;)
		world_until(&w, task, "\"stage\":\"active\"");
	assert_false(session_hold_lost(second, NULL));
	assert_int_equal(second->incarnation, incarnation);
	assert_int_equal(world_sessions(&w, NULL), 1);
	world_release(&w, second);
	assert_true(world_until(&w, task, "\"state\":\"gone\""));
	assert_true(world_says(&w, task, "\"cause\":\"expired\""));
	assert_int_equal(world_sessions(&w, NULL), 0);
}

static void o7_the_first_to_end_does_not_take_the_session(void **state)
{
	(void)state;
	restart_with(idle_a_second);
	overlapping_operations("o7-second");
	restart_with(idle_not_at_all);
	overlapping_operations("o7-zero");
}

/* ---- L7, isolation, capacity ---- */

static void l7_a_session_that_never_becomes_ready_fails_with_its_reason(void **state)
{
	struct session_hold *hold = NULL;
	struct err err = {0};

	(void)state;
	world_faults(&w, "await_ready code=INVALID reason=image_pull\n");
	assert_int_equal(world_acquire(&w, "l7", "op_1", &hold, &err), ERR_PROVIDER);
	assert_string_equal(err.reason, "image_pull");
	assert_true(world_until(&w, "l7", "\"state\":\"gone\""));
	assert_int_equal(world_counter(&w, "created"), 1);
	assert_int_equal(world_sessions(&w, NULL), 0);
}

static void want_containers(void)
{
	static char container[] = "container";

	w.targets[0].isolation = container;
	world_faults(&w, "open isolation=container\nawait_ready isolation=none\n");
}

static void a_session_with_weaker_isolation_is_refused_and_deleted(void **state)
{
	struct session_hold *hold = NULL;
	struct err err = {0};

	(void)state;
	restart_with(want_containers);
	assert_int_equal(world_acquire(&w, "weak", "op_1", &hold, &err), ERR_PROVIDER);
	assert_string_equal(err.reason, "isolation");
	assert_true(world_until(&w, "weak", "\"state\":\"gone\""));
	assert_int_equal(world_sessions(&w, NULL), 0);
}

static void a_session_waits_for_capacity_and_is_kept(void **state)
{
	struct session_hold *hold;
	struct err err = {0};

	(void)state;
	world_faults(&w, "await_ready count=3 code=CAPACITY reason=unschedulable\n");
	assert_int_equal(world_acquire(&w, "patient", "op_1", &hold, &err), 0);
	assert_int_equal(world_counter(&w, "created"), 1);
	assert_int_equal(world_counter(&w, "release"), 0);
	world_release(&w, hold);
}

static void soon_tired(void)
{
	w.conf.scheduling_ms = 500;
}

static void capacity_that_never_comes_is_a_bounded_failure(void **state)
{
	struct session_hold *hold = NULL;
	struct err err = {0};

	(void)state;
	restart_with(soon_tired);
	world_faults(&w, "await_ready code=CAPACITY reason=unschedulable\n");
	assert_int_equal(world_acquire(&w, "full", "op_1", &hold, &err), ERR_CAPACITY);
	assert_string_equal(err.reason, "unschedulable");
	assert_true(err.retryable && err.retry_after_ms > 0);
	assert_true(world_until(&w, "full", "\"state\":\"gone\""));
}

static void at_most_two(void)
{
	w.targets[0].max_sessions = 2;
}

static void max_sessions_is_a_limit_of_the_target(void **state)
{
	struct session_hold *holds[3];
	const struct ident ident = world_ident("limit-0");
	struct err err = {0};
	bool gone;

	(void)state;
	restart_with(at_most_two);
	assert_int_equal(world_acquire(&w, "limit-0", "op_1", &holds[0], &err), 0);
	assert_int_equal(world_acquire(&w, "limit-1", "op_1", &holds[1], &err), 0);
	assert_int_equal(world_acquire(&w, "limit-2", "op_1", &holds[2], &err), ERR_CAPACITY);
	assert_string_equal(err.reason, "max_sessions");
	world_release(&w, holds[0]);
	world_release(&w, holds[1]);
	assert_int_equal(session_teardown(w.s, &ident, false, clock_after_ms(WAIT_MS), &gone, &err), 0);
	assert_true(gone);
	assert_int_equal(world_acquire(&w, "limit-2", "op_1", &holds[2], &err), 0);
	world_release(&w, holds[2]);
}

int main(int argc, char **argv)
{
#define TEST(fn) cmocka_unit_test_prestate_setup_teardown(fn, world_setup, world_teardown, &w)
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	const struct CMUnitTest tests[] = {
		TEST(o1_sixty_four_first_requests_make_one_session),
		TEST(operations_over_the_concurrency_take_turns),
		TEST(o4_a_create_whose_reply_was_lost_is_found),
		TEST(o4_a_create_that_appears_late_is_found),
		TEST(o4_a_create_that_never_happened_is_sent_again),
		TEST(a_create_later_than_promised_is_deleted_and_not_adopted),
		TEST(a_create_later_than_promised_does_not_live_beside_the_next),
		TEST(creates_are_bounded),
		TEST(o5_an_error_of_the_lookup_is_never_absence),
		TEST(a_look_that_hangs_is_repeated),
		TEST(a_failure_is_answered_to_newcomers_for_a_while),
		TEST(o6_the_loser_of_a_race_adopts_the_winners_session),
		TEST(of_two_sessions_one_is_adopted_and_one_deleted),
		TEST(o7_the_first_to_end_does_not_take_the_session),
		TEST(l7_a_session_that_never_becomes_ready_fails_with_its_reason),
		TEST(a_session_with_weaker_isolation_is_refused_and_deleted),
		TEST(a_session_waits_for_capacity_and_is_kept),
		TEST(capacity_that_never_comes_is_a_bounded_failure),
		TEST(max_sessions_is_a_limit_of_the_target),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
