/* SPDX-License-Identifier: Apache-2.0 */
/* What is told of sessions — describe, list, verify, search — and that telling renews nothing (L9); regions and only_live. */
#include "world.h"

static struct world w;

static int up(void **state)
{
	static char eu[] = "eu", us[] = "us", two[] = "two", root_key[] = "root", fault_key[] = "fault_file";
	static char supervise_key[] = "supervise", supervise[] = BERTH_TEST_BIN_DIR "/berth-supervise", where[] = "test";
	static char path[160];
	static struct conf_pair settings[3];

	(void)state;
	world_make(&w);
	snprintf(path, sizeof(path), "%s/root-two", w.dir);
	assert_int_equal(mkdir(path, 0700), 0);
	settings[0] = (struct conf_pair){.key = root_key, .value = path, .where = where};
	settings[1] = (struct conf_pair){.key = fault_key, .value = w.paths[2], .where = where};
	settings[2] = (struct conf_pair){.key = supervise_key, .value = supervise, .where = where};
	w.targets[1] = w.targets[0];
	w.targets[0].region = eu;
	w.targets[1].region = us;
	w.targets[1].name = two;
	w.targets[1].settings = settings;
	w.targets[1].setting_count = 3;
	w.conf.target_count = 2;
	world_up(&w);
	return 0;
}

static int use_as(const char *workspace, const char *task, const char *region, struct err *err)
{
	struct session_begin begin = world_begin(task, "op_1");
	struct session_hold *hold;
	int r;

	snprintf(begin.ident.workspace, sizeof(begin.ident.workspace), "%s", workspace);
	begin.region = region;
	r = session_acquire(w.s, &begin, clock_after_ms(WAIT_MS), &hold, err);
	if (r == 0)
		world_release(&w, hold);
	session_begin_fini(&begin);
	return r;
}

static void regions_are_matched_exactly(void **state)
{
	struct err err = {0};

	(void)state;
	assert_int_equal(use_as("ws", "region", "mars", &err), ERR_NO_TARGET);
	assert_int_equal(session_placeable(w.s, "mars", &err), ERR_NO_TARGET);
	assert_int_equal(session_placeable(w.s, "EU", &err), ERR_NO_TARGET);
	assert_int_equal(session_placeable(w.s, "us", &err), 0);
	assert_int_equal(use_as("ws", "region", "us", &err), 0);
	assert_true(world_says(&w, "region", "\"target\":\"two\""));
	assert_int_equal(use_as("ws", "region", "eu", &err), ERR_REGION_CONFLICT);
	assert_int_equal(use_as("ws", "region", NULL, &err), 0);
	assert_int_equal(use_as("ws", "none-asked", "", &err), 0);
	assert_true(world_says(&w, "none-asked", "\"target\":\"one\""));
}

static int drain_step(struct txn *txn, void *arg, struct err *err)
{
	const char *doc = arg;
	const struct store_row row = {.key = "two", .group = "", .doc = doc, .doc_len = strlen(doc)};

	return txn_put(txn, STORE_TARGET, &row, err);
}

static void retire(const char *workspace, const char *task)
{
	struct ident ident;
	bool gone = false;

	assert_int_equal(ident_make(&ident, workspace, task, NULL), 0);
	assert_int_equal(session_teardown(w.s, &ident, true, clock_after_ms(WAIT_MS), &gone, NULL), 0);
	assert_true(gone);
}

static void a_drained_target_takes_no_new_sessions(void **state)
{
	char on[] = "{\"drained\":true}", off[] = "{\"drained\":false}";
	struct err err = {0};

	(void)state;
	assert_int_equal(use_as("ws", "before", "us", &err), 0);
	assert_int_equal(store_update(w.store, drain_step, on, &err), 0);
	assert_int_equal(use_as("ws", "after", "us", &err), ERR_NO_TARGET);
	assert_int_equal(use_as("ws", "before", "us", &err), 0);
	assert_int_equal(store_update(w.store, drain_step, off, &err), 0);
	assert_int_equal(use_as("ws", "after", "us", &err), 0);
}

static void only_live_neither_provisions_nor_waits(void **state)
{
	struct session_begin begin = world_begin("only", "op_9");
	struct ident ident = world_ident("only");
	struct session_hold *hold = NULL;
	struct err err = {0};
	bool gone;

	(void)state;
	begin.only_live = true;
	assert_int_equal(session_acquire(w.s, &begin, clock_after_ms(WAIT_MS), &hold, &err), ERR_NOT_FOUND);
	assert_int_equal(session_describe(w.s, &ident, &(struct buf){.max = 100}, &err), ERR_NOT_FOUND);
	assert_int_equal(use_as("ws", "only", NULL, &err), 0);
	assert_int_equal(session_acquire(w.s, &begin, clock_after_ms(WAIT_MS), &hold, &err), 0);
	world_release(&w, hold);
	assert_int_equal(session_teardown(w.s, &ident, true, clock_after_ms(WAIT_MS), &gone, &err), 0);
	assert_int_equal(session_acquire(w.s, &begin, clock_after_ms(WAIT_MS), &hold, &err), ERR_SANDBOX_EXPIRED);
	assert_int_equal(world_counter(&w, "created"), 1);
	session_begin_fini(&begin);
}

static size_t list_all(const char *workspace, size_t page, char *names, size_t size)
{
	char *after = NULL, *next = NULL;
	size_t total = 0;

	names[0] = '\0';
	do {
		struct err err = {0};
		struct buf buf;
		size_t count;

		buf_init(&buf, 1 << 20);
		assert_int_equal(session_list(w.s, workspace, after ? after : "", page, &buf, &count, &next, &err), 0);
		assert_true(count <= page);
		total += count;
		for (char *at = buf.ptr; at && (at = strstr(at, "\"task_id\":\"")); at++) {
			size_t len = strlen(names);

			snprintf(names + len, size - len, "%.2s ", at + strlen("\"task_id\":\""));
		}
		buf_fini(&buf);
		free(after);
		after = next;
	} while (after);
	return total;
}

static void lists_are_complete_in_pages_and_renew_nothing(void **state)
{
	char names[64], *before, *after;
	struct err err = {0};

	(void)state;
	for (int i = 0; i < 7; i++)
		assert_int_equal(use_as("ws", (const char *[]){"t0", "t1", "t2", "t3", "t4", "t5", "t6"}[i], NULL, &err), 0);
	assert_int_equal(use_as("other", "t3", NULL, &err), 0);
	before = world_describe(&w, "t3");
	for (size_t page = 1; page <= 8; page++) {
		assert_int_equal(list_all("ws", page, names, sizeof(names)), 7);
		assert_string_equal(names, "t0 t1 t2 t3 t4 t5 t6 ");
	}
	assert_int_equal(list_all(NULL, 3, names, sizeof(names)), 8);
	assert_int_equal(list_all("nobody", 3, names, sizeof(names)), 0);
	after = world_describe(&w, "t3");
	assert_string_equal(before, after);
	free(before);
	free(after);
}

static void a_task_without_its_workspace_is_found_when_it_is_the_only_one(void **state)
{
	char workspace[IDENT_PART_MAX + 1];
	struct err err = {0};

	(void)state;
	assert_int_equal(session_find_workspace(w.s, "t1", workspace, &err), ERR_NOT_FOUND);
	assert_int_equal(use_as("acme", "t1", NULL, &err), 0);
	assert_int_equal(session_find_workspace(w.s, "t1", workspace, &err), 0);
	assert_string_equal(workspace, "acme");
	assert_int_equal(use_as("other", "t1", NULL, &err), 0);
	assert_int_equal(session_find_workspace(w.s, "t1", workspace, &err), ERR_INVALID_REQUEST);
	retire("acme", "t1");
	assert_int_equal(session_find_workspace(w.s, "t1", workspace, &err), 0);
	assert_string_equal(workspace, "other");
	retire("other", "t1");
	assert_int_equal(session_find_workspace(w.s, "t1", workspace, &err), 0);
	assert_string_equal(workspace, "other");
}

static bool verify(char ret[4096])
{
	struct err err = {0};
	struct buf buf;
	bool ok = true;

	buf_init(&buf, 1 << 20);
	assert_int_equal(session_verify(w.s, clock_after_ms(WAIT_MS), &buf, &ok, &err), 0);
	snprintf(ret, 4096, "%s", buf.ptr);
	buf_fini(&buf);
	return ok;
}

static void verify_names_what_does_not_agree(void **state)
{
	struct err err = {0};
	char text[4096], ref[64];

	(void)state;
	assert_int_equal(use_as("ws", "v1", NULL, &err), 0);
	assert_true(verify(text));
	assert_non_null(strstr(text, "\"name\":\"one\",\"provider_sessions\":1,\"bindings\":1,\"warm\":0,\"unknown\":[],\"missing\":[]"));
	world_sessions(&w, ref);
	world_plant(&w, "stranger", "mock-00000000000000dd", "someone", 0);
	assert_false(verify(text));
	assert_non_null(strstr(text, "\"unknown\":[\"mock-00000000000000dd\"]"));
	world_vanish(&w, "mock-00000000000000dd");
	world_vanish(&w, ref);
	assert_false(verify(text));
	assert_non_null(strstr(text, "\"missing\":[\"ws/v1\"]"));
	world_faults(&w, "list code=UNAVAILABLE\n");
	assert_false(verify(text));
	assert_non_null(strstr(text, "\"error\":\""));
}

/* L9: looking does not keep it alive. */
static void l9_reading_never_renews(void **state)
{
	struct err err = {0};
	char text[4096], names[64];

	(void)state;
	world_down(&w, 5000);
	w.conf.lease_idle_ms = 300;
	world_up(&w);
	assert_int_equal(use_as("ws", "l9", NULL, &err), 0);
	for (int64_t end = clock_after_ms(WAIT_MS); world_says(&w, "l9", "\"state\":\"live\"") && clock_left_ms(end) > 0;) {
		list_all(NULL, 10, names, sizeof(names));
		verify(text);
	}
	assert_true(world_until(&w, "l9", "\"state\":\"gone\""));
}

int main(int argc, char **argv)
{
#define TEST(fn) cmocka_unit_test_prestate_setup_teardown(fn, up, world_teardown, &w)
	const struct CMUnitTest tests[] = {
		TEST(regions_are_matched_exactly),
		TEST(a_drained_target_takes_no_new_sessions),
		TEST(only_live_neither_provisions_nor_waits),
		TEST(lists_are_complete_in_pages_and_renew_nothing),
		TEST(a_task_without_its_workspace_is_found_when_it_is_the_only_one),
		TEST(verify_names_what_does_not_agree),
		TEST(l9_reading_never_renews),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
