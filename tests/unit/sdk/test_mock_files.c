/* SPDX-License-Identifier: Apache-2.0 */
/* The mock provider's files, and what changed among them since a mark; as test_mock.c. */
#include "mock_host.h"

#include <errno.h>
#include <fcntl.h>

static void test_files(void **state)
{
	struct berth_call *call = call_make();
	struct berth_file_write write = {.struct_size = sizeof(write), .mode = 0640, .path = S("a/b.txt"), .size = 5};
	struct berth_str path = S("a/b.txt"), moved = S("c.txt"), outside = S("link/passwd");
	struct berth_session session;
	struct rig rig;
	char ref[64];

	(void)state;
	rig_start(&rig, NULL);
	make_session(&rig, "ws", "task", ref);
	session = session_of(ref);
	call->source = "hello";
	call->source_len = 5;
	assert_int_equal(rig.ops->file_write(rig.inst, call, &session, &write), BERTH_OK);
	assert_int_equal(rig.ops->file_stat(rig.inst, call, &session, &path), BERTH_OK);
	assert_int_equal(call->file_size, 5);
	assert_int_equal(rig.ops->file_move(rig.inst, call, &session, &path, &moved), BERTH_OK);
	assert_int_equal(rig.ops->file_read(rig.inst, call, &session, &moved, 1, 3), BERTH_OK);
	assert_string_equal(call->out[BERTH_STREAM_DATA].ptr, "ell");
	assert_int_equal(rig.ops->file_remove(rig.inst, call, &session, &moved, 0), BERTH_OK);
	assert_int_equal(rig.ops->file_read(rig.inst, call, &session, &moved, 0, 1), BERTH_NOT_FOUND);
	rig_shell(&rig, "ln -s /etc sessions/%s/work/link", ref);
	assert_int_equal(rig.ops->file_read(rig.inst, call, &session, &outside, 0, 10), BERTH_INVALID);
	assert_int_equal(code_of(&rig, ref, rig.ops->release), BERTH_OK);
	assert_int_equal(rig.ops->file_stat(rig.inst, call, &session, &path), BERTH_SESSION_LOST);
	rig_stop(&rig);
	call_drop(call);
}

static const struct seen_change *change_of(const struct berth_call *call, const char *path)
{
	for (size_t i = 0; i < call->change_count; i++)
		if (!strcmp(call->changes[i].path, path))
			return &call->changes[i];
	return NULL;
}

/* F8: a file edited with the same size and the same times is a change. */
static void test_changes(void **state)
{
	struct berth_call *call = call_make();
	struct berth_session session;
	struct berth_str token;
	struct rig rig;
	char ref[64];

	(void)state;
	rig_start(&rig, NULL);
	make_session(&rig, "ws", "task", ref);
	session = session_of(ref);
	rig_shell(
	    &rig,
	    "cd sessions/%s/work && mkdir d && echo one >d/sly && echo two >same && echo three >gone && echo 4 >mode",
	    ref);
	assert_int_equal(rig.ops->mark(rig.inst, call, &session), BERTH_OK);
	token = S(call->token);
	assert_int_equal(rig.ops->changes(rig.inst, call, &session, &token), BERTH_OK);
	assert_int_equal(call->change_count, 0);
	rig_shell(&rig,
		  "cd sessions/%s/work && touch -r d/sly ../stamp && echo ONE >d/sly && touch -r ../stamp d/sly && rm "
		  "gone && "
		  "chmod 755 mode && mkdir d/e && echo new >d/e/new && ln -s same link",
		  ref);
	assert_int_equal(rig.ops->changes(rig.inst, call, &session, &token), BERTH_OK);
	assert_int_equal(call->change_count, 6);
	assert_int_equal(change_of(call, "d/sly")->kind, BERTH_FILE_REGULAR);
	assert_int_equal(change_of(call, "d/sly")->size, 4);
	assert_int_equal(change_of(call, "gone")->kind, 0);
	assert_int_equal(change_of(call, "mode")->mode, 0755);
	assert_int_equal(change_of(call, "d/e")->kind, BERTH_FILE_DIRECTORY);
	assert_int_equal(change_of(call, "d/e/new")->size, 4);
	assert_int_equal(change_of(call, "link")->kind, BERTH_FILE_SYMLINK);
	assert_null(change_of(call, "same"));
	token = S("000000000000000000000000");
	assert_int_equal(rig.ops->changes(rig.inst, call, &session, &token), BERTH_NOT_FOUND);
	rig_stop(&rig);
	call_drop(call);
}

static void test_old_marks_go(void **state)
{
	struct berth_call *call = call_make();
	struct berth_session session;
	struct rig rig;
	char ref[64], first[300];
	struct berth_str token;

	(void)state;
	rig_start(&rig, NULL);
	make_session(&rig, "ws", "task", ref);
	session = session_of(ref);
	assert_int_equal(rig.ops->mark(rig.inst, call, &session), BERTH_OK);
	snprintf(first, sizeof(first), "%s", call->token);
	for (int i = 0; i < 16; i++)
		assert_int_equal(rig.ops->mark(rig.inst, call, &session), BERTH_OK);
	token = S(first);
	assert_int_equal(rig.ops->changes(rig.inst, call, &session, &token), BERTH_NOT_FOUND);
	token = S(call->token);
	assert_int_equal(rig.ops->changes(rig.inst, call, &session, &token), BERTH_OK);
	rig_shell(&rig, "test $(ls sessions/%s/marks | wc -l) -eq 16", ref);
	rig_stop(&rig);
	call_drop(call);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_files),
	    cmocka_unit_test(test_changes),
	    cmocka_unit_test(test_old_marks_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
