/* SPDX-License-Identifier: Apache-2.0 */
/* Pools: grow on demand, bound what waits, keep every accepted job, shrink when idle, stop in time. */
#include "unit.h"

#include "core/clock.h"
#include "core/err.h"
#include "core/thread.h"

static struct lock lock;
static struct cond changed;
static unsigned started, finished;
static bool open_gate;

static int begin(void **state)
{
	(void)state;
	lock_init(&lock, LOCK_SERVER);
	cond_init(&changed);
	started = finished = 0;
	open_gate = false;
	return 0;
}

static int end(void **state)
{
	(void)state;
	cond_fini(&changed);
	lock_fini(&lock);
	return 0;
}

static void set_gate(bool open)
{
	lock_take(&lock);
	open_gate = open;
	cond_wake_all(&changed);
	lock_drop(&lock);
}

static void wait_started(unsigned count)
{
	lock_take(&lock);
	while (started < count)
		cond_wait_until(&changed, &lock, INT64_MAX);
	lock_drop(&lock);
}

static void wait_finished(unsigned count)
{
	lock_take(&lock);
	while (finished < count)
		cond_wait_until(&changed, &lock, INT64_MAX);
	lock_drop(&lock);
}

/* Jobs wait behind the gate, so a test knows what runs. */
static void job(void *arg)
{
	(void)arg;
	lock_take(&lock);
	started++;
	cond_wake_all(&changed);
	while (!open_gate)
		cond_wait_until(&changed, &lock, INT64_MAX);
	finished++;
	cond_wake_all(&changed);
	lock_drop(&lock);
}

static void test_runs_and_queues_up_to_its_limits(void **state)
{
	struct pool *pool = pool_new("unit", 3, 2);

	(void)state;
	assert_non_null(pool);
	for (int i = 0; i < 5; i++) /* a burst: nobody has fetched anything yet */
		assert_int_equal(pool_submit(pool, job, NULL), 0);
	assert_int_equal(pool_submit(pool, job, NULL), ERR_QUEUE_FULL);
	wait_started(3);
	assert_int_equal(pool_busy(pool), 3);
	assert_int_equal(pool_queued(pool), 2);
	assert_int_equal(pool_threads(pool), 3);
	assert_int_equal(pool_submit(pool, job, NULL), ERR_QUEUE_FULL);
	set_gate(true);
	wait_finished(5);
	assert_int_equal(pool_submit(pool, job, NULL), 0);
	assert_true(pool_stop(pool, INT64_MAX));
	assert_int_equal(finished, 6);
	pool_free(pool);
}

static void test_no_queue_at_all(void **state)
{
	struct pool *pool = pool_new("unit", 1, 0);

	(void)state;
	assert_int_equal(pool_submit(pool, job, NULL), 0);
	assert_int_equal(pool_submit(pool, job, NULL), ERR_QUEUE_FULL);
	set_gate(true);
	pool_free(pool);
	assert_int_equal(finished, 1);
}

static void test_stop_runs_what_is_queued(void **state)
{
	struct pool *pool = pool_new("unit", 2, 100);

	(void)state;
	for (int i = 0; i < 50; i++)
		assert_int_equal(pool_submit(pool, job, NULL), 0);
	set_gate(true);
	assert_true(pool_stop(pool, INT64_MAX));
	assert_int_equal(finished, 50);
	assert_int_equal(pool_submit(pool, job, NULL), ERR_SHUTTING_DOWN);
	assert_int_equal(pool_threads(pool), 0);
	assert_true(pool_stop(pool, 0)); /* again is harmless */
	pool_free(pool);
	pool_free(NULL);
}

static void test_stop_gives_up_at_its_deadline(void **state)
{
	struct pool *pool = pool_new("unit", 1, 10);

	(void)state;
	assert_int_equal(pool_submit(pool, job, NULL), 0);
	wait_started(1);
	assert_false(pool_stop(pool, clock_after_ms(10)));
	assert_int_equal(pool_submit(pool, job, NULL), ERR_SHUTTING_DOWN);
	set_gate(true);
	assert_true(pool_stop(pool, INT64_MAX));
	pool_free(pool);
}

static void wait_threads(struct pool *pool, unsigned count)
{
	lock_take(&lock);
	while (pool_threads(pool) != count)
		cond_wait_until(&changed, &lock, clock_after_ms(1));
	lock_drop(&lock);
}

/* One that is stuck gives its place to another; when it comes back there is one too many, which leaves. */
static void test_a_lent_thread_does_not_count(void **state)
{
	struct pool *pool = pool_new("unit", 1, 1);

	(void)state;
	assert_int_equal(pool_submit(pool, job, NULL), 0);
	wait_started(1);
	assert_int_equal(pool_submit(pool, job, NULL), 0); /* waits */
	assert_int_equal(pool_submit(pool, job, NULL), ERR_QUEUE_FULL);
	pool_lend(pool);
	wait_started(2);
	assert_int_equal(pool_submit(pool, job, NULL), 0);
	assert_int_equal(pool_submit(pool, job, NULL), ERR_QUEUE_FULL);
	assert_int_equal(pool_threads(pool), 2);
	pool_take_back(pool);
	set_gate(true);
	wait_finished(3);
	wait_threads(pool, 1);
	pool_free(pool);
}

static void test_stop_does_not_wait_for_a_lent_thread(void **state)
{
	struct pool *pool = pool_new("unit", 1, 1);

	(void)state;
	assert_int_equal(pool_submit(pool, job, NULL), 0);
	wait_started(1);
	pool_lend(pool);
	assert_false(pool_stop(pool, INT64_MAX));
	pool_take_back(pool);
	set_gate(true);
	assert_true(pool_stop(pool, INT64_MAX));
	pool_free(pool);
}

static void test_idle_threads_leave_and_come_back(void **state)
{
	struct pool *pool = pool_new("unit", 4, 10);

	(void)state;
	pool_set_idle_ms(pool, 5);
	for (unsigned round = 1; round <= 3; round++) {
		set_gate(false);
		for (int i = 0; i < 4; i++)
			assert_int_equal(pool_submit(pool, job, NULL), 0);
		wait_started(4 * round);
		assert_int_equal(pool_threads(pool), 4);
		set_gate(true);
		wait_threads(pool, 0);
	}
	assert_int_equal(finished, 12);
	pool_free(pool);
}

static void wait_not_busy(struct pool *pool)
{
	lock_take(&lock);
	while (pool_busy(pool))
		cond_wait_until(&changed, &lock, clock_after_ms(1));
	lock_drop(&lock);
}

static void test_one_job_at_a_time_needs_one_thread(void **state)
{
	struct pool *pool = pool_new("unit", 8, 10);

	(void)state;
	set_gate(true);
	for (unsigned i = 1; i <= 50; i++) {
		assert_int_equal(pool_submit(pool, job, NULL), 0);
		wait_finished(i);
		wait_not_busy(pool);
	}
	assert_int_equal(pool_threads(pool), 1);
	pool_free(pool);
}

static struct pool *shared;

static void *submit_many(void *arg)
{
	unsigned *accepted = arg;

	for (int i = 0; i < 2000; i++)
		*accepted += pool_submit(shared, job, NULL) == 0;
	return NULL;
}

static void test_nothing_accepted_is_lost(void **state)
{
	unsigned accepted[3] = {0};
	pthread_t threads[3];

	(void)state;
	shared = pool_new("unit", 4, 20);
	pool_set_idle_ms(shared, 0); /* threads come and go all the time */
	set_gate(true);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(thread_start(&threads[i], "submit", submit_many, &accepted[i]), 0);
	for (size_t i = 0; i < 3; i++)
		thread_join_until(threads[i], INT64_MAX);
	assert_true(pool_stop(shared, INT64_MAX));
	assert_int_equal(finished, accepted[0] + accepted[1] + accepted[2]);
	assert_true(finished > 0);
	pool_free(shared);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_runs_and_queues_up_to_its_limits, begin, end),
		cmocka_unit_test_setup_teardown(test_no_queue_at_all, begin, end),
		cmocka_unit_test_setup_teardown(test_stop_runs_what_is_queued, begin, end),
		cmocka_unit_test_setup_teardown(test_stop_gives_up_at_its_deadline, begin, end),
		cmocka_unit_test_setup_teardown(test_a_lent_thread_does_not_count, begin, end),
		cmocka_unit_test_setup_teardown(test_stop_does_not_wait_for_a_lent_thread, begin, end),
		cmocka_unit_test_setup_teardown(test_idle_threads_leave_and_come_back, begin, end),
		cmocka_unit_test_setup_teardown(test_one_job_at_a_time_needs_one_thread, begin, end),
		cmocka_unit_test_setup_teardown(test_nothing_accepted_is_lost, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
