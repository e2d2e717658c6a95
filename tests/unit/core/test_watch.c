/* SPDX-License-Identifier: Apache-2.0 */
/* Watches: every waiter is fired exactly once or cancelled, in time, and no wake-up is lost. */
#include "unit.h"

#include "core/clock.h"
#include "core/thread.h"
#include "core/watch.h"

static struct lock lock;
static struct cond changed;

struct probe {
	struct watch_waiter waiter;
	int fired, timed_out;
	int64_t at_ns;
};

static void fire(struct watch_waiter *waiter, bool timed_out)
{
	struct probe *probe = waiter->arg;

	lock_take(&lock);
	probe->fired++;
	probe->timed_out += timed_out;
	probe->at_ns = clock_boot_ns();
	cond_wake_all(&changed);
	lock_drop(&lock);
}

static void probe_add(struct watch *watch, struct probe *probe, const char *key, int64_t deadline_ns)
{
	memset(probe, 0, sizeof(*probe));
	probe->waiter = (struct watch_waiter){.key = key, .fire = fire, .arg = probe, .deadline_ns = deadline_ns};
	watch_add(watch, &probe->waiter);
}

static int fired(struct probe *probe)
{
	lock_take(&lock);

	int count = probe->fired;

	lock_drop(&lock);
	return count;
}

static void wait_fired(struct probe *probe)
{
	lock_take(&lock);
	while (!probe->fired)
		cond_wait_until(&changed, &lock, INT64_MAX);
	lock_drop(&lock);
}

static void test_notify_fires_its_key_once(void **state)
{
	struct watch *watch = watch_new();
	struct probe a, b, other;

	(void)state;
	probe_add(watch, &a, "task:w/t", INT64_MAX);
	probe_add(watch, &b, "task:w/t", INT64_MAX);
	probe_add(watch, &other, "task:w/u", INT64_MAX);
	watch_notify(watch, "task:w/t");
	watch_notify(watch, "task:w/t");
	watch_notify(watch, "nobody");
	assert_int_equal(fired(&a), 1);
	assert_int_equal(fired(&b), 1);
	assert_int_equal(fired(&other), 0);
	assert_int_equal(a.timed_out, 0);
	assert_false(watch_cancel(watch, &a.waiter));
	assert_true(watch_cancel(watch, &other.waiter));
	assert_false(watch_cancel(watch, &other.waiter));
	watch_notify(watch, "task:w/u");
	assert_int_equal(fired(&other), 0);
	watch_free(watch);
	watch_free(NULL);
}

static void test_deadlines_fire_in_time(void **state)
{
	struct watch *watch = watch_new();
	struct probe late, soon, past, never;
	int64_t soon_ns = clock_after_ms(30);

	(void)state;
	probe_add(watch, &never, "k", INT64_MAX);
	probe_add(watch, &late, "k", clock_after_ms(3600000));
	probe_add(watch, &soon, "k", soon_ns);
	probe_add(watch, &past, "k", 1);
	wait_fired(&past);
	wait_fired(&soon);
	assert_int_equal(soon.timed_out, 1);
	assert_true(soon.at_ns >= soon_ns);
	assert_int_equal(fired(&late), 0);
	watch_free(watch);
	assert_int_equal(late.fired, 1);
	assert_int_equal(late.timed_out, 1);
	assert_int_equal(never.timed_out, 1);
}

/* The timer thread goes on sleeping until a deadline that was taken off. */
static void test_deadlines_after_one_was_taken_off(void **state)
{
	struct watch *watch = watch_new();
	struct probe off, after, before;

	(void)state;
	for (int i = 0; i < 20; i++) {
		probe_add(watch, &off, "k", clock_after_ms(3));
		watch_cancel(watch, &off.waiter);
		probe_add(watch, &after, "k", clock_after_ms(4));
		wait_fired(&after);
		assert_int_equal(after.timed_out, 1);
		probe_add(watch, &off, "k", clock_after_ms(3600000));
		watch_cancel(watch, &off.waiter);
		probe_add(watch, &before, "k", clock_after_ms(1));
		wait_fired(&before);
		assert_int_equal(before.timed_out, 1);
	}
	watch_free(watch);
}

#define PROBES 2000

/* Removal from anywhere in the heap and the chains, against what must be left. */
static void test_many_in_random_order(void **state)
{
	static struct probe probes[PROBES];
	static char keys[PROBES][16];
	struct watch *watch = watch_new();
	unsigned seed = 7;
	int64_t far = clock_after_ms(3600000);
	int cancelled = 0, notified = 0, overdue = 0;

	(void)state;
	for (size_t i = 0; i < PROBES; i++) {
		seed = seed * 1103515245 + 12345;
		snprintf(keys[i], sizeof(keys[i]), "k%zu", i % 500);
		probe_add(watch, &probes[i], keys[i], far + (seed >> 8) % 1000);
	}
	for (size_t i = 0; i < PROBES; i += 3)
		cancelled += watch_cancel(watch, &probes[i].waiter);
	for (size_t i = 0; i < 250; i++)
		watch_notify(watch, keys[i]);
	watch_free(watch);
	for (size_t i = 0; i < PROBES; i++) {
		assert_int_equal(probes[i].fired, i % 3 != 0);
		notified += probes[i].fired && !probes[i].timed_out;
		overdue += probes[i].timed_out;
	}
	assert_int_equal(cancelled, (PROBES + 2) / 3);
	assert_int_equal(cancelled + notified + overdue, PROBES);
	assert_true(notified > 600 && overdue > 600);
}

static void test_deadlines_come_in_order(void **state)
{
	static struct probe probes[200];
	struct watch *watch = watch_new();
	int64_t base = clock_after_ms(20);
	unsigned seed = 3;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(probes); i++) {
		seed = seed * 1103515245 + 12345;
		probe_add(watch, &probes[i], "k", base + (seed >> 8) % 50 * CLOCK_NS_PER_MS);
	}
	for (size_t i = 0; i < COUNT_OF(probes); i++) {
		wait_fired(&probes[i]);
		assert_true(probes[i].at_ns >= probes[i].waiter.deadline_ns);
	}
	watch_free(watch);
}

static int value; /* under lock */

static bool value_is_enough(void *arg)
{
	lock_take(&lock);

	bool enough = value >= *(int *)arg;

	lock_drop(&lock);
	return enough;
}

static void test_block_needs_no_notification_when_true(void **state)
{
	struct watch *watch = watch_new();
	int want = 0;

	(void)state;
	value = 0;
	assert_true(watch_block(watch, "k", value_is_enough, &want, 0));
	want = 1;
	assert_false(watch_block(watch, "k", value_is_enough, &want, 0));
	assert_false(watch_block(watch, "k", value_is_enough, &want, clock_after_ms(10)));
	watch_free(watch);
}

#define STEPS 1000
static struct watch *shared;

static void *raise_value(void *arg)
{
	(void)arg;
	for (int i = 0; i < STEPS; i++) {
		lock_take(&lock);
		value++;
		lock_drop(&lock);
		watch_notify(shared, "value");
	}
	return NULL;
}

static void *follow_value(void *arg)
{
	int *reached = arg;

	for (int want = 1; want <= STEPS; want++) {
		if (!watch_block(shared, "value", value_is_enough, &want, clock_after_ms(60000)))
			break;
		*reached = want;
	}
	return NULL;
}

static void test_block_loses_no_wake_up(void **state)
{
	int reached[3] = {0};
	pthread_t followers[3], raiser;

	(void)state;
	value = 0;
	shared = watch_new();
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(thread_start(&followers[i], "follow", follow_value, &reached[i]), 0);
	assert_int_equal(thread_start(&raiser, "raise", raise_value, NULL), 0);
	thread_join_until(raiser, INT64_MAX);
	for (size_t i = 0; i < 3; i++)
		thread_join_until(followers[i], INT64_MAX);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(reached[i], STEPS);
	watch_free(shared);
}

static void *add_and_cancel(void *arg)
{
	int *bad = arg;

	for (int i = 0; i < STEPS; i++) {
		struct probe probe;

		probe_add(shared, &probe, "value", i % 2 ? INT64_MAX : clock_boot_ns());
		if (watch_cancel(shared, &probe.waiter))
			*bad += fired(&probe) != 0;
		else
			wait_fired(&probe); /* or it would be fired on a dead stack */
	}
	return NULL;
}

static void test_cancel_against_notify_and_timer(void **state)
{
	int bad[2] = {0};
	pthread_t threads[2], raiser;

	(void)state;
	shared = watch_new();
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(thread_start(&threads[i], "cancel", add_and_cancel, &bad[i]), 0);
	assert_int_equal(thread_start(&raiser, "raise", raise_value, NULL), 0);
	thread_join_until(raiser, INT64_MAX);
	for (size_t i = 0; i < 2; i++)
		thread_join_until(threads[i], INT64_MAX);
	assert_int_equal(bad[0] + bad[1], 0);
	watch_free(shared);
}

static int begin(void **state)
{
	(void)state;
	lock_init(&lock, LOCK_LEAF);
	cond_init(&changed);
	return 0;
}

static int end(void **state)
{
	(void)state;
	cond_fini(&changed);
	lock_fini(&lock);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_notify_fires_its_key_once),
		cmocka_unit_test(test_deadlines_fire_in_time),
		cmocka_unit_test(test_deadlines_after_one_was_taken_off),
		cmocka_unit_test(test_many_in_random_order),
		cmocka_unit_test(test_deadlines_come_in_order),
		cmocka_unit_test(test_block_needs_no_notification_when_true),
		cmocka_unit_test(test_block_loses_no_wake_up),
		cmocka_unit_test(test_cancel_against_notify_and_timer),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
