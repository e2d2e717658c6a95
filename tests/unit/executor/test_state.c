/* SPDX-License-Identifier: Apache-2.0 */
/* The state directory: what is pinned and which attempt was the highest outlive the process; a second one is kept out. */
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../../sdk/lib/supervised_files.h"

struct fixture {
	char dir[64], root[96], place[96];
	struct state state;
};

static int open_again(struct fixture *fx, char *text, size_t cap)
{
	memset(&fx->state, 0, sizeof(fx->state));
	return state_open(&fx->state, fx->root, fx->place, false, text, cap);
}

static void close_state(struct fixture *fx)
{
	close(fx->state.root_fd);
	close(fx->state.state_fd);
	close(fx->state.run_fd);
	close(fx->state.marks_fd);
}

static int setup(void **state)
{
	struct fixture *fx = calloc(1, sizeof(*fx));
	char text[256];

	snprintf(fx->dir, sizeof(fx->dir), "/tmp/berth-state-XXXXXX");
	if (!mkdtemp(fx->dir))
		return -1;
	snprintf(fx->root, sizeof(fx->root), "%s/a/work", fx->dir);
	snprintf(fx->place, sizeof(fx->place), "%s/b/state", fx->dir);
	*state = fx;
	return open_again(fx, text, sizeof(text));
}

static int teardown(void **state)
{
	struct fixture *fx = *state;
	char command[128];

	close_state(fx);
	snprintf(command, sizeof(command), "rm -rf '%s'", fx->dir);
	free(fx);
	return system(command);
}

static void reopen(struct fixture *fx)
{
	char text[256] = "";

	close_state(fx);
	assert_int_equal(open_again(fx, text, sizeof(text)), 0);
}

static void pins_once(void **state)
{
	struct fixture *fx = *state;
	char boot[33], instance[33];

	assert_false(state_pinned(&fx->state));
	assert_int_equal(state_pin(&fx->state, "team", "task"), 0);
	assert_int_equal(state_pin(&fx->state, "team", "task"), 0);
	assert_int_equal(state_pin(&fx->state, "team", "other"), -EACCES);
	memcpy(boot, fx->state.boot_id, sizeof(boot));
	memcpy(instance, fx->state.instance, sizeof(instance));
	reopen(fx);
	assert_true(state_pinned(&fx->state));
	assert_int_equal(state_pin(&fx->state, "other", "task"), -EACCES);
	assert_int_equal(state_pin(&fx->state, "team", "task"), 0);
	assert_string_equal(boot, fx->state.boot_id);
	assert_string_not_equal(instance, fx->state.instance);
}

static void one_process_at_a_time(void **state)
{
	struct fixture *fx = *state;
	struct state second;
	char text[256] = "";

	assert_int_equal(state_open(&second, fx->root, fx->place, false, text, sizeof(text)), -1);
	assert_non_null(strstr(text, "another executor"));
	close(second.root_fd);
	close(second.state_fd);
	snprintf(text, sizeof(text), "%s/inside", fx->root);
	assert_int_equal(state_open(&second, fx->root, text, false, text, sizeof(text)), -1);
	assert_non_null(strstr(text, "inside the root"));
	close(second.root_fd);
	close(second.state_fd);
}

static void attempts_only_rise(void **state)
{
	struct fixture *fx = *state;
	int fd;

	/* A first attempt leaves nothing behind: most commands cost no file for this. */
	assert_int_equal(state_attempt(&fx->state, "x", 1), 0);
	assert_int_equal(faccessat(fx->state.run_fd, "x", F_OK, 0), -1);
	assert_int_equal(state_attempt(&fx->state, "x", 3), 0);
	assert_int_equal(state_attempt(&fx->state, "x", 2), -ESTALE);
	assert_int_equal(state_attempt(&fx->state, "x", 1), -ESTALE);
	reopen(fx);
	assert_int_equal(state_attempt(&fx->state, "x", 2), -ESTALE);
	assert_int_equal(state_attempt(&fx->state, "x", 3), 0);
	assert_int_equal(state_attempt(&fx->state, "x", UINT32_MAX), 0);
	assert_int_equal(state_attempt(&fx->state, "x", UINT32_MAX - 1), -ESTALE);
	/* What the supervisor's own marks say counts, too. */
	assert_int_equal(mkdirat(fx->state.run_fd, "y", 0700), 0);
	fd = openat(fx->state.run_fd, "y", O_RDONLY | O_DIRECTORY);
	assert_int_equal(sup_replace_file(fd, "t", "poison", "attempt=5\n", 10, 0), 0);
	assert_int_equal(state_attempt(&fx->state, "y", 4), -ESTALE);
	assert_int_equal(state_attempt(&fx->state, "y", 5), 0);
	close(fd);
}

/* As a power cut leaves them, or a command: no permission, and not worth asking again. */
static void a_damaged_mark_is_no_permission(void **state)
{
	static const char *const marks[] = {"seen", "poison", "started"};
	static const char *const damages[] = {"", "attempt=-1\n", "attempt=4", "\n"};
	struct fixture *fx = *state;

	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]) * sizeof(damages) / sizeof(damages[0]); i++) {
		const char *mark = marks[i / 4], *damage = damages[i % 4];
		const char *whole = strcmp(mark, "seen") == 0 ? "poison" : "seen";
		char id[16];
		int fd;

		snprintf(id, sizeof(id), "id%zu", i);
		assert_int_equal(mkdirat(fx->state.run_fd, id, 0700), 0);
		fd = openat(fx->state.run_fd, id, O_RDONLY | O_DIRECTORY);
		assert_int_equal(sup_replace_file(fd, "t", mark, damage, strlen(damage), 0), 0);
		assert_int_equal(state_attempt(&fx->state, id, 1), -EBADMSG);
		assert_int_equal(state_attempt(&fx->state, id, 9), -EBADMSG);
		/* What can be read still counts. */
		assert_int_equal(sup_replace_file(fd, "t", whole, "attempt=5\n", 10, 0), 0);
		assert_int_equal(state_attempt(&fx->state, id, 4), -ESTALE);
		assert_int_equal(state_attempt(&fx->state, id, 5), -EBADMSG);
		close(fd);
	}
}

static void tells_what_was_lost(void **state)
{
	struct fixture *fx = *state;
	char command[256], text[256];

	assert_null(state_lost(&fx->state));
	assert_int_equal(rmdir(fx->root), 0);
	assert_string_equal(state_lost(&fx->state), "root_lost");
	snprintf(command, sizeof(command), "rm -rf '%s'", fx->place);
	assert_int_equal(system(command), 0);
	assert_string_equal(state_lost(&fx->state), "state_lost");
	snprintf(command, sizeof(command), "%s", fx->state.boot_id);
	close_state(fx);
	assert_int_equal(open_again(fx, text, sizeof(text)), 0);
	assert_string_not_equal(command, fx->state.boot_id);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(pins_once, setup, teardown),
		cmocka_unit_test_setup_teardown(one_process_at_a_time, setup, teardown),
		cmocka_unit_test_setup_teardown(attempts_only_rise, setup, teardown),
		cmocka_unit_test_setup_teardown(a_damaged_mark_is_no_permission, setup, teardown),
		cmocka_unit_test_setup_teardown(tells_what_was_lost, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
