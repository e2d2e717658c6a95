/* SPDX-License-Identifier: Apache-2.0 */
/* The mock provider's memory_max and pids_max, and their control groups; as test_mock.c. */
#include "mock_host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>

/* Where control groups can be written the limit bites; where not, open says so in one sentence. */
static void test_pids_max(void **state)
{
	static const struct rig_option few[] = {{"pids_max", NULL, 12}, {NULL, NULL, 0}};
	struct berth_call *call = call_make();
	struct rig rig;
	char ref[64];

	(void)state;
	rig_load(&rig);
	if (rig_open(&rig, call, few)) {
		assert_string_equal(call->reason, "cgroup");
		assert_non_null(strstr(call->text, "pids_max"));
		rig.inst = NULL;
	} else {
		make_session(&rig, "ws", "task", ref);
		assert_int_equal(do_execute(&rig, call, ref, "e1",
					    "i=0; while [ $i -lt 40 ]; do sleep 1000 & i=$((i+1)); done 2>/dev/null"),
				 BERTH_OK);
		assert_true(call->ending.kind != BERTH_ENDING_EXIT || call->ending.exit_code != 0);
		assert_int_equal(code_of(&rig, ref, rig.ops->release), BERTH_OK);
	}
	rig_stop(&rig);
	call_drop(call);
}

struct late {
	struct rig *rig;
	struct berth_call *call;
	const char *ref;
	int32_t rc;
};

static void *execute_late(void *ctx)
{
	struct late *late = ctx;

	late->rc = do_execute(late->rig, late->call, late->ref, "e1", "true");
	return NULL;
}

static bool is_open_here(const char *path)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	char target[400];
	bool found = false;

	assert_non_null(dir);
	while (!found && (entry = readdir(dir))) {
		ssize_t len = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);

		target[len > 0 ? len : 0] = '\0';
		found = !strcmp(target, path);
	}
	closedir(dir);
	return found;
}

/* A session is released while a command is on its way into it, which makes the session's group anew. */
static void test_late_command_leaves_no_group(void **state)
{
	static const struct rig_option few[] = {{"pids_max", NULL, 12}, {NULL, NULL, 0}};
	struct berth_call *call = call_make();
	struct rig rig;
	struct late late = {&rig, call_make(), NULL, 0};
	char ref[64], path[200];
	pthread_t thread;
	int fd;

	(void)state;
	rig_load(&rig);
	if (rig_open(&rig, call, few)) {
		assert_string_equal(call->reason, "cgroup");
		rig.inst = NULL;
	} else {
		make_session(&rig, "ws", "task", ref);
		late.ref = ref;
		/* The command waits where it reads its environment. */
		rig_shell(&rig, "rm -f sessions/%s/env && mkfifo gate && ln gate sessions/%s/env", ref, ref);
		assert_int_equal(pthread_create(&thread, NULL, execute_late, &late), 0);
		snprintf(path, sizeof(path), "%s/sessions/%s", rig.root, ref);
		while (rig_counter(&rig, "execute") == 0 || !is_open_here(path))
			sched_yield();
		assert_int_equal(code_of(&rig, ref, rig.ops->release), BERTH_OK);
		snprintf(path, sizeof(path), "%s/gate", rig.root);
		while ((fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC)) < 0)
			sched_yield();
		close(fd);
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_int_equal(late.rc, BERTH_SESSION_LOST);
		rig_shell(&rig, "test -z \"$(find /sys/fs/cgroup -name %s)\"", ref);
	}
	rig_stop(&rig);
	call_drop(call);
	call_drop(late.call);
}

static void test_memory_max(void **state)
{
	static const struct rig_option little[] = {{"memory_max", NULL, 48 << 20}, {NULL, NULL, 0}};
	struct berth_call *call = call_make();
	struct rig rig;
	char ref[64];

	(void)state;
	rig_load(&rig);
	if (rig_open(&rig, call, little)) {
		assert_string_equal(call->reason, "cgroup");
		assert_non_null(strstr(call->text, "memory_max"));
		rig.inst = NULL;
	} else {
		make_session(&rig, "ws", "task", ref);
		assert_int_equal(do_execute(&rig, call, ref, "e1", "exec tail </dev/zero"), BERTH_OK);
		assert_int_equal(call->ending.kind, BERTH_ENDING_OOM);
		assert_int_equal(do_execute(&rig, call, ref, "e2", "exit 137"), BERTH_OK);
		assert_int_equal(call->ending.kind, BERTH_ENDING_EXIT);
		assert_int_equal(code_of(&rig, ref, rig.ops->release), BERTH_OK);
	}
	rig_stop(&rig);
	call_drop(call);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_pids_max),
	    cmocka_unit_test(test_late_command_leaves_no_group),
	    cmocka_unit_test(test_memory_max),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
