/* SPDX-License-Identifier: Apache-2.0 */
/* Who runs next, and stops and crashes in the middle of everything. The provider only pretends, so that much happens at
 * once. */
#include "setup.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "execution/execution_private.h"

static struct host host;

static int make(void **state)
{
	(void)state;
	host_make(&host, "null");
	return 0;
}

static int remove_all(void **state)
{
	(void)state;
	host_end(&host);
	return 0;
}

static int64_t time_of(const char *id, const char *member)
{
	char *text = host_get(&host, id, member);
	int64_t ms = 0;

	assert_int_equal(clock_parse(text, &ms), 0);
	free(text);
	return ms;
}

/* One worker, a long line of one task, then one command of another: it does not wait for the whole line. */
static void tasks_take_turns(void **state)
{
	char many[20][IDENT_ID_MAX + 1], one[IDENT_ID_MAX + 1];
	unsigned before = 0;

	(void)state;
	host.conf.runner_concurrency = 1;
	host_up(&host);
	host_start(&host, "one", "true", one);
	host_finish(&host, one);
	for (unsigned i = 0; i < 20; i++)
		host_start(&host, "many", "#null ms=40", many[i]);
	host_start(&host, "one", "#null ms=20", one);
	host_finish(&host, one);
	for (unsigned i = 0; i < 20; i++) {
		host_finish(&host, many[i]);
		before += time_of(many[i], "completed_at") > time_of(one, "created_at") &&
			  time_of(many[i], "completed_at") < time_of(one, "completed_at");
	}
	assert_true(before <= 3);
	host_down(&host, 0);
}

struct peak {
	unsigned running, most;
};

static bool all_done(void *arg)
{
	struct peak *peak = arg;
	struct executions_stat stat;

	executions_stat(host.e, &stat);
	peak->most = stat.running > peak->most ? stat.running : peak->most;
	return stat.running + stat.queued + stat.parked == 0;
}

static void one_task_takes_no_more_than_its_share(void **state)
{
	char ids[40][IDENT_ID_MAX + 1], other[IDENT_ID_MAX + 1];
	struct peak peak = {0};

	(void)state;
	host.conf.task_concurrency = 3;
	host_up(&host);
	for (unsigned i = 0; i < 40; i++)
		host_start(&host, "t", "#null ms=30", ids[i]);
	host_wait(&host, all_done, &peak);
	assert_true(peak.most <= 3);
	for (unsigned i = 0; i < 40; i++) {
		host_expect(&host, ids[i], "status", "completed");
		host_check_history(&host, ids[i]);
	}
	host_start(&host, "other", "true", other);
	host_finish(&host, other);
	host_down(&host, 0);
}

/* ---- the line is full ---- */

static void cancel_all(char ids[][IDENT_ID_MAX + 1], unsigned count)
{
	bool done;

	for (unsigned i = 0; i < count; i++)
		assert_int_equal(execution_cancel(host.e, ids[i], "user", &done, NULL), 0);
	for (unsigned i = 0; i < count; i++)
		host_finish(&host, ids[i]);
}

/* The runner has slots, but not for this task: its line ends where the queue does, and is in nobody else's way. */
static void a_line_of_one_task_is_refused_where_the_queue_ends(void **state)
{
	struct execution_create more = host_request("t", "#null ms=1");
	char ids[4][IDENT_ID_MAX + 1], id[IDENT_ID_MAX + 1];

	(void)state;
	host.conf.task_concurrency = 1;
	host.conf.queue_max = 3;
	host_up(&host);
	host_start(&host, "t", "#null ms=60000", ids[0]);
	host_until(&host, ids[0], "running");
	for (unsigned i = 1; i < 4; i++)
		host_start(&host, "t", "#null ms=1", ids[i]);
	assert_int_equal(host_create(&host, &more, id), ERR_QUEUE_FULL);
	host_start(&host, "other", "#null ms=1", id);
	host_finish(&host, id);
	host_expect(&host, id, "status", "completed");
	assert_int_equal(host_create(&host, &more, id), ERR_QUEUE_FULL);
	cancel_all(ids, 4);
	host_start(&host, "t", "#null ms=1", id);
	host_finish(&host, id);
	host_down(&host, 0);
}

static void expect_replay(const struct execution_create *in, const char *id)
{
	char got[IDENT_ID_MAX + 1];
	bool replayed = false;

	assert_int_equal(execution_create(host.e, in, got, &replayed, NULL), 0);
	assert_true(replayed);
	assert_string_equal(got, id);
}

/* What no new record may be made of has one: the line, the target and the limits of today are not asked. */
static void what_is_there_is_given_whatever_holds_today(void **state)
{
	struct execution_create keyed = host_request("t", "#null ms=1"), more = host_request("t", "#null ms=1");
	char ids[2][IDENT_ID_MAX + 1], id[IDENT_ID_MAX + 1], none[IDENT_ID_MAX + 1];

	(void)state;
	host.conf.task_concurrency = 1;
	host.conf.queue_max = 1;
	host_up(&host);
	keyed.idempotency_key = "k";
	keyed.nonce_key = "0011";
	keyed.nonce_expires_ms = INT64_MAX / 2;
	keyed.timeout_seconds = 60;
	assert_int_equal(host_create(&host, &keyed, id), 0);
	host_finish(&host, id);
	host_start(&host, "t", "#null ms=60000", ids[0]);
	host_until(&host, ids[0], "running");
	host_start(&host, "t", "#null ms=1", ids[1]);
	assert_int_equal(host_create(&host, &more, none), ERR_QUEUE_FULL);
	expect_replay(&keyed, id);
	keyed.nonce_key = "0022"; /* signed anew, and used up by the same record */
	expect_replay(&keyed, id);
	cancel_all(ids, 2);
	host_down(&host, 0);

	host.conf.exec_timeout_max_ms = 30000;
	host.target.drained = true;
	host_up(&host);
	more.timeout_seconds = 60;
	assert_int_equal(host_create(&host, &more, none), ERR_INVALID_REQUEST);
	expect_replay(&keyed, id);
	keyed.idempotency_key = NULL;
	expect_replay(&keyed, id);
	keyed.body_sha256[0] = 'f';
	assert_int_equal(host_create(&host, &keyed, none), ERR_UNAUTHORIZED);
	host_down(&host, 0);
}

#define PARKED_MOST 8

struct parked {
	char ids[PARKED_MOST][IDENT_ID_MAX + 1];
	unsigned count;
};

/* Who looks again for capacity just now does not wait for that moment: then one more is taken. */
static bool is_refused(void *arg)
{
	struct parked *parked = arg;
	struct execution_create in;
	char task[16];
	int rc;

	snprintf(task, sizeof(task), "t%u", parked->count);
	in = host_request(task, "#null ms=1");
	assert_true(parked->count < PARKED_MOST);
	rc = host_create(&host, &in, parked->ids[parked->count]);
	parked->count += rc == 0;
	assert_true(rc == 0 || rc == ERR_QUEUE_FULL);
	return rc != 0;
}

static bool none_has_a_slot(void *arg)
{
	struct executions_stat stat;

	(void)arg;
	executions_stat(host.e, &stat);
	return stat.running == 0;
}

/* Each gets a slot, finds that there is no room for its session, and gives the slot back: that is a queue, too. */
static void those_that_wait_for_capacity_are_a_queue_with_an_end(void **state)
{
	struct parked parked = {0};
	char id[IDENT_ID_MAX + 1];
	bool refused = false;

	(void)state;
	host.conf.queue_max = 2;
	host.target.max_sessions = 1;
	host_up(&host);
	host_start(&host, "a", "#null ms=1", id);
	host_finish(&host, id);
	while (!refused) {
		host_wait(&host, none_has_a_slot, NULL);
		refused = is_refused(&parked);
	}
	assert_true(parked.count >= 2);
	cancel_all(parked.ids, parked.count);
	host_down(&host, 0);
}

/* What was accepted once is not refused by a host with a shorter queue. */
static void what_was_accepted_is_taken_over_into_a_full_queue(void **state)
{
	char ids[6][IDENT_ID_MAX + 1];

	(void)state;
	host.conf.task_concurrency = 1;
	host_up(&host);
	for (unsigned i = 0; i < 6; i++)
		host_start(&host, "t", "#null ms=20", ids[i]);
	host_crash(&host);
	host.conf.queue_max = 1;
	host_up(&host);
	for (unsigned i = 0; i < 6; i++) {
		host_finish(&host, ids[i]);
		host_check_history(&host, ids[i]);
	}
	assert_int_equal(host_stream(&host, STREAM_DEAD), 0);
	host_down(&host, 0);
}

/* ---- one run for each ---- */

#define FOUND 200

struct finders {
	pthread_barrier_t meet;
	char ids[FOUND][IDENT_ID_MAX + 1];
};

static void *find_all(void *arg)
{
	struct finders *f = arg;

	for (unsigned i = 0; i < FOUND; i++) {
		pthread_barrier_wait(&f->meet);
		if (recover_adopt(host.e, f->ids[i], NULL) != 0)
			return f;
	}
	return NULL;
}

/* As one that a host's start has not read yet. */
static void forget_run(const char *id)
{
	struct run *run;

	lock_take(&host.e->lock);
	run = queue_find_locked(host.e, id);
	assert_true(run && queue_take_locked(run));
	lock_drop(&host.e->lock);
	queue_end(run);
}

/* The request stream's reader and who looks for missing messages may find the same ones at once. */
static void what_two_threads_find_is_in_line_once(void **state)
{
	static struct finders f;
	char busy[1][IDENT_ID_MAX + 1];
	pthread_t threads[2];
	void *failed;

	(void)state;
	host.conf.task_concurrency = 1;
	host_up(&host);
	host_start(&host, "t", "#null ms=3600000", busy[0]);
	host_until(&host, busy[0], "running");
	for (unsigned i = 0; i < FOUND; i++) {
		host_start(&host, "t", "#null ms=1", f.ids[i]);
		forget_run(f.ids[i]);
	}
	pthread_barrier_init(&f.meet, NULL, 2);
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(thread_start(&threads[i], "find", find_all, &f), 0);
	for (size_t i = 0; i < 2; i++) {
		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
	pthread_barrier_destroy(&f.meet);
	lock_take(&host.e->lock);
	assert_int_equal(host.e->waiting, FOUND);
	lock_drop(&host.e->lock);
	cancel_all(busy, 1);
	for (unsigned i = 0; i < FOUND; i++) {
		host_finish(&host, f.ids[i]);
		host_check_history(&host, f.ids[i]);
	}
	assert_int_equal(host_counter(&host, "execute"), FOUND + 1);
	host_down(&host, 0);
}

/* ---- stop and crash in the middle ---- */

#define CLIENTS 6
#define EACH 60

struct client {
	unsigned number, accepted;
	char ids[EACH][IDENT_ID_MAX + 1];
	pthread_t thread;
};

static struct client clients[CLIENTS];
static _Atomic unsigned created;

static void *client_main(void *arg)
{
	struct client *c = arg;
	char task[16];

	for (unsigned i = 0; i < EACH; i++) {
		struct execution_create in;
		bool done;
		int rc;

		snprintf(task, sizeof(task), "t%u", (c->number + i) % 8);
		in = host_request(task, i % 2 ? "#null ms=5" : "#null ms=1 out=40000");
		rc = host_create(&host, &in, c->ids[c->accepted]);
		atomic_fetch_add(&created, 1);
		if (rc)
			break; /* the host stops */
		if (i % 5 == 0)
			(void)execution_cancel(host.e, c->ids[c->accepted], "user", &done, NULL);
		c->accepted++;
	}
	return NULL;
}

static bool enough(void *arg)
{
	return atomic_load(&created) >= *(unsigned *)arg;
}

static void start_clients(void)
{
	atomic_store(&created, 0);
	for (unsigned i = 0; i < CLIENTS; i++) {
		clients[i] = (struct client){.number = i};
		assert_int_equal(pthread_create(&clients[i].thread, NULL, client_main, &clients[i]), 0);
	}
}

static void join_clients(void)
{
	for (unsigned i = 0; i < CLIENTS; i++)
		pthread_join(clients[i].thread, NULL);
}

/* Nothing accepted is lost: each has one end, told once. */
static void check_all(void)
{
	for (unsigned i = 0; i < CLIENTS; i++) {
		for (unsigned k = 0; k < clients[i].accepted; k++) {
			host_finish(&host, clients[i].ids[k]);
			host_check_history(&host, clients[i].ids[k]);
		}
	}
	assert_int_equal(host_stream(&host, STREAM_REQUESTS), 0);
	assert_int_equal(host_stream(&host, STREAM_DEAD), 0);
}

static void a_stop_in_the_middle_loses_nothing(void **state)
{
	(void)state;
	host.conf.runner_concurrency = 8;
	for (unsigned round = 1; round <= 4; round++) {
		unsigned count = round * 60;

		host_up(&host);
		start_clients();
		host_wait(&host, enough, &count);
		executions_stop(host.e, clock_after_ms(20000));
		join_clients();
		host_down(&host, 0);
		host_up(&host);
		check_all();
		host_down(&host, 0);
	}
}

static void a_crash_in_the_middle_loses_nothing(void **state)
{
	(void)state;
	host.conf.runner_concurrency = 8;
	for (unsigned round = 1; round <= 4; round++) {
		unsigned count = round * 60;

		host_up(&host);
		start_clients();
		host_wait(&host, enough, &count);
		host_die(&host);
		join_clients();
		host_crash(&host);
		host_up(&host);
		check_all();
		host_down(&host, 0);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make, remove_all)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(tasks_take_turns),
		TEST(one_task_takes_no_more_than_its_share),
		TEST(a_line_of_one_task_is_refused_where_the_queue_ends),
		TEST(what_is_there_is_given_whatever_holds_today),
		TEST(those_that_wait_for_capacity_are_a_queue_with_an_end),
		TEST(what_was_accepted_is_taken_over_into_a_full_queue),
		TEST(what_two_threads_find_is_in_line_once),
		TEST(a_stop_in_the_middle_loses_nothing),
		TEST(a_crash_in_the_middle_loses_nothing),
	};

	cmocka_set_test_filter(getenv("TEST_FILTER"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
