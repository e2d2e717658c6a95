/* SPDX-License-Identifier: Apache-2.0 */
/* A supervised command that damages, locks, closes or holds up what it is known by: it hides nobody and fakes no ending. */
#include "sup_fixture.h"

/* Whatever lies where the status would be, a dead supervisor writes none any more. */
static void what_is_no_status_is_none(void **state)
{
	static const char *const scripts[] = {"mkdir", "ln -s /etc/passwd", "mkfifo", "head -c 3000 /dev/zero >"};
	struct fixture *fx = *state;

	for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
		struct berth_call call;
		char script[200], id[16];
		struct berth_command command;

		snprintf(id, sizeof(id), "odd-%zu", i);
		snprintf(script, sizeof(script), "%s \"${0%%/*}/status\"; kill -9 $PPID", scripts[i]);
		command = make_command(id, script);
		fake_call_init(&call);
		assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_OK);
		assert_ending(&call, BERTH_ENDING_UNKNOWN, 0);
		fake_call_fini(&call);
	}
}

/* A supervisor that was stopped cannot help; it and its tree are ended from outside. */
static void kill_all_ends_a_stopped_supervisor(void **state)
{
	struct fixture *fx = *state;
	struct runner runner;
	pid_t pid;

	runner_start(&runner, fx, "stopped", "setsid sleep 300 & touch up; sleep 301");
	FAKE_WAIT(root_has(fx, "up"));
	pid = supervisor_of(fx, "stopped");
	assert_int_equal(kill(pid, SIGSTOP), 0);
	assert_int_equal(berth_sup_kill_all(&fx->sup, fake_now_ns() + INT64_C(20000000000)), BERTH_OK);
	assert_int_equal(fixture_processes(fx), 0);
	runner_join(&runner);
	assert_int_equal(runner.rc, BERTH_OK);
	fake_call_fini(&runner.call);
}

/* What a power cut leaves of a mark, and what a command can make of it: the one has nothing to kill, the other must not
 * keep the session from its release, nor live on. */
static void a_damaged_mark_hides_nobody(void **state)
{
	static const char *const damages[] = {": >", "head -c 100 /dev/zero >", "rm \"$m\"; mkdir", "ln -sf /etc/passwd"};
	struct fixture *fx = *state;
	struct berth_call call;

	for (size_t i = 0; i < 2 * sizeof(damages) / sizeof(damages[0]); i++) {
		bool kept = i % 2;
		char script[300], id[16];
		struct berth_str id_str;
		struct berth_command command;
		struct runner runner;

		snprintf(id, sizeof(id), "damaged-%zu", i);
		snprintf(script, sizeof(script), "m=\"${0%%/*/*}/started\"; %s \"$m\"; setsid sleep 300 & touch up; %s",
			 damages[i / 2], kept ? "exit 0" : "trap '' TERM; sleep 301; sleep 302");
		id_str = fake_str(id);
		runner = (struct runner){.fx = fx, .command = make_command(id, script)};
		runner.command.keep_descendants = kept;
		fake_call_init(&runner.call);
		assert_int_equal(pthread_create(&runner.thread, NULL, runner_main, &runner), 0);
		FAKE_WAIT(root_has(fx, "up"));
		if (kept)
			runner_join(&runner);
		assert_true(fixture_processes(fx) > 0);
		fake_call_init(&call);
		if (i % 4 < 2)
			assert_int_equal(berth_sup_kill_all(&fx->sup, fake_now_ns() + INT64_C(20000000000)), BERTH_OK);
		else
			assert_int_equal(berth_sup_signal(&fake_host, &call, &fx->sup, &id_str, BERTH_SIGNAL_KILL),
					 BERTH_OK);
		assert_int_equal(fixture_processes(fx), 0);
		if (!kept)
			runner_join(&runner);
		fake_call_fini(&runner.call);
		/* As after a power cut. */
		assert_int_equal(berth_sup_kill_all(&fx->sup, fake_now_ns() + INT64_C(20000000000)), BERTH_OK);
		command = make_command(id, "touch again");
		assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command) == BERTH_OK, 0);
		assert_false(root_has(fx, "again"));
		fake_call_fini(&call);
		snprintf(script, sizeof(script), "%s/up", fx->root);
		assert_int_equal(unlink(script), 0);
	}
}

/* Ids that never started, whose locks a command holds: any number of them is no shield. */
static void held_locks_shield_nobody(void **state)
{
	struct fixture *fx = *state;
	struct berth_command command = make_command(
		"holder", "for i in 1 2 3 4 5 6 7 8 9; do mkdir \"${0%/*/*/*}/x$i\"; "
			  "flock \"${0%/*/*/*}/x$i\" sh -c \"touch up$i; sleep 300\" & done; "
			  "for i in 1 2 3 4 5 6 7 8 9; do until [ -e up$i ]; do sleep 0.01; done; done");
	struct berth_call call;

	command.keep_descendants = 1;
	fake_call_init(&call);
	assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_OK);
	assert_ending(&call, BERTH_ENDING_EXIT, 0);
	fake_call_fini(&call);
	assert_true(fixture_processes(fx) > 0);
	assert_int_equal(berth_sup_kill_all(&fx->sup, fake_now_ns() + INT64_C(20000000000)), BERTH_OK);
	assert_int_equal(fixture_processes(fx), 0);
	command = make_command("x5", "touch ran");
	fake_call_init(&call);
	assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_CONFLICT);
	assert_string_equal(call.reason, "poisoned");
	fake_call_fini(&call);
}

/* What a supervisor looks like that was stopped while it started: no mark, and the lock in its hands. */
static void who_is_stopped_while_it_starts_is_ended(void **state)
{
	struct fixture *fx = *state;
	char helper[] = "berth-supervise", run[] = "run", *argv[] = {helper, run, NULL}, *no_env[] = {NULL};
	char path[200];
	FILE *script;
	pid_t pid;

	snprintf(path, sizeof(path), "%s/half", fx->run);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(chdir(fx->root), 0);
	script = fopen("run", "we");
	assert_non_null(script);
	fprintf(script, "exec 9<%s\n/usr/bin/flock 9\n: >up\nkill -STOP $$\n/bin/sleep 300\n", path);
	assert_int_equal(fclose(script), 0);
	assert_int_equal(posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, no_env), 0);
	FAKE_WAIT(root_has(fx, "up"));
	assert_int_equal(berth_sup_kill_all(&fx->sup, fake_now_ns() + INT64_C(20000000000)), BERTH_OK);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(chdir("/"), 0);
}

/* By kill-all in slices, as a release does that hears a cancel: none of them has time for patience. */
static void held_up_supervisors_are_ended_in_slices(void **state)
{
	static const char *const scripts[] = {
		"touch up; while :; do kill -STOP $PPID; done",
		"exec python3 -c \"import ctypes,os,time; ctypes.CDLL(None).ptrace(16,os.getppid(),0,0); open('up','w'); "
		"time.sleep(300)\"",
	};
	struct fixture *fx = *state;

	for (size_t i = 0; i < 2; i++) {
		struct runner runner;
		char path[200], id[16];

		snprintf(id, sizeof(id), "held-%zu", i);
		runner_start(&runner, fx, id, scripts[i]);
		FAKE_WAIT(root_has(fx, "up"));
		FAKE_WAIT(berth_sup_kill_all(&fx->sup, fake_now_ns() + INT64_C(500000000)) == BERTH_OK);
		assert_int_equal(fixture_processes(fx), 0);
		runner_join(&runner);
		assert_ending(&runner.call, BERTH_ENDING_CANCELLED, 0);
		fake_call_fini(&runner.call);
		snprintf(path, sizeof(path), "%s/up", fx->root);
		assert_int_equal(unlink(path), 0);
	}
}

/* A cancel that finds it traced, or finds no mark that tells where it is. */
static void a_stop_gets_through_to_one_that_is_held_up(void **state)
{
	static const char *const scripts[] = {
		"exec python3 -c \"import ctypes,os,time; ctypes.CDLL(None).ptrace(16,os.getppid(),0,0); open('up','w'); "
		"time.sleep(300)\"",
		": > \"${0%/*/*}/started\"; touch up; sleep 300",
	};
	struct fixture *fx = *state;

	for (size_t i = 0; i < 2; i++) {
		struct runner runner;
		char path[200], id[16];

		snprintf(id, sizeof(id), "stop-%zu", i);
		runner_start(&runner, fx, id, scripts[i]);
		FAKE_WAIT(root_has(fx, "up"));
		fake_cancel(&runner.call, BERTH_CANCEL_STOP);
		runner_join(&runner);
		assert_ending(&runner.call, BERTH_ENDING_CANCELLED, 0);
		assert_int_equal(fixture_processes(fx), 0);
		fake_call_fini(&runner.call);
		snprintf(path, sizeof(path), "%s/up", fx->root);
		assert_int_equal(unlink(path), 0);
	}
}

/* A process whose first thread has ended looks like a zombie, and lives. */
static void who_looks_dead_is_ended(void **state)
{
	static const char script[] =
		"python3 -c \"import ctypes,threading,time; threading.Thread(target=time.sleep, args=(300,)).start(); "
		"ctypes.CDLL(None).pthread_exit(None)\" & "
		"until grep -q '^State:.Z' /proc/$!/status; do sleep 0.01; done; touch up; wait";
	struct fixture *fx = *state;
	struct runner runner;

	runner_start(&runner, fx, "first-thread", script);
	FAKE_WAIT(root_has(fx, "up"));
	assert_int_equal(berth_sup_kill_all(&fx->sup, fake_now_ns() + INT64_C(20000000000)), BERTH_OK);
	runner_join(&runner);
	assert_ending(&runner.call, BERTH_ENDING_CANCELLED, 0);
	assert_int_equal(runner.call.ending.quiescent, BERTH_QUIESCENT_YES);
	fake_call_fini(&runner.call);
}

/* As a daemon that is not root: whom modes bind. */
static int end_closed_ones(struct fixture *fx)
{
	static const char *const places[] = {"${0%/*/*}/started", "${0%/*/*}", "${0%/*/*/*}"};
	int step = 0;

	if (geteuid() == 0 && (setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534) < 0))
		return 77;
	for (size_t i = 0; i < 6; i++) {
		char script[200], id[16];
		struct berth_str id_str;
		struct runner runner;

		snprintf(id, sizeof(id), "closed-%zu", i);
		snprintf(script, sizeof(script), "chmod 0 \"%s\"; setsid sleep 300 & touch up-%zu; exit 0", places[i / 2], i);
		id_str = fake_str(id);
		runner = (struct runner){.fx = fx, .command = make_command(id, script)};
		runner.command.keep_descendants = 1;
		fake_call_init(&runner.call);
		runner_main(&runner);
		step += fixture_processes(fx) > 0;
		if (i % 2)
			step += berth_sup_signal(&fake_host, &runner.call, &fx->sup, &id_str, BERTH_SIGNAL_KILL) == BERTH_OK;
		else
			step += berth_sup_kill_all(&fx->sup, fake_now_ns() + INT64_C(20000000000)) == BERTH_OK;
		step += fixture_processes(fx) == 0;
	}
	return step;
}

static void what_a_command_closed_is_opened(void **state)
{
	struct fixture *fx = *state;
	int status;
	pid_t pid;

	if (geteuid() == 0) {
		assert_int_equal(chown(fx->run, 65534, 65534), 0);
		assert_int_equal(chown(fx->root, 65534, 65534), 0);
	}
	pid = fork();
	if (pid == 0)
		_exit(end_closed_ones(fx));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 18);
}

/* A mark whose process number now belongs to somebody else: nobody is signalled. */
static void reused_process_numbers_are_left_alone(void **state)
{
	struct fixture *fx = *state;
	struct berth_command command = make_command("reused", "true");
	struct berth_str id = command.execution_id;
	struct berth_call call;
	char path[200], text[256];
	FILE *file;
	pid_t bystander = fork();

	if (bystander == 0) {
		pause();
		_exit(0);
	}
	fake_call_init(&call);
	assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_OK);
	snprintf(path, sizeof(path), "%s/reused/started", fx->run);
	file = fopen(path, "re");
	assert_non_null(file);
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	fclose(file);
	file = fopen(path, "we");
	assert_non_null(file);
	fprintf(file, "attempt=1\npid=%d\nstart=1\n%.*s\nleader=%d\nleader_start=1\n", (int)bystander,
		(int)strcspn(strstr(text, "boot="), "\n"), strstr(text, "boot="), (int)bystander);
	fclose(file);
	assert_int_equal(berth_sup_signal(&fake_host, &call, &fx->sup, &id, BERTH_SIGNAL_KILL), BERTH_NOT_FOUND);
	assert_int_equal(berth_sup_kill_all(&fx->sup, fake_now_ns() + INT64_C(5000000000)), BERTH_OK);
	assert_int_equal(waitpid(bystander, NULL, WNOHANG), 0);
	assert_int_equal(kill(bystander, SIGKILL), 0);
	assert_int_equal(waitpid(bystander, NULL, 0), bystander);
	fake_call_fini(&call);
}

/* What a command fails of once its session is destroyed is no ending of its own; a script that removes itself has one. */
static void destroyed_session_is_no_exit(void **state)
{
	struct fixture *fx = *state;
	struct berth_command command = make_command("gone", "d=${0%/*/*/*}; mv \"$d\" \"$d.gone\"; exit 3");
	struct berth_call call;
	char moved[200], path[240], text[512] = "";
	int fd;

	fake_call_init(&call);
	expect_script(fx, "rm \"$0\"; exit 3", 3, "");
	/* Whoever follows sees the status, or that the session is not there. */
	(void)berth_sup_execute(&fake_host, &call, &fx->sup, &command);
	snprintf(moved, sizeof(moved), "%s.gone", fx->run);
	snprintf(path, sizeof(path), "%s/gone/1/status", moved);
	FAKE_WAIT(access(path, F_OK) == 0);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
	assert_memory_equal(text, "kind=session_lost\nexit_code=0\n", 30);
	close(fd);
	assert_int_equal(rename(moved, fx->run), 0);
	fake_call_fini(&call);
	command = make_command("removed", "rm -rf \"${0%/*/*}\"; exit 3");
	fake_call_init(&call);
	assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_NOT_FOUND);
	fake_call_fini(&call);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
	const struct CMUnitTest tests[] = {
		TEST(what_is_no_status_is_none),
		TEST(kill_all_ends_a_stopped_supervisor),
		TEST(a_damaged_mark_hides_nobody),
		TEST(held_locks_shield_nobody),
		TEST(who_is_stopped_while_it_starts_is_ended),
		TEST(held_up_supervisors_are_ended_in_slices),
		TEST(a_stop_gets_through_to_one_that_is_held_up),
		TEST(who_looks_dead_is_ended),
		TEST(what_a_command_closed_is_opened),
		TEST(reused_process_numbers_are_left_alone),
		TEST(destroyed_session_is_no_exit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
