/* SPDX-License-Identifier: Apache-2.0 */
/* Failpoints: off without the variable; each action does what it says; hits are noted. */
#include "unit.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/failpoint.h"
#include "core/thread.h"

static char path[64], hit_path[80], go_path[80];

static int begin(void **state)
{
	(void)state;
	snprintf(path, sizeof(path), "/tmp/unit-failpoint-XXXXXX");
	int fd = mkstemp(path);

	if (fd < 0)
		return -1;
	close(fd);
	snprintf(hit_path, sizeof(hit_path), "%s.hit", path);
	snprintf(go_path, sizeof(go_path), "%s.go", path);
	return setenv("BERTH_FAILPOINTS", path, 1);
}

static int end(void **state)
{
	(void)state;
	unlink(path);
	unlink(hit_path);
	unlink(go_path);
	failpoint_active = false;
	return 0;
}

static void arm(const char *text)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void check_hits(const char *want)
{
	char text[1024] = "";
	FILE *file = fopen(hit_path, "r");

	if (file) {
		text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
		fclose(file);
	}
	assert_string_equal(text, want);
}

static void test_off_without_the_variable(void **state)
{
	(void)state;
	unsetenv("BERTH_FAILPOINTS");
	arm("exec.started error\n");
	assert_int_equal(failpoint_init(NULL), 0);
	assert_false(failpoint_active);
	assert_false(FAILPOINT("exec.started"));
	check_hits("");
}

static void test_bad_files_refuse_the_start(void **state)
{
	static const char *const bad[] = {"no.such.point error\n",  "exec.started\n",	    "exec.started explode\n",
					  "exec.started sleep:\n",  "exec.started sleep:x\n", "exec.started error 0\n",
					  "exec.started error x\n", "exec.started error 1 2\n", "# fine\n\nexec.started -\n"};
	struct err err = {0};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(bad); i++) {
		arm(bad[i]);
		assert_int_equal(failpoint_init(&err), ERR_CONFIG);
		assert_false(failpoint_active);
		assert_non_null(strstr(err.msg, path));
	}
	unlink(path);
	assert_int_equal(failpoint_init(&err), ERR_CONFIG);
}

static void test_error_and_counting(void **state)
{
	(void)state;
	arm("# a comment\n\nexec.started error 2\nexec.ended error\n");
	assert_int_equal(failpoint_init(NULL), 0);
	assert_true(failpoint_active);
	assert_false(FAILPOINT("exec.started"));
	assert_true(FAILPOINT("exec.started"));
	assert_false(FAILPOINT("exec.started"));
	assert_true(FAILPOINT("exec.ended"));
	assert_false(FAILPOINT("exec.running"));
	check_hits("exec.started 1\nexec.started 2\nexec.started 3\nexec.ended 1\n");
	arm("exec.running error\n"); /* read again at each hit */
	assert_true(FAILPOINT("exec.running"));
	assert_false(FAILPOINT("exec.ended"));
	unlink(path);
	assert_false(FAILPOINT("exec.running"));
}

static void test_sleep(void **state)
{
	int64_t deadline;

	(void)state;
	arm("gc.reclaim.before sleep:20\n");
	assert_int_equal(failpoint_init(NULL), 0);
	deadline = clock_after_ms(20);
	assert_false(FAILPOINT("gc.reclaim.before"));
	assert_true(clock_boot_ns() >= deadline);
}

static void test_kill(void **state)
{
	int status = 0;

	(void)state;
	arm("store.commit.after kill\n");
	assert_int_equal(failpoint_init(NULL), 0);
	fflush(NULL);
	pid_t pid = fork();

	if (pid == 0) {
		FAILPOINT("store.commit.after");
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGKILL);
	check_hits("store.commit.after 1\n"); /* noted before the end */
}

static void *hit_release(void *arg)
{
	*(bool *)arg = FAILPOINT("release.before");
	return NULL;
}

static void test_pause_waits_for_go(void **state)
{
	bool failed = true;
	pthread_t thread;

	(void)state;
	arm("release.before pause\n");
	assert_int_equal(failpoint_init(NULL), 0);
	assert_int_equal(thread_start(&thread, "pause", hit_release, &failed), 0);
	while (access(hit_path, F_OK) < 0) /* the condition is a file here */
		sched_yield();
	int fd = open(go_path, O_WRONLY | O_CREAT, 0600);

	assert_true(fd >= 0);
	close(fd);
	assert_true(thread_join_until(thread, INT64_MAX));
	assert_false(failed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_kill, begin, end), /* first: it forks */
		cmocka_unit_test_setup_teardown(test_off_without_the_variable, begin, end),
		cmocka_unit_test_setup_teardown(test_bad_files_refuse_the_start, begin, end),
		cmocka_unit_test_setup_teardown(test_error_and_counting, begin, end),
		cmocka_unit_test_setup_teardown(test_sleep, begin, end),
		cmocka_unit_test_setup_teardown(test_pause_waits_for_go, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
