/* SPDX-License-Identifier: Apache-2.0 */
/* Who runs next, and stops and crashes in the middle of everything. The provider only pretends, so that much happens at
 * once. */
#include "setup.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

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
		TEST(a_stop_in_the_middle_loses_nothing),
		TEST(a_crash_in_the_middle_loses_nothing),
	};

	cmocka_set_test_filter(getenv("TEST_FILTER"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
