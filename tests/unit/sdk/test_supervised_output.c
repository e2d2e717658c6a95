/* SPDX-License-Identifier: Apache-2.0 */
/* Output of supervised commands: every byte, in order, whatever the bytes and however fast. */
#include "sup_fixture.h"

/* Runs a script whose output is compared with what the same script writes to a file inside. */
static void expect_same_as_file(struct fixture *fx, const char *script, size_t size)
{
	struct berth_call call;
	char path[200];
	char *inside = malloc(size);
	size_t len = 0;
	int fd;

	assert_non_null(inside);
	assert_int_equal(run_script(fx, &call, script), BERTH_OK);
	assert_ending(&call, BERTH_ENDING_EXIT, 0);
	snprintf(path, sizeof(path), "%s/copy", fx->root);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	while (len < size) {
		ssize_t n = read(fd, inside + len, size - len);

		assert_true(n > 0);
		len += (size_t)n;
	}
	close(fd);
	assert_int_equal(call.stream[BERTH_STREAM_STDOUT].len, size);
	assert_memory_equal(call.stream[BERTH_STREAM_STDOUT].ptr, inside, size);
	free(inside);
	fake_call_fini(&call);
}

static void u2_large_output_is_complete(void **state)
{
	expect_same_as_file(*state, "head -c 20000000 /dev/urandom | tee copy", 20000000);
}

static void u2_one_line_of_50_mb(void **state)
{
	expect_same_as_file(*state, "head -c 50000000 /dev/zero | tr '\\0' x | tee copy", 50000000);
}

static void u2_ten_million_lines(void **state)
{
	expect_same_as_file(*state, "yes '' | head -n 10000000 | tee copy", 10000000);
}

static void u2_burst_then_exit(void **state)
{
	expect_same_as_file(*state, "head -c 4194304 /dev/urandom > copy; cat copy", 4194304);
}

/* The writer leaves a full pipe behind at the moment the leader ends. */
static void u2_pipe_full_at_the_end(void **state)
{
	for (int i = 0; i < 20; i++) {
		struct berth_call call;

		assert_int_equal(run_script(*state, &call, "exec head -c 65536 /dev/zero"), BERTH_OK);
		assert_int_equal(call.stream[BERTH_STREAM_STDOUT].len, 65536);
		fake_call_fini(&call);
	}
}

static void limits_keep_the_head_and_count_the_rest(void **state)
{
	struct fixture *fx = *state;
	struct berth_command command =
		make_command("limit", "head -c 20000000 /dev/zero; head -c 1000 /dev/zero >&2; echo last; exit 6");
	struct berth_call call;

	command.stdout_max = 65536;
	command.stderr_max = 0;
	fake_call_init(&call);
	assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_OK);
	assert_ending(&call, BERTH_ENDING_EXIT, 6);
	assert_int_equal(call.stream[BERTH_STREAM_STDOUT].len, 65536);
	assert_int_equal(call.ending.stdout_dropped, 20000000 - 65536 + 5);
	assert_int_equal(call.stream[BERTH_STREAM_STDERR].len, 0);
	assert_int_equal(call.ending.stderr_dropped, 1000);
	fake_call_fini(&call);
}

static void u3_any_bytes_on_both_streams(void **state)
{
	struct berth_call call;
	static const char want[] = "\xff\xfe\xc3\x28\0\xed\xa0\x80";

	assert_int_equal(run_script(*state, &call,
				    "p='\\377\\376\\303\\050\\000\\355\\240\\200'; printf $p; printf $p >&2"),
			 BERTH_OK);
	for (uint32_t stream = BERTH_STREAM_STDOUT; stream <= BERTH_STREAM_STDERR; stream++) {
		assert_int_equal(call.stream[stream].len, sizeof(want) - 1);
		assert_memory_equal(call.stream[stream].ptr, want, sizeof(want) - 1);
	}
	fake_call_fini(&call);
}

static void u4_short_output_and_exit_code_every_time(void **state)
{
	for (int i = 0; i < 1000; i++)
		expect_script(*state, "printf x; exit 7", 7, "x");
}

/* Output is delivered while the command runs. */
static void output_arrives_before_the_end(void **state)
{
	struct fixture *fx = *state;
	struct runner runner;

	runner_start(&runner, fx, "early", "echo first; while [ ! -e go ]; do sleep 0.01; done; echo second");
	FAKE_WAIT(atomic_load(&runner.call.arrived) == 6);
	root_touch(fx, "go");
	runner_join(&runner);
	assert_int_equal(runner.rc, BERTH_OK);
	assert_stream(&runner.call, BERTH_STREAM_STDOUT, "first\nsecond\n");
	fake_call_fini(&runner.call);
}

static void sink_that_refuses_leaves_the_command(void **state)
{
	struct fixture *fx = *state;
	struct berth_command command = make_command("refuse", "echo x; sleep 0.2; echo y; exit 3");
	struct berth_resume resume = {.struct_size = sizeof(resume), .attempt = 1, .execution_id = fake_str("refuse")};
	struct berth_call call;

	fake_call_init(&call);
	call.sink_code = BERTH_STORAGE_FULL;
	assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_STORAGE_FULL);
	assert_int_equal(call.endings, 0);
	fake_call_fini(&call);
	fake_call_init(&call);
	resume.stdout_offset = 1;
	assert_int_equal(berth_sup_reattach(&fake_host, &call, &fx->sup, &resume), BERTH_OK);
	assert_ending(&call, BERTH_ENDING_EXIT, 3);
	assert_stream(&call, BERTH_STREAM_STDOUT, "\ny\n");
	fake_call_fini(&call);
}

/* A file that somebody shortened is a gap, never a silent loss. */
static void lost_bytes_are_a_gap(void **state)
{
	struct fixture *fx = *state;
	struct berth_resume resume = {.struct_size = sizeof(resume), .attempt = 1, .execution_id = fake_str("gap")};
	struct berth_command command = make_command("gap", "echo 0123456789");
	struct berth_call call;
	char path[200];

	fake_call_init(&call);
	assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_OK);
	fake_call_fini(&call);
	snprintf(path, sizeof(path), "%s/gap/1/stdout", fx->run);
	assert_int_equal(truncate(path, 4), 0);
	fake_call_init(&call);
	assert_int_equal(berth_sup_reattach(&fake_host, &call, &fx->sup, &resume), BERTH_OK);
	assert_stream(&call, BERTH_STREAM_STDOUT, "0123");
	assert_int_equal(call.gap_from[BERTH_STREAM_STDOUT], 4);
	assert_int_equal(call.gap_to[BERTH_STREAM_STDOUT], 11);
	assert_ending(&call, BERTH_ENDING_EXIT, 0);
	fake_call_fini(&call);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
	const struct CMUnitTest tests[] = {
		TEST(u2_large_output_is_complete),
		TEST(u2_one_line_of_50_mb),
		TEST(u2_ten_million_lines),
		TEST(u2_burst_then_exit),
		TEST(u2_pipe_full_at_the_end),
		TEST(limits_keep_the_head_and_count_the_rest),
		TEST(u3_any_bytes_on_both_streams),
		TEST(u4_short_output_and_exit_code_every_time),
		TEST(output_arrives_before_the_end),
		TEST(sink_that_refuses_leaves_the_command),
		TEST(lost_bytes_are_a_gap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
