/* SPDX-License-Identifier: Apache-2.0 */
/* A supervised command beyond one call: started once, cancelled, left and found again, killed, forgotten. */
#include "sup_fixture.h"

#include <sys/resource.h>

#include "../../../sdk/lib/supervised_files.h"

#define THREADS 32

static size_t file_size(const struct fixture *fx, const char *name)
{
	struct stat st;
	char path[200];

	snprintf(path, sizeof(path), "%s/%s", fx->root, name);
	return stat(path, &st) == 0 ? (size_t)st.st_size : 0;
}

static int32_t reattach(struct fixture *fx, struct berth_call *call, const char *id, uint32_t attempt)
{
	struct berth_resume resume = {
		.struct_size = sizeof(resume), .attempt = attempt, .execution_id = fake_str(id)};

	fake_call_init(call);
	return berth_sup_reattach(&fake_host, call, &fx->sup, &resume);
}

static void race(struct fixture *fx, const char *id, bool one_attempt)
{
	struct runner runners[THREADS];
	int won = 0;

	for (int i = 0; i < THREADS; i++) {
		runners[i] = (struct runner){.fx = fx, .command = make_command(id, "printf x >> ran")};
		runners[i].command.attempt = one_attempt ? 1 : (uint32_t)i + 1;
		fake_call_init(&runners[i].call);
	}
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&runners[i].thread, NULL, runner_main, &runners[i]), 0);
	for (int i = 0; i < THREADS; i++)
		runner_join(&runners[i]);
	for (int i = 0; i < THREADS; i++) {
		won += runners[i].rc == BERTH_OK;
		assert_true(runners[i].rc == BERTH_OK || runners[i].rc == BERTH_CONFLICT);
		assert_int_equal(runners[i].call.endings, runners[i].rc == BERTH_OK);
		fake_call_fini(&runners[i].call);
	}
	assert_int_equal(won, 1);
}

static void started_at_most_once(void **state)
{
	for (int i = 0; i < 8; i++) {
		char id[16];

		snprintf(id, sizeof(id), "race-%d", i);
		race(*state, id, i % 2 == 0);
		assert_int_equal(file_size(*state, "ran"), (size_t)i + 1);
	}
}

/* Either the poison is first and nothing ever starts, or the start is first and both see its ending. */
static void poison_against_late_start(void **state)
{
	struct fixture *fx = *state;
	int poisoned = 0;

	for (int i = 0; i < 200; i++) {
		struct runner start = {.fx = fx}, other = {.fx = fx};
		size_t ran = file_size(fx, "ran");
		char id[16];

		snprintf(id, sizeof(id), "late-%d", i);
		start.command = make_command(id, "printf x >> ran; exit 9");
		other.resume = (struct berth_resume){
			.struct_size = sizeof(other.resume), .attempt = 1, .execution_id = fake_str(id)};
		fake_call_init(&start.call);
		fake_call_init(&other.call);
		assert_int_equal(pthread_create(&start.thread, NULL, runner_main, &start), 0);
		/* Spread the second over the time that a start takes. */
		for (int64_t until = fake_now_ns() + i * 5000; fake_now_ns() < until;)
			continue;
		assert_int_equal(pthread_create(&other.thread, NULL, runner_main, &other), 0);
		runner_join(&start);
		runner_join(&other);
		if (other.rc == BERTH_NOT_STARTED) {
			assert_int_equal(start.rc, BERTH_CONFLICT);
			assert_string_equal(start.call.reason, "poisoned");
			assert_int_equal(file_size(fx, "ran"), ran);
			poisoned++;
		} else {
			assert_int_equal(other.rc, BERTH_OK);
			assert_int_equal(start.rc, BERTH_OK);
			assert_ending(&other.call, BERTH_ENDING_EXIT, 9);
			assert_ending(&start.call, BERTH_ENDING_EXIT, 9);
			assert_int_equal(file_size(fx, "ran"), ran + 1);
		}
		fake_call_fini(&start.call);
		fake_call_fini(&other.call);
	}
	assert_true(poisoned > 0);
}

static void poison_covers_earlier_attempts_only(void **state)
{
	struct fixture *fx = *state;
	struct berth_command command = make_command("p", "printf x >> ran");
	struct berth_call call;

	assert_int_equal(reattach(fx, &call, "p", 2), BERTH_NOT_STARTED);
	fake_call_fini(&call);
	for (uint32_t attempt = 1; attempt <= 3; attempt++) {
		command.attempt = attempt;
		fake_call_init(&call);
		assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command),
				 attempt < 3 ? BERTH_CONFLICT : BERTH_OK);
		fake_call_fini(&call);
	}
	assert_int_equal(file_size(fx, "ran"), 1);
	/* The mark of a start wins over any attempt asked for. */
	assert_int_equal(reattach(fx, &call, "p", 7), BERTH_OK);
	assert_ending(&call, BERTH_ENDING_EXIT, 0);
	fake_call_fini(&call);
}

static void reattach_after_the_launching_process_died(void **state)
{
	struct fixture *fx = *state;
	struct berth_call call;
	pid_t host = fork();
	int status;

	if (host == 0) {
		struct berth_command command =
			make_command("orphan", "echo begin; touch up; while [ ! -e go ]; do sleep 0.01; done; "
					       "echo end; exit 4");

		fake_call_init(&call);
		_exit(berth_sup_execute(&fake_host, &call, &fx->sup, &command));
	}
	FAKE_WAIT(root_has(fx, "up"));
	assert_int_equal(kill(host, SIGKILL), 0);
	assert_int_equal(waitpid(host, &status, 0), host);
	assert_true(WIFSIGNALED(status));
	assert_true(fixture_processes(fx) > 0);
	root_touch(fx, "go");
	assert_int_equal(reattach(fx, &call, "orphan", 1), BERTH_OK);
	assert_ending(&call, BERTH_ENDING_EXIT, 4);
	assert_stream(&call, BERTH_STREAM_STDOUT, "begin\nend\n");
	fake_call_fini(&call);
	/* Once more, ended: from the files alone. */
	assert_int_equal(reattach(fx, &call, "orphan", 1), BERTH_OK);
	assert_ending(&call, BERTH_ENDING_EXIT, 4);
	assert_stream(&call, BERTH_STREAM_STDOUT, "begin\nend\n");
	fake_call_fini(&call);
}

static void supervisor_killed_in_the_middle(void **state)
{
	struct fixture *fx = *state;
	struct berth_str id = fake_str("lost");
	struct runner runner;
	struct berth_call call;

	runner_start(&runner, fx, "lost", "sleep 300 & echo before; sleep 301; exit 0");
	FAKE_WAIT(atomic_load(&runner.call.arrived) == 7);
	assert_int_equal(kill(supervisor_of(fx, "lost"), SIGKILL), 0);
	runner_join(&runner);
	assert_int_equal(runner.rc, BERTH_OK);
	assert_ending(&runner.call, BERTH_ENDING_UNKNOWN, 0);
	assert_int_equal(runner.call.ending.quiescent, BERTH_QUIESCENT_UNKNOWN);
	assert_stream(&runner.call, BERTH_STREAM_STDOUT, "before\n");
	fake_call_fini(&runner.call);
	/* Known to nobody, but found again: by reattach as unknown, by kill through what it left. */
	assert_int_equal(reattach(fx, &call, "lost", 1), BERTH_OK);
	assert_ending(&call, BERTH_ENDING_UNKNOWN, 0);
	assert_int_equal(berth_sup_signal(&fake_host, &call, &fx->sup, &id, BERTH_SIGNAL_TERM), BERTH_NOT_FOUND);
	assert_int_equal(berth_sup_signal(&fake_host, &call, &fx->sup, &id, BERTH_SIGNAL_KILL), BERTH_OK);
	assert_int_equal(fixture_processes(fx), 0);
	assert_int_equal(berth_sup_signal(&fake_host, &call, &fx->sup, &id, BERTH_SIGNAL_KILL), BERTH_NOT_FOUND);
	assert_int_equal(berth_sup_forget(&fake_host, &call, &fx->sup, &id), BERTH_OK);
	fake_call_fini(&call);
}

static void cancel_takes_the_tree(void **state)
{
	struct fixture *fx = *state;
	struct runner runner;

	runner_start(&runner, fx, "cancel",
		     "trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & "
		     "touch up; sleep 300; sleep 300");
	FAKE_WAIT(root_has(fx, "up"));
	fake_cancel(&runner.call, BERTH_CANCEL_STOP);
	runner_join(&runner);
	assert_int_equal(runner.rc, BERTH_OK);
	assert_int_equal(fixture_processes(fx), 0);
	assert_ending(&runner.call, BERTH_ENDING_CANCELLED, 0);
	assert_int_equal(runner.call.ending.quiescent, BERTH_QUIESCENT_YES);
	fake_call_fini(&runner.call);
}

static void cancel_without_descriptor(void **state)
{
	struct fixture *fx = *state;
	struct runner runner = {.fx = fx, .command = make_command("nofd", "touch up; sleep 300")};
	int fd;

	fake_call_init(&runner.call);
	fd = runner.call.cancel_fd;
	runner.call.cancel_fd = -1;
	assert_int_equal(pthread_create(&runner.thread, NULL, runner_main, &runner), 0);
	FAKE_WAIT(root_has(fx, "up"));
	atomic_store(&runner.call.cancel, BERTH_CANCEL_STOP);
	runner_join(&runner);
	assert_ending(&runner.call, BERTH_ENDING_CANCELLED, 0);
	runner.call.cancel_fd = fd;
	fake_call_fini(&runner.call);
}

static void cancel_before_the_start_starts_nothing(void **state)
{
	struct fixture *fx = *state;
	struct berth_command command = make_command("early", "touch ran");
	struct berth_call call;

	fake_call_init(&call);
	fake_cancel(&call, BERTH_CANCEL_STOP);
	assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_CANCELLED);
	assert_false(root_has(fx, "ran"));
	fake_call_fini(&call);
}

/* A cancel that loses against the natural end keeps the natural ending; nothing in between. */
static void cancel_at_any_moment(void **state)
{
	struct fixture *fx = *state;

	for (int i = 0; i < 150; i++) {
		struct runner runner;
		char id[16];

		snprintf(id, sizeof(id), "any-%d", i);
		runner_start(&runner, fx, id, "sleep 0.01; exit 5");
		for (int64_t until = fake_now_ns() + i * 100000; fake_now_ns() < until;)
			sched_yield();
		fake_cancel(&runner.call, BERTH_CANCEL_STOP);
		runner_join(&runner);
		if (runner.rc == BERTH_CANCELLED) {
			assert_int_equal(runner.call.endings, 0);
			assert_false(supervisor_of(fx, id));
		} else if (runner.call.ending.kind == BERTH_ENDING_EXIT) {
			assert_ending(&runner.call, BERTH_ENDING_EXIT, 5);
		} else {
			assert_ending(&runner.call, BERTH_ENDING_CANCELLED, 0);
		}
		assert_int_equal(fixture_processes(fx), 0);
		fake_call_fini(&runner.call);
	}
}

static void detach_leaves_it_running(void **state)
{
	struct fixture *fx = *state;
	struct berth_str id = fake_str("detach");
	struct runner runner;
	struct berth_call call;
	int64_t begin;

	runner_start(&runner, fx, "detach", "echo a; touch up; while [ ! -e go ]; do sleep 0.01; done; echo b");
	FAKE_WAIT(root_has(fx, "up"));
	begin = fake_now_ns();
	fake_cancel(&runner.call, BERTH_CANCEL_DETACH);
	runner_join(&runner);
	assert_true(fake_now_ns() - begin < INT64_C(1000000000));
	assert_int_equal(runner.rc, BERTH_CANCELLED);
	assert_int_equal(runner.call.endings, 0);
	fake_call_fini(&runner.call);
	assert_true(fixture_processes(fx) > 0);
	fake_call_init(&call);
	assert_int_equal(berth_sup_forget(&fake_host, &call, &fx->sup, &id), BERTH_CONFLICT);
	fake_call_fini(&call);
	root_touch(fx, "go");
	assert_int_equal(reattach(fx, &call, "detach", 1), BERTH_OK);
	assert_stream(&call, BERTH_STREAM_STDOUT, "a\nb\n");
	assert_ending(&call, BERTH_ENDING_EXIT, 0);
	fake_call_fini(&call);
}

/* A command that writes without pause must not keep a detach waiting. */
static void detach_from_endless_output(void **state)
{
	struct fixture *fx = *state;
	struct berth_str id = fake_str("flood");
	struct runner runner = {.fx = fx, .command = make_command("flood", "exec yes")};
	int64_t begin;

	fake_call_init(&runner.call);
	runner.call.discard = true;
	runner.command.stdout_max = 64 << 20;
	assert_int_equal(pthread_create(&runner.thread, NULL, runner_main, &runner), 0);
	FAKE_WAIT(atomic_load(&runner.call.arrived) > 1000000);
	begin = fake_now_ns();
	fake_cancel(&runner.call, BERTH_CANCEL_DETACH);
	runner_join(&runner);
	assert_true(fake_now_ns() - begin < INT64_C(1000000000));
	assert_int_equal(runner.rc, BERTH_CANCELLED);
	assert_int_equal(berth_sup_signal(&fake_host, &runner.call, &fx->sup, &id, BERTH_SIGNAL_KILL), BERTH_OK);
	FAKE_WAIT(fixture_processes(fx) == 0);
	fake_call_fini(&runner.call);
}

/* A reader that stands still, once at a megabyte until the stop was asked for, and then after one more block. */
struct slow_reader {
	struct berth_call *call;
	atomic_bool waits, stopped, released;
	int blocks;
};

static void read_slowly(void *ctx)
{
	struct slow_reader *reader = ctx;
	atomic_bool *until = &reader->stopped;

	if (atomic_load(&reader->call->arrived) < 1000000)
		return;
	atomic_store(&reader->waits, true);
	if (reader->blocks++)
		until = &reader->released;
	while (!atomic_load(until))
		sched_yield();
}

static off_t size_of(const struct fixture *fx, const char *name)
{
	char path[200];
	struct stat st = {0};

	snprintf(path, sizeof(path), "%s/%s", fx->run, name);
	return stat(path, &st) ? 0 : st.st_size;
}

/* The command must not go on until all that it wrote was sent. */
static void stop_of_endless_output(void **state)
{
	struct fixture *fx = *state;
	struct runner runner = {.fx = fx, .command = make_command("stopped", "exec yes")};
	struct slow_reader reader = {.call = &runner.call};

	fake_call_init(&runner.call);
	runner.call.discard = true;
	runner.call.hook = read_slowly;
	runner.call.hook_ctx = &reader;
	runner.command.stdout_max = 64 << 20;
	runner.command.timeout_ms = 600000;
	assert_int_equal(pthread_create(&runner.thread, NULL, runner_main, &runner), 0);
	FAKE_WAIT(atomic_load(&reader.waits) && size_of(fx, "stopped/1/stdout") > 8 << 20);
	fake_cancel(&runner.call, BERTH_CANCEL_STOP);
	atomic_store(&reader.stopped, true);
	FAKE_WAIT(fixture_processes(fx) == 0);
	atomic_store(&reader.released, true);
	runner_join(&runner);
	assert_int_equal(runner.rc, BERTH_OK);
	assert_ending(&runner.call, BERTH_ENDING_CANCELLED, 0);
	fake_call_fini(&runner.call);
}

/* No more than so many descriptors; returns the limit of before. Those that are open stay. */
static rlim_t limit_descriptors(rlim_t count)
{
	struct rlimit limit;
	rlim_t before;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	before = limit.rlim_cur;
	limit.rlim_cur = count;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	return before;
}

static rlim_t lowest_free(void)
{
	int fd = dup(0);

	assert_true(fd >= 0);
	close(fd);
	return (rlim_t)fd;
}

/* With the first block the stop is asked for and no descriptor is left, with the second there are some again. */
struct starving_reader {
	struct fixture *fx;
	struct berth_call *call;
	rlim_t before;
	int blocks;
};

static void read_starving(void *ctx)
{
	struct starving_reader *reader = ctx;

	if (reader->blocks++ == 0) {
		FAKE_WAIT(root_has(reader->fx, "written"));
		reader->before = limit_descriptors(lowest_free());
		fake_cancel(reader->call, BERTH_CANCEL_STOP);
	} else if (reader->blocks == 2) {
		limit_descriptors(reader->before);
	}
}

static void stop_without_descriptors_is_owed(void **state)
{
	struct fixture *fx = *state;
	struct berth_command command = make_command("owed", "head -c 300000 /dev/zero; touch written; sleep 300");
	struct berth_call call;
	struct starving_reader reader = {.fx = fx, .call = &call};

	fake_call_init(&call);
	call.hook = read_starving;
	call.hook_ctx = &reader;
	command.timeout_ms = 8000;
	assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_OK);
	assert_true(reader.blocks >= 2);
	assert_ending(&call, BERTH_ENDING_CANCELLED, 0);
	fake_call_fini(&call);
}

/* What could not be looked at is not gone. */
static void no_descriptor_is_no_death(void **state)
{
	struct fixture *fx = *state;
	struct sup_started self = {.pid = getpid()};
	struct berth_str id = fake_str("looked-at");
	struct sup_proc proc;
	struct berth_call call;
	struct runner runner;
	rlim_t before;
	int alive, sent;
	pid_t child;

	assert_int_equal(sup_proc_read(self.pid, &proc), 0);
	assert_true(sup_boot_id(self.boot, sizeof(self.boot)) > 0);
	self.start = proc.start;
	assert_int_equal(sup_supervisor_alive(&self), 1);
	before = limit_descriptors(lowest_free());
	alive = sup_supervisor_alive(&self);
	sent = sup_signal_exact(self.pid, self.start, 0);
	limit_descriptors(before);
	assert_int_equal(alive, -EMFILE);
	assert_int_equal(sent, -EMFILE);
	before = limit_descriptors(lowest_free() + 1); /* enough for the process, not for a look at it */
	sent = sup_signal_exact(self.pid, self.start, 0);
	limit_descriptors(before);
	assert_int_equal(sent, -EMFILE);
	runner_start(&runner, fx, "looked-at", "touch up; sleep 300");
	FAKE_WAIT(root_has(fx, "up"));
	fake_call_init(&call);
	before = limit_descriptors(lowest_free() + 2);
	sent = berth_sup_signal(&fake_host, &call, &fx->sup, &id, BERTH_SIGNAL_TERM);
	limit_descriptors(before);
	assert_int_equal(sent, BERTH_UNAVAILABLE);
	assert_string_equal(call.reason, "descriptors");
	assert_int_equal(berth_sup_signal(&fake_host, &call, &fx->sup, &id, BERTH_SIGNAL_TERM), BERTH_OK);
	runner_join(&runner);
	fake_call_fini(&runner.call);
	fake_call_fini(&call);
	self.start++;
	assert_int_equal(sup_supervisor_alive(&self), 0);
	self.start--;
	self.boot[0] ^= 1;
	assert_int_equal(sup_supervisor_alive(&self), 0);
	child = fork();
	if (child == 0)
		_exit(0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_int_equal(sup_alive(child, 1), 0);
}

static void deadline_leaves_it_running(void **state)
{
	struct fixture *fx = *state;
	struct berth_command command = make_command("deadline", "sleep 300");
	struct berth_str id = command.execution_id;
	struct berth_call call;

	fake_call_init(&call);
	call.deadline_ns = fake_now_ns() + INT64_C(300000000);
	assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_TIMEOUT);
	assert_int_equal(call.endings, 0);
	assert_true(fixture_processes(fx) > 0);
	assert_int_equal(berth_sup_signal(&fake_host, &call, &fx->sup, &id, BERTH_SIGNAL_TERM), BERTH_OK);
	fake_call_fini(&call);
	assert_int_equal(reattach(fx, &call, "deadline", 1), BERTH_OK);
	assert_ending(&call, BERTH_ENDING_CANCELLED, 0);
	fake_call_fini(&call);
}

static void signal_kill_needs_no_grace(void **state)
{
	struct fixture *fx = *state;
	struct berth_str id = fake_str("kill");
	struct runner runner;
	struct berth_call call;

	fx->sup.kill_grace_ms = 60000;
	runner_start(&runner, fx, "kill", "trap '' TERM; touch up; while :; do sleep 1; done");
	FAKE_WAIT(root_has(fx, "up"));
	fake_call_init(&call);
	assert_int_equal(berth_sup_signal(&fake_host, &call, &fx->sup, &id, BERTH_SIGNAL_TERM), BERTH_OK);
	assert_int_equal(berth_sup_signal(&fake_host, &call, &fx->sup, &id, BERTH_SIGNAL_KILL), BERTH_OK);
	runner_join(&runner);
	assert_ending(&runner.call, BERTH_ENDING_CANCELLED, 0);
	assert_true(runner.call.ending.duration_ms < 30000);
	assert_int_equal(fixture_processes(fx), 0);
	FAKE_WAIT(berth_sup_signal(&fake_host, &call, &fx->sup, &id, BERTH_SIGNAL_KILL) == BERTH_NOT_FOUND);
	id = fake_str("never");
	assert_int_equal(berth_sup_signal(&fake_host, &call, &fx->sup, &id, BERTH_SIGNAL_TERM), BERTH_NOT_FOUND);
	fake_call_fini(&call);
	fake_call_fini(&runner.call);
}

static void forget_keeps_the_mark(void **state)
{
	struct fixture *fx = *state;
	struct berth_command command = make_command("forget", "echo out; printf x >> ran");
	struct berth_str id = command.execution_id;
	struct berth_call call;
	char path[200];

	fake_call_init(&call);
	assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_OK);
	for (int i = 0; i < 2; i++)
		assert_int_equal(berth_sup_forget(&fake_host, &call, &fx->sup, &id), BERTH_OK);
	snprintf(path, sizeof(path), "%s/forget", fx->run);
	assert_int_equal(count_entries(path), 3); /* ., .., started */
	for (uint32_t attempt = 1; attempt < 3; attempt++) {
		command.attempt = attempt;
		assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_CONFLICT);
	}
	assert_int_equal(file_size(fx, "ran"), 1);
	fake_call_fini(&call);
	assert_int_equal(reattach(fx, &call, "forget", 1), BERTH_NOT_FOUND);
	assert_string_equal(call.reason, "forgotten");
	id = fake_str("unknown");
	assert_int_equal(berth_sup_forget(&fake_host, &call, &fx->sup, &id), BERTH_OK);
	fake_call_fini(&call);
}

static void kept_descendants_survive_forget_and_end_with_kill_all(void **state)
{
	struct fixture *fx = *state;
	struct berth_str id = fake_str("kept");
	struct berth_command command =
		make_command("kept", "setsid sh -c 'sleep 300 & sleep 301' & nohup sleep 302 & exit 0");
	struct runner runner;
	struct berth_call call;

	command.keep_descendants = 1;
	fake_call_init(&call);
	assert_int_equal(berth_sup_execute(&fake_host, &call, &fx->sup, &command), BERTH_OK);
	assert_ending(&call, BERTH_ENDING_EXIT, 0);
	assert_true(call.ending.survivors >= 2);
	assert_int_equal(berth_sup_forget(&fake_host, &call, &fx->sup, &id), BERTH_OK);
	fake_call_fini(&call);
	runner_start(&runner, fx, "running", "trap '' TERM; touch up; sleep 300; sleep 300");
	FAKE_WAIT(root_has(fx, "up"));
	assert_true(fixture_processes(fx) >= 4);
	assert_int_equal(berth_sup_kill_all(&fx->sup, fake_now_ns() + INT64_C(10000000000)), BERTH_OK);
	assert_int_equal(fixture_processes(fx), 0);
	runner_join(&runner);
	assert_ending(&runner.call, BERTH_ENDING_CANCELLED, 0);
	fake_call_fini(&runner.call);
}

static void missing_helper_or_run_directory(void **state)
{
	struct fixture *fx = *state;
	struct berth_command command = make_command("none", "touch ran");
	struct berth_sup sup = fx->sup;
	struct berth_call call;

	sup.helper = "/nonexistent/berth-supervise";
	fake_call_init(&call);
	assert_int_equal(berth_sup_execute(&fake_host, &call, &sup, &command), BERTH_INTERNAL);
	assert_string_equal(call.reason, "helper");
	sup.helper = fx->sup.helper;
	sup.run_dir = "/nonexistent/run";
	assert_int_equal(berth_sup_execute(&fake_host, &call, &sup, &command), BERTH_UNAVAILABLE);
	assert_false(root_has(fx, "ran"));
	fake_call_fini(&call);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
	const struct CMUnitTest tests[] = {
		TEST(started_at_most_once),
		TEST(poison_against_late_start),
		TEST(poison_covers_earlier_attempts_only),
		TEST(reattach_after_the_launching_process_died),
		TEST(supervisor_killed_in_the_middle),
		TEST(cancel_takes_the_tree),
		TEST(cancel_without_descriptor),
		TEST(cancel_before_the_start_starts_nothing),
		TEST(cancel_at_any_moment),
		TEST(detach_leaves_it_running),
		TEST(detach_from_endless_output),
		TEST(stop_of_endless_output),
		TEST(stop_without_descriptors_is_owed),
		TEST(no_descriptor_is_no_death),
		TEST(deadline_leaves_it_running),
		TEST(signal_kill_needs_no_grace),
		TEST(forget_keeps_the_mark),
		TEST(kept_descendants_survive_forget_and_end_with_kill_all),
		TEST(missing_helper_or_run_directory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
