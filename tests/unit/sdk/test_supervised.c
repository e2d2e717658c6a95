/* SPDX-License-Identifier: Apache-2.0 */
/* One command through berth-supervise: what it sees, how it ends, what it leaves. Ids name rows of field failures. */
#include "sup_fixture.h"

#include <sys/prctl.h>

static const char *const c1_scripts[] = {"sleep 600 & echo hi", "(yes >&2 &); exit 3",
					 "nohup sleep 600 >/dev/null 2>&1 & echo hi"};

static void c1_background_child_does_not_delay(void **state)
{
	for (size_t i = 0; i < 3; i++) {
		struct berth_call call;
		int64_t begin = fake_now_ns();

		assert_int_equal(run_script(*state, &call, c1_scripts[i]), BERTH_OK);
		assert_true(fake_now_ns() - begin < INT64_C(2000000000));
		assert_ending(&call, BERTH_ENDING_EXIT, i == 1 ? 3 : 0);
		if (i != 1)
			assert_stream(&call, BERTH_STREAM_STDOUT, "hi\n");
		assert_int_equal(call.ending.survivors, 1);
		assert_int_equal(call.ending.quiescent, BERTH_QUIESCENT_YES);
		assert_int_equal(fixture_processes(*state), 0);
		fake_call_fini(&call);
	}
}

static void c1_kept_child_lives_on(void **state)
{
	struct fixture *fx = *state;
	/* The child writes more than a pipe holds after the answer, and says so: it was neither blocked nor killed. */
	struct berth_command command =
		make_command("keep", "(while [ ! -e go ]; do sleep 0.01; done; head -c 300000 /dev/zero; echo >&2; "
				     "touch wrote; exec sleep 600) & echo hi");
	struct berth_str id = command.execution_id;
	struct berth_call call;
	char path[200];

	command.keep_descendants = 1;
	fake_call_init(&call);
	assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_OK);
	assert_ending(&call, BERTH_ENDING_EXIT, 0);
	assert_stream(&call, BERTH_STREAM_STDOUT, "hi\n");
	assert_true(call.ending.survivors >= 1);
	assert_int_equal(call.ending.quiescent, BERTH_QUIESCENT_YES);
	root_touch(fx, "go");
	FAKE_WAIT(root_has(fx, "wrote"));
	FAKE_WAIT(fixture_processes(fx) == 1);
	/* The output of the command was closed with its status. */
	snprintf(path, sizeof(path), "%s/keep/1/stdout", fx->run);
	struct stat st;
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 3);
	assert_int_equal(berth_sup_signal(&fake_host, &call, &fx->sup, &id, BERTH_SIGNAL_TERM), BERTH_OK);
	FAKE_WAIT(fixture_processes(fx) == 0);
	fake_call_fini(&call);
}

static const char *const c2_scripts[] = {
	"sleep 300 & wait",
	"sh -c 'sleep 301' | cat",
	"setsid sleep 302 & (setsid sh -c 'setsid sleep 303 & sleep 304' &) ; sleep 305",
	"trap '' TERM; sh -c 'trap \"\" TERM; while :; do date >> ticks; sleep 0.01; done' & while :; do sleep 1; done",
};

static void c2_timeout_takes_the_whole_tree(void **state)
{
	struct fixture *fx = *state;

	for (size_t i = 0; i < sizeof(c2_scripts) / sizeof(c2_scripts[0]); i++) {
		struct berth_command command;
		struct berth_call call;
		char id[16];

		snprintf(id, sizeof(id), "c2-%zu", i);
		command = make_command(id, c2_scripts[i]);
		command.timeout_ms = 300;
		fake_call_init(&call);
		assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_OK);
		/* Before the answer: so nothing can be written afterwards. */
		assert_int_equal(fixture_processes(fx), 0);
		assert_ending(&call, BERTH_ENDING_TIMEOUT, 0);
		assert_int_equal(call.ending.quiescent, BERTH_QUIESCENT_YES);
		assert_true(call.ending.duration_ms >= 300 && call.ending.duration_ms < 3000);
		fake_call_fini(&call);
	}
}

static void c2_survivors_of_a_natural_end_are_killed(void **state)
{
	struct berth_call call;

	assert_int_equal(run_script(*state, &call,
				    "trap '' TERM HUP; "
				    "setsid sh -c 'trap \"\" TERM; setsid sleep 300 & sleep 301' & exit 5"),
			 BERTH_OK);
	assert_ending(&call, BERTH_ENDING_EXIT, 5);
	assert_int_equal(call.ending.quiescent, BERTH_QUIESCENT_YES);
	assert_int_equal(fixture_processes(*state), 0);
	fake_call_fini(&call);
}

/* Processes that multiply while they are killed. */
static void c2_multiplying_tree_is_killed(void **state)
{
	struct fixture *fx = *state;
	struct berth_command command =
		make_command("fork", "f() { setsid sh -c 'while :; do (sleep 0.01 &); done' & }; f; f; f; sleep 300");
	struct berth_call call;

	command.timeout_ms = 300;
	fake_call_init(&call);
	assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_OK);
	assert_int_equal(fixture_processes(fx), 0);
	assert_ending(&call, BERTH_ENDING_TIMEOUT, 0);
	assert_int_equal(call.ending.quiescent, BERTH_QUIESCENT_YES);
	fake_call_fini(&call);
}

static void c3_stdin_is_empty_by_default(void **state)
{
	expect_script(*state, "cat; echo done", 0, "done\n");
	expect_script(*state, "read x; echo $?", 0, "1\n");
}

static void stdin_is_byte_exact(void **state)
{
	struct fixture *fx = *state;
	struct berth_command command = make_command("stdin", "cat");
	struct berth_call call;
	char *bytes = malloc(300000);

	assert_non_null(bytes);
	for (size_t i = 0; i < 300000; i++)
		bytes[i] = (char)(i * 7);
	fake_call_init(&call);
	command.has_stdin = 1;
	call.source = bytes;
	call.source_len = 300000;
	call.source_chunk = 777;
	assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_OK);
	assert_int_equal(call.stream[BERTH_STREAM_STDOUT].len, 300000);
	assert_memory_equal(call.stream[BERTH_STREAM_STDOUT].ptr, bytes, 300000);
	free(bytes);
	fake_call_fini(&call);
}

static void stdin_that_fails_starts_nothing(void **state)
{
	struct fixture *fx = *state;
	struct berth_command command = make_command("stdin", "touch ran");
	struct berth_call call;

	fake_call_init(&call);
	command.has_stdin = 1;
	call.source_end = BERTH_INVALID;
	assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_INVALID);
	assert_false(root_has(fx, "ran"));
	/* Nothing started, so the same attempt may. */
	call.source_end = BERTH_OK;
	assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_OK);
	assert_true(root_has(fx, "ran"));
	fake_call_fini(&call);
}

static void c5_endings_are_distinguishable(void **state)
{
	struct fixture *fx = *state;
	static const struct {
		const char *script;
		uint32_t kind;
		int value;
	} rows[] = {
		{"sleep 300", BERTH_ENDING_TIMEOUT, 0},
		{"exit 124", BERTH_ENDING_EXIT, 124},
		{"exit 137", BERTH_ENDING_EXIT, 137},
		{"kill -9 $$", BERTH_ENDING_SIGNAL, SIGKILL},
		{"kill -TERM $$", BERTH_ENDING_SIGNAL, SIGTERM},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct berth_command command;
		struct berth_call call;
		char id[16];

		snprintf(id, sizeof(id), "c5-%zu", i);
		command = make_command(id, rows[i].script);
		command.timeout_ms = i == 0 ? 100 : 20000;
		fake_call_init(&call);
		assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_OK);
		assert_ending(&call, rows[i].kind, rows[i].value);
		fake_call_fini(&call);
	}
}

/* A control group of this test's own, below the one it runs in; NULL where the system does not let it. */
static char *make_group(const char *controller, const char *limit_file, const char *limit)
{
	char line[512], path[900], *group = NULL;
	FILE *file = fopen("/proc/self/cgroup", "re");

	while (file && fgets(line, sizeof(line), file)) {
		char *end = strchr(line, '\n'), *name = strchr(line, ':');
		int fd;

		if (end)
			*end = '\0';
		if (!name || strncmp(name + 1, controller, strlen(controller)) != 0)
			continue;
		if (name[1 + strlen(controller)] != ':')
			continue;
		snprintf(path, sizeof(path), "/sys/fs/cgroup/%s%s/berth-test-%d", controller,
			 name + 2 + strlen(controller), (int)getpid());
		if (mkdir(path, 0755) < 0)
			break;
		group = strdup(path);
		strncat(path, limit_file, sizeof(path) - strlen(path) - 1);
		fd = open(path, O_WRONLY | O_CLOEXEC);
		if (fd < 0 || write(fd, limit, strlen(limit)) < 0) {
			rmdir(group);
			free(group);
			group = NULL;
		}
		if (fd >= 0)
			close(fd);
		break;
	}
	if (file)
		fclose(file);
	return group;
}

static void c5_out_of_memory_is_told(void **state)
{
	struct fixture *fx = *state;
	struct berth_command command = make_command("oom", "x=$(head -c 100000000 /dev/zero | tr '\\0' x); echo ${#x}");
	struct berth_call call;
	char *group = make_group("memory", "/memory.limit_in_bytes", "16777216");

	if (!group)
		skip();
	fx->sup.cgroup = group;
	fake_call_init(&call);
	assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_OK);
	assert_ending(&call, BERTH_ENDING_OOM, 0);
	fake_call_fini(&call);
	/* kill -9 in the same group stays a signal. */
	command = make_command("no-oom", "kill -9 $$");
	fake_call_init(&call);
	assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_OK);
	assert_ending(&call, BERTH_ENDING_SIGNAL, SIGKILL);
	fake_call_fini(&call);
	FAKE_WAIT(rmdir(group) == 0);
	free(group);
}

static void c12_process_limit_is_named(void **state)
{
	struct fixture *fx = *state;
	struct berth_command command = make_command("pids", "for i in 1 2 3 4 5 6 7 8 9; do sleep 300 & done; wait");
	struct berth_call call;
	char *group = make_group("pids", "/pids.max", "5");

	if (!group)
		skip();
	fx->sup.cgroup = group;
	fake_call_init(&call);
	assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_OK);
	assert_int_equal(call.endings, 1);
	assert_string_equal(call.ending_reason, "pids_limit");
	assert_int_equal(call.ending.quiescent, BERTH_QUIESCENT_YES);
	fake_call_fini(&call);
	FAKE_WAIT(rmdir(group) == 0);
	free(group);
}

static void refused_cwd(struct fixture *fx, const char *cwd, size_t len)
{
	static int number;
	struct berth_command command;
	struct berth_call call;
	char id[32];

	snprintf(id, sizeof(id), "cwd-%d", number++);
	command = make_command(id, "touch ran");
	command.cwd = (struct berth_str){cwd, len};
	fake_call_init(&call);
	assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_INVALID);
	assert_string_equal(call.reason, "cwd");
	assert_int_equal(call.endings, 0);
	assert_false(root_has(fx, "ran"));
	fake_call_fini(&call);
}

static void c6_bad_cwd_is_refused_by_name(void **state)
{
	struct fixture *fx = *state;
	char *longest = malloc(5000);
	static const char *const bad[] = {"/nope", "", "a/../b", "file", "missing", "out", "out/sub", "..", "../root"};

	assert_non_null(longest);
	expect_script(fx, "touch file; ln -s /tmp out; mkdir -p a b real; ln -s real in", 0, "");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		refused_cwd(fx, bad[i], strlen(bad[i]));
	memset(longest, 'a', 5000);
	refused_cwd(fx, longest, 5000);
	refused_cwd(fx, "a\0b", 3);
	free(longest);
	expect_script(fx, "ls -d a", 0, "a\n");
}

static void cwd_may_be_a_link_that_stays_inside(void **state)
{
	struct fixture *fx = *state;
	struct berth_command command = make_command("cwd-in", "pwd -P");
	struct berth_call call;
	char want[128];

	expect_script(fx, "mkdir real; ln -s real in", 0, "");
	command.cwd = fake_str("in");
	fake_call_init(&call);
	assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_OK);
	snprintf(want, sizeof(want), "%s/real\n", fx->root);
	assert_stream(&call, BERTH_STREAM_STDOUT, want);
	fake_call_fini(&call);
}

static void another_user_is_taken(void **state)
{
	struct fixture *fx = *state;
	struct berth_command command = make_command("user", "id -u; id -g; id -G; cat < $0 | wc -l; kill -9 $PPID");
	struct berth_call call;

	if (geteuid() != 0)
		skip();
	expect_script(fx, "mkdir -m 0700 closed", 0, "");
	fx->sup.uid = fx->sup.gid = 65534;
	fake_call_init(&call);
	assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_OK);
	/* The supervisor is out of its reach. */
	assert_ending(&call, BERTH_ENDING_EXIT, 1);
	assert_stream(&call, BERTH_STREAM_STDOUT, "65534\n65534\n65534\n0\n");
	fake_call_fini(&call);
	refused_cwd(fx, "closed", 6);
}

static int32_t run_with_env(struct fixture *fx, struct berth_call *call, const char *id, const struct berth_pair *pair,
			    const char *script)
{
	struct berth_command command = make_command(id, script);

	command.env = pair;
	command.env_count = 1;
	fake_call_init(call);
	return berth_sup_execute(&fake_host, call, &fx->sup, &command);
}

static void c9_values_are_byte_exact(void **state)
{
	struct fixture *fx = *state;
	char *big = malloc(100001);
	const char *const values[] = {"a b  c",	   "it's \"q\"",	  "$(id)`id`$HOME", "x\ny\n",
				      "tab\there", "\xff\xfe\xc3\x28", "",		    big};

	assert_non_null(big);
	memset(big, 'v', 100000);
	big[100000] = '\0';
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		struct berth_pair pair = {fake_str("VALUE"), fake_str(values[i])};
		struct berth_call call;
		char id[16];

		snprintf(id, sizeof(id), "env-%zu", i);
		assert_int_equal(run_with_env(fx, &call, id, &pair, "printf %s \"$VALUE\""), BERTH_OK);
		assert_ending(&call, BERTH_ENDING_EXIT, 0);
		assert_stream(&call, BERTH_STREAM_STDOUT, values[i]);
		fake_call_fini(&call);
	}
	free(big);
}

static void c9_bad_names_are_refused(void **state)
{
	struct fixture *fx = *state;
	static const char *const names[] = {"A;touch ran", "A=B", "1A", "", "A B", "A\nB", "$(touch ran)"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct berth_pair pair = {fake_str(names[i]), fake_str("v")};
		struct berth_call call;

		assert_int_equal(run_with_env(fx, &call, "env", &pair, "touch ran"), BERTH_INVALID);
		assert_string_equal(call.reason, "env");
		fake_call_fini(&call);
	}
	assert_false(root_has(fx, "ran"));
}

static void c9_values_the_system_cannot_take_are_refused(void **state)
{
	struct fixture *fx = *state;
	char *big = calloc(1, 131073);
	struct berth_pair pair = {fake_str("V"), {big, 131072}};
	struct berth_pair many[100];
	struct berth_command command = make_command("env-many", "true");
	struct berth_call call;
	static char names[100][8];

	assert_non_null(big);
	memset(big, 'v', 131072);
	assert_int_equal(run_with_env(fx, &call, "env", &pair, "true"), BERTH_INVALID);
	assert_string_equal(call.reason, "env");
	fake_call_fini(&call);
	/* Each alone would do; together they are more than execve takes. */
	for (int i = 0; i < 100; i++) {
		snprintf(names[i], sizeof(names[i]), "V%d", i);
		many[i] = (struct berth_pair){fake_str(names[i]), {big, 131000}};
	}
	command.env = many;
	command.env_count = 100;
	fake_call_init(&call);
	assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_INVALID);
	assert_string_equal(call.reason, "env");
	fake_call_fini(&call);
	free(big);
}

static void c9_nothing_else_is_inherited(void **state)
{
	struct fixture *fx = *state;
	struct berth_pair pair = {fake_str("PATH"), fake_str("/bin:/usr/bin:/x")};
	struct berth_call call;

	assert_int_equal(run_with_env(fx, &call, "env", &pair, "tr '\\0' '\\n' < /proc/$$/environ; umask"), BERTH_OK);
	assert_true(stream_has(&call, BERTH_STREAM_STDOUT, "PATH=/bin:/usr/bin:/x\n0022\n"));
	assert_false(stream_has(&call, BERTH_STREAM_STDOUT, "HOME"));
	assert_false(stream_has(&call, BERTH_STREAM_STDOUT, "PATH=/usr/bin:/bin\n"));
	fake_call_fini(&call);
}

static void c10_odd_scripts_keep_their_own_exit_code(void **state)
{
	struct fixture *fx = *state;

	expect_script(fx, "cat <<EOF\nabc\nEOF", 0, "abc\n");
	expect_script(fx, "cat <<EOF\nabc\n", 0, "abc\n");
	expect_script(fx, "echo 'open", 2, "");
	expect_script(fx, "exit 4 # the last line is a comment", 4, "");
	expect_script(fx, "false\n# comment", 1, "");
	expect_script(fx, "echo a\\", 0, "a\\\n");
	expect_script(fx, "exec true", 0, "");
	expect_script(fx, "exec false", 1, "");
	expect_script(fx, "", 0, "");
	expect_script(fx, "-c 2>/dev/null", 127, "");
	expect_script(fx, "echo fine", 0, "fine\n");
}

static void c11_long_scripts_run(void **state)
{
	static const size_t sizes[] = {127u << 10, 128u << 10, 129u << 10, 1u << 20};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		char *script = malloc(sizes[i] + 1);

		assert_non_null(script);
		memset(script, '#', sizes[i]);
		memcpy(script + sizes[i] - 9, "\necho end", 9);
		script[sizes[i]] = '\0';
		expect_script(*state, script, 0, "end\n");
		free(script);
	}
}

/* This process takes the place of init: only the supervisors may come to it, for they reap all the rest. */
static void c13_no_zombies_no_descriptors(void **state)
{
	int before = count_entries("/proc/self/fd"), orphans = 0;

	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	for (int i = 0; i < 1000; i++)
		expect_script(*state, "(true &)", 0, "");
	while (waitpid(-1, NULL, 0) > 0)
		orphans++;
	assert_int_equal(errno, ECHILD);
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
	assert_int_equal(orphans, 1000);
	assert_int_equal(count_entries("/proc/self/fd"), before);
	assert_int_equal(fixture_processes(*state), 0);
}

static void c14_nul_in_script_is_refused(void **state)
{
	struct fixture *fx = *state;
	struct berth_command command = make_command("nul", "");
	struct berth_call call;

	command.script = (struct berth_str){"touch ran\0x", 11};
	fake_call_init(&call);
	assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_INVALID);
	assert_string_equal(call.reason, "script");
	assert_false(root_has(fx, "ran"));
	fake_call_fini(&call);
}

static void bad_ids_are_refused(void **state)
{
	struct fixture *fx = *state;
	static const char *const ids[] = {"", ".", "..", "../x", "a/b", ".hidden", "a b", "a\nb"};

	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		struct berth_command command = make_command(ids[i], "true");
		struct berth_call call;

		fake_call_init(&call);
		assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_INVALID);
		assert_string_equal(call.reason, "execution_id");
		fake_call_fini(&call);
	}
}

static void only_standard_descriptors_and_default_signals(void **state)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
	sigset_t block, mask;
	int leak = open("/dev/zero", O_RDONLY); /* without O_CLOEXEC */

	sigemptyset(&block);
	sigaddset(&block, SIGTERM);
	sigaddset(&block, SIGUSR2);
	assert_int_equal(sigaction(SIGINT, &ignore, &before), 0);
	assert_int_equal(pthread_sigmask(SIG_BLOCK, &block, &mask), 0);
	expect_script(*state,
		      "ls -l /proc/self/fd | grep -v /proc/ | sed -n 's/.* \\([0-9]*\\) -> .*/\\1/p' | tr '\\n' ' '; "
		      "grep -E '^Sig(Blk|Ign)' /proc/$$/status | tr -d '\\t\\n'; "
		      "[ $(ps -o sid= -p $$) -eq $$ ] && echo own",
		      0, "0 1 2 SigBlk:0000000000000000SigIgn:0000000000000000own\n");
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	sigaction(SIGINT, &before, NULL);
	close(leak);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
	const struct CMUnitTest tests[] = {
		TEST(c1_background_child_does_not_delay),
		TEST(c1_kept_child_lives_on),
		TEST(c2_timeout_takes_the_whole_tree),
		TEST(c2_survivors_of_a_natural_end_are_killed),
		TEST(c2_multiplying_tree_is_killed),
		TEST(c3_stdin_is_empty_by_default),
		TEST(stdin_is_byte_exact),
		TEST(stdin_that_fails_starts_nothing),
		TEST(c5_endings_are_distinguishable),
		TEST(c5_out_of_memory_is_told),
		TEST(c6_bad_cwd_is_refused_by_name),
		TEST(cwd_may_be_a_link_that_stays_inside),
		TEST(another_user_is_taken),
		TEST(c9_values_are_byte_exact),
		TEST(c9_bad_names_are_refused),
		TEST(c9_values_the_system_cannot_take_are_refused),
		TEST(c9_nothing_else_is_inherited),
		TEST(c10_odd_scripts_keep_their_own_exit_code),
		TEST(c11_long_scripts_run),
		TEST(c12_process_limit_is_named),
		TEST(c13_no_zombies_no_descriptors),
		TEST(c14_nul_in_script_is_refused),
		TEST(bad_ids_are_refused),
		TEST(only_standard_descriptors_and_default_signals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
