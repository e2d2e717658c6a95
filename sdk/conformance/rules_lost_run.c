/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules of commands whose answers are lost: the start, the stream, the stop. What the plugin leaves open is settled as
 * the host settles it, by reattach and by another attempt; then the command has run exactly once, which its own file
 * says.
 */
#include "rules_lost.h"

#define DEADLINE_MS 1200
#define LIMIT_MS 30000
#define SOON_MS 8000

/* The same command again and again, each with a file of its own. */
struct plan {
	const char *script; /* behind the line that counts */
	const char *out, *err;
	int code;
};

struct once {
	struct check *check;
	struct session *session;
	const struct plan *plan;
	const char *words; /* what went wrong */
	unsigned at;
	const char *file;
	struct run *run;
	struct buf *out[2]; /* of all calls together */
	bool ended;
};

static void keep_output(struct once *once, const struct run *run)
{
	for (unsigned i = 0; i < 2; i++)
		if (run->out[i].len)
			buf_append(once->out[i], run->out[i].ptr, run->out[i].len);
}

static struct run *plan_attempt(struct once *once, const char *id, uint32_t attempt)
{
	struct run *run = run_plan(once->check, once->session,
				   check_printf(once->check, "echo x >>%s\n%s", once->file, once->plan->script));

	if (id) {
		snprintf(run->id, sizeof(run->id), "%s", id);
		run->command.execution_id = str(run->id);
	}
	run->command.attempt = attempt;
	run->limit_ms = kit_ms(once->check->kit, LIMIT_MS);
	return run;
}

static void begin_once(struct once *once)
{
	once->file = file_dir(once->check);
	for (unsigned i = 0; i < 2; i++)
		once->out[i] = check_buf(once->check);
	once->run = plan_attempt(once, NULL, 1);
}

/* Nothing ran, says the plugin. */
static bool denies(const struct run *run)
{
	return run->rc == ERR_PROVIDER_UNAVAILABLE || run->rc == ERR_RATE_LIMITED || run->rc == ERR_CAPACITY ||
	       run->rc == ERR_NOT_STARTED;
}

static bool may_be_open(const struct run *run)
{
	return run->rc == ERR_OUTCOME_UNKNOWN || run->rc == ERR_PROVIDER_TIMEOUT || run->rc == ERR_CONFLICT ||
	       denies(run) || (!run->rc && run->ending.kind == BERTH_ENDING_UNKNOWN);
}

static void must_be_whole(struct once *once, const struct run *run)
{
	const char *want[] = {once->plan->out, once->plan->err};
	struct check *check = once->check;

	MUST(check, run_exited(run, once->plan->code), "a command %s (exchange %u) ended with %s instead of exit %d",
	     once->words, once->at, run_ending_word(run), once->plan->code);
	for (unsigned i = 0; i < 2; i++) {
		size_t len = strlen(want[i]);

		MUST(check, once->out[i]->len == len && (!len || !memcmp(once->out[i]->ptr, want[i], len)),
		     "a command %s (exchange %u) has %zu bytes of stream %u, not the %zu that it wrote", once->words,
		     once->at, once->out[i]->len, i + 1, len);
	}
	once->ended = true;
}

/* As the host does with an answer that leaves it open: asks for the command, and runs it again once that is safe. */
static void settle(struct once *once)
{
	struct check *check = once->check;
	struct run *run = once->run, *again;
	bool sign = run->started || run->total[0] || run->total[1];

	if (denies(run) && !sign) {
		again = plan_attempt(once, run->id, 2);
	} else if (check->kit->capabilities & BERTH_CAP_REATTACH) {
		again = run_plan_reattach(check, once->session, run->id, 1);
		again->limit_ms = kit_ms(check->kit, LIMIT_MS);
		again->resume.stdout_offset = once->out[0]->len;
		again->resume.stderr_offset = once->out[1]->len;
	} else {
		return; /* it ends as unknown */
	}
	run_do(again);
	if (again->is_reattach && again->rc == ERR_NOT_STARTED) {
		MUST(check, !sign, "a command %s gave output, and then had not started", once->words);
		again = plan_attempt(once, run->id, 2);
		run_do(again);
	}
	keep_output(once, again);
	must_be_whole(once, again);
}

/* Runs it with the fault, settles it, counts. */
static void run_once(struct once *once, const struct fault *fault)
{
	struct check *check = once->check;
	struct run *run;
	int64_t lines;

	begin_once(once);
	run = once->run;
	if (fault->kind == FAULT_DELAY)
		run->limit_ms = kit_ms(check->kit, DEADLINE_MS);
	fault_arm(fault);
	run_do(run);
	fault_disarm();
	keep_output(once, run);
	if (!lost_said(check, run->rc, &run->err, "execute"))
		return;
	if (!run->rc && run->ending.kind != BERTH_ENDING_UNKNOWN)
		must_be_whole(once, run);
	else if (may_be_open(run))
		settle(once);
	else
		check_fail(check, "execute %s (exchange %u) ended with %s", once->words, once->at,
			   run_ending_word(run));
	if (check_failed(check))
		return;
	lines = run_count_lines(check, once->session, once->file);
	MUST(check, lines == 1 || (!once->ended && lines < 1), "a command %s (exchange %u) ran %lld times", once->words,
	     once->at, (long long)lines);
}

/* The undisturbed run: how many exchanges, and how large their answers. */
static unsigned measure(struct check *check, struct session *session, const struct plan *plan,
			uint64_t sizes[LOST_EXCHANGES])
{
	struct once once = {.check = check, .session = session, .plan = plan, .words = "that was not disturbed"};
	unsigned count;

	begin_once(&once);
	fault_arm(&(struct fault){.kind = FAULT_NONE});
	run_do(once.run);
	count = fault_seen() < LOST_EXCHANGES ? fault_seen() : LOST_EXCHANGES;
	for (unsigned i = 0; i < count; i++)
		sizes[i] = fault_body(i + 1);
	keep_output(&once, once.run);
	must_be_whole(&once, once.run);
	return check_failed(check) ? 0 : count;
}

static const struct {
	const char *words;
	struct fault fault;
} starts[] = {
	{"whose connection broke before the answer", {.kind = FAULT_LOSE}},
	{"whose answer was lost", {.kind = FAULT_LOSE_LATE}},
	{"whose answer was empty", {.kind = FAULT_SHORT}},
	{"whose answer was garbage", {.kind = FAULT_GARBAGE, .body = LOST_HTML}},
	{"that ran and was answered with 500", {.kind = FAULT_AFTER, .status = 500, .body = LOST_HTML}},
	{"that ran and was answered with 502", {.kind = FAULT_AFTER, .status = 502}},
	{"that did not run and was answered with 500", {.kind = FAULT_ANSWER, .status = 500, .body = LOST_HTML}},
	{"that did not run and was answered with 503", {.kind = FAULT_ANSWER, .status = 503, .body = LOST_HTML}},
	{"that did not run and was answered with 204", {.kind = FAULT_ANSWER, .status = 204}},
	{"whose connection was refused", {.kind = FAULT_REFUSE}},
	{"whose answer came after the deadline", {.kind = FAULT_DELAY}},
};

void rule_lost_execute(struct check *check)
{
	static const struct plan plan = {"echo alpha; echo beta >&2; exit 7", "alpha\n", "beta\n", 7};
	struct session *session = session_shared(check);
	uint64_t sizes[LOST_EXCHANGES];
	unsigned count = session ? measure(check, session, &plan, sizes) : 0;

	for (unsigned at = 1; at <= count; at++)
		for (size_t k = 0; k < LOST_COUNT(starts) && !check_failed(check); k++) {
			struct once once = {
				.check = check, .session = session, .plan = &plan, .words = starts[k].words, .at = at};
			struct fault fault = starts[k].fault;

			fault.at = at;
			run_once(&once, &fault);
		}
	fault_disarm();
}

static void cut_at(struct check *check, struct session *session, const struct plan *plan, unsigned at, uint64_t bytes,
		   bool broken)
{
	struct once once = {.check = check, .session = session, .plan = plan, .at = at};
	const struct fault fault = {.kind = broken ? FAULT_CUT : FAULT_SHORT, .at = at, .bytes = bytes};

	once.words = check_printf(check, "whose stream %s after %llu bytes", broken ? "broke" : "ended",
				  (unsigned long long)bytes);
	run_once(&once, &fault);
}

/* Short enough that it can be cut at every byte. */
static void cut_everywhere(struct check *check, struct session *session)
{
	static const struct plan plan = {"echo 0123456789; echo beta >&2; echo gamma; exit 5", "0123456789\ngamma\n",
					 "beta\n", 5};
	uint64_t sizes[LOST_EXCHANGES];
	unsigned count = measure(check, session, &plan, sizes);

	for (unsigned at = 1; at <= count; at++) {
		uint64_t step = check->kit->opt->stress ? 1 : sizes[at - 1] / 24 + 1;

		for (uint64_t bytes = 0; bytes <= sizes[at - 1] && !check_failed(check); bytes += step) {
			cut_at(check, session, &plan, at, bytes, true);
			if (!check_failed(check))
				cut_at(check, session, &plan, at, bytes, false);
		}
	}
}

static void cut_big(struct check *check, struct session *session)
{
	struct buf *want = check_buf(check);
	const uint64_t places[] = {1, 70000, 200001, 300000};
	uint64_t sizes[LOST_EXCHANGES];
	struct plan plan = {"seq 1 40000; seq 40001 60000 >&2; seq 60001 70000; exit 3", NULL, NULL, 3};
	struct buf *want_err = check_buf(check);
	unsigned count;

	for (unsigned i = 1; i <= 70000; i++)
		buf_printf(i > 40000 && i <= 60000 ? want_err : want, "%u\n", i);
	plan.out = want->ptr;
	plan.err = want_err->ptr;
	count = measure(check, session, &plan, sizes);
	for (unsigned at = 1; at <= count; at++)
		for (size_t i = 0; i < LOST_COUNT(places) && !check_failed(check); i++)
			if (places[i] < sizes[at - 1])
				cut_at(check, session, &plan, at, places[i], i % 2);
}

void rule_lost_stream(struct check *check)
{
	struct session *session = session_shared(check);

	if (session)
		cut_everywhere(check, session);
	if (session && !check_failed(check))
		cut_big(check, session);
	fault_disarm();
}

/* ---- reattach ---- */

/* To a command that has ended: whatever comes, it has started. */
static const struct misfortune resumes[] = {
	{"whose connection broke before the answer", {.kind = FAULT_LOSE}, false},
	{"whose answer was lost", {.kind = FAULT_LOSE_LATE}, false},
	{"whose stream broke off", {.kind = FAULT_CUT}, true},
	{"whose stream ended early", {.kind = FAULT_SHORT}, true},
	{"whose answer was empty", {.kind = FAULT_SHORT}, false},
	{"whose answer was garbage", {.kind = FAULT_GARBAGE, .body = LOST_HTML}, false},
	{"that was answered by a stranger's 404", {.kind = FAULT_ANSWER, .status = 404, .body = LOST_HTML}, false},
	{"that was answered by an empty 404", {.kind = FAULT_ANSWER, .status = 404}, false},
	{"that was answered with 204", {.kind = FAULT_ANSWER, .status = 204}, false},
	{"that was answered with 500", {.kind = FAULT_ANSWER, .status = 500, .body = LOST_HTML}, false},
	{"whose connection was refused", {.kind = FAULT_REFUSE}, false},
};

static void resume_with(struct once *once, const struct misfortune *misfortune, uint64_t half, bool for_good)
{
	struct check *check = once->check;
	struct run *again = run_plan_reattach(check, once->session, once->run->id, 1);
	struct fault fault = misfortune->fault;

	once->words = misfortune->words;
	for (unsigned i = 0; i < 2; i++)
		buf_clear(once->out[i]);
	fault.at = for_good ? 0 : once->at;
	if (misfortune->half)
		fault.bytes = half;
	again->limit_ms = kit_ms(check->kit, for_good ? 2 * LOST_FOR_GOOD_MS : LIMIT_MS);
	fault_arm(&fault);
	run_do(again);
	fault_disarm();
	keep_output(once, again);
	if (!lost_said(check, again->rc, &again->err, "reattach"))
		return;
	MUST(check, again->rc != ERR_NOT_STARTED && again->rc != ERR_NOT_FOUND && again->rc != ERR_SESSION_GONE,
	     "a reattach %s says %s of a command that ran", misfortune->words, kit_code(again->rc));
	if (!again->rc && again->ending.kind != BERTH_ENDING_UNKNOWN) {
		must_be_whole(once, again);
		return;
	}
	again = run_plan_reattach(check, once->session, once->run->id, 1);
	again->resume.stdout_offset = once->out[0]->len;
	again->resume.stderr_offset = once->out[1]->len;
	fault_arm(&(struct fault){.kind = FAULT_NONE});
	run_do(again);
	keep_output(once, again);
	must_be_whole(once, again);
}

void rule_lost_reattach(struct check *check)
{
	static const struct plan plan = {"echo one; echo two >&2; echo three; exit 9", "one\nthree\n", "two\n", 9};
	struct once once = {
		.check = check, .session = session_shared(check), .plan = &plan, .words = "that was not disturbed"};
	uint64_t sizes[LOST_EXCHANGES];
	struct run *again;
	unsigned count;

	if (!once.session)
		return;
	begin_once(&once);
	run_do(once.run);
	fault_arm(&(struct fault){.kind = FAULT_NONE});
	again = run_plan_reattach(check, once.session, once.run->id, 1);
	run_do(again);
	keep_output(&once, again);
	must_be_whole(&once, again);
	count = fault_seen() < LOST_EXCHANGES ? fault_seen() : LOST_EXCHANGES;
	for (unsigned i = 0; i < count; i++)
		sizes[i] = fault_body(i + 1);
	for (once.at = 1; once.at <= count; once.at++)
		for (size_t k = 0; k < LOST_COUNT(resumes); k++)
			for (int for_good = 0; for_good < 2 && !check_failed(check); for_good++)
				resume_with(&once, &resumes[k], sizes[once.at - 1] / 2, for_good);
	fault_disarm();
	MUST(check, check_failed(check) || run_count_lines(check, once.session, once.file) == 1,
	     "a reattach started the command again");
}

/* ---- stop ---- */

static const struct {
	const char *words;
	struct fault fault;
} stops[] = {
	{"whose connection broke before the answer", {.kind = FAULT_LOSE, .at = 1}},
	{"whose answer was lost", {.kind = FAULT_LOSE_LATE, .at = 1}},
	{"that took effect and was answered with 500",
	 {.kind = FAULT_AFTER, .at = 1, .status = 500, .body = LOST_HTML}},
	{"that was answered with 500", {.kind = FAULT_ANSWER, .at = 1, .status = 500, .body = LOST_HTML}},
	{"that was answered by a stranger's 404", {.kind = FAULT_ANSWER, .at = 1, .status = 404, .body = LOST_HTML}},
	{"whose answer was garbage", {.kind = FAULT_GARBAGE, .at = 1, .body = LOST_HTML}},
	{"whose connection was refused", {.kind = FAULT_REFUSE, .at = 1}},
	{"that was answered with 401", {.kind = FAULT_ANSWER, .status = 401, .body = LOST_HTML}},
	{"that was answered with 403", {.kind = FAULT_ANSWER, .status = 403, .body = LOST_HTML}},
	{"that was answered with 429", {.kind = FAULT_ANSWER, .status = 429, .body = LOST_HTML}},
	{"that no connection was to be had for", {.kind = FAULT_REFUSE}},
};

/* It runs: whatever was said to its stop is no refusal of the command, and the host would believe one. */
static bool leaves_open(const struct run *run)
{
	return !run->rc || run->rc == ERR_OUTCOME_UNKNOWN || run->rc == ERR_PROVIDER_TIMEOUT ||
	       run->rc == ERR_CANCELLED;
}

/* Stopped again through reattach, as the host does when the stop's own call failed. */
static void stop_again(struct check *check, struct session *session, const struct run *first, const char *words)
{
	struct run *again;

	if (!(check->kit->capabilities & BERTH_CAP_REATTACH))
		return;
	again = run_plan_reattach(check, session, first->id, 1);
	run_start(again);
	MUST(check, run_wait_output(again, "ready", 10000), "reattach after a failed stop ended with %s",
	     run_ending_word(again));
	run_cancel(again, BERTH_CANCEL_STOP);
	MUST(check, run_wait(again, SOON_MS), "reattach goes on after a STOP");
	MUST(check, !again->rc && again->ending.kind == BERTH_ENDING_CANCELLED,
	     "a command whose stop was one %s, and that is stopped again, ended with %s", words,
	     run_ending_word(again));
}

static void stop_with(struct check *check, struct session *session, size_t k)
{
	const char *dir = file_dir(check);
	struct run *run = run_plan(check, session, stubborn_tree(check, dir, "wait"));

	run->command.timeout_ms = kit_ms(check->kit, 3 * SOON_MS);
	run_start(run);
	MUST(check, run_wait_output(run, "ready", 10000), "the command did not begin");
	fault_arm(&stops[k].fault);
	run_cancel(run, BERTH_CANCEL_STOP);
	MUST(check, run_wait(run, SOON_MS), "execute goes on for more than %d ms after a STOP %s", SOON_MS,
	     stops[k].words);
	fault_disarm();
	if (!lost_said(check, run->rc, &run->err, "a stopped execute"))
		return;
	MUST(check, leaves_open(run),
	     "a command that runs, and whose stop was one %s, is reported as %s, as if it did not", stops[k].words,
	     kit_code(run->rc));
	if (run->rc)
		stop_again(check, session, run, stops[k].words);
	else
		MUST(check, run->ending.kind == BERTH_ENDING_CANCELLED || run->ending.kind == BERTH_ENDING_UNKNOWN,
		     "a command whose stop was one %s is reported as %s", stops[k].words, run_ending_word(run));
	if (!check_failed(check) && (!run->rc || (check->kit->capabilities & BERTH_CAP_REATTACH)))
		tree_gone(check, session, dir);
}

void rule_lost_cancel(struct check *check)
{
	struct session *session = session_shared(check);

	for (size_t k = 0; session && k < LOST_COUNT(stops) && !check_failed(check); k++)
		stop_with(check, session, k);
	fault_disarm();
}
