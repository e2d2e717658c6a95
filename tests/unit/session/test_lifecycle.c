/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How sessions end and what holders learn of it: behaviours L1, L2, L5, L8, T2, teardown in every state, the ceiling, the
 * provider's own expiry, on the real store and the mock provider.
 */
#include "world.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include "obs/metrics.h"

static struct world w;

static struct session_hold *take(const char *task, const char *op_id)
{
	struct session_hold *hold = NULL;
	struct err err = {0};

	if (world_acquire(&w, task, op_id, &hold, &err))
		fail_msg("%s: %s", task, err.msg);
	return hold;
}

static bool teardown(const char *task, bool force, int64_t wait_ms)
{
	struct ident ident = world_ident(task);
	struct err err = {0};
	bool gone = false;

	assert_int_equal(session_teardown(w.s, &ident, force, clock_after_ms(wait_ms), &gone, &err), 0);
	return gone;
}

/* Lets rounds of the GC and the keeper pass. */
static void let_pass(int64_t ms)
{
	struct world_wait never = {&w, "nobody", "no task says this"};

	watch_block(w.watch, "nothing", world_waited, &never, clock_after_ms(ms));
}

struct lost {
	_Atomic int calls;
	char reason[32];
	struct lock lock;
	struct cond cond;
};

static void lost_init(struct lost *lost)
{
	memset(lost, 0, sizeof(*lost));
	lock_init(&lost->lock, LOCK_LEAF);
	cond_init(&lost->cond);
}

static void on_lost(void *arg, const char *reason)
{
	struct lost *lost = arg;

	lock_take(&lost->lock);
	snprintf(lost->reason, sizeof(lost->reason), "%s", reason);
	lost->calls++;
	cond_wake_all(&lost->cond);
	lock_drop(&lost->lock);
}

static bool lost_wait(struct lost *lost)
{
	int64_t deadline = clock_after_ms(WAIT_MS);
	bool called;

	lock_take(&lost->lock);
	while (!lost->calls && cond_wait_until(&lost->cond, &lost->lock, deadline))
		continue;
	called = lost->calls == 1;
	lock_drop(&lost->lock);
	return called;
}

/* ---- L1 ---- */

static void l1_a_renewed_lease_holds_and_an_unrenewed_one_ends(void **state)
{
	(void)state;
	w.conf.lease_active_ms = 60;
	w.conf.lease_idle_ms = 30;
	w.conf.gc_interval_ms = 10;
	for (int i = 0; i < 3; i++) {
		struct session_hold *hold;
		char ref[64];

		world_up(&w);
		hold = take("l1", "op_1");
		/* The lease runs out again and again under the running operation, and the GC comes by each time. */
		let_pass(400);
		assert_false(session_hold_lost(hold, NULL));
		assert_int_equal(world_sessions(&w, ref), 1);
		assert_memory_equal(hold->session.ref.ptr, ref, hold->session.ref.len);
		world_release(&w, hold);
		assert_true(world_until(&w, "l1", "\"state\":\"gone\""));
		assert_int_equal(world_sessions(&w, NULL), 0);
		world_down(&w, 5000);
	}
	assert_int_equal(world_counter(&w, "created"), 3);
}

/* A begin in the instant of expiry either revives the session or gets the next one; it is never cut off. */
static void a_begin_at_the_moment_of_expiry_is_safe(void **state)
{
	(void)state;
	w.conf.lease_idle_ms = 5;
	w.conf.gc_interval_ms = 5;
	world_up(&w);
	for (int i = 0; i < 40; i++) {
		struct session_hold *hold = take("edge", "op_1");

		for (int64_t end = clock_after_ms(i % 8); clock_left_ms(end) > 0;)
			world_says(&w, "edge", "live");
		assert_false(session_hold_lost(hold, NULL));
		world_release(&w, hold);
		for (int64_t end = clock_after_ms(i % 9); clock_left_ms(end) > 0;)
			world_says(&w, "edge", "live");
	}
	assert_true(world_until(&w, "edge", "\"state\":\"gone\""));
	assert_int_equal(world_counter(&w, "created"), world_counter(&w, "removed"));
}

/* ---- L2 ---- */

struct deleter {
	pthread_t thread;
	int code;
	bool gone;
	struct err err;
};

static void *delete(void *arg)
{
	struct deleter *deleter = arg;
	struct ident ident = world_ident("l2");

	deleter->code = session_teardown(w.s, &ident, true, clock_after_ms(WAIT_MS), &deleter->gone, &deleter->err);
	return NULL;
}

static void a_hundred_teardowns(void)
{
	static struct deleter deleters[100];

	memset(deleters, 0, sizeof(deleters));
	for (size_t i = 0; i < 100; i++)
		assert_int_equal(pthread_create(&deleters[i].thread, NULL, delete, &deleters[i]), 0);
	for (size_t i = 0; i < 100; i++)
		pthread_join(deleters[i].thread, NULL);
	for (size_t i = 0; i < 100; i++) {
		assert_int_equal(deleters[i].code, 0);
		assert_true(deleters[i].gone);
	}
}

static void l2_a_hundred_teardowns_are_one_delete(void **state)
{
	(void)state;
	world_faults(&w, "release nth=1 delay=300ms\n");
	world_release(&w, take("l2", "op_1"));
	a_hundred_teardowns();
	assert_int_equal(world_counter(&w, "release"), 1);
	assert_int_equal(world_sessions(&w, NULL), 0);
	assert_true(teardown("l2", false, 0));
	assert_true(teardown("never-seen", false, 0));
}

static void *wait_for_l2(void *arg)
{
	struct deleter *waiter = arg;
	struct session_hold *hold;

	waiter->code = world_acquire(&w, "l2", "op_1", &hold, &waiter->err);
	return NULL;
}

/* The late session is destroyed, and who waited for it learns why. */
static void teardown_while_provisioning(const char *faults, void (*meanwhile)(void), long removes)
{
	struct deleter waiter = {0};

	world_up(&w);
	world_faults(&w, faults);
	assert_int_equal(pthread_create(&waiter.thread, NULL, wait_for_l2, &waiter), 0);
	assert_true(world_until(&w, "l2", "\"state\":\"provisioning\""));
	for (int64_t end = clock_after_ms(WAIT_MS);
	     world_counter(&w, strstr(faults, "await") ? "await_ready" : "provision") == 0 && clock_left_ms(end) > 0;)
		world_says(&w, "l2", "x");
	if (meanwhile)
		meanwhile();
	a_hundred_teardowns();
	pthread_join(waiter.thread, NULL);
	assert_int_equal(waiter.code, ERR_SESSION_GONE);
	assert_string_equal(waiter.err.reason, "teardown");
	assert_int_equal(world_sessions(&w, NULL), 0);
	assert_int_equal(world_counter(&w, "removed"), removes);
	assert_true(world_agrees(&w));
}

static void l2_teardown_while_the_session_becomes_ready(void **state)
{
	(void)state;
	teardown_while_provisioning("await_ready hang\n", NULL, 1);
}

static void l2_teardown_while_the_create_is_on_its_way(void **state)
{
	(void)state;
	teardown_while_provisioning("provision hang\n", NULL, 0);
}

/* The provider has made the session, but its answer is still under way. */
static void create_happens(int64_t visible_ms)
{
	struct err err = {0};
	char *doc = NULL, intent[33] = "", *at;
	size_t len;

	assert_int_equal(store_get(w.store, STORE_TASK, "ws/l2", &doc, &len, &err), 0);
	at = doc ? strstr(doc, "\"intent\":\"") : NULL;
	assert_non_null(at);
	snprintf(intent, sizeof(intent), "%.32s", at + strlen("\"intent\":\""));
	free(doc);
	world_plant(&w, "l2", "mock-00000000000000cc", intent, visible_ms);
}

static void the_create_happens(void)
{
	create_happens(0);
}

static void the_create_shows_late(void)
{
	create_happens(500);
}

static void l2_teardown_before_the_answer_of_a_create(void **state)
{
	(void)state;
	teardown_while_provisioning("provision hang\n", the_create_happens, 1);
}

/* Not found at first is not absent: it is looked for as long as it may appear. */
static void l2_teardown_before_a_create_shows(void **state)
{
	static char settle[] = "3s";

	(void)state;
	w.settings[2].value = settle;
	teardown_while_provisioning("provision hang\n", the_create_shows_late, 1);
}

/* ---- teardown of a live one ---- */

static void teardown_waits_for_running_operations_and_then_forces(void **state)
{
	struct session_hold *hold;
	struct lost lost;

	(void)state;
	w.conf.teardown_wait_ms = 400;
	world_up(&w);
	hold = take("wait", "op_1");
	lost_init(&lost);
	session_hold_on_lost(hold, on_lost, &lost);
	assert_false(teardown("wait", false, 50));
	assert_false(session_hold_lost(hold, NULL));
	assert_true(world_says(&w, "wait", "\"ends_with\":\"teardown\""));
	assert_true(lost_wait(&lost));
	assert_string_equal(lost.reason, "teardown");
	assert_true(teardown("wait", false, WAIT_MS));
	session_hold_on_lost(hold, NULL, NULL);
	world_release(&w, hold);
	assert_true(world_says(&w, "wait", "\"state\":\"gone\""));
}

static void a_quick_end_lets_the_teardown_go_on(void **state)
{
	struct session_hold *hold = take("quick", "op_1");

	(void)state;
	assert_false(teardown("quick", false, 0));
	world_release(&w, hold);
	assert_true(teardown("quick", false, WAIT_MS));
	assert_int_equal(world_counter(&w, "release"), 1);
}

static void forced_teardown_tells_every_holder_once(void **state)
{
	struct session_hold *holds[8];
	struct lost lost[8];

	(void)state;
	for (size_t i = 0; i < 8; i++) {
		char op[16];

		snprintf(op, sizeof(op), "op_%zu", i);
		holds[i] = take("forced", op);
		lost_init(&lost[i]);
		if (i != 7)
			session_hold_on_lost(holds[i], on_lost, &lost[i]);
	}
	assert_true(teardown("forced", true, WAIT_MS));
	/* Who asks only after the loss is told as well. */
	session_hold_on_lost(holds[7], on_lost, &lost[7]);
	for (size_t i = 0; i < 8; i++) {
		const char *reason = NULL;

		assert_true(lost_wait(&lost[i]));
		assert_string_equal(lost[i].reason, "teardown");
		assert_true(session_hold_lost(holds[i], &reason));
		assert_string_equal(reason, "teardown");
		world_release(&w, holds[i]);
		assert_int_equal(lost[i].calls, 1);
	}
	/* The end of an operation of an earlier incarnation changes nothing of the next. */
	holds[0] = take("forced", "op_0");
	assert_true(world_says(&w, "forced", "\"stage\":\"active\""));
	world_release(&w, holds[0]);
}

static void an_unproven_end_never_gives_the_session_out_again(void **state)
{
	const struct session_end unproven = {.proven = false};
	struct session_hold *hold = take("quarantine", "op_1");
	int64_t incarnation = hold->incarnation;

	(void)state;
	session_release(w.s, hold, &unproven);
	hold = take("quarantine", "op_2");
	assert_true(hold->incarnation > incarnation);
	assert_int_equal(world_counter(&w, "created"), 2);
	assert_int_equal(world_counter(&w, "removed"), 1);
	world_release(&w, hold);
}

/* ---- L5, L8 ---- */

static void l5_a_delete_that_fails_is_tried_until_it_is_confirmed(void **state)
{
	(void)state;
	world_release(&w, take("l5", "op_1"));
	world_faults(&w, "release count=2 code=UNAVAILABLE reason=http_500\n");
	assert_false(teardown("l5", true, 200));
	assert_true(world_until(&w, "l5", "\"release\":{\"tries\":"));
	assert_true(world_says(&w, "l5", "\"state\":\"releasing\""));
	assert_true(world_says(&w, "l5", "provider_unavailable"));
	assert_int_equal(world_sessions(&w, NULL), 1);
	assert_true(teardown("l5", true, WAIT_MS));
	assert_int_equal(world_counter(&w, "release"), 3);
	assert_int_equal(world_sessions(&w, NULL), 0);
}

static void l8_a_session_deleted_behind_the_hosts_back_is_replaced(void **state)
{
	const struct session_end lost = {.lost = true};
	struct session_hold *hold = take("l8", "op_1");
	int64_t incarnation = hold->incarnation;
	char ref[64];

	(void)state;
	assert_int_equal(world_sessions(&w, ref), 1);
	world_vanish(&w, ref);
	/* The holder noticed by a call that answered SESSION_LOST. */
	session_release(w.s, hold, &lost);
	hold = take("l8", "op_2");
	assert_true(hold->incarnation > incarnation);
	assert_int_equal(world_sessions(&w, NULL), 1);
	world_release(&w, hold);
	assert_true(world_agrees(&w));
}

/* ---- the ceiling and the provider's expiry ---- */

static void at_the_ceiling_running_operations_are_told(void **state)
{
	struct session_hold *hold, *next;
	struct lost lost;

	(void)state;
	w.conf.session_max_age_ms = 1500;
	world_up(&w);
	hold = take("age", "op_1");
	lost_init(&lost);
	session_hold_on_lost(hold, on_lost, &lost);
	assert_true(lost_wait(&lost));
	assert_string_equal(lost.reason, "max_age");
	next = take("age", "op_2");
	assert_true(next->incarnation > hold->incarnation);
	world_release(&w, hold);
	assert_false(session_hold_lost(next, NULL));
	world_release(&w, next);
}

/* A session that is no millisecond old yet lasts as long as it may last at all. */
static void wait_a_tick(void)
{
	struct err err = {0};
	int64_t born, now = 0;

	assert_int_equal(store_now(w.store, &born, &err), 0);
	for (int64_t end = clock_after_ms(WAIT_MS); now <= born && clock_left_ms(end) > 0;)
		assert_int_equal(store_now(w.store, &now, &err), 0);
}

/* What would outlast the session waits for the next one, which is made once the running one has ended. */
static void an_operation_that_does_not_fit_rotates_the_session(void **state)
{
	struct session_begin begin = world_begin("rotate", "op_2");
	struct session_hold *hold, *next;
	struct err err = {0};

	(void)state;
	w.conf.session_max_age_ms = 60000;
	world_up(&w);
	hold = take("rotate", "op_1");
	wait_a_tick();
	begin.lasts_ms = 60001;
	assert_int_equal(session_acquire(w.s, &begin, clock_after_ms(WAIT_MS), &next, &err), ERR_SESSION_LIFE);
	begin.lasts_ms = 60000;
	assert_int_equal(session_acquire(w.s, &begin, clock_after_ms(100), &next, &err), ERR_SESSION_BUSY);
	assert_true(world_says(&w, "rotate", "\"ends_with\":\"max_age\""));
	world_release(&w, hold);
	assert_int_equal(session_acquire(w.s, &begin, clock_after_ms(WAIT_MS), &next, &err), 0);
	assert_int_equal(world_counter(&w, "created"), 2);
	world_release(&w, next);
	session_begin_fini(&begin);
}

static int64_t number_in(const char *task, const char *name)
{
	char *text = world_describe(&w, task);
	char *at = strstr(text, name);
	char stamp[32] = "";
	int64_t value = 0;

	if (at)
		snprintf(stamp, sizeof(stamp), "%.24s", at + strlen(name) + 3);
	clock_parse(stamp, &value);
	free(text);
	return value;
}

static void the_providers_expiry_is_moved_while_operations_run(void **state)
{
	struct session_hold *hold;
	int64_t before;

	(void)state;
	/* Half of the span is more than what the first grant leaves. */
	w.conf.operation_ttl_ms = w.conf.owner_ttl_ms = w.conf.claim_ttl_ms = 3000;
	world_faults(&w, "provision clamp=1h\n");
	world_up(&w);
	hold = take("extend", "op_1");
	before = number_in("extend", "provider_expires_at");
	for (int64_t end = clock_after_ms(WAIT_MS); world_counter(&w, "renew") == 0 && clock_left_ms(end) > 0;)
		world_until(&w, "extend", "\"stage\":\"active\"");
	for (int64_t end = clock_after_ms(WAIT_MS);
	     number_in("extend", "provider_expires_at") <= before && clock_left_ms(end) > 0;)
		world_until(&w, "extend", "\"stage\":\"active\"");
	assert_true(number_in("extend", "provider_expires_at") > before + 1800000);
	world_release(&w, hold);
}

/* The keeper comes by each 6 s here, and never while one of them runs. */
static void the_providers_expiry_is_moved_by_short_operations(void **state)
{
	int64_t before;

	(void)state;
	world_faults(&w, "provision clamp=1h\n");
	world_up(&w);
	world_release(&w, take("short", "op_1"));
	before = number_in("short", "provider_expires_at");
	world_release(&w, take("short", "op_2"));
	for (int64_t end = clock_after_ms(WAIT_MS);
	     number_in("short", "provider_expires_at") <= before && clock_left_ms(end) > 0;)
		world_until(&w, "short", "\"stage\":\"idle\"");
	assert_true(number_in("short", "provider_expires_at") > before + 1800000);
	assert_in_range(world_counter(&w, "renew"), 1, 2); /* each of them asks at most */
}

static void an_expiry_shorter_than_asked_becomes_the_ceiling(void **state)
{
	struct session_hold *hold;
	int64_t expires, ceiling;

	(void)state;
	w.conf.operation_ttl_ms = w.conf.owner_ttl_ms = w.conf.claim_ttl_ms = 600;
	world_faults(&w, "provision clamp=30m\nrenew clamp=40m\n");
	world_up(&w);
	hold = take("short", "op_1");
	ceiling = number_in("short", "ceiling_at");
	for (int64_t end = clock_after_ms(WAIT_MS); number_in("short", "ceiling_at") >= ceiling && clock_left_ms(end) > 0;)
		world_until(&w, "short", "\"stage\":\"active\"");
	expires = number_in("short", "provider_expires_at");
	assert_int_equal(number_in("short", "ceiling_at"), expires - 30000);
	assert_true(number_in("short", "lease_until") <= expires - 30000);
	/* It is not asked again and again. */
	let_pass(700);
	assert_int_equal(world_counter(&w, "renew"), 1);
	world_release(&w, hold);
}

/* ---- a row that cannot be read ---- */

struct damage {
	const char *key, *doc;
	char former[4096]; /* out */
};

static int damage_step(struct txn *txn, void *arg, struct err *err)
{
	struct damage *damage = arg;
	struct store_row row;
	int r = txn_get(txn, STORE_TASK, damage->key, &row, err);

	if (r || !row.doc)
		return r ? r : ERR_NOT_FOUND;
	snprintf(damage->former, sizeof(damage->former), "%.*s", (int)row.doc_len, (const char *)row.doc);
	row.key = damage->key;
	row.doc = damage->doc;
	row.doc_len = strlen(damage->doc);
	return txn_put(txn, STORE_TASK, &row, err);
}

static void a_damaged_row_stops_the_renewal_of_its_own_task_only(void **state)
{
	struct damage damage = {.key = "ws/bad", .doc = "{"}, mend = {.key = "ws/bad", .doc = damage.former};
	struct session_hold *good, *bad;
	int64_t before;

	(void)state;
	w.conf.operation_ttl_ms = w.conf.owner_ttl_ms = w.conf.claim_ttl_ms = 3000;
	world_up(&w);
	good = take("good", "op_1");
	bad = take("bad", "op_1");
	assert_int_equal(store_update(w.store, damage_step, &damage, NULL), 0);
	before = number_in("good", "lease_until");
	for (int64_t end = clock_after_ms(WAIT_MS); number_in("good", "lease_until") == before && clock_left_ms(end) > 0;)
		let_pass(50);
	assert_true(number_in("good", "lease_until") > before);
	assert_int_equal(store_update(w.store, damage_step, &mend, NULL), 0);
	world_release(&w, good);
	world_release(&w, bad);
}

/* ---- T2 ---- */

static void held_while_frozen(void)
{
	struct session_hold *hold;
	struct err err = {0};

	world_up(&w);
	if (world_acquire(&w, "frozen", "op_1", &hold, &err))
		_exit(2);
	raise(SIGSTOP);
	/* Awake again, long after every time to live: the GC and the keeper race, and the operation stays. */
	let_pass(600);
	if (session_hold_lost(hold, NULL) || !world_says(&w, "frozen", "\"stage\":\"active\""))
		_exit(3);
	world_release(&w, hold);
	world_down(&w, 5000);
	_exit(0);
}

static void t2_a_frozen_host_keeps_its_operations(void **state)
{
	int status = 0;
	pid_t pid;

	(void)state;
	w.conf.operation_ttl_ms = w.conf.owner_ttl_ms = w.conf.claim_ttl_ms = 300;
	w.conf.lease_active_ms = 300;
	w.conf.lease_idle_ms = 100;
	w.conf.gc_interval_ms = 20;
	pid = fork();
	if (pid == 0)
		held_while_frozen();
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
	poll(NULL, 0, 1000); /* the time that the host is frozen */
	assert_int_equal(kill(pid, SIGCONT), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- Q1 ---- */

static void acted_while_the_store_was_away(void)
{
	uint64_t before, failed;

	alarm(60);
	world_failpoint(&w, "store.commit.before error");
	for (int64_t end = clock_after_ms(WAIT_MS); session_may_act(w.s) && clock_left_ms(end) > 0;)
		poll(NULL, 0, 5);
	before = metric_value(METRIC_STORE_FAILURES, 0, 0);
	for (int64_t end = clock_after_ms(1200); clock_left_ms(end) > 0; poll(NULL, 0, 1))
		session_may_act(w.s);
	failed = metric_value(METRIC_STORE_FAILURES, 0, 0) - before;
	_exit(failed >= 1 && failed <= 8 ? 0 : 2);
}

/* Everybody who finds that the host may not act asks for a heartbeat; a few tries a second answer them all. */
static void q1_a_store_that_stays_away_is_not_hammered(void **state)
{
	int status = 0;
	pid_t pid;

	(void)state;
	w.conf.operation_ttl_ms = w.conf.owner_ttl_ms = w.conf.claim_ttl_ms = 600;
	w.conf.gc_interval_ms = 60000;
	pid = fork();
	if (pid == 0) {
		world_failpoint(&w, "");
		world_up(&w);
		acted_while_the_store_was_away();
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void *wait_for_turn(void *arg)
{
	struct session_begin begin = world_begin("turn", "op_2");
	struct deleter *waiter = arg;
	struct session_hold *hold;

	waiter->code = session_acquire(w.s, &begin, clock_after_ms(10 * WAIT_MS), &hold, &waiter->err);
	session_begin_fini(&begin);
	return NULL;
}

static void *give_turn(void *hold)
{
	world_release(&w, hold);
	return NULL;
}

static void wait_while(bool there, const char *part)
{
	while (world_says(&w, "turn", part) == there)
		poll(NULL, 0, 5);
}

static void ended_unheard(void)
{
	struct deleter waiter = {0}, giver;
	struct session_hold *hold;
	struct err err = {0};

	alarm(WAIT_MS / 1000);
	world_failpoint(&w, "");
	world_up(&w);
	if (world_acquire(&w, "turn", "op_1", &hold, &err) || pthread_create(&waiter.thread, NULL, wait_for_turn, &waiter))
		_exit(2);
	wait_while(false, "op_2");
	world_failpoint(&w, "store.commit.after error");
	if (pthread_create(&giver.thread, NULL, give_turn, hold))
		_exit(2);
	wait_while(true, "op_1");
	world_failpoint(&w, "");
	pthread_join(giver.thread, NULL);
	pthread_join(waiter.thread, NULL);
	_exit(waiter.code == 0 ? 0 : 3);
}

/* The step was applied, its answer was lost: whoever waits for the turn is told by the repetition. */
static void q1_an_end_that_was_stored_unheard_is_told(void **state)
{
	int status = 0;
	pid_t pid;

	(void)state;
	w.conf.task_concurrency = 1;
	w.conf.operation_ttl_ms = 600000; /* nobody looks without being told */
	pid = fork();
	if (pid == 0)
		ended_unheard();
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- stop ---- */

static void *wait_for_stop(void *arg)
{
	struct deleter *waiter = arg;
	struct session_hold *hold;

	waiter->code = world_acquire(&w, "stop", "op_1", &hold, &waiter->err);
	return NULL;
}

static void a_stop_answers_who_waits_and_the_next_process_goes_on(void **state)
{
	struct deleter waiter = {0};

	(void)state;
	world_faults(&w, "await_ready nth=1 hang\n");
	assert_int_equal(pthread_create(&waiter.thread, NULL, wait_for_stop, &waiter), 0);
	for (int64_t end = clock_after_ms(WAIT_MS); world_counter(&w, "await_ready") == 0 && clock_left_ms(end) > 0;)
		world_says(&w, "stop", "x");
	sessions_stop(w.s, clock_after_ms(100));
	pthread_join(waiter.thread, NULL);
	assert_int_equal(waiter.code, ERR_SHUTTING_DOWN);
	world_faults(&w, "");
	world_down(&w, 0);
	world_up(&w);
	assert_true(world_until(&w, "stop", "\"stage\":\"idle\""));
	assert_int_equal(world_counter(&w, "created"), 1);
}

int main(int argc, char **argv)
{
#define TEST(fn) cmocka_unit_test_prestate_setup_teardown(fn, world_setup, world_teardown, &w)
#define TEST_OWN(fn) cmocka_unit_test_prestate_setup_teardown(fn, world_setup_made, world_teardown, &w)
	const struct CMUnitTest tests[] = {
		TEST_OWN(l1_a_renewed_lease_holds_and_an_unrenewed_one_ends),
		TEST_OWN(a_begin_at_the_moment_of_expiry_is_safe),
		TEST(l2_a_hundred_teardowns_are_one_delete),
		TEST_OWN(l2_teardown_while_the_session_becomes_ready),
		TEST_OWN(l2_teardown_while_the_create_is_on_its_way),
		TEST_OWN(l2_teardown_before_the_answer_of_a_create),
		TEST_OWN(l2_teardown_before_a_create_shows),
		TEST_OWN(teardown_waits_for_running_operations_and_then_forces),
		TEST(a_quick_end_lets_the_teardown_go_on),
		TEST(forced_teardown_tells_every_holder_once),
		TEST(an_unproven_end_never_gives_the_session_out_again),
		TEST(l5_a_delete_that_fails_is_tried_until_it_is_confirmed),
		TEST(l8_a_session_deleted_behind_the_hosts_back_is_replaced),
		TEST_OWN(at_the_ceiling_running_operations_are_told),
		TEST_OWN(an_operation_that_does_not_fit_rotates_the_session),
		TEST_OWN(the_providers_expiry_is_moved_while_operations_run),
		TEST_OWN(the_providers_expiry_is_moved_by_short_operations),
		TEST_OWN(an_expiry_shorter_than_asked_becomes_the_ceiling),
		TEST_OWN(a_damaged_row_stops_the_renewal_of_its_own_task_only),
		TEST_OWN(q1_a_store_that_stays_away_is_not_hammered),
		TEST_OWN(q1_an_end_that_was_stored_unheard_is_told),
		TEST_OWN(t2_a_frozen_host_keeps_its_operations),
		TEST(a_stop_answers_who_waits_and_the_next_process_goes_on),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
