/* SPDX-License-Identifier: Apache-2.0 */
/* What waits in line for a slot: ended by its time and by a cancel, also while the store takes nothing, and begun by
 * nobody but a worker. */
#include "setup.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "core/failpoint.h"
#include "core/limits.h"
#include "execution/execution_private.h"
#include "session/session.h"

static struct host host;
static char failpoints[64], busy[IDENT_ID_MAX + 1];

static void arm(const char *text)
{
	FILE *file = fopen(failpoints, "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

/* One slot, and a command that keeps it. */
static int up(void **state)
{
	(void)state;
	host_make(&host, "null");
	host.conf.runner_concurrency = 1;
	host.conf.gc_interval_ms = 3600000; /* the rounds are the test's */
	host_up(&host);
	host_start(&host, "busy", "#null ms=3600000", busy);
	host_until(&host, busy, "running");
	return 0;
}

static int down(void **state)
{
	bool done;

	(void)state;
	arm("");
	assert_int_equal(execution_cancel(host.e, busy, "user", &done, NULL), 0);
	host_finish(&host, busy);
	host_down(&host, 0);
	host_end(&host);
	return 0;
}

/* ---- its time ---- */

struct aged {
	const char *id;
	int64_t ms; /* since its time in the queue was over */
};

static int age_step(struct txn *txn, void *arg, struct err *err)
{
	const struct aged *aged = arg;
	struct record r;
	int rc = steps_load(txn, aged->id, &r, NULL, err);

	if (rc)
		return rc;
	r.queue_expires_ms = txn_now(txn) - aged->ms;
	return steps_put_record(host.e, txn, &r, err);
}

/* Of a run that stands in line, too. */
static void age(const char *id, int64_t ms)
{
	struct run *run;

	assert_int_equal(store_update(host.store, age_step, &(struct aged){id, ms}, NULL), 0);
	lock_take(&host.e->lock);
	run = queue_find_locked(host.e, id);
	run->queue_expires_ms = run->facts.queue_expires_ms = steps_now(host.e) - ms;
	lock_drop(&host.e->lock);
}

/* ---- the store takes nothing ---- */

static atomic_bool over;

static void *round_main(void *arg)
{
	sweep_round(arg);
	atomic_store(&over, true);
	return NULL;
}

static bool is_over(void *arg)
{
	(void)arg;
	return atomic_load(&over);
}

static void a_store_that_takes_nothing_keeps_no_thread(void **state)
{
	char old[IDENT_ID_MAX + 1], id[IDENT_ID_MAX + 1];
	pthread_t thread;
	bool done = false;

	(void)state;
	host_start(&host, "t", "true", old);
	host_start(&host, "t", "true", id);
	age(old, 1000);
	arm("store.commit.before error\n");
	assert_int_equal(pthread_create(&thread, NULL, round_main, host.e), 0);
	host_wait(&host, is_over, NULL);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(execution_cancel(host.e, id, "user", &done, NULL), ERR_STORE);
	assert_false(done);
	host_expect(&host, old, "status", "queued");
	host_expect(&host, id, "status", "queued");
	arm("");
	sweep_round(host.e); /* no slot is free */
	host_expect(&host, old, "reason", "queue_expired");
	host_expect(&host, id, "reason", "user");
	host_check_history(&host, old);
	host_check_history(&host, id);
}

/* ---- claimed, and in line for a slot ---- */

static bool is_live(void *arg)
{
	struct ident ident = host_request(arg, "x").ident;
	struct buf buf;
	bool live;

	buf_init(&buf, LIMIT_ROW);
	live = session_describe(host.sessions, &ident, &buf, NULL) == 0 && strstr(buf.ptr, "\"state\":\"live\"");
	buf_fini(&buf);
	return live;
}

/* As one whose session came up while others took the slots. */
static void claim(char *task, const char *id)
{
	struct run *run;

	lock_take(&host.e->lock);
	run = queue_find_locked(host.e, id);
	assert_true(queue_take_locked(run));
	lock_drop(&host.e->lock);
	assert_int_equal(take_run(run), NEXT_PARK);
	host_wait(&host, is_live, task);
	queue_ready(run);
}

static void forget_facts(const char *id)
{
	lock_take(&host.e->lock);
	queue_find_locked(host.e, id)->facts = (struct run_facts){0};
	lock_drop(&host.e->lock);
}

static void only_a_worker_begins_what_waits_for_a_slot(void **state)
{
	char id[IDENT_ID_MAX + 1], task[] = "t";

	(void)state;
	host_start(&host, task, "true", id);
	claim(task, id);
	age(id, 1000);
	for (unsigned i = 0; i < 3; i++) {
		sweep_line(host.e);
		host_expect(&host, id, "status", "claimed");
		host_expect(&host, id, "started_at", "");
		forget_facts(id); /* as one that was taken over, and not read yet */
	}
	age(id, host.conf.scheduling_ms + host.conf.starting_ms + 1000);
	sweep_line(host.e);
	host_expect(&host, id, "status", "failed");
	host_expect(&host, id, "reason", "session_busy");
	host_check_history(&host, id);
}

/* ---- no memory ---- */

static int fails_once_step(struct txn *txn, void *arg, struct err *err)
{
	unsigned *tries = arg;

	(void)txn;
	return ++*tries == 1 ? err_set(err, ERR_NOMEM, "no memory") : 0;
}

/* What must be written, an end above all, is, once there is memory again. */
static void a_step_without_memory_is_tried_again(void **state)
{
	unsigned tries = 0;

	(void)state;
	assert_int_equal(steps_update_surely(host.e, fails_once_step, &tries, NULL), 0);
	assert_int_equal(tries, 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, up, down)

/* Before there are threads. */
static void init_failpoints(void)
{
	snprintf(failpoints, sizeof(failpoints), "/tmp/berth-waiting-%d", (int)getpid());
	arm("");
	setenv("BERTH_FAILPOINTS", failpoints, 1);
	assert_int_equal(failpoint_init(NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_store_that_takes_nothing_keeps_no_thread),
		TEST(only_a_worker_begins_what_waits_for_a_slot),
		TEST(a_step_without_memory_is_tried_again),
	};
	char hits[72];
	int rc;

	init_failpoints();
	cmocka_set_test_filter(getenv("TEST_FILTER"));
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	snprintf(hits, sizeof(hits), "%s.hit", failpoints);
	unlink(hits);
	unlink(failpoints);
	return rc;
}
