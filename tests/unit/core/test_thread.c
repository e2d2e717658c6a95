/* SPDX-License-Identifier: Apache-2.0 */
/* Threads, locks and conditions: names, masks, order, misuse, deadlines. */
#include "unit.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/thread.h"

struct seen {
	char name[16];
	sigset_t mask;
	size_t stack;
};

static void *look(void *arg)
{
	struct seen *seen = arg;
	pthread_attr_t attr;

	pthread_getname_np(pthread_self(), seen->name, sizeof(seen->name));
	pthread_sigmask(SIG_SETMASK, NULL, &seen->mask);
	pthread_getattr_np(pthread_self(), &attr);
	pthread_attr_getstacksize(&attr, &seen->stack);
	pthread_attr_destroy(&attr);
	return NULL;
}

static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS, SIGTRAP};

static void test_a_thread_is_named_masked_and_small(void **state)
{
	struct seen seen = {0};
	sigset_t before, after;
	pthread_t thread;

	(void)state;
	pthread_sigmask(SIG_SETMASK, NULL, &before);
	assert_int_equal(thread_start(&thread, "a-name-longer-than-15", look, &seen), 0);
	assert_true(thread_join_until(thread, INT64_MAX));
	assert_string_equal(seen.name, "a-name-longer-t");
	assert_int_equal(sigismember(&seen.mask, SIGTERM), 1);
	assert_int_equal(sigismember(&seen.mask, SIGUSR1), 1);
	/* What a thread does to itself reaches the handler that reports it. */
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		assert_int_equal(sigismember(&seen.mask, faults[i]), 0);
	assert_true(seen.stack >= THREAD_STACK && seen.stack <= 8 * THREAD_STACK);
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	assert_int_equal(sigismember(&after, SIGTERM), sigismember(&before, SIGTERM));
}

struct gate {
	struct lock lock;
	struct cond cond;
	bool open, passed;
};

static void gate_init(struct gate *gate)
{
	memset(gate, 0, sizeof(*gate));
	lock_init(&gate->lock, LOCK_LEAF);
	cond_init(&gate->cond);
}

static void gate_fini(struct gate *gate)
{
	cond_fini(&gate->cond);
	lock_fini(&gate->lock);
}

static void gate_open(struct gate *gate)
{
	lock_take(&gate->lock);
	gate->open = true;
	cond_wake_all(&gate->cond);
	lock_drop(&gate->lock);
}

static void *pass_gate(void *arg)
{
	struct gate *gate = arg;

	lock_take(&gate->lock);
	while (!gate->open)
		cond_wait_until(&gate->cond, &gate->lock, INT64_MAX);
	lock_assert(&gate->lock);
	gate->passed = true;
	cond_wake_all(&gate->cond);
	lock_drop(&gate->lock);
	return NULL;
}

static void test_join_gives_up_at_its_deadline(void **state)
{
	struct gate gate;
	pthread_t thread;

	(void)state;
	gate_init(&gate);
	assert_int_equal(thread_start(&thread, "late", pass_gate, &gate), 0);
	assert_false(thread_join_until(thread, clock_after_ms(10)));
	gate_open(&gate);
	lock_take(&gate.lock);
	while (!gate.passed)
		cond_wait_until(&gate.cond, &gate.lock, INT64_MAX);
	lock_drop(&gate.lock);
	/* It is detached, so nothing tells when it is out of the lock but the lock itself. */
	lock_take(&gate.lock);
	lock_drop(&gate.lock);
	gate_fini(&gate);
}

static void test_join_in_time(void **state)
{
	struct gate gate;
	pthread_t thread;

	(void)state;
	gate_init(&gate);
	assert_int_equal(thread_start(&thread, "prompt", pass_gate, &gate), 0);
	gate_open(&gate);
	assert_true(thread_join_until(thread, clock_after_ms(60000)));
	assert_true(gate.passed);
	gate_fini(&gate);
}

static void test_wait_ends_at_its_deadline_and_not_before(void **state)
{
	struct gate gate;
	int64_t deadline;

	(void)state;
	gate_init(&gate);
	lock_take(&gate.lock);
	deadline = clock_after_ms(20);
	while (cond_wait_until(&gate.cond, &gate.lock, deadline))
		;
	assert_true(clock_boot_ns() >= deadline);
	lock_assert(&gate.lock);
	assert_false(cond_wait_until(&gate.cond, &gate.lock, 0));
	lock_drop(&gate.lock);
	gate_fini(&gate);
}

static void test_locks_in_order_and_dropped_in_any(void **state)
{
	struct lock a, b, c;

	(void)state;
	lock_init(&a, LOCK_SERVER);
	lock_init(&b, LOCK_STORE);
	lock_init(&c, LOCK_LEAF);
	lock_take(&a);
	lock_take(&b);
	lock_take(&c);
	lock_assert(&a);
	lock_drop(&a);
	lock_assert(&b);
	lock_assert(&c);
	lock_drop(&b);
	lock_drop(&c);
	lock_take(&b);
	lock_drop(&b);
	lock_fini(&a);
	lock_fini(&b);
	lock_fini(&c);
}

static struct lock low, high, same;

static void take_in_the_wrong_order(void)
{
	lock_take(&high);
	lock_take(&low);
}

static void take_two_of_a_class(void)
{
	lock_take(&high);
	lock_take(&same);
}

static void take_twice(void)
{
	lock_take(&low);
	lock_take(&low);
}

static void drop_what_is_not_held(void)
{
	lock_drop(&low);
}

static void assert_what_is_not_held(void)
{
	lock_assert(&low);
}

static void fini_while_held(void)
{
	lock_take(&low);
	lock_fini(&low);
}

/* In a child, for misuse ends the process. */
static bool aborts(void (*fn)(void))
{
	struct rlimit none = {0};
	int status = 0;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		setrlimit(RLIMIT_CORE, &none);
		signal(SIGABRT, SIG_DFL);
		fclose(stderr);
		fn();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void test_misuse_aborts(void **state)
{
	(void)state;
	lock_init(&low, LOCK_SERVER);
	lock_init(&high, LOCK_STORE);
	lock_init(&same, LOCK_STORE);
	assert_true(aborts(take_in_the_wrong_order));
	assert_true(aborts(take_two_of_a_class));
	assert_true(aborts(take_twice));
	assert_true(aborts(drop_what_is_not_held));
	assert_true(aborts(assert_what_is_not_held));
	assert_true(aborts(fini_while_held));
	lock_fini(&low);
	lock_fini(&high);
	lock_fini(&same);
}

static struct lock counter_lock;
static long counter;

static void *count(void *arg)
{
	(void)arg;
	for (int i = 0; i < 5000; i++) {
		lock_take(&counter_lock);
		counter++;
		lock_drop(&counter_lock);
	}
	return NULL;
}

static void test_locks_exclude(void **state)
{
	pthread_t threads[4];

	(void)state;
	lock_init(&counter_lock, LOCK_LEAF);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(thread_start(&threads[i], "count", count, NULL), 0);
	for (size_t i = 0; i < 4; i++)
		assert_true(thread_join_until(threads[i], INT64_MAX));
	assert_int_equal(counter, 20000);
	lock_fini(&counter_lock);
}

static void __attribute__((noinline)) use_stack(void)
{
	volatile char deep[100 * 1024];

	for (size_t i = 0; i < sizeof(deep); i += 512)
		deep[i] = 1;
	assert_int_equal(deep[512], 1);
}

/* Pages of its own below this frame that are in memory. */
static int count_below(void)
{
	unsigned char in_memory[16] = {0};
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), top = ((uintptr_t)&page & ~(page - 1)) - 2 * page;
	int count = 0;

	if (mincore((void *)(top - 16 * page), 16 * page, in_memory))
		return -1;
	for (size_t i = 0; i < 16; i++)
		count += in_memory[i] & 1;
	return count;
}

static void *shed(void *arg)
{
	int *counts = arg;

	use_stack();
	counts[0] = count_below();
	thread_shed_stack();
	counts[1] = count_below();
	use_stack(); /* it is there again */
	return NULL;
}

static void test_a_stack_is_given_back(void **state)
{
	pthread_t thread;
	int counts[2] = {-1, -1};

	(void)state;
	assert_int_equal(thread_start(&thread, "shed", shed, counts), 0);
	assert_true(thread_join_until(thread, INT64_MAX));
	assert_int_equal(counts[0], 16);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	assert_true(counts[1] <= 1); /* of count_below itself */
#endif
	thread_shed_stack(); /* the main thread's is left alone */
}

/* What the kernel says, where it has such a table. */
static void test_many_threads_have_room_for_their_futexes(void **state)
{
	const int hash = 78, get_slots = 2; /* PR_FUTEX_HASH of Linux 6.16 */

	(void)state;
	thread_expect(3000);
	if (prctl(hash, get_slots, 0L, 0L, 0L) < 0)
		skip();
	assert_int_equal(prctl(hash, get_slots, 0L, 0L, 0L), 4096);
	thread_expect(10); /* never less */
	assert_int_equal(prctl(hash, get_slots, 0L, 0L, 0L), 4096);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_misuse_aborts), /* first: it forks, while there are no threads */
		cmocka_unit_test(test_a_thread_is_named_masked_and_small),
		cmocka_unit_test(test_join_gives_up_at_its_deadline),
		cmocka_unit_test(test_join_in_time),
		cmocka_unit_test(test_wait_ends_at_its_deadline_and_not_before),
		cmocka_unit_test(test_locks_in_order_and_dropped_in_any),
		cmocka_unit_test(test_locks_exclude),
		cmocka_unit_test(test_a_stack_is_given_back),
		cmocka_unit_test(test_many_threads_have_room_for_their_futexes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
