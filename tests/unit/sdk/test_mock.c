/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mock provider's sessions and commands, through the provider table of the built plugin: what it promises without
 * any fault rule. Needs mock.so and berth-supervise built. No test waits for time to pass, only for conditions.
 */
#include "mock_host.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

static void test_descriptor(void **state)
{
	struct rig rig;

	(void)state;
	mock_log[0] = '\0';
	rig_start(&rig, NULL);
	assert_int_equal(rig.provider->magic, BERTH_PROVIDER_MAGIC);
	assert_int_equal(rig.provider->abi_major, BERTH_ABI_MAJOR);
	assert_int_equal(rig.provider->struct_size, sizeof(struct berth_provider));
	assert_string_equal(rig.provider->name, "mock");
	assert_int_equal(rig.info.isolation, BERTH_ISOLATION_NONE);
	assert_int_equal(rig.info.capabilities, rig.provider->capabilities);
	assert_non_null(strstr(mock_log, "isolates nothing"));
	rig_stop(&rig);
}

static void test_life(void **state)
{
	struct berth_call *call = call_make();
	struct rig rig;
	char ref[64];

	(void)state;
	rig_start(&rig, NULL);
	assert_int_equal(rig.ops->check(rig.inst, call), BERTH_OK);
	assert_int_equal(count_found(&rig, "ws", "task"), 0);
	make_session(&rig, "ws", "task", ref);
	assert_int_equal(do_find(&rig, call, "ws", "task"), BERTH_OK);
	assert_int_equal(call->session_count, 1);
	assert_string_equal(call->sessions[0].ref, ref);
	assert_string_equal(call->sessions[0].task, "ws/task");
	assert_string_equal(call->sessions[0].intent, INTENT);
	assert_int_equal(call->sessions[0].phase, BERTH_PHASE_READY);
	assert_int_equal(call->sessions[0].isolation, BERTH_ISOLATION_NONE);
	assert_int_equal(count_found(&rig, "ws", "task2"), 0);
	assert_int_equal(count_found(&rig, "w", "stask"), 0);
	assert_int_equal(code_of(&rig, ref, rig.ops->await_ready), BERTH_OK);
	assert_int_equal(code_of(&rig, ref, rig.ops->inspect), BERTH_OK);
	rig_shell(&rig,
		  "test -d sessions/%s/work && test -e by-task/ws/task/%s && grep -qx 'task=task' sessions/%s/session",
		  ref, ref, ref);
	assert_int_equal(code_of(&rig, ref, rig.ops->release), BERTH_OK);
	assert_int_equal(code_of(&rig, ref, rig.ops->release), BERTH_NOT_FOUND);
	assert_int_equal(code_of(&rig, ref, rig.ops->inspect), BERTH_NOT_FOUND);
	assert_int_equal(count_found(&rig, "ws", "task"), 0);
	rig_shell(&rig, "test -z \"$(ls sessions trash new by-task | grep -v :)\"");
	assert_int_equal(rig_counter(&rig, "created"), 1);
	assert_int_equal(rig_counter(&rig, "removed"), 1);
	assert_int_equal(rig_counter(&rig, "release"), 2);
	rig_shell(&rig, "grep -q '^[0-9]* provision %s ws/task OK -$' calls.log", ref);
	rig_shell(&rig, "grep -q '^[0-9]* release %s ws/task OK -$' calls.log", ref);
	rig_stop(&rig);
	call_drop(call);
}

static void test_two_for_one_task(void **state)
{
	struct rig rig;
	char one[64], two[64];

	(void)state;
	rig_start(&rig, NULL);
	make_session(&rig, "ws", "task", one);
	make_session(&rig, "ws", "task", two);
	assert_string_not_equal(one, two);
	assert_int_equal(count_found(&rig, "ws", "task"), 2);
	assert_int_equal(code_of(&rig, one, rig.ops->release), BERTH_OK);
	assert_int_equal(count_found(&rig, "ws", "task"), 1);
	rig_stop(&rig);
}

static void test_refused_specs(void **state)
{
	static const char *const bad[][2] = {{"../x", "t"}, {"w", "a/b"}, {"w", ""},
					     {"", "t"},     {".w", "t"},  {"w", "a\nb"}};
	struct rig rig;

	(void)state;
	rig_start(&rig, NULL);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct berth_call *call = call_make();

		assert_int_equal(do_provision(&rig, call, bad[i][0], bad[i][1], 0), BERTH_INVALID);
		assert_int_equal(call->created_count, 0);
		assert_int_equal(do_find(&rig, call, bad[i][0], bad[i][1]), BERTH_INVALID);
		call_drop(call);
	}
	assert_int_equal(rig_counter(&rig, "created"), 0);
	assert_int_equal(code_of(&rig, "../../etc", rig.ops->inspect), BERTH_NOT_FOUND);
	assert_int_equal(code_of(&rig, "../../etc", rig.ops->release), BERTH_NOT_FOUND);
	rig_stop(&rig);
}

/* Each session of the deployment once over all pages, none of another deployment. */
static void test_list_pages(void **state)
{
	static const struct rig_option null[] = {{"runtime", "null", 0}, {NULL, NULL, 0}};
	struct rig rig;
	char ref[64], cursor[300] = "";
	size_t total = 0, pages = 0;

	(void)state;
	rig_start(&rig, null);
	for (int i = 0; i < 600; i++)
		make_session(&rig, "ws", "task", ref);
	rig_shell(&rig, "sed -i 's/^deployment=.*/deployment=other/' sessions/%s/session", ref);
	do {
		struct berth_call *call = call_make();
		struct berth_str at = S(cursor);

		assert_int_equal(rig.ops->list(rig.inst, call, &at), BERTH_OK);
		for (size_t i = 1; i < call->session_count; i++)
			assert_true(strcmp(call->sessions[i - 1].ref, call->sessions[i].ref) < 0);
		total += call->session_count;
		pages++;
		snprintf(cursor, sizeof(cursor), "%s", call->cursor);
		call_drop(call);
	} while (*cursor);
	assert_int_equal(total, 599);
	assert_true(pages > 1);
	rig_stop(&rig);
}

static void test_warm(void **state)
{
	struct berth_identity identity = {
	    .struct_size = sizeof(identity), .workspace_id = S("ws"), .task_id = S("task")};
	struct berth_call *call = call_make();
	struct berth_session session;
	struct rig rig;
	char ref[64];

	(void)state;
	rig_start(&rig, NULL);
	make_session(&rig, "", "", ref);
	session = session_of(ref);
	assert_int_equal(rig.ops->assign(rig.inst, call, &session, &identity), BERTH_OK);
	assert_string_equal(call->sessions[0].task, "ws/task");
	assert_int_equal(count_found(&rig, "ws", "task"), 1);
	assert_int_equal(rig.ops->assign(rig.inst, call, &session, &identity), BERTH_OK);
	identity.task_id = S("another");
	assert_int_equal(rig.ops->assign(rig.inst, call, &session, &identity), BERTH_CONFLICT);
	assert_int_equal(count_found(&rig, "ws", "another"), 0);
	assert_int_equal(code_of(&rig, ref, rig.ops->release), BERTH_OK);
	assert_int_equal(rig.ops->assign(rig.inst, call, &session, &identity), BERTH_SESSION_LOST);
	rig_stop(&rig);
	call_drop(call);
}

static int64_t unix_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void test_expiry(void **state)
{
	static const struct rig_option hour[] = {{"session_ttl", NULL, 3600000}, {NULL, NULL, 0}};
	struct berth_call *call = call_make();
	int64_t now = unix_ms(), granted;
	struct berth_session session;
	struct rig rig;
	char ref[64];

	(void)state;
	rig_start(&rig, hour);
	assert_int_equal(do_provision(&rig, call, "ws", "task", now + 7200000), BERTH_OK);
	snprintf(ref, sizeof(ref), "%.63s", call->sessions[0].ref);
	granted = call->sessions[0].expires_ms;
	assert_in_range(granted, now + 3600000, now + 3660000);
	session = session_of(ref);
	assert_int_equal(rig.ops->renew(rig.inst, call, &session, now + 1000), BERTH_OK);
	assert_int_equal(call->expiry_ms, granted); /* never shortened */
	assert_int_equal(rig.ops->renew(rig.inst, call, &session, now + 7200000), BERTH_OK);
	assert_in_range(call->expiry_ms, granted, now + 3660000);
	rig_shell(&rig, "sed -i 's/^expires_ms=.*/expires_ms=%lld/' sessions/%s/session", (long long)(now - 1), ref);
	assert_int_equal(code_of(&rig, ref, rig.ops->inspect), BERTH_NOT_FOUND);
	assert_int_equal(do_execute(&rig, call, ref, "e1", "true"), BERTH_SESSION_LOST);
	assert_string_equal(call->reason, "expired");
	assert_int_equal(rig.ops->renew(rig.inst, call, &session, now + 7200000), BERTH_SESSION_LOST);
	assert_int_equal(count_found(&rig, "ws", "task"), 0);
	rig_shell(&rig, "test ! -e sessions/%s", ref);
	assert_int_equal(rig_counter(&rig, "removed"), 1);
	rig_stop(&rig);
	call_drop(call);
}

static void test_no_expiry_unless_asked(void **state)
{
	static const struct rig_option hour[] = {{"session_ttl", NULL, 3600000}, {NULL, NULL, 0}};
	struct berth_call *call = call_make();
	struct berth_session session;
	struct rig rig;
	char ref[64];

	(void)state;
	rig_start(&rig, hour);
	make_session(&rig, "ws", "task", ref);
	session = session_of(ref);
	assert_int_equal(code_of(&rig, ref, rig.ops->inspect), BERTH_OK);
	call->expiry_ms = -1;
	assert_int_equal(rig.ops->renew(rig.inst, call, &session, unix_ms() + 1000), BERTH_OK);
	assert_int_equal(call->expiry_ms, BERTH_EXPIRES_NEVER);
	rig_stop(&rig);
	call_drop(call);
}

static void test_rebooted(void **state)
{
	struct berth_call *call = call_make();
	struct rig rig;
	char ref[64];

	(void)state;
	rig_start(&rig, NULL);
	make_session(&rig, "ws", "task", ref);
	rig_shell(&rig, "sed -i 's/^boot=.*/boot=another/' sessions/%s/session", ref);
	assert_int_equal(do_simple(&rig, call, ref, rig.ops->inspect), BERTH_OK);
	assert_int_equal(call->sessions[0].phase, BERTH_PHASE_DEAD);
	assert_string_equal(call->sessions[0].dead, "rebooted");
	assert_int_equal(do_execute(&rig, call, ref, "e1", "true"), BERTH_SESSION_LOST);
	assert_string_equal(call->reason, "rebooted");
	assert_int_equal(code_of(&rig, ref, rig.ops->release), BERTH_OK);
	rig_stop(&rig);
	call_drop(call);
}

static void test_ready_delay(void **state)
{
	static const struct rig_option slow[] = {{"ready_delay", NULL, 300}, {NULL, NULL, 0}};
	struct berth_call *call = call_make();
	int64_t begin = mock_now_ns();
	struct rig rig;
	char ref[64];

	(void)state;
	rig_start(&rig, slow);
	make_session(&rig, "ws", "task", ref);
	assert_int_equal(do_simple(&rig, call, ref, rig.ops->await_ready), BERTH_OK);
	assert_true(mock_now_ns() - begin >= INT64_C(299000000));
	assert_int_equal(call->progress_count, 1);
	assert_int_equal(call->sessions[0].phase, BERTH_PHASE_READY);
	call->deadline_ns = 1;
	make_session(&rig, "ws", "task", ref);
	assert_int_equal(do_simple(&rig, call, ref, rig.ops->await_ready), BERTH_TIMEOUT);
	rig_stop(&rig);
	call_drop(call);
}

static void test_execute(void **state)
{
	struct berth_call *call = call_make();
	struct rig rig;
	char ref[64];

	(void)state;
	assert_int_equal(setenv("DAEMON_SECRET", "must not leak", 1), 0);
	rig_start(&rig, NULL);
	make_session(&rig, "ws", "task", ref);
	assert_int_equal(
	    do_execute(
		&rig, call, ref, "e1",
		"pwd; echo $HOME $TMPDIR $LANG $BERTH_WORKSPACE_ID/$BERTH_TASK_ID "
		"$AGENTAREA_WORKSPACE_ID/$AGENTAREA_TASK_ID; test \"$AGENTAREA_WORKSPACE_ROOT\" = \"$PWD\" || exit 1\n"
		"env | grep -c DAEMON_SECRET; echo err >&2; exit 7"),
	    BERTH_OK);
	assert_int_equal(call->ending_count, 1);
	assert_int_equal(call->ending.kind, BERTH_ENDING_EXIT);
	assert_int_equal(call->ending.exit_code, 7);
	assert_string_equal(call->out[BERTH_STREAM_STDERR].ptr, "err\n");
	{
		char want[4096], at[256];

		snprintf(at, sizeof(at), "%s/sessions/%s", rig.root, ref);
		snprintf(want, sizeof(want), "%s/work\n%s/home %s/tmp C.UTF-8 ws/task ws/task\n0\n", at, at, at);
		assert_string_equal(call->out[BERTH_STREAM_STDOUT].ptr, want);
	}
	assert_int_equal(do_execute(&rig, call, ref, "e1", "true"), BERTH_CONFLICT);
	assert_int_equal(rig_counter(&rig, "started"), 1);
	rig_shell(&rig, "grep -q ' execute %s ws/task OK e1#1$' calls.log", ref);
	rig_stop(&rig);
	call_drop(call);
}

static void test_spec_env(void **state)
{
	struct berth_pair env[] = {{S("LANG"), S("xx")}, {S("MULTI"), S("a\nb c=d")}};
	struct berth_spec spec = {.struct_size = sizeof(spec),
				  .deployment = S("test"),
				  .workspace_id = S("ws"),
				  .task_id = S("task"),
				  .intent = S(INTENT),
				  .env = env,
				  .env_count = 2};
	struct berth_call *call = call_make();
	struct rig rig;
	char ref[64];

	(void)state;
	rig_start(&rig, NULL);
	assert_int_equal(rig.ops->provision(rig.inst, call, &spec), BERTH_OK);
	snprintf(ref, sizeof(ref), "%.63s", call->sessions[0].ref);
	assert_int_equal(do_execute(&rig, call, ref, "e1", "printf %s \"$LANG $MULTI $BERTH_TASK_ID\""), BERTH_OK);
	assert_string_equal(call->out[BERTH_STREAM_STDOUT].ptr, "xx a\nb c=d task");
	rig_stop(&rig);
	call_drop(call);
}

/* A command goes on over the end of its caller, and of the whole instance, and is taken up by its id alone. */
static void test_reattach(void **state)
{
	struct background first;
	struct berth_call *call = call_make();
	struct rig rig;
	char ref[64];

	(void)state;
	rig_start(&rig, NULL);
	make_session(&rig, "ws", "task", ref);
	background_start(&first, &rig, ref, "e1", "printf one; mkfifo wait; read x <wait; printf two; exit 3");
	background_await(&first, 3);
	call_stop(first.call, BERTH_CANCEL_DETACH);
	assert_int_equal(background_join(&first), BERTH_CANCELLED);
	assert_int_equal(first.call->ending_count, 0);
	rig.ops->close(rig.inst);
	assert_int_equal(rig_open(&rig, call, NULL), BERTH_OK);
	rig_shell(&rig, "until test -p sessions/%s/work/wait; do :; done; echo go >sessions/%s/work/wait", ref, ref);
	assert_int_equal(do_reattach(&rig, call, ref, "e1", 3), BERTH_OK);
	assert_string_equal(call->out[BERTH_STREAM_STDOUT].ptr, "two");
	assert_int_equal(call->ending.exit_code, 3);
	assert_int_equal(do_reattach(&rig, call, ref, "e2", 0), BERTH_NOT_STARTED);
	assert_int_equal(do_execute(&rig, call, ref, "e2", "true"), BERTH_CONFLICT);
	rig_stop(&rig);
	call_drop(first.call);
	call_drop(call);
}

/* A command whose session goes is lost; nobody invents an ending for it. */
static void test_release_under_command(void **state)
{
	struct background running;
	struct rig rig;
	char ref[64];

	(void)state;
	rig_start(&rig, NULL);
	make_session(&rig, "ws", "task", ref);
	background_start(&running, &rig, ref, "e1", "printf x; exec sleep 1000");
	background_await(&running, 1);
	assert_int_equal(code_of(&rig, ref, rig.ops->release), BERTH_OK);
	if (background_join(&running) == BERTH_OK)
		assert_int_equal(running.call->ending.kind, BERTH_ENDING_SESSION_LOST);
	else
		assert_int_equal(running.rc, BERTH_SESSION_LOST);
	rig_shell(&rig, "test ! -e sessions/%s && test ! -e trash/%s", ref, ref);
	rig_stop(&rig);
	call_drop(running.call);
}

static void test_release_kills_all(void **state)
{
	struct berth_call *call = call_make();
	struct rig rig;
	char ref[64];
	pid_t pid;

	(void)state;
	rig_start(&rig, NULL);
	make_session(&rig, "ws", "task", ref);
	{
		struct berth_session session = session_of(ref);
		struct berth_command command = {.struct_size = sizeof(command),
						.attempt = 1,
						.execution_id = S("e1"),
						.script = S("setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!"),
						.cwd = S("."),
						.timeout_ms = 20000,
						.keep_descendants = 1,
						.stdout_max = 100,
						.stderr_max = 100};

		assert_int_equal(rig.ops->execute(rig.inst, call, &session, &command), BERTH_OK);
	}
	pid = (pid_t)strtol(call->out[BERTH_STREAM_STDOUT].ptr, NULL, 10);
	assert_true(pid > 1);
	assert_int_equal(kill(pid, 0), 0);
	assert_int_equal(code_of(&rig, ref, rig.ops->release), BERTH_OK);
	assert_int_equal(kill(pid, 0), -1);
	assert_int_equal(errno, ESRCH);
	rig_stop(&rig);
	call_drop(call);
}

/* Deeper than any path can say. */
static void make_deep(const struct rig *rig, const char *ref)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/sessions/%s/work", rig->root, ref);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; i < 3000; i++) {
		int next;

		assert_int_equal(mkdirat(fd, "directory-with-a-name", 0700), 0);
		next = openat(fd, "directory-with-a-name", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		close(fd);
		fd = next;
	}
	assert_true(fd >= 0);
	close(fd);
}

/* Trees that resist: deep, without permissions, with links out of them and in circles. */
static void test_release_hard_tree(void **state)
{
	struct rig rig;
	char ref[64];

	(void)state;
	rig_start(&rig, NULL);
	rig_shell(&rig, "mkdir keep && echo kept >keep/file");
	make_session(&rig, "ws", "task", ref);
	make_deep(&rig, ref);
	rig_shell(&rig,
		  "cd sessions/%s/work && mkdir -p shut/in/side && touch shut/in/side/f && ln -s ../../../keep link && "
		  "ln -s . shut/loop && chmod 000 shut/in/side shut/in shut && chmod 555 directory-with-a-name",
		  ref);
	assert_int_equal(code_of(&rig, ref, rig.ops->release), BERTH_OK);
	rig_shell(&rig, "test -z \"$(ls sessions trash | grep -v :)\" && grep -q kept keep/file");
	rig_stop(&rig);
}

/* As a daemon that is not root: whom modes bind. */
static void release_closed_session(void)
{
	struct rig rig;
	char ref[64];

	if (geteuid() == 0 && (setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534) < 0))
		_exit(77);
	rig_start(&rig, NULL);
	make_session(&rig, "ws", "task", ref);
	rig_shell(&rig, "chmod 0 sessions/%s", ref);
	assert_int_equal(code_of(&rig, ref, rig.ops->release), BERTH_OK);
	rig_shell(&rig, "test -z \"$(ls sessions trash | grep -v :)\"");
	rig_stop(&rig);
	_exit(0);
}

static void test_release_of_a_closed_session(void **state)
{
	pid_t pid = fork();
	int status;

	(void)state;
	if (pid == 0)
		release_closed_session();
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* Makes and releases sessions until it is killed. */
static void churn(struct rig *rig, int ready_fd)
{
	bool told = false;

	for (unsigned i = 0;; i++) {
		struct berth_call *call = call_make();

		do_provision(rig, call, "ws", i % 2 ? "odd" : "even", 0);
		if (i % 3 && call->session_count)
			code_of(rig, call->sessions[0].ref, rig->ops->release);
		call_drop(call);
		if (!told && i > 5)
			told = write(ready_fd, "r", 1) == 1;
	}
}

/* Whatever instant a process is killed at: find sees exactly what list sees. */
static void test_killed_at_any_instant(void **state)
{
	static const struct rig_option null[] = {{"runtime", "null", 0}, {NULL, NULL, 0}};
	struct berth_str first_page = S("");
	struct rig rig;

	(void)state;
	rig_start(&rig, null);
	for (int round = 0; round < 20; round++) {
		struct timespec instant = {.tv_nsec = round * 137000};
		struct berth_call *call = call_make();
		int ready[2];
		char byte;
		pid_t pid;

		assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
		pid = fork();
		if (!pid)
			churn(&rig, ready[1]);
		assert_int_equal(read(ready[0], &byte, 1), 1);
		nanosleep(&instant, NULL); /* spreads the kills over the steps */
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		close(ready[0]);
		close(ready[1]);
		assert_int_equal(rig.ops->list(rig.inst, call, &first_page), BERTH_OK);
		assert_string_equal(call->cursor, "");
		assert_int_equal(call->session_count, count_found(&rig, "ws", "odd") + count_found(&rig, "ws", "even"));
		for (size_t i = 0; i < call->session_count; i++)
			assert_int_equal(code_of(&rig, call->sessions[i].ref, rig.ops->release), BERTH_OK);
		call_drop(call);
	}
	assert_int_equal(count_found(&rig, "ws", "odd") + count_found(&rig, "ws", "even"), 0);
	rig.ops->close(rig.inst);
	{
		struct berth_call *call = call_make();

		assert_int_equal(rig_open(&rig, call, null), BERTH_OK); /* open finishes half-done removals */
		call_drop(call);
	}
	rig_shell(&rig, "test -z \"$(ls sessions trash | grep -v :)\"");
	rig_stop(&rig);
}

static void *make_and_release(void *arg)
{
	struct rig *rig = arg;

	for (int i = 0; i < 200; i++) {
		struct berth_call *call = call_make();

		if (!do_provision(rig, call, "ws", "task", 0))
			code_of(rig, call->sessions[0].ref, rig->ops->release);
		call_drop(call);
	}
	return NULL;
}

/* Threads share one task's index, whose directories come and go under them; the counters miss none. */
static void test_threads(void **state)
{
	static const struct rig_option null[] = {{"runtime", "null", 0}, {NULL, NULL, 0}};
	pthread_t threads[4];
	struct rig rig;

	(void)state;
	rig_start(&rig, null);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, make_and_release, &rig), 0);
	for (size_t i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(rig_counter(&rig, "provision"), 800);
	assert_int_equal(rig_counter(&rig, "created"), 800);
	assert_int_equal(rig_counter(&rig, "removed"), 800);
	rig_shell(&rig, "test -z \"$(ls sessions trash new by-task | grep -v :)\"");
	rig_stop(&rig);
}

struct releaser {
	struct rig *rig;
	const char *ref;
	int32_t rc;
};

static void *release_main(void *arg)
{
	struct releaser *releaser = arg;

	releaser->rc = code_of(releaser->rig, releaser->ref, releaser->rig->ops->release);
	return NULL;
}

/* Two hosts on one root: each sees the other's sessions, and both may release one at once. */
static void test_shared_root(void **state)
{
	struct berth_call *call = call_make();
	struct rig one, two;

	(void)state;
	rig_start(&one, NULL);
	two = one;
	two.inst = NULL;
	assert_int_equal(rig_open(&two, call, NULL), BERTH_OK);
	for (int i = 0; i < 10; i++) {
		struct releaser releasers[2];
		pthread_t threads[2];
		char ref[64];

		make_session(&one, "ws", "task", ref);
		assert_int_equal(count_found(&two, "ws", "task"), 1);
		rig_shell(&one, "cd sessions/%s/work && mkdir -p a/b/c d/e/f g && touch a/b/c/1 d/e/2 g/3", ref);
		for (size_t k = 0; k < 2; k++) {
			releasers[k] = (struct releaser){k ? &two : &one, ref, -1};
			assert_int_equal(pthread_create(&threads[k], NULL, release_main, &releasers[k]), 0);
		}
		for (size_t k = 0; k < 2; k++) {
			pthread_join(threads[k], NULL);
			assert_true(releasers[k].rc == BERTH_OK || releasers[k].rc == BERTH_NOT_FOUND);
		}
		rig_shell(&one, "test -z \"$(ls sessions trash by-task | grep -v :)\"");
	}
	assert_int_equal(rig_counter(&one, "removed"), 10);
	two.ops->close(two.inst);
	rig_stop(&one);
	call_drop(call);
}

static void test_counters_go_on(void **state)
{
	struct berth_call *call = call_make();
	struct rig rig;

	(void)state;
	rig_start(&rig, NULL);
	assert_int_equal(rig.ops->check(rig.inst, call), BERTH_OK);
	rig_shell(&rig, "sed -i 's/^check       000000000001/check       000099999999/' counters");
	rig.ops->close(rig.inst);
	assert_int_equal(rig_open(&rig, call, NULL), BERTH_OK);
	assert_int_equal(rig.ops->check(rig.inst, call), BERTH_OK);
	assert_int_equal(rig_counter(&rig, "check"), 100000000);
	assert_int_equal(rig_counter(&rig, "open"), 2);
	rig.ops->close(rig.inst);
	rig.inst = NULL;
	rig_shell(&rig, "echo nonsense >counters");
	assert_int_equal(rig_open(&rig, call, NULL), BERTH_INVALID);
	assert_non_null(strstr(call->text, "counters"));
	rig_stop(&rig);
	call_drop(call);
}

static void test_refused_options(void **state)
{
	static const struct {
		struct rig_option options[3];
		const char *word;
	} bad[] = {
	    {{{"runtime", "docker", 0}}, "docker"},
	    {{{"runtime", "null", 0}, {"pids_max", NULL, 5}}, "pids_max"},
	    {{{"ready_delay", NULL, -1}}, "ready_delay"},
	    {{{"root", "/nowhere/at/all", 0}}, "/nowhere/at/all"},
	};
	struct rig rig;

	(void)state;
	rig_load(&rig);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct berth_call *call = call_make();

		assert_int_equal(rig_open(&rig, call, bad[i].options), BERTH_INVALID);
		assert_non_null(strstr(call->text, bad[i].word));
		call_drop(call);
	}
	rig.inst = NULL;
	rig_stop(&rig);
}

static void test_check_names_helper(void **state)
{
	static const struct rig_option missing[] = {{"supervise", "/nowhere/berth-supervise", 0}, {NULL, NULL, 0}};
	struct berth_call *call = call_make();
	struct rig rig;

	(void)state;
	rig_start(&rig, missing);
	assert_int_equal(rig.ops->check(rig.inst, call), BERTH_INVALID);
	assert_string_equal(call->reason, "supervise");
	rig_stop(&rig);
	call_drop(call);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_descriptor),
	    cmocka_unit_test(test_life),
	    cmocka_unit_test(test_two_for_one_task),
	    cmocka_unit_test(test_refused_specs),
	    cmocka_unit_test(test_list_pages),
	    cmocka_unit_test(test_warm),
	    cmocka_unit_test(test_expiry),
	    cmocka_unit_test(test_no_expiry_unless_asked),
	    cmocka_unit_test(test_rebooted),
	    cmocka_unit_test(test_ready_delay),
	    cmocka_unit_test(test_execute),
	    cmocka_unit_test(test_spec_env),
	    cmocka_unit_test(test_reattach),
	    cmocka_unit_test(test_release_under_command),
	    cmocka_unit_test(test_release_kills_all),
	    cmocka_unit_test(test_release_hard_tree),
	    cmocka_unit_test(test_release_of_a_closed_session),
	    cmocka_unit_test(test_killed_at_any_instant),
	    cmocka_unit_test(test_threads),
	    cmocka_unit_test(test_shared_root),
	    cmocka_unit_test(test_counters_go_on),
	    cmocka_unit_test(test_refused_options),
	    cmocka_unit_test(test_check_names_helper),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
