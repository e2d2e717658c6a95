/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host is killed (SIGKILL, in a child) at every place where a crash can hurt — named failpoints, and before and after each
 * single commit — and a new process starts on the same database and the same provider. Then one session remains, the task
 * uses it, and everything can be released: O3, O4, L3, I1, I7.
 */
#include "world.h"

#include <signal.h>
#include <sys/wait.h>


#define COMMITS_MAX 60

static struct world w;

static int make(void **state)
{
	(void)state;
	world_make(&w);
	/* Longer than any wait here: what the dead process held is freed because it is dead, not because its time is up. */
	w.conf.operation_ttl_ms = w.conf.owner_ttl_ms = w.conf.claim_ttl_ms = 4 * WAIT_MS;
	return 0;
}

static int end(void **state)
{
	(void)state;
	if (w.s)
		world_down(&w, 5000);
	world_end(&w);
	return 0;
}

static void use_once(void)
{
	struct session_hold *hold;
	struct err err = {0};

	if (world_acquire(&w, "crash", "op_1", &hold, &err))
		_exit(2);
	world_release(&w, hold);
}

static void tear_down(void)
{
	struct ident ident = world_ident("crash");
	struct err err = {0};
	bool gone;

	if (session_teardown(w.s, &ident, true, clock_after_ms(WAIT_MS), &gone, &err) || !gone)
		_exit(3);
}

static void use_and_tear_down(void)
{
	use_once();
	tear_down();
}

/* The caller tries again when it is told that the store was away. */
static void insist(void)
{
	struct ident ident = world_ident("crash");
	struct session_hold *hold;
	struct err err = {0};
	bool gone;
	int r;

	do {
		r = world_acquire(&w, "crash", "op_1", &hold, &err);
	} while (r == ERR_STORE);
	if (r)
		_exit(4);
	world_release(&w, hold);
	do {
		r = session_teardown(w.s, &ident, true, clock_after_ms(WAIT_MS), &gone, &err);
	} while (r == ERR_STORE);
	if (r || !gone)
		_exit(5);
}

/* True when the child was killed at the failpoint, false when it lived to the end. */
static bool killed_while(const char *failpoint, void (*doing)(void))
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		alarm(60);
		world_failpoint(&w, failpoint);
		world_up(&w);
		doing();
		world_down(&w, 5000);
		_exit(0);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	w.starts++;
	if (WIFEXITED(status))
		assert_int_equal(WEXITSTATUS(status), 0);
	else
		assert_int_equal(WTERMSIG(status), SIGKILL);
	return WIFSIGNALED(status);
}

/* A new process finds one session or makes one, and can get rid of it. */
static void recovers(void)
{
	struct ident ident = world_ident("crash");
	struct session_hold *hold;
	struct err err = {0};
	bool gone;

	world_up(&w);
	assert_int_equal(world_acquire(&w, "crash", "op_2", &hold, &err), 0);
	assert_int_equal(world_sessions(&w, NULL), 1);
	assert_true(world_agrees(&w));
	world_release(&w, hold);
	assert_int_equal(session_teardown(w.s, &ident, true, clock_after_ms(WAIT_MS), &gone, &err), 0);
	assert_true(gone);
	assert_int_equal(world_sessions(&w, NULL), 0);
	assert_true(world_agrees(&w));
	world_down(&w, 5000);
}

static void killed_while_provisioning(void **state)
{
	static const char *const points[] = {"provision.before kill", "provision.created kill", "provision.ready kill",
					     "provision.publish.before kill"};

	(void)state;
	for (size_t i = 0; i < sizeof(points) / sizeof(*points); i++) {
		assert_true(killed_while(points[i], use_once));
		recovers();
	}
	/* Not one more was made than the first and, where none was made yet, the second process needed. */
	assert_int_equal(world_counter(&w, "created"), 4);
	assert_int_equal(world_counter(&w, "removed"), 4);
}

static void l3_killed_while_releasing(void **state)
{
	static const char *const points[] = {"release.before kill", "release.after kill", "release.confirmed.before kill"};

	(void)state;
	for (size_t i = 0; i < sizeof(points) / sizeof(*points); i++) {
		assert_true(killed_while(points[i], use_and_tear_down));
		/* Nobody asks for anything: the first round of the new process resumes it. */
		world_up(&w);
		assert_true(world_until(&w, "crash", "\"state\":\"gone\""));
		assert_int_equal(world_sessions(&w, NULL), 0);
		world_down(&w, 5000);
		recovers();
	}
	assert_int_equal(world_counter(&w, "created"), world_counter(&w, "removed"));
}

static void killed_at_every_commit(void **state)
{
	static const char *const whens[] = {"before", "after"};
	unsigned deaths = 0;

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		for (unsigned nth = 1; nth <= COMMITS_MAX; nth++) {
			char point[64];

			snprintf(point, sizeof(point), "store.commit.%s kill %u", whens[i], nth);
			if (!killed_while(point, use_and_tear_down))
				break;
			deaths++;
			recovers();
			assert_true(nth < COMMITS_MAX);
		}
	}
	assert_true(deaths >= 12);
	assert_int_equal(world_counter(&w, "created"), world_counter(&w, "removed"));
}

/* O3: the session was made, and the store would not take the news. */
static void o3_recording_the_created_session_fails(void **state)
{
	(void)state;
	/* With each commit failing in turn, the one that records the session is among them. */
	for (unsigned nth = 3; nth <= 8; nth++) {
		char point[64];

		snprintf(point, sizeof(point), "store.commit.before error %u", nth);
		assert_false(killed_while(point, insist));
	}
	assert_int_equal(world_counter(&w, "created"), 6);
	assert_int_equal(world_counter(&w, "removed"), 6);
	assert_int_equal(world_sessions(&w, NULL), 0);
}

/* O4: the create reached the provider, and the host died before it heard of it. */
static void o4_killed_before_the_reply_of_a_create(void **state)
{
	static char settle[] = "1s";

	(void)state;
	w.settings[2].value = settle;
	world_faults(&w, "provision nth=1 lost_reply late=500ms\n");
	/* Its reply is lost; the search for it dies at its second commit after that. */
	assert_true(killed_while("store.commit.before kill 5", use_once));
	world_faults(&w, "");
	recovers();
	assert_int_equal(world_counter(&w, "created"), world_counter(&w, "removed"));
}

/* A live binding survives its process: same session, nothing is made or deleted. */
static void t3_a_restart_keeps_the_session(void **state)
{
	struct session_hold *hold;
	struct err err = {0};
	char before[64], after[64];

	(void)state;
	world_up(&w);
	assert_int_equal(world_acquire(&w, "crash", "op_1", &hold, &err), 0);
	session_detach(w.s, hold);
	assert_int_equal(world_sessions(&w, before), 1);
	world_down(&w, 5000);
	world_up(&w);
	/* The file operation of the former process is dead, and left nothing behind. */
	assert_true(world_until(&w, "crash", "\"operations\":[]"));
	assert_int_equal(world_acquire(&w, "crash", "op_2", &hold, &err), 0);
	assert_int_equal(world_sessions(&w, after), 1);
	assert_string_equal(before, after);
	assert_int_equal(world_counter(&w, "created"), 1);
	world_release(&w, hold);
}

static bool all_open(struct txn *txn, const char *execution_id, void *arg)
{
	(void)txn;
	(void)execution_id;
	(void)arg;
	return true;
}

/* An execution's operation outlives its host while its record is open, and can be resumed. */
static void an_execution_is_resumed_after_a_restart(void **state)
{
	struct session_begin begin = world_begin("crash", "sexec_1");
	struct ident ident = world_ident("crash");
	struct session_hold *hold;
	struct err err = {0};
	int64_t incarnation;

	(void)state;
	begin.op_kind = "execution";
	w.hooks.execution_open = all_open;
	world_up(&w);
	assert_int_equal(session_acquire(w.s, &begin, clock_after_ms(WAIT_MS), &hold, &err), 0);
	session_begin_fini(&begin);
	incarnation = hold->incarnation;
	session_detach(w.s, hold);
	world_down(&w, 5000);
	world_up(&w);
	assert_true(world_until(&w, "crash", "\"stage\":\"active\""));
	assert_int_equal(session_resume(w.s, &ident, "sexec_1", &hold, &err), 0);
	assert_int_equal(hold->incarnation, incarnation);
	world_release(&w, hold);
	assert_int_equal(session_resume(w.s, &ident, "sexec_1", &hold, &err), ERR_SESSION_GONE);
}

int main(int argc, char **argv)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, make, end)
	const struct CMUnitTest tests[] = {
		TEST(killed_while_provisioning),
		TEST(l3_killed_while_releasing),
		TEST(killed_at_every_commit),
		TEST(o3_recording_the_created_session_fails),
		TEST(o4_killed_before_the_reply_of_a_create),
		TEST(t3_a_restart_keeps_the_session),
		TEST(an_execution_is_resumed_after_a_restart),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
