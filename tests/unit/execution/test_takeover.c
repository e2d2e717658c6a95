/* SPDX-License-Identifier: Apache-2.0 */
/* A command that a former process left running: until its sandbox was asked, nothing else ends it, starts it again or
 * lets its session be used. */
#include "setup.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "core/failpoint.h"
#include "execution/execution_private.h"

static struct host host;

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

/* ---- what may run ---- */

static bool outside(void *arg)
{
	return access(arg, F_OK) == 0;
}

static void start(const char *more, char id[IDENT_ID_MAX + 1])
{
	char body[512], path[128];

	snprintf(path, sizeof(path), "%s/pid", host.dir);
	snprintf(body, sizeof(body), "echo x >> ran; echo $$ > %s.new; mv %s.new %s; %s", path, path, path, more);
	host_start(&host, "t", body, id);
	host_wait(&host, outside, path);
}

static bool is_dead(void *arg)
{
	char path[128];
	int pid = 0;
	FILE *file;

	(void)arg;
	snprintf(path, sizeof(path), "%s/pid", host.dir);
	file = fopen(path, "r");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%d", &pid), 1);
	fclose(file);
	return kill(pid, 0) != 0 && errno == ESRCH;
}

static void expect_cancelled_and_dead(const char *id)
{
	host_finish(&host, id);
	assert_true(is_dead(NULL)); /* the record does not say so before */
	host_expect(&host, id, "status", "cancelled");
	host_expect(&host, id, "ending.kind", "cancelled");
	host_check_history(&host, id);
}

static void run(const char *body, char id[IDENT_ID_MAX + 1])
{
	host_start(&host, "t", body, id);
	host_finish(&host, id);
}

static int lose_text_step(struct txn *txn, void *id, struct err *err)
{
	return txn_delete(txn, STORE_COMMAND, id, err);
}

static void lose_text(char *id)
{
	assert_int_equal(store_update(host.store, lose_text_step, id, NULL), 0);
}

static void a_command_without_its_text_ends_as_it_ends(void **state)
{
	char id[IDENT_ID_MAX + 1], next[IDENT_ID_MAX + 1], *first, *second;

	(void)state;
	start("sleep 0.5; echo end; exit 6", id);
	lose_text(id);
	host_crash(&host);
	host_up(&host);
	host_finish(&host, id);
	host_expect(&host, id, "status", "completed");
	host_expect(&host, id, "result.exit_code", "6");
	host_expect_output(&host, id, 1, "end\n");
	assert_true(is_dead(NULL));
	host_check_history(&host, id);
	run("cat ran", next);
	host_expect_output(&host, next, 1, "x\n");
	first = host_get(&host, id, "incarnation");
	second = host_get(&host, next, "incarnation");
	assert_string_equal(first, second);
	free(first);
	free(second);
}

/* Its options are in the record: what it left behind on purpose is not taken for a remainder. */
static void its_options_hold_without_its_text(void **state)
{
	char id[IDENT_ID_MAX + 1], go[128], body[512];
	struct execution_create in;

	(void)state;
	snprintf(go, sizeof(go), "%s/go", host.dir);
	snprintf(body, sizeof(body),
		 "(while [ -d %s ]; do sleep 0.1; done) & until [ -e %s ]; do sleep 0.02; done; head -c 300 /dev/zero",
		 host.dir, go);
	in = host_request("t", body);
	in.keep_descendants = true;
	in.stdout_max = 100;
	assert_int_equal(host_create(&host, &in, id), 0);
	host_until(&host, id, "running");
	lose_text(id);
	host_crash(&host);
	host_up(&host);
	fclose(fopen(go, "w"));
	host_finish(&host, id);
	host_expect(&host, id, "status", "completed");
	host_expect(&host, id, "result.stdout_bytes", "100");
	host_expect(&host, id, "result.stdout_truncated", "true");
	assert_int_equal(host_counter(&host, "send_signal"), 0);
	host_check_history(&host, id);
}

/* Not before it was asked for, and stopped. */
static void a_cancelled_command_without_its_text_is_stopped(void **state)
{
	char id[IDENT_ID_MAX + 1];
	bool done;

	(void)state;
	start("exec sleep 1000", id);
	host_faults(&host, "reattach from=1 count=1000000 code=UNAVAILABLE\n");
	host_crash(&host);
	host_up(&host);
	assert_int_equal(execution_cancel(host.e, id, "user", &done, NULL), 0);
	assert_false(done);
	lose_text(id);
	host_crash(&host);
	host_faults(&host, "");
	host_up(&host);
	expect_cancelled_and_dead(id);
	assert_int_equal(host_sessions(&host), 1);
}

/* Nobody can run it, then: that it never started is known from the sandbox. */
static void a_command_that_never_started_fails_without_its_text(void **state)
{
	char id[IDENT_ID_MAX + 1], next[IDENT_ID_MAX + 1];

	(void)state;
	run("true", id);
	host_faults(&host, "execute hang\n");
	host_start(&host, "t", "echo x >> ran", id);
	host_until(&host, id, "running");
	lose_text(id);
	host_crash(&host);
	host_faults(&host, "");
	host_up(&host);
	host_finish(&host, id);
	host_expect(&host, id, "status", "failed");
	host_expect(&host, id, "result", "");
	host_check_history(&host, id);
	run("test ! -e ran", next);
	host_expect(&host, next, "result.exit_code", "0");
}

/* As a process leaves it that took it over and never heard whether that was written. */
static int take_over_step(struct txn *txn, void *arg, struct err *err)
{
	char runner[32];
	struct record r;
	struct claim c;
	int rc = steps_load(txn, arg, &r, &c, err);

	if (rc)
		return rc;
	assert_int_equal(r.attempt, 1);
	assert_int_equal(c.sent_attempt, 1);
	snprintf(runner, sizeof(runner), "host-%u-%d", host.starts + 1, (int)getpid());
	r.attempt = c.attempt = 2;
	r.revision++;
	c.runner = runner;
	c.claim_until_ms = txn_now(txn) + 3600000;
	c.cancel_requested_ms = txn_now(txn);
	c.cancel_reason = "user";
	rc = steps_put_record(host.e, txn, &r, err);
	return rc ? rc : steps_put_claim(txn, r.id, &c, err);
}

static void one_that_was_taken_over_unheard_is_asked_for(void **state)
{
	char id[IDENT_ID_MAX + 1];

	(void)state;
	start("exec sleep 1000", id);
	assert_int_equal(store_update(host.store, take_over_step, id, NULL), 0);
	host_crash(&host);
	host_up(&host);
	host_finish(&host, id);
	assert_true(is_dead(NULL));
	host_expect(&host, id, "status", "cancelled");
	assert_int_equal(host_counter(&host, "reattach") > 0, true);
}

static int drop_claim_step(struct txn *txn, void *id, struct err *err)
{
	return txn_delete(txn, STORE_CLAIM, id, err);
}

static char failpoints[64];

/* Threads read it at each hit. */
static void arm(const char *text)
{
	char path[72];
	FILE *file;

	snprintf(path, sizeof(path), "%s.new", failpoints);
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
	assert_int_equal(rename(path, failpoints), 0);
}

/* Before there are threads. */
static void init_failpoints(void)
{
	snprintf(failpoints, sizeof(failpoints), "/tmp/berth-takeover-%d", (int)getpid());
	arm("");
	setenv("BERTH_FAILPOINTS", failpoints, 1);
	assert_int_equal(failpoint_init(NULL), 0);
}

static int remove_failpoints(void)
{
	char path[72];

	snprintf(path, sizeof(path), "%s.hit", failpoints);
	unlink(path);
	return unlink(failpoints);
}

/* In line for its first turn on a host of a fleet, and another host's since: nobody has told this one that it runs. */
static void one_that_is_met_running_is_not_ended_as_waiting(void **state)
{
	char id[IDENT_ID_MAX + 1];
	struct run *run;
	bool done;

	(void)state;
	start("exec sleep 1000", id);
	assert_int_equal(store_update(host.store, drop_claim_step, id, NULL), 0);
	host_crash(&host);
	host.conf.gc_interval_ms = 3600000; /* it is not looked for */
	host_up(&host);
	run = own_run(id, false);
	arm("store.commit.before error\n");
	assert_int_equal(take_run(run), NEXT_PARK);
	queue_park(run);
	arm("");
	(void)execution_cancel(host.e, id, "user", &done, NULL);
	expect_cancelled_and_dead(id);
	run_unref(run);
}

/* ---- what never started ---- */

struct ending {
	const char *id;
	int64_t left_ms;
};

static int end_in_step(struct txn *txn, void *arg, struct err *err)
{
	const struct ending *ending = arg;
	struct record r;
	int rc = steps_load(txn, ending->id, &r, NULL, err);

	if (rc)
		return rc;
	r.execution_expires_ms = txn_now(txn) + ending->left_ms;
	return steps_put_record(host.e, txn, &r, err);
}

/* Sent, never started, and taken over with so much left of its time. */
static void take_over_unstarted(const char *body, int64_t left_ms, char id[IDENT_ID_MAX + 1])
{
	char first[IDENT_ID_MAX + 1];

	host_crash(&host);
	host.conf.completion_grace_ms = 1000;
	host_up(&host);
	run("true", first);
	host_faults(&host, "execute hang\n");
	host_start(&host, "t", body, id);
	host_until(&host, id, "running");
	assert_int_equal(store_update(host.store, end_in_step, &(struct ending){id, left_ms}, NULL), 0);
	host_crash(&host);
	host_faults(&host, "");
	host_up(&host);
	host_finish(&host, id);
	host_check_history(&host, id);
}

static void expect_same_session(const char *id, const char *body)
{
	char next[IDENT_ID_MAX + 1], *first, *second;

	run(body, next);
	host_expect(&host, next, "result.exit_code", "0");
	first = host_get(&host, id, "incarnation");
	second = host_get(&host, next, "incarnation");
	assert_string_equal(first, second);
	free(first);
	free(second);
}

static void a_command_is_not_started_after_its_time(void **state)
{
	char id[IDENT_ID_MAX + 1];

	(void)state;
	take_over_unstarted("echo x >> ran", -1000, id);
	host_expect(&host, id, "status", "failed");
	host_expect(&host, id, "reason", "execution_expired");
	host_expect(&host, id, "result", "");
	expect_same_session(id, "test ! -e ran");
}

/* It ends when it was said that it would, by its timeout, and not as one of which nobody knows. */
static void a_command_that_starts_late_has_what_is_left(void **state)
{
	char id[IDENT_ID_MAX + 1], *took;

	(void)state;
	take_over_unstarted("echo x >> ran; sleep 1000", 6000, id);
	host_expect(&host, id, "status", "completed");
	host_expect(&host, id, "ending.kind", "timeout");
	took = host_get(&host, id, "result.execution_time_ms");
	assert_in_range(strtol(took, NULL, 10), 1, 10000);
	free(took);
	expect_same_session(id, "test \"$(cat ran)\" = x");
}

static void nor_is_one_whose_provider_is_away_for_that_long(void **state)
{
	struct execution_create in = host_request("t", "echo x >> ran");
	char id[IDENT_ID_MAX + 1];

	(void)state;
	run("true", id);
	host_crash(&host);
	host.conf.completion_grace_ms = 1000;
	host.conf.starting_ms = WAIT_MS;
	host_faults(&host, "execute from=1 count=1000000 code=UNAVAILABLE\n");
	host_up(&host);
	in.timeout_seconds = 1;
	assert_int_equal(host_create(&host, &in, id), 0);
	host_finish(&host, id);
	host_expect(&host, id, "reason", "execution_expired");
	host_check_history(&host, id);
	host_faults(&host, "");
	expect_same_session(id, "test ! -e ran");
}

/* ---- another host between the answer and what it leads to ---- */

/* It took over, started the command again, and died: its claim has ended. */
static int another_host_step(struct txn *txn, void *id, struct err *err)
{
	struct record r;
	struct claim c;
	int rc = steps_load(txn, id, &r, &c, err);

	if (rc)
		return rc;
	c.attempt = c.sent_attempt = ++r.attempt;
	r.revision++;
	c.runner = "host-of-another";
	c.claim_until_ms = 1;
	rc = steps_put_record(host.e, txn, &r, err);
	return rc ? rc : steps_put_claim(txn, id, &c, err);
}

static bool is_let_go(void *id)
{
	bool gone;

	lock_take(&host.e->lock);
	gone = queue_find_locked(host.e, id) == NULL;
	lock_drop(&host.e->lock);
	return gone;
}

static bool is_at_attempt_2(void *id)
{
	char *attempt = host_get(&host, id, "attempt");
	bool is = strcmp(attempt, "2") == 0;

	free(attempt);
	return is;
}

/* What the sandbox said of attempt 2 is no proof of attempt 3. */
static void a_proof_of_an_attempt_starts_no_later_one(void **state)
{
	char id[IDENT_ID_MAX + 1], next[IDENT_ID_MAX + 1];

	(void)state;
	run("true", next);
	host_faults(&host, "execute hang\n");
	host_start(&host, "t", "echo x >> ran", id);
	host_until(&host, id, "running");
	host_crash(&host);
	host_faults(&host, "reattach from=1 count=1000000 code=UNAVAILABLE\n");
	host.conf.gc_interval_ms = 3600000; /* it is not looked for again */
	host_up(&host);
	host_wait(&host, is_at_attempt_2, id);
	assert_int_equal(store_update(host.store, another_host_step, id, NULL), 0);
	host_faults(&host, "");
	host_wait(&host, is_let_go, id);
	host_expect(&host, id, "status", "running");
	host_expect(&host, id, "attempt", "3");
	host_crash(&host);
	host_up(&host);
	host_finish(&host, id);
	host_expect(&host, id, "status", "completed");
	run("cat ran", next);
	host_expect_output(&host, next, 1, "x\n");
}

#define TEST(name) cmocka_unit_test_prestate_setup_teardown(name, host_setup, host_teardown, &host)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_cancelled_one_that_may_run_waits_for_its_timer),
		TEST(a_cancel_while_it_waits_or_tries_is_not_missed),
		TEST(a_command_without_its_text_ends_as_it_ends),
		TEST(its_options_hold_without_its_text),
		TEST(a_cancelled_command_without_its_text_is_stopped),
		TEST(a_command_that_never_started_fails_without_its_text),
		TEST(one_that_was_taken_over_unheard_is_asked_for),
		TEST(one_that_is_met_running_is_not_ended_as_waiting),
		TEST(a_command_is_not_started_after_its_time),
		TEST(a_command_that_starts_late_has_what_is_left),
		TEST(nor_is_one_whose_provider_is_away_for_that_long),
		TEST(a_proof_of_an_attempt_starts_no_later_one),
	};
	int failed;

	init_failpoints();
	cmocka_set_test_filter(getenv("TEST_FILTER"));
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	return remove_failpoints() || failed;
}
