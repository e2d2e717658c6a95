/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules of commands whose call has gone: taken up again by their execution id, never started twice, forgotten,
 * signalled; and of the provider-side expiry.
 */
#include "rules.h"

#define HOUR_MS INT64_C(3600000)

/* A command that says early, waits for the file <dir>.go, says late, and leaves one line in <dir>.ran. */
static struct run *two_halves(struct check *check, struct session *session, const char *dir)
{
	struct run *run = run_plan(
		check, session,
		check_printf(check,
			     "echo x >>%s.ran; echo early; echo e1 >&2; until [ -e %s.go ]; do sleep 0.05; done; "
			     "echo late; echo e2 >&2; exit 6",
			     dir, dir));

	run_start(run);
	MUST_OR(check, run_wait_output(run, "early", 10000), NULL, "the command did not begin");
	return run;
}

static bool detach(struct check *check, struct run *run)
{
	run_cancel(run, BERTH_CANCEL_DETACH);
	MUST_OR(check, run_wait(run, 10000) && run->rc == ERR_DETACHED, false, "a detached execute ended with %s",
		run_ending_word(run));
	return true;
}

static void must_hold(struct check *check, const struct run *run, unsigned stream, const char *want)
{
	const struct buf *out = &run->out[stream];

	MUST(check, out->len == strlen(want) && (!out->len || !memcmp(out->ptr, want, out->len)),
	     "reattach gives \"%.60s\" of stream %u instead of \"%s\"", out->len ? out->ptr : "", stream + 1, want);
}

void rule_reattach_running(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check);
	struct run *first = session ? two_halves(check, session, dir) : NULL, *again;

	if (!first || !detach(check, first))
		return;
	again = run_plan_reattach(check, session, first->id, 1);
	again->resume.stdout_offset = first->total[0];
	again->resume.stderr_offset = first->total[1];
	run_start(again);
	if (!run_shell(check, session, check_printf(check, ": >%s.go", dir)))
		return;
	MUST(check, run_wait(again, 15000), "reattach does not end with the command");
	MUST(check, run_exited(again, 6), "reattach to a running command ended with %s", run_ending_word(again));
	must_hold(check, again, 0, first->total[0] == 6 ? "late\n" : "");
	must_hold(check, again, 1, first->total[1] == 3 ? "e2\n" : "e1\ne2\n");
	MUST(check, run_count_lines(check, session, check_printf(check, "%s.ran", dir)) == 1,
	     "reattach started the command again");
}

void rule_reattach_ended(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check);
	struct run *first, *again;

	if (!session)
		return;
	first = run_plan(check, session,
			 check_printf(check, "echo x >>%s; printf 0123456789; printf abc >&2; exit 8", dir));
	run_do(first);
	MUST(check, run_exited(first, 8), "the command ended with %s", run_ending_word(first));
	for (int i = 0; i < 3; i++) {
		again = run_plan_reattach(check, session, first->id, 1);
		again->resume.stdout_offset = (const uint64_t[]){0, 4, 10}[i];
		again->resume.stderr_offset = (const uint64_t[]){0, 3, 1}[i];
		if (i == 2)
			again->resume.handle = (struct berth_str){first->handle, first->handle_len};
		run_do(again);
		MUST(check, run_exited(again, 8), "reattach to a command that ended with exit 8 ended with %s",
		     run_ending_word(again));
		must_hold(check, again, 0, (const char *const[]){"0123456789", "456789", ""}[i]);
		must_hold(check, again, 1, (const char *const[]){"abc", "", "bc"}[i]);
	}
	MUST(check, run_count_lines(check, session, dir) == 1, "reattach started the command again");
}

void rule_reattach_signal(struct check *check)
{
	struct session *session = session_shared(check);
	struct run *first, *again;

	if (!session)
		return;
	first = run_plan(check, session, "kill -9 $$; sleep 5");
	run_do(first);
	again = run_plan_reattach(check, session, first->id, 1);
	run_do(again);
	MUST(check,
	     !again->rc && again->ending.kind == first->ending.kind && again->ending.signal == first->ending.signal,
	     "a command ended with %s, and for reattach with %s", run_ending_word(first), run_ending_word(again));
}

void rule_reattach_cancel(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check);
	struct run *first, *again;

	if (!session)
		return;
	first = run_plan(check, session, stubborn_tree(check, dir, "wait"));
	first->command.timeout_ms = kit_ms(check->kit, 10000);
	run_start(first);
	MUST(check, run_wait_output(first, "ready", 10000), "the command did not begin");
	if (!detach(check, first))
		return;
	again = run_plan_reattach(check, session, first->id, 1);
	run_start(again);
	MUST(check, run_wait_output(again, "ready", 10000), "reattach does not give the output");
	run_cancel(again, BERTH_CANCEL_STOP);
	MUST(check, run_wait(again, 5000), "reattach goes on after a STOP");
	MUST(check, !again->rc && again->ending.kind == BERTH_ENDING_CANCELLED,
	     "a reattached command that was stopped is reported as %s", run_ending_word(again));
	tree_gone(check, session, dir);
}

void rule_reattach_detach(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check);
	struct run *first = session ? two_halves(check, session, dir) : NULL, *again;

	if (!first || !detach(check, first))
		return;
	again = run_plan_reattach(check, session, first->id, 1);
	run_start(again);
	MUST(check, run_wait_output(again, "early", 10000), "reattach does not give the output");
	if (!detach(check, again) || !run_shell(check, session, check_printf(check, ": >%s.go", dir)))
		return;
	again = run_plan_reattach(check, session, first->id, 1);
	run_do(again);
	MUST(check, run_exited(again, 6), "the second reattach ended with %s", run_ending_word(again));
	must_hold(check, again, 0, "early\nlate\n");
}

static struct run *late_execute(struct check *check, struct session *session, const char *id, uint32_t attempt,
				const char *dir)
{
	struct run *run = run_plan(check, session, check_printf(check, "echo x >>%s", dir));

	run->command.execution_id = str(id);
	run->command.attempt = attempt;
	run_do(run);
	return run;
}

void rule_poison(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check), *id = check_printf(check, "p-%s-%s", check->kit->tag, dir);
	struct run *run;

	if (!session)
		return;
	run = run_plan_reattach(check, session, id, 2);
	run_do(run);
	MUST(check, run->rc == ERR_NOT_STARTED, "reattach to an id that never started ended with %s",
	     run_ending_word(run));
	for (uint32_t attempt = 1; attempt <= 2; attempt++) {
		run = late_execute(check, session, id, attempt, dir);
		MUST(check, run->rc == ERR_CONFLICT,
		     "a late execute of attempt %u, after NOT_STARTED up to 2, ended with %s", attempt,
		     run_ending_word(run));
	}
	MUST(check, run_count_lines(check, session, dir) == -1,
	     "a late execute of a poisoned attempt started the command");
	run = late_execute(check, session, id, 3, dir);
	MUST(check, run_exited(run, 0), "execute of the attempt after the poisoned ones ended with %s",
	     run_ending_word(run));
	MUST(check, run_count_lines(check, session, dir) == 1, "the attempt after the poisoned ones did not run once");
	run = run_plan_reattach(check, session, id, 2);
	run_do(run);
	MUST(check, run->rc == ERR_OUTCOME_UNKNOWN && !strcmp(run->err.reason, "stale_attempt"),
	     "reattach of attempt 2, when attempt 3 has run, ended with %s (%s)", run_ending_word(run), run->err.reason);
}

struct duel {
	struct session *session;
	const char *id, *dir;
	struct run *runs[2];
};

static void duel_one(struct check *check, void *arg, unsigned i)
{
	struct duel *duel = arg;

	if (i == 0) {
		duel->runs[0] = late_execute(check, duel->session, duel->id, 1, duel->dir);
		return;
	}
	duel->runs[1] = run_plan_reattach(check, duel->session, duel->id, 1);
	run_do(duel->runs[1]);
}

/* Either it started, and reattach finds it; or it did not, and never will. */
void rule_poison_race(struct check *check)
{
	int rounds = check->kit->opt->stress ? 300 : 15;
	struct session *session = session_shared(check);

	for (int i = 0; session && i < rounds && !check_failed(check); i++) {
		const char *dir = file_dir(check);
		struct duel duel = {
			.session = session, .dir = dir, .id = check_printf(check, "r-%s-%s", check->kit->tag, dir)};
		int64_t lines;
		bool poisoned;

		check_threads(check, 2, duel_one, &duel);
		poisoned = duel.runs[1]->rc == ERR_NOT_STARTED;
		lines = run_count_lines(check, session, dir);
		MUST(check,
		     poisoned ? duel.runs[0]->rc == ERR_CONFLICT && lines == -1
			      : run_exited(duel.runs[1], 0) && lines == 1,
		     "reattach ended with %s, execute with %s, and the command ran %lld times",
		     run_ending_word(duel.runs[1]), run_ending_word(duel.runs[0]), (long long)(lines < 0 ? 0 : lines));
	}
}

void rule_forget(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check);
	struct run *run, *late;
	struct err err = {0};

	if (!session)
		return;
	run = run_plan(check, session, check_printf(check, "echo x >>%s", dir));
	run_do(run);
	MUST(check, run_exited(run, 0), "the command ended with %s", run_ending_word(run));
	for (int i = 0; i < 2; i++)
		MUST(check, !call_forget(check_call(check), &session->abi, check_execution(check, run->id, run->command.attempt), &err), "forget number %d " OK_FMT,
		     i + 1, OK_ARGS(err));
	late = run_plan_reattach(check, session, run->id, 1);
	run_do(late);
	MUST(check, late->rc == ERR_NOT_FOUND && !strcmp(late->err.reason, "forgotten"),
	     "after forget a reattach ended with %s (%s)", run_ending_word(late), late->err.reason);
	for (uint32_t attempt = 1; attempt <= 2; attempt++) {
		late = late_execute(check, session, run->id, attempt, dir);
		MUST(check, late->rc == ERR_CONFLICT, "after forget an execute of attempt %u ended with %s", attempt,
		     run_ending_word(late));
	}
	MUST(check, run_count_lines(check, session, dir) == 1, "after forget the command ran again");
	MUST(check, !call_forget(check_call(check), &session->abi, check_execution(check, check_printf(check, "never-%s", run->id), 1), &err),
	     "forget of an id that never was " OK_RC(err));
}

void rule_forget_running(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check);
	struct run *first = session ? two_halves(check, session, dir) : NULL;
	struct err err = {0};
	int rc;

	if (!first)
		return;
	rc = call_forget(check_call(check), &session->abi, check_execution(check, first->id, first->command.attempt), &err);
	MUST(check, !rc || rc == ERR_CONFLICT, "forget of a running command " OK_RC(err));
	if (!run_shell(check, session, check_printf(check, ": >%s.go", dir)))
		return;
	MUST(check, run_wait(first, 15000) && run_exited(first, 6),
	     "a command that was to be forgotten while it ran ended with %s", run_ending_word(first));
	must_hold(check, first, 0, "early\nlate\n");
}

/* A provider may take send_signal for what it is used for. */
static bool is_cancelled(const struct run *run)
{
	return !run->rc && run->ending.kind == BERTH_ENDING_CANCELLED;
}

void rule_signal_term(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check);
	struct err err = {0};
	struct run *run;

	if (!session)
		return;
	run = run_plan(
		check, session,
		check_printf(
			check,
			"sh -c 'trap \"echo child >>%s; exit 0\" TERM; echo $$ >%s.pid; while :; do sleep 0.05; done' "
			"&\n"
			"trap 'wait; echo told; exit 5' TERM; until [ -s %s.pid ]; do sleep 0.02; done; echo ready; "
			"while :; do sleep 0.05; done",
			dir, dir, dir));
	run_start(run);
	MUST(check, run_wait_output(run, "ready", 10000), "the command did not begin");
	MUST(check, !call_signal(check_call(check), &session->abi, check_execution(check, run->id, run->command.attempt), BERTH_SIGNAL_TERM, &err),
	     "send_signal " OK_RC(err));
	MUST(check, run_wait(run, 10000), "the command does not end though it was sent TERM");
	MUST(check, run_wait_output(run, "told", 0), "TERM did not reach the command, which ended with %s",
	     run_ending_word(run));
	MUST(check, run_exited(run, 5) || is_cancelled(run), "a command that handles TERM with exit 5 ended with %s",
	     run_ending_word(run));
	MUST(check, run_count_lines(check, session, dir) == 1, "TERM did not reach the command's child");
}

void rule_signal_kill(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check);
	struct err err = {0};
	struct run *run;

	if (!session)
		return;
	run = run_plan(check, session, stubborn_tree(check, dir, "wait"));
	run->command.timeout_ms = kit_ms(check->kit, 10000);
	run_start(run);
	MUST(check, run_wait_output(run, "ready", 10000), "the command did not begin");
	MUST(check, !call_signal(check_call(check), &session->abi, check_execution(check, run->id, run->command.attempt), BERTH_SIGNAL_KILL, &err),
	     "send_signal " OK_RC(err));
	MUST(check, run_wait(run, 10000), "the command does not end though it was killed");
	MUST(check,
	     is_cancelled(run) || (!run->rc && run->ending.kind == BERTH_ENDING_SIGNAL && run->ending.signal == 9),
	     "a killed command is reported as %s", run_ending_word(run));
	tree_gone(check, session, dir);
}

/* One that no minor will name soon. */
#define SIGNAL_UNKNOWN 9999u

void rule_signal_unknown(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check);
	struct run *run = session ? two_halves(check, session, dir) : NULL;
	struct err err = {0};
	int rc;

	if (!run)
		return;
	rc = call_signal(check_call(check), &session->abi, check_execution(check, run->id, run->command.attempt),
			 SIGNAL_UNKNOWN, &err);
	MUST(check, rc == ERR_UNSUPPORTED, "an unknown signal answers %s", kit_code(rc));
	if (!run_shell(check, session, check_printf(check, ": >%s.go", dir)))
		return;
	MUST(check, run_wait(run, 15000) && run_exited(run, 6), "a command after an unknown signal ended with %s",
	     run_ending_word(run));
	must_hold(check, run, 0, "early\nlate\n");
}

void rule_signal_none(struct check *check)
{
	struct session *session = session_shared(check);
	int64_t until = clock_after_ms(kit_ms(check->kit, 5000));
	struct err err = {0};
	struct run *run;
	int rc;

	if (!session)
		return;
	run = run_plan(check, session, "true");
	run_do(run);
	/* Who ran the command may take a moment longer than the command. */
	do
		rc = call_signal(check_call(check), &session->abi, check_execution(check, run->id, run->command.attempt), BERTH_SIGNAL_TERM, &err);
	while (!rc && clock_boot_ns() < until);
	MUST(check, rc == ERR_NOT_FOUND, "send_signal to a command that ended answers %s", kit_code(rc));
	rc = call_signal(check_call(check), &session->abi, check_execution(check, "never-was", 1), BERTH_SIGNAL_KILL, &err);
	MUST(check, rc == ERR_NOT_FOUND, "send_signal to a command that never was answers %s", kit_code(rc));
}

static int64_t expiry_of(struct check *check, struct session *session)
{
	struct call *call = check_call(check);
	const struct berth_session_info *infos;
	struct err err = {0};
	size_t count;

	MUST_OR(check, !call_inspect(call, &session->abi, &err), -1, "inspect " OK_RC(err));
	infos = call_sessions(call, &count);
	return infos[0].expires_ms;
}

/* One renewal to ms from now; what it answers is what inspect reports, and no less than before. */
static void renew_once(struct check *check, struct session *session, int64_t ms, int64_t *last)
{
	struct call *call = check_call(check);
	struct err err = {0};
	int64_t effective;

	MUST(check, !call_renew(call, &session->abi, clock_wall_ms() + ms, &err), "renew " OK_RC(err));
	effective = call_expiry(call);
	MUST(check, effective >= *last, "a renewal to %lld ms from now moved the expiry back by %lld ms", (long long)ms,
	     (long long)(*last - effective));
	MUST(check, effective == expiry_of(check, session), "renew answers another expiry than inspect");
	*last = effective;
}

/* What a provider grants may be less than what is asked, but a renewal must move something: where it grants a time from
 * now on, in seconds, that shows after two of them only. */
static void renew_moves(struct check *check, struct session *session, int64_t first, int64_t last)
{
	const struct timespec ticks = {.tv_sec = 2};

	if (last != first || last == BERTH_EXPIRES_NEVER)
		return;
	nanosleep(&ticks, NULL);
	renew_once(check, session, 3 * HOUR_MS, &last);
	MUST(check, last != first, "renewals do not move the expiry");
}

void rule_renew(struct check *check)
{
	struct session *session = session_plan(check, NULL);
	struct berth_spec spec = session_spec(session);
	static const int64_t asked[] = {2 * HOUR_MS, HOUR_MS / 2, 1000, 3 * HOUR_MS};
	int64_t now = clock_wall_ms(), first, last;

	spec.expires_ms = now + HOUR_MS;
	MUST(check, !session_provision(check, session, &spec), "provision with an expiry " OK_RC(session->err));
	first = last = expiry_of(check, session);
	MUST(check, first > now, "a session asked for with an expiry in an hour has the expiry %lld", (long long)first);
	for (size_t i = 0; i < sizeof(asked) / sizeof(*asked) && !check_failed(check); i++)
		renew_once(check, session, asked[i], &last);
	if (!check_failed(check))
		renew_moves(check, session, first, last);
}
