/* SPDX-License-Identifier: Apache-2.0 */
/* A command that a former process left running: until its sandbox was asked, nothing else ends it, starts it again or
 * lets its session be used. */
#include "setup.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "execution/execution_private.h"

static struct host host;

static int up(void **state)
{
	(void)state;
	host_make(&host, "process");
	host_up(&host);
	return 0;
}

static int down(void **state)
{
	(void)state;
	host_down(&host, 0);
	host_end(&host);
	return 0;
}

/* ---- waiting ---- */

/* A run in the hands of this thread, as a worker has one that a former process left. */
static struct run *own_run(const char *id, bool running)
{
	struct ident ident = host_request("t", "x").ident;
	struct err err = {0};
	struct run *run;
	bool room;

	assert_int_equal(queue_add(host.e, &ident, id, false, &room, &run, &err), 0);
	lock_take(&host.e->lock);
	queue_inherit_locked(run, running);
	lock_drop(&host.e->lock);
	return run_ref(run);
}

static enum run_state state_of(struct run *run)
{
	enum run_state state;

	lock_take(&host.e->lock);
	state = run->state;
	lock_drop(&host.e->lock);
	return state;
}

static bool has_ended(void *arg)
{
	return state_of(arg) == RUN_ENDED;
}

/* With the store away its next try fails as the last one did: without a pause the worker would do nothing else. */
static void a_cancelled_one_that_may_run_waits_for_its_timer(void **state)
{
	struct run *run = own_run("sexec_000000000000000000000001", true);

	(void)state;
	lock_take(&host.e->lock);
	run->cancel = true;
	lock_drop(&host.e->lock);
	queue_park(run);
	assert_int_equal(state_of(run), RUN_PARKED);
	/* It has no record: its next turn is its last. */
	queue_timer(run, clock_after_ms(1));
	host_wait(&host, has_ended, run);
	run_unref(run);
}

static void a_cancel_while_it_waits_or_tries_is_not_missed(void **state)
{
	static const char *const ids[] = {"sexec_000000000000000000000002", "sexec_000000000000000000000003"};
	bool done;

	(void)state;
	for (unsigned while_it_tries = 0; while_it_tries < 2; while_it_tries++) {
		struct run *run = own_run(ids[while_it_tries], true);

		if (!while_it_tries)
			queue_park(run);
		assert_int_equal(execution_cancel(host.e, run->id, "user", &done, NULL), ERR_NOT_FOUND);
		if (while_it_tries)
			queue_park(run);
		host_wait(&host, has_ended, run); /* no timer was set */
		run_unref(run);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, up, down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_cancelled_one_that_may_run_waits_for_its_timer),
		TEST(a_cancel_while_it_waits_or_tries_is_not_missed),
	};

	cmocka_set_test_filter(getenv("TEST_FILTER"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
