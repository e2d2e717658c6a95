/* SPDX-License-Identifier: Apache-2.0 */
/* The standing launcher of a plugin: commands do not depend on it, whatever is done to it. */
#include "sup_fixture.h"

#include <berth/launcher.h>
#include <errno.h>
#include <sys/file.h>

#define TOGETHER 12

static int setup(void **state)
{
	struct fixture *fx;
	int rc = fixture_setup(state);

	fx = *state;
	fx->sup.launch = berth_launcher_launch;
	fx->sup.launch_ctx = berth_launcher_new(fx->sup.helper);
	assert_non_null(fx->sup.launch_ctx);
	return rc;
}

static int teardown(void **state)
{
	struct fixture *fx = *state;

	berth_launcher_free(fx->sup.launch_ctx);
	return fixture_teardown(state);
}

static bool is_launcher(const char *number)
{
	static const char words[] = "berth-supervise\0attend";
	char path[300], text[sizeof(words) + 1];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%s/cmdline", number);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text));
	close(fd);
	return n == (ssize_t)sizeof(words) && memcmp(text, words, sizeof(words)) == 0;
}

static pid_t parent_of(const char *number)
{
	char path[300], text[512];
	const char *at;
	ssize_t n;
	int fd, parent = 0;

	snprintf(path, sizeof(path), "/proc/%s/stat", number);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	at = strrchr(text, ')');
	return at && sscanf(at + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

/* Launchers and those that are ready for a job whose parent is this process: at most cap numbers. */
static int list_launchers(pid_t parent, pid_t *ret, int cap)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	int count = 0;

	assert_non_null(proc);
	while ((entry = readdir(proc)) && count < cap)
		if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9' && is_launcher(entry->d_name) &&
		    parent_of(entry->d_name) == parent)
			ret[count++] = (pid_t)strtol(entry->d_name, NULL, 10);
	closedir(proc);
	return count;
}

/* Our child; 0 = none. */
static pid_t find_launcher(void)
{
	pid_t found = 0;

	list_launchers(getpid(), &found, 1);
	return found;
}

static void one_launcher_starts_all_commands(void **state)
{
	struct fixture *fx = *state;
	struct runner runners[TOGETHER];
	char ids[TOGETHER][16];
	pid_t pid;

	assert_int_equal(find_launcher(), 0); /* none before the first command */
	expect_script(fx, "echo $PPID >parent; echo out; exit 3", 3, "out\n");
	pid = find_launcher();
	assert_true(pid > 0);
	for (int i = 0; i < TOGETHER; i++) {
		snprintf(ids[i], sizeof(ids[i]), "t%d", i);
		runner_start(&runners[i], fx, ids[i], "echo $BERTH_TEST_MARK");
	}
	for (int i = 0; i < TOGETHER; i++) {
		runner_join(&runners[i]);
		assert_int_equal(runners[i].rc, BERTH_OK);
		assert_ending(&runners[i].call, BERTH_ENDING_EXIT, 0);
		assert_true(stream_has(&runners[i].call, BERTH_STREAM_STDOUT, fx->mark));
		fake_call_fini(&runners[i].call);
	}
	assert_int_equal(find_launcher(), pid);
}

static void a_start_happens_once(void **state)
{
	struct fixture *fx = *state;
	struct berth_command command = make_command("once", "echo x >>ran");
	struct berth_call call;

	fake_call_init(&call);
	assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_OK);
	fake_call_fini(&call);
	command.attempt = 2;
	fake_call_init(&call);
	assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_CONFLICT);
	fake_call_fini(&call);
	expect_script(fx, "wc -l <ran", 0, "1\n");
}

static bool runs_unless_lost(struct fixture *fx)
{
	struct berth_call call;
	int32_t rc = run_script(fx, &call, "true");

	assert_true(rc == BERTH_OK || (rc == BERTH_UNAVAILABLE && strcmp(call.reason, "start_failed") == 0));
	fake_call_fini(&call);
	return rc == BERTH_OK;
}

static void a_killed_launcher_takes_no_command_along(void **state)
{
	struct fixture *fx = *state;
	struct runner runner;
	pid_t pid;

	runner_start(&runner, fx, "long", "touch up; while [ ! -e go ]; do sleep 0.01; done; echo end; exit 5");
	FAKE_WAIT(root_has(fx, "up"));
	pid = find_launcher();
	assert_true(pid > 0);
	assert_int_equal(kill(pid, SIGKILL), 0);
	/* What was sent to the dying one may be lost, and is told so; then by themselves, within a second by another one. */
	FAKE_WAIT(runs_unless_lost(fx) && find_launcher() != pid && find_launcher() != 0);
	root_touch(fx, "go");
	runner_join(&runner);
	assert_int_equal(runner.rc, BERTH_OK);
	assert_ending(&runner.call, BERTH_ENDING_EXIT, 5);
	assert_stream(&runner.call, BERTH_STREAM_STDOUT, "end\n");
	fake_call_fini(&runner.call);
}

/* As an unlucky command of the same user may do. What was ready still starts; then nobody answers. */
static void a_stopped_launcher_is_replaced(void **state)
{
	struct fixture *fx = *state;
	pid_t pid;
	int lost = 0;

	expect_script(fx, "true", 0, "");
	pid = find_launcher();
	assert_int_equal(kill(pid, SIGSTOP), 0);
	for (int i = 0; i < 10 && lost == 0; i++)
		lost += !runs_unless_lost(fx);
	assert_int_equal(lost, 1);
	assert_int_equal(kill(pid, 0), -1);
	expect_script(fx, "echo next", 0, "next\n");
}

/* A program in place of the helper. */
static void plant_helper(struct fixture *fx, char path[200], const char *script)
{
	FILE *file;

	snprintf(path, 200, "%s/helper", fx->root);
	file = fopen(path, "we");
	assert_non_null(file);
	assert_true(fputs(script, file) >= 0);
	assert_int_equal(fchmod(fileno(file), 0755), 0);
	assert_int_equal(fclose(file), 0);
	fx->sup.helper = path;
}

/* Who has the job neither does it nor lets go of it: as a supervisor that a command stops while it starts. */
static void a_job_that_is_kept_is_lost(void **state)
{
	struct fixture *fx = *state;
	const char *helper = fx->sup.helper;
	struct berth_call call;
	char path[200];

	berth_launcher_free(fx->sup.launch_ctx);
	plant_helper(fx, path, "#!/bin/sh\nexec 3<&0 >/dev/null 2>&1\n"
			       "while [ -e \"$0\" ]; do /bin/sleep 0.1; done &\nexec /bin/sleep 1000\n");
	fx->sup.launch_ctx = berth_launcher_new(path);
	assert_int_equal(run_script(fx, &call, "touch ran"), BERTH_UNAVAILABLE);
	assert_string_equal(call.reason, "start_failed");
	fake_call_fini(&call);
	fx->sup.helper = helper;
	assert_false(root_has(fx, "ran"));
}

static void a_stopped_helper_is_given_up(void **state)
{
	struct fixture *fx = *state;
	const char *helper = fx->sup.helper;
	struct berth_call call;
	char path[200];

	fx->sup.launch = NULL;
	plant_helper(fx, path, "#!/bin/sh\nkill -STOP $$\n");
	assert_int_equal(run_script(fx, &call, "touch ran"), BERTH_UNAVAILABLE);
	assert_string_equal(call.reason, "start_failed");
	fake_call_fini(&call);
	fx->sup.helper = helper;
	assert_false(root_has(fx, "ran"));
}

/* A launcher that was given up while something holds the lock, as its disk may. */
static int lose_launch(void *ctx, const char *dir, uint32_t attempt)
{
	int *lock = ctx;

	(void)attempt;
	*lock = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(flock(*lock, LOCK_EX), 0);
	return -EINTR;
}

/* It may be on its way still: what it starts is whole, and found. */
static void a_start_that_is_not_known_keeps_its_files(void **state)
{
	struct fixture *fx = *state;
	struct runner runner = {.fx = fx, .command = make_command("late", "echo late; exit 4")};
	char dir[200];
	const char *const argv[] = {fx->sup.helper, "run", "--dir", dir, "--attempt", "1", NULL};
	int lock;

	berth_launcher_free(fx->sup.launch_ctx);
	fx->sup.launch = lose_launch;
	fx->sup.launch_ctx = &lock;
	fake_call_init(&runner.call);
	assert_int_equal(berth_sup_execute(&fake_host, &runner.call, &fx->sup, &runner.command), BERTH_UNKNOWN);
	fake_call_fini(&runner.call);
	fx->sup.launch_ctx = NULL;
	close(lock);
	snprintf(dir, sizeof(dir), "%s/late", fx->run);
	run_program(argv);
	runner.resume = (struct berth_resume){
		.struct_size = sizeof(runner.resume), .attempt = 1, .execution_id = fake_str("late")};
	fake_call_init(&runner.call);
	runner_main(&runner);
	assert_int_equal(runner.rc, BERTH_OK);
	assert_ending(&runner.call, BERTH_ENDING_EXIT, 4);
	assert_stream(&runner.call, BERTH_STREAM_STDOUT, "late\n");
	fake_call_fini(&runner.call);
}

static void its_end_ends_no_command(void **state)
{
	struct fixture *fx = *state;
	struct runner runner;
	pid_t pid;

	runner_start(&runner, fx, "stays", "touch up; while [ ! -e go ]; do sleep 0.01; done; exit 6");
	FAKE_WAIT(root_has(fx, "up"));
	pid = find_launcher();
	assert_true(pid > 0);
	berth_launcher_free(fx->sup.launch_ctx);
	fx->sup.launch_ctx = NULL;
	assert_int_equal(kill(pid, 0), -1);
	root_touch(fx, "go");
	runner_join(&runner);
	assert_ending(&runner.call, BERTH_ENDING_EXIT, 6);
	fake_call_fini(&runner.call);
}

static bool all_gone(const pid_t *pids, int count)
{
	for (int i = 0; i < count; i++)
		if (kill(pids[i], 0) == 0)
			return false;
	return true;
}

/* Also those that were ready. */
static void it_ends_with_its_process(void **state)
{
	struct fixture *fx = *state;
	pid_t pids[8], host;
	int ends[2], status;
	ssize_t n;

	assert_int_equal(pipe(ends), 0);
	host = fork();
	if (host == 0) {
		struct berth_call call;
		bool ran = run_script(fx, &call, "true") == BERTH_OK;
		int count = 1;

		pids[0] = find_launcher();
		while (ran && count == 1) /* until the first is ready */
			count += list_launchers(pids[0], pids + 1, 7);
		n = write(ends[1], pids, (size_t)count * sizeof(pids[0]));
		_exit(ran && pids[0] && n > 0 ? 0 : 1);
	}
	assert_int_equal(waitpid(host, &status, 0), host);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	n = read(ends[0], pids, sizeof(pids));
	assert_true(n >= (ssize_t)(2 * sizeof(pids[0])));
	FAKE_WAIT(all_gone(pids, (int)((size_t)n / sizeof(pids[0]))));
	close(ends[0]);
	close(ends[1]);
}

static void a_helper_that_is_not_there(void **state)
{
	struct fixture *fx = *state;
	struct berth_call call;
	char before[300];

	snprintf(before, sizeof(before), "%s", fx->sup.helper);
	berth_launcher_free(fx->sup.launch_ctx);
	fx->sup.helper = "/nowhere/berth-supervise";
	fx->sup.launch_ctx = berth_launcher_new(fx->sup.helper);
	assert_int_equal(run_script(fx, &call, "true"), BERTH_INTERNAL);
	assert_string_equal(call.reason, "helper");
	fake_call_fini(&call);
	fx->sup.helper = BERTH_TEST_BIN_DIR "/berth-supervise";
	assert_string_equal(before, fx->sup.helper);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(one_launcher_starts_all_commands),
		TEST(a_start_happens_once),
		TEST(a_killed_launcher_takes_no_command_along),
		TEST(a_stopped_launcher_is_replaced),
		TEST(a_job_that_is_kept_is_lost),
		TEST(a_stopped_helper_is_given_up),
		TEST(a_start_that_is_not_known_keeps_its_files),
		TEST(its_end_ends_no_command),
		TEST(it_ends_with_its_process),
		TEST(a_helper_that_is_not_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
