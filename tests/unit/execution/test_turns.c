/* SPDX-License-Identifier: Apache-2.0 */
/* Whose turn it is, over tenants and their tasks. The runner has no workers here: what it gives them is noted, in order,
 * and the test does with it what a worker would. */
#include "setup.h"

#include <stdio.h>

#include "execution/execution_private.h"

#define GIVEN_MOST 64

static struct host host;
static struct run *given[GIVEN_MOST];
static unsigned given_count, ids;
static bool no_thread;

int __real_pool_submit(struct pool *pool, void (*fn)(void *), void *arg);
int __wrap_pool_submit(struct pool *pool, void (*fn)(void *), void *arg);

int __wrap_pool_submit(struct pool *pool, void (*fn)(void *), void *arg)
{
	if (fn != runner_main)
		return __real_pool_submit(pool, fn, arg);
	if (no_thread)
		return ERR_NOMEM;
	assert_true(given_count < GIVEN_MOST);
	given[given_count++] = arg;
	return 0;
}

static int make(void **state)
{
	(void)state;
	host_make(&host, "null");
	host.conf.runner_concurrency = 1;
	given_count = 0;
	no_thread = false;
	return 0;
}

/* Nobody's tenant is left behind. */
static int remove_all(void **state)
{
	(void)state;
	assert_int_equal(map_count(host.e->tasks), 0);
	assert_int_equal(map_count(host.e->tenants), 0);
	assert_null(host.e->ring);
	host_down(&host, 0);
	host_end(&host);
	return 0;
}

/* ---- runs ---- */

static int try_add(const char *workspace, const char *task, bool limited, bool *ret_room, struct run **ret, struct err *err)
{
	struct ident ident;
	char id[IDENT_ID_MAX + 1];

	assert_int_equal(ident_make(&ident, workspace, task, err), 0);
	snprintf(id, sizeof(id), "sexec_%024u", ++ids);
	return queue_add(host.e, &ident, id, limited, ret_room, ret, err);
}

static struct run *add_owned(const char *workspace, const char *task)
{
	struct err err = {0};
	struct run *run;
	bool room;

	assert_int_equal(try_add(workspace, task, false, &room, &run, &err), 0);
	return run;
}

static struct run *add(const char *workspace, const char *task)
{
	struct run *run = add_owned(workspace, task);

	queue_ready(run);
	return run;
}

static void wake(struct run *run)
{
	lock_take(&host.e->lock);
	queue_wake_locked(run);
	lock_drop(&host.e->lock);
}

/* As a cancel does with one that waits. */
static void end_waiting(struct run *run)
{
	lock_take(&host.e->lock);
	assert_true(queue_take_locked(run));
	lock_drop(&host.e->lock);
	queue_end(run);
}

/* The only worker ends one run after the other: their tasks, in order. */
static void expect_order(const char *tasks)
{
	char order[256] = "";

	for (unsigned i = 0; i < given_count; i++) {
		snprintf(order + strlen(order), sizeof(order) - strlen(order), "%s%s", i ? " " : "", given[i]->ident.task);
		queue_end(given[i]);
	}
	assert_string_equal(order, tasks);
	given_count = 0;
}

static void add_each(const char *workspace, const char *tasks)
{
	for (; *tasks; tasks++)
		add(workspace, (char[]){*tasks, '\0'});
}

/* What a worker has at the same time, which it ends. */
static void end_given(unsigned at)
{
	struct run *run = given[at];

	assert_true(at < given_count);
	given[at] = given[--given_count];
	queue_end(run);
}

/* Two threads may find the same one in the store. */
static void one_execution_has_one_run(void **state)
{
	struct err err = {0};
	struct run *run, *twin = NULL;
	bool room;

	(void)state;
	host_up(&host);
	run = add_owned("w", "a");
	assert_int_equal(queue_add(host.e, &run->ident, run->id, false, &room, &twin, &err), ERR_CONFLICT);
	assert_int_equal(queue_add(host.e, &run->ident, run->id, true, &room, &twin, &err), ERR_CONFLICT);
	assert_null(twin);
	assert_ptr_equal(map_get(host.e->runs, run->id), run);
	assert_int_equal(run->task->open, 1);
	queue_end(run);
	assert_int_equal(map_count(host.e->runs), 0);
}

static void pass(struct run *run)
{
	char id[IDENT_ID_MAX + 1];

	snprintf(id, sizeof(id), "%s", run->id);
	recover_passed(host.e, id);
}

static void expect_waiting(unsigned count)
{
	assert_int_equal(host.e->waiting, count);
	assert_int_equal(map_count(host.e->runs), count + given_count);
}

/* What another host took does not count here, whatever keeps it from its turn; what had a turn, or is asked to end, is
 * not another host's word away. */
static void what_another_host_took_waits_no_more(void **state)
{
	struct run *heir, *cancelled, *fresh;

	(void)state;
	host_up(&host);
	add("w1", "a");
	add("w1", "b");
	expect_waiting(1);
	fresh = add_owned("w1", "b");
	pass(fresh);
	queue_ready(fresh);
	expect_waiting(1);
	pass(add("w1", "b"));
	expect_waiting(1);
	heir = add_owned("w1", "a");
	lock_take(&host.e->lock);
	queue_inherit_locked(heir, false);
	lock_drop(&host.e->lock);
	queue_ready(heir);
	cancelled = add("w1", "c");
	cancelled->cancel = true;
	pass(heir);
	pass(cancelled);
	pass(given[0]);
	expect_waiting(3);
	cancelled->cancel = false;
	pass(cancelled);
	queue_ready(given[--given_count]);
	expect_order("a b a");
}

/* ---- order ---- */

static void turns_go_round_the_tenants_then_their_tasks(void **state)
{
	(void)state;
	host_up(&host);
	add("w0", "first");
	add_each("w1", "aabb");
	add_each("w2", "ccc");
	add_each("w3", "d");
	expect_order("first a c d b c a c b");
}

static void one_that_comes_late_does_not_wait_for_a_tenants_whole_line(void **state)
{
	char task[8];

	(void)state;
	host_up(&host);
	for (unsigned i = 0; i < 30; i++) {
		snprintf(task, sizeof(task), "t%u", i);
		add("w1", task);
	}
	add("w2", "late");
	end_given(0);
	assert_string_equal(given[0]->ident.task, "t1");
	end_given(0);
	assert_string_equal(given[0]->ident.task, "late");
	while (given_count)
		end_given(0);
}

static void the_next_one_has_the_turn_of_what_is_cancelled(void **state)
{
	struct run *runs[2];

	(void)state;
	host_up(&host);
	add("w0", "first");
	runs[0] = add("w1", "a");
	runs[1] = add("w2", "b");
	add("w2", "c");
	add("w3", "d");
	end_waiting(runs[0]); /* its tenant goes with it */
	end_waiting(runs[1]); /* its tenant has another */
	expect_order("first c d");
}

static void what_no_thread_took_stays_in_line(void **state)
{
	(void)state;
	host_up(&host);
	no_thread = true;
	add("w1", "a");
	assert_int_equal(given_count, 0);
	no_thread = false;
	add("w2", "b");
	expect_order("a b");
}

/* Those that look again and again for capacity, and those that were never looked at. */
static void those_that_had_their_turn_take_turns_with_those_that_wait(void **state)
{
	struct run *parked;

	(void)state;
	host_up(&host);
	parked = add("w1", "again");
	add_each("w1", "abc");
	for (unsigned i = 0; i < 3; i++) {
		assert_ptr_equal(given[0], parked);
		given_count = 0;
		queue_park(parked);
		assert_int_equal(given[0]->ident.task[0], 'a' + (char)i);
		wake(parked);
		end_given(0);
	}
	expect_order("again");
}

/* ---- limits ---- */

static void set_tenant_concurrency(int64_t limit)
{
	host.conf.workspace_concurrency = limit;
	execution_set_limits(host.e, (unsigned)host.conf.runner_concurrency, &host.conf);
}

static void a_tenant_at_its_limit_is_passed_over(void **state)
{
	(void)state;
	host.conf.runner_concurrency = 8;
	host.conf.workspace_concurrency = 2;
	host_up(&host);
	add_each("w1", "abcde");
	assert_int_equal(given_count, 2);
	add_each("w2", "f");
	assert_int_equal(given_count, 3);
	assert_string_equal(given[2]->ident.task, "f");
	end_given(2);
	assert_int_equal(given_count, 2);
	end_given(0);
	assert_int_equal(given_count, 2);
	assert_string_equal(given[1]->ident.task, "c");
	expect_order("b c d e");
}

static void a_limit_that_changes_holds_at_once(void **state)
{
	(void)state;
	host.conf.runner_concurrency = 3;
	host_up(&host);
	add("w0", "first");
	add_each("w1", "abcde");
	assert_int_equal(given_count, 3);
	set_tenant_concurrency(1);
	end_given(0);
	assert_int_equal(given_count, 2);
	set_tenant_concurrency(3);
	assert_int_equal(given_count, 3);
	expect_order("b a c d e");
}

static void what_had_its_turn_is_not_held_to_the_limit(void **state)
{
	struct run *parked, *heir;

	(void)state;
	host.conf.runner_concurrency = 8;
	host.conf.workspace_concurrency = 1;
	host_up(&host);
	parked = add("w1", "parked");
	add("w1", "waits");
	given_count = 0;
	queue_park(parked);
	assert_int_equal(given_count, 0); /* it counts, though it has no slot */
	wake(parked);
	assert_ptr_equal(given[0], parked);
	heir = add_owned("w1", "heir");
	lock_take(&host.e->lock);
	queue_inherit_locked(heir, false);
	lock_drop(&host.e->lock);
	queue_ready(heir);
	expect_order("parked heir waits");
}

static void a_create_beyond_its_tenants_limit_waits(void **state)
{
	struct err err = {0};
	struct run *run;
	bool room;

	(void)state;
	host.conf.runner_concurrency = 8;
	host.conf.workspace_concurrency = 1;
	host_up(&host);
	assert_int_equal(try_add("w1", "a", true, &room, &run, &err), 0);
	assert_true(room);
	given[given_count++] = run;
	assert_int_equal(try_add("w1", "b", true, &room, &run, &err), 0);
	assert_false(room);
	queue_ready(run);
	assert_int_equal(given_count, 1);
	expect_order("a b");
}

static void a_tenant_has_its_share_of_the_queue(void **state)
{
	struct err err = {0};
	struct run *run;
	bool room;

	(void)state;
	host.conf.runner_concurrency = 3;
	host.conf.task_concurrency = 1;
	host.conf.workspace_queue_max = 2;
	host_up(&host);
	add_each("w1", "aaa");
	assert_int_equal(try_add("w1", "a", true, &room, &run, &err), ERR_QUEUE_FULL);
	assert_non_null(strstr(err.msg, "\"w1\""));
	assert_non_null(strstr(err.msg, "runner.workspace_queue_max"));
	assert_int_equal(try_add("w1", "b", true, &room, &run, &err), 0);
	assert_true(room); /* what can run at once needs no share */
	given[given_count++] = run;
	add("w2", "c");
	assert_int_equal(try_add("w2", "d", true, &room, &run, &err), 0);
	assert_false(room);
	queue_ready(run);
	add("w1", "a"); /* nor is anything refused that was accepted before */
	expect_order("a b c d a a a");
}

/* What waits for capacity is a part of it, and has its end, too. */
static void a_share_of_those_that_are_parked(void **state)
{
	struct err err = {0};
	struct run *run, *parked;
	bool room;

	(void)state;
	host.conf.workspace_queue_max = 1;
	host_up(&host);
	parked = add("w1", "a");
	given_count = 0;
	queue_park(parked);
	assert_int_equal(try_add("w1", "b", true, &room, &run, &err), ERR_QUEUE_FULL);
	assert_int_equal(try_add("w2", "c", true, &room, &run, &err), 0);
	given[given_count++] = run;
	wake(parked);
	expect_order("c a");
}

/* ---- a random walk beside a model that looks at everything at each step ---- */

#define TENANTS 4
#define TASKS 12
#define RUNS 40
#define STEPS 60000
#define SLOTS 3
#define TASK_LIMIT 2
#define TENANT_LIMIT 4
#define SHARE 3

struct model_run {
	struct run *run; /* NULL: none */
	enum run_state state;
	unsigned task;
	unsigned long place; /* in line */
	bool taken, heir;
};

/* `since` when it has been able to go on, without a pause; 0: it is not. */
struct model_task {
	unsigned long since;
	bool again;
};

static struct {
	struct model_run runs[RUNS];
	struct model_task tasks[TASKS];
	unsigned long tenants[TENANTS], now;
	bool was_fresh[TENANTS];
	unsigned expected[GIVEN_MOST], expected_count;
	uint64_t seed;
} walk;

static unsigned any(unsigned below)
{
	walk.seed = walk.seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (unsigned)(walk.seed >> 33) % below;
}

static unsigned tenant_of(unsigned task)
{
	return task % TENANTS;
}

static bool had_turn(const struct model_run *m)
{
	return m->taken || m->heir;
}

static struct model_run *model_first(unsigned task)
{
	struct model_run *first = NULL;

	for (struct model_run *m = walk.runs; m < walk.runs + RUNS; m++) {
		if (m->run && m->state == RUN_READY && m->task == task &&
		    (!first || had_turn(m) > had_turn(first) ||
		     (had_turn(m) == had_turn(first) && m->place < first->place)))
			first = m;
	}
	return first;
}

static unsigned model_taken(unsigned task, unsigned tenant)
{
	unsigned count = 0;

	for (const struct model_run *m = walk.runs; m < walk.runs + RUNS; m++)
		count += m->run && m->taken && (m->task == task || tenant_of(m->task) == tenant);
	return count;
}

static unsigned model_waiting(unsigned tenant, bool parked_only)
{
	unsigned count = 0;

	for (const struct model_run *m = walk.runs; m < walk.runs + RUNS; m++)
		count += m->run && tenant_of(m->task) == tenant &&
			 (m->state == RUN_PARKED || (m->state == RUN_READY && !parked_only));
	return count;
}

static bool may_take(unsigned tenant)
{
	return model_taken(TASKS, tenant) < TENANT_LIMIT;
}

/* The task of this kind, of this tenant, that could go on for the longest time; TASKS: none. */
static unsigned model_next(unsigned tenant, bool again)
{
	unsigned next = TASKS;

	for (unsigned i = 0; i < TASKS; i++) {
		if (tenant_of(i) == tenant && walk.tasks[i].since && walk.tasks[i].again == again &&
		    (next == TASKS || walk.tasks[i].since < walk.tasks[next].since))
			next = i;
	}
	return next;
}

static void model_judge(unsigned task)
{
	const struct model_run *first = model_first(task);
	unsigned tenant = tenant_of(task);
	bool again = first && had_turn(first);
	bool goes = again || (first && model_taken(task, TENANTS) < TASK_LIMIT);

	if (!goes)
		walk.tasks[task].since = 0;
	else if (!walk.tasks[task].since || walk.tasks[task].again != again)
		walk.tasks[task] = (struct model_task){++walk.now, again};
	goes = model_next(tenant, true) != TASKS || (model_next(tenant, false) != TASKS && may_take(tenant));
	walk.tenants[tenant] = !goes ? 0 : walk.tenants[tenant] ? walk.tenants[tenant] : ++walk.now;
}

static unsigned model_busy(void)
{
	unsigned busy = 0;

	for (const struct model_run *m = walk.runs; m < walk.runs + RUNS; m++)
		busy += m->run && m->state == RUN_OWNED;
	return busy;
}

static void model_dispatch(void)
{
	while (model_busy() < SLOTS) {
		unsigned tenant = TENANTS, again, fresh;
		struct model_run *m;

		for (unsigned i = 0; i < TENANTS; i++) {
			if (walk.tenants[i] && (tenant == TENANTS || walk.tenants[i] < walk.tenants[tenant]))
				tenant = i;
		}
		if (tenant == TENANTS)
			return;
		again = model_next(tenant, true);
		fresh = may_take(tenant) ? model_next(tenant, false) : TASKS;
		walk.was_fresh[tenant] = again == TASKS || (fresh != TASKS && !walk.was_fresh[tenant]);
		m = model_first(walk.was_fresh[tenant] ? fresh : again);
		m->state = RUN_OWNED;
		m->taken = true;
		walk.tasks[m->task].since = walk.tenants[tenant] = 0;
		model_judge(m->task);
		walk.expected[walk.expected_count++] = (unsigned)(m - walk.runs);
	}
}

/* A tenant that is gone comes back as a new one. */
static void model_forget(unsigned tenant)
{
	for (const struct model_run *m = walk.runs; m < walk.runs + RUNS; m++) {
		if (m->run && tenant_of(m->task) == tenant)
			return;
	}
	walk.was_fresh[tenant] = false;
}

static void model_ready(struct model_run *m)
{
	m->state = RUN_READY;
	m->place = ++walk.now;
	model_judge(m->task);
	model_dispatch();
}

static void walk_end(struct model_run *m)
{
	struct run *run = m->run;

	m->run = NULL;
	model_judge(m->task);
	model_forget(tenant_of(m->task));
	model_dispatch();
	queue_end(run);
}

static bool walk_room(const struct model_run *m)
{
	bool before = false;

	for (const struct model_run *o = walk.runs; o < walk.runs + RUNS; o++)
		before |= o->run && o->task == m->task && o->state != RUN_OWNED;
	return model_busy() < SLOTS && !before && model_taken(m->task, TENANTS) < TASK_LIMIT && may_take(tenant_of(m->task));
}

static void walk_add(struct model_run *m)
{
	char workspace[8], task[8];
	struct err err = {0};
	bool limited = any(3) > 0, wants_room, full, room;
	unsigned tenant;

	*m = (struct model_run){.task = any(TASKS)};
	tenant = tenant_of(m->task);
	wants_room = limited && walk_room(m);
	full = limited && model_waiting(tenant, false) >= SHARE && (!wants_room || model_waiting(tenant, true) >= SHARE);
	snprintf(workspace, sizeof(workspace), "w%u", tenant);
	snprintf(task, sizeof(task), "t%u", m->task);
	assert_int_equal(try_add(workspace, task, limited, &room, &m->run, &err), full ? ERR_QUEUE_FULL : 0);
	if (full)
		return;
	assert_int_equal(room, wants_room);
	m->taken = room;
	if (room) {
		model_judge(m->task);
		return;
	}
	model_ready(m);
	queue_ready(m->run);
}

static void walk_inherit(struct model_run *m)
{
	m->heir = true;
	model_ready(m);
	lock_take(&host.e->lock);
	queue_inherit_locked(m->run, false);
	lock_drop(&host.e->lock);
}

static void walk_cancel(struct model_run *m)
{
	lock_take(&host.e->lock);
	assert_true(queue_take_locked(m->run));
	lock_drop(&host.e->lock);
	m->state = RUN_ENDED;
	model_judge(m->task);
	walk_end(m);
}

static void walk_wake(struct model_run *m)
{
	model_ready(m);
	wake(m->run);
}

static void walk_park(struct model_run *m)
{
	m->state = RUN_PARKED;
	model_dispatch();
	queue_park(m->run);
}

static void walk_again(struct model_run *m)
{
	model_ready(m);
	queue_ready(m->run);
}

static void walk_step(struct model_run *m)
{
	unsigned what = any(8);

	if (!m->run)
		walk_add(m);
	else if (m->state == RUN_OWNED)
		(what < 4 ? walk_end : what < 7 ? walk_park : walk_again)(m);
	else if (m->state == RUN_PARKED)
		(what < 6 ? walk_wake : walk_cancel)(m);
	else if (what < 2)
		(what == 0 || had_turn(m) ? walk_cancel : walk_inherit)(m);
}

static void walk_compare(void)
{
	assert_int_equal(given_count, walk.expected_count);
	for (unsigned i = 0; i < given_count; i++)
		assert_ptr_equal(given[i], walk.runs[walk.expected[i]].run);
	given_count = walk.expected_count = 0;
}

static void turns_are_those_of_a_simple_model(void **state)
{
	(void)state;
	host.conf.runner_concurrency = SLOTS;
	host.conf.task_concurrency = TASK_LIMIT;
	host.conf.workspace_concurrency = TENANT_LIMIT;
	host.conf.workspace_queue_max = SHARE;
	host_up(&host);
	walk.seed = 1;
	for (unsigned i = 0; i < STEPS; i++) {
		walk_step(&walk.runs[any(RUNS)]);
		walk_compare();
	}
	for (struct model_run *m = walk.runs; m < walk.runs + RUNS; m++) {
		if (m->run)
			(m->state == RUN_OWNED ? walk_end : walk_cancel)(m);
		walk_compare();
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make, remove_all)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(one_execution_has_one_run),
		TEST(what_another_host_took_waits_no_more),
		TEST(turns_go_round_the_tenants_then_their_tasks),
		TEST(one_that_comes_late_does_not_wait_for_a_tenants_whole_line),
		TEST(the_next_one_has_the_turn_of_what_is_cancelled),
		TEST(what_no_thread_took_stays_in_line),
		TEST(those_that_had_their_turn_take_turns_with_those_that_wait),
		TEST(a_tenant_at_its_limit_is_passed_over),
		TEST(a_limit_that_changes_holds_at_once),
		TEST(what_had_its_turn_is_not_held_to_the_limit),
		TEST(a_create_beyond_its_tenants_limit_waits),
		TEST(a_tenant_has_its_share_of_the_queue),
		TEST(a_share_of_those_that_are_parked),
		TEST(turns_are_those_of_a_simple_model),
	};

	cmocka_set_test_filter(getenv("TEST_FILTER"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
