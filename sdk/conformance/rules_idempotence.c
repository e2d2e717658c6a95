/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of doing a thing twice, and of doing many at once. */
#include "rules.h"

#define CROWD_SESSIONS 12u
#define CROWD_ONE 8u

void rule_one_create(struct check *check)
{
	struct session *session = session_plan(check, NULL);
	struct pages pages = {0};
	unsigned mine = 0;

	MUST(check, !session_provision(check, session, NULL), "provision " OK_RC(session->err));
	while (session_list(check, &pages)) {
		size_t count;
		const struct berth_session_info *infos = call_sessions(pages.call, &count);

		for (size_t i = 0; i < count; i++)
			mine += str_is(infos[i].intent, session->intent);
	}
	MUST(check, mine == 1, "one provision made %u sessions with its intent", mine);
}

void rule_release_twice(struct check *check)
{
	struct session *session = session_make(check, NULL);
	struct err err = {0};

	if (!session)
		return;
	for (int i = 0; i < 3; i++)
		MUST(check, !call_release(check_call(check), &session->abi, &err), "release number %d " OK_FMT, i + 1,
		     OK_ARGS(err));
	session_wait_gone(check, session);
}

static void release_one(struct check *check, void *arg, unsigned i)
{
	struct session *session = arg;
	struct err err = {0};

	MUST(check, !call_release(check_call(check), &session->abi, &err), "release on thread %u of %u " OK_FMT, i,
	     CROWD_ONE, OK_ARGS(err));
}

void rule_release_race(struct check *check)
{
	struct session *session = session_make(check, NULL);

	if (!session)
		return;
	check_threads(check, CROWD_ONE, release_one, session);
	if (!check_failed(check))
		session_wait_gone(check, session);
}

static bool found_alone(struct check *check, struct session *session)
{
	struct call *call = check_call(check);
	struct err err = {0};
	size_t times, count;
	int rc = call_find(call, session->workspace, session->task, &err);

	session_among(call, session->ref, &times);
	call_sessions(call, &count);
	MUST_OR(check, !rc, false, "find while others are provisioned " OK_RC(err));
	MUST_OR(check, times == 1 && count == 1, false,
		"find after created() emits %zu sessions, the own one %zu times", count, times);
	return true;
}

static void speak(struct check *check, struct session *session)
{
	struct run *run;

	if (check->kit->opt->without & NEED_COMMANDS)
		return;
	run = run_plan(check, session, check_printf(check, "echo %s", session->task));
	run_do(run);
	MUST(check, run_exited(run, 0), "a command beside others ended with %s", run_ending_word(run));
	MUST(check,
	     run->out[0].len == strlen(session->task) + 1 &&
		     !memcmp(run->out[0].ptr, session->task, run->out[0].len - 1),
	     "a command beside others has the output of another");
}

static void live(struct check *check, void *arg, unsigned i)
{
	struct session *session = session_plan(check, NULL);
	struct err err = {0};

	(void)arg;
	(void)i;
	MUST(check, !session_provision(check, session, NULL), "provision beside others " OK_RC(session->err));
	if (!found_alone(check, session))
		return;
	MUST(check, !session_await(check, session), "await_ready beside others " OK_RC(session->err));
	speak(check, session);
	MUST(check, !session_release(check->kit, session, &err), "release beside others " OK_RC(err));
}

void rule_race_tasks(struct check *check)
{
	check_threads(check, check->kit->opt->stress ? 4 * CROWD_SESSIONS : CROWD_SESSIONS, live, NULL);
}

struct listing {
	struct session *stays[3];
	_Atomic unsigned churning;
};

static void must_list_all(struct check *check, const struct listing *listing)
{
	for (int k = 0; k < 3; k++) {
		int times = session_listed(check, listing->stays[k]->ref);

		MUST(check, times == 1, "list holds a session that stays, while others come and go, %d times", times);
	}
}

static void list_or_churn(struct check *check, void *arg, unsigned i)
{
	struct listing *listing = arg;

	if (i > 0) {
		for (int round = 0; round < 4 && !check_failed(check); round++)
			live(check, NULL, i);
		listing->churning--;
		return;
	}
	do
		must_list_all(check, listing);
	while (listing->churning && !check_failed(check));
}

void rule_race_list(struct check *check)
{
	struct listing listing = {.churning = 3};

	for (int k = 0; k < 3; k++) {
		listing.stays[k] = session_make(check, k ? NULL : session_warm(check));
		if (!listing.stays[k])
			return;
	}
	check_threads(check, 1 + listing.churning, list_or_churn, &listing);
	must_list_all(check, &listing);
}

static void speak_shared(struct check *check, void *arg, unsigned i)
{
	struct session *session = arg;
	struct run *run = run_plan(
		check, session,
		check_printf(check, "i=0; while [ $i -lt 50 ]; do echo o%u; echo e%u >&2; i=$((i+1)); done; exit %u", i,
			     i, i));
	char *word = check_printf(check, "o%u\n", i);

	run_do(run);
	MUST(check, run_exited(run, (int)i), "command %u of many in one session ended with %s", i,
	     run_ending_word(run));
	MUST(check, run->out[0].len == 50 * strlen(word) && run->out[1].len == 50 * strlen(word),
	     "command %u of many in one session has %zu and %zu bytes of output instead of %zu", i, run->out[0].len,
	     run->out[1].len, 50 * strlen(word));
	for (size_t at = 0; at < run->out[0].len; at += strlen(word))
		MUST(check, !memcmp(run->out[0].ptr + at, word, strlen(word)),
		     "outputs of commands in one session are mixed");
}

void rule_race_commands(struct check *check)
{
	struct session *session = session_shared(check);

	if (session)
		check_threads(check, check->kit->opt->stress ? 32 : 10, speak_shared, session);
}

static void stop_shared(struct check *check, void *arg, unsigned i)
{
	struct run *run =
		run_plan(check, arg, check_printf(check, "echo on; sleep %s; exit %u", i % 2 ? "20" : "0.3", i));

	run_start(run);
	MUST(check, run_wait_output(run, "on", 10000), "command %u of many did not begin", i);
	if (i % 2)
		run_cancel(run, BERTH_CANCEL_STOP);
	MUST(check, run_wait(run, 10000), "command %u of many does not end", i);
	if (i % 2)
		MUST(check, !run->rc && run->ending.kind == BERTH_ENDING_CANCELLED,
		     "a stopped command among many ended with %s", run_ending_word(run));
	else
		MUST(check, run_exited(run, (int)i), "a command beside others that were stopped ended with %s",
		     run_ending_word(run));
}

void rule_race_cancels(struct check *check)
{
	struct session *session = session_shared(check);

	if (session)
		check_threads(check, check->kit->opt->stress ? 32 : 8, stop_shared, session);
}

struct same_id {
	struct session *session;
	const char *id;
	const char *script;
	_Atomic unsigned ran, refused;
};

static void execute_same(struct check *check, void *arg, unsigned i)
{
	struct same_id *same = arg;
	struct run *run = run_plan(check, same->session, same->script);

	(void)i;
	run->command.execution_id = str(same->id);
	run_do(run);
	if (run->rc == ERR_CONFLICT)
		same->refused++;
	else if (run_exited(run, 0))
		same->ran++;
	else
		check_fail(check, "one of several executes of one id ended with %s", run_ending_word(run));
}

void rule_execute_once(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check);
	bool may_repeat = check->kit->capabilities & BERTH_CAP_IDEMPOTENT_EXEC;
	struct same_id same = {.session = session};
	int64_t lines;

	if (!session)
		return;
	same.id = check_printf(check, "once-%s-%s", check->kit->tag, dir);
	same.script = check_printf(check, "echo x >>%s", dir);
	check_threads(check, CROWD_ONE, execute_same, &same);
	if (check_failed(check))
		return;
	execute_same(check, &same, 0);
	lines = run_count_lines(check, session, dir);
	MUST(check, lines == 1, "%u executes of one id started the command %lld times", CROWD_ONE + 1,
	     (long long)lines);
	MUST(check, may_repeat || (same.ran == 1 && same.refused == CROWD_ONE),
	     "of %u executes of one id %u said that they ran it, and %u were refused", CROWD_ONE + 1, same.ran,
	     same.refused);
}

void rule_execute_attempt(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check);
	struct run *one, *two;

	if (!session)
		return;
	one = run_plan(check, session, check_printf(check, "echo x >>%s", dir));
	run_do(one);
	MUST(check, run_exited(one, 0), "the first attempt ended with %s", run_ending_word(one));
	two = run_plan(check, session, one->command.script.ptr);
	two->command.execution_id = str(one->id);
	two->command.attempt = 2;
	run_do(two);
	MUST(check, two->rc == ERR_CONFLICT, "a second attempt of an id that has started ended with %s",
	     run_ending_word(two));
	MUST(check, run_count_lines(check, session, dir) == 1, "the second attempt ran the command again");
}
