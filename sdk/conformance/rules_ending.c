/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of how commands end, and that nothing of them stays which was not asked to. */
#include "rules.h"

#define OOM_MOST (UINT64_C(4) << 30)

/* A child of the session's own, one that escapes its session, and one that ignores TERM; each leaves its process id. */
#define STUBBORN_TREE                                                                                                  \
	"setsid sh -c 'echo $$ >%s-escaped; while :; do sleep 0.1; done' &\n"                                          \
	"sh -c 'trap \"\" TERM; echo $$ >%s-deaf; while :; do sleep 0.1; done' &\n"                                    \
	"sh -c 'echo $$ >%s-plain; while :; do sleep 0.1; done' &\n"                                                   \
	"until [ -s %s-escaped ] && [ -s %s-deaf ] && [ -s %s-plain ]; do sleep 0.02; done\n"                          \
	"echo ready\n"

char *stubborn_tree(struct check *check, const char *dir, const char *rest)
{
	return check_printf(check, STUBBORN_TREE "%s", dir, dir, dir, dir, dir, dir, rest);
}

bool tree_gone(struct check *check, struct session *session, const char *dir)
{
	static const char *const names[] = {"escaped", "deaf", "plain"};

	for (size_t i = 0; i < 3; i++)
		if (!run_pid_gone(check, session, check_printf(check, "%s-%s", dir, names[i])))
			return false;
	return true;
}

void rule_exit(struct check *check)
{
	static const int codes[] = {0, 1, 7, 124, 137, 255};
	struct session *session = session_shared(check);

	for (size_t i = 0; session && i < sizeof(codes) / sizeof(*codes); i++) {
		struct run *run = run_plan(check, session, check_printf(check, "exit %d", codes[i]));

		run_do(run);
		MUST(check, run_exited(run, codes[i]), "exit %d is reported as %s", codes[i], run_ending_word(run));
	}
}

/* Scripts as people write them; each has an ending of its own. */
void rule_script_forms(struct check *check)
{
	static const struct {
		const char *script;
		int code;
	} forms[] = {
		{"exit 3", 3},
		{"cat <<E\nx\nE\nexit 4\n", 4},
		{"(exit 5)\n# the last line is a comment", 5},
		{"exec sh -c 'exit 6'", 6},
		{"false", 1},
		{"", 0},
		{"true &", 0},
		{"echo \\\n", 0},
	};
	struct session *session = session_shared(check);

	for (size_t i = 0; session && i < sizeof(forms) / sizeof(*forms); i++) {
		struct run *run = run_plan(check, session, forms[i].script);

		run_do(run);
		MUST(check, run_exited(run, forms[i].code), "script %zu ended with %s instead of exit %d", i + 1,
		     run_ending_word(run), forms[i].code);
	}
}

void rule_signal_ending(struct check *check)
{
	static const int signals[] = {9, 15, 11};
	struct session *session = session_shared(check);

	for (size_t i = 0; session && i < sizeof(signals) / sizeof(*signals); i++) {
		struct run *run = run_plan(check, session, check_printf(check, "kill -%d $$; sleep 5", signals[i]));

		run_do(run);
		MUST(check, !run->rc && run->ending.kind == BERTH_ENDING_SIGNAL && run->ending.signal == signals[i],
		     "a command killed by signal %d is reported as %s", signals[i], run_ending_word(run));
	}
}

void rule_timeout(struct check *check)
{
	static const char *const scripts[] = {"sleep 30", "sleep 30 & wait", "sh -c 'sleep 30' | cat"};
	struct session *session = session_shared(check);

	for (size_t i = 0; session && i < 3; i++) {
		struct run *run = run_plan(check, session, scripts[i]);

		run->command.timeout_ms = 200;
		run_do(run);
		MUST(check, !run->rc && run->ending.kind == BERTH_ENDING_TIMEOUT,
		     "a command past its timeout is reported as %s", run_ending_word(run));
		MUST(check, run_took_ms(run) < kit_ms(check->kit, 8000), "a timeout of 200 ms took %lld ms",
		     (long long)run_took_ms(run));
		MUST(check, run->ending.duration_ms >= 200, "a timeout of 200 ms is reported after %lld ms",
		     (long long)run->ending.duration_ms);
	}
}

void rule_timeout_tree(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check);
	struct run *run;

	if (!session)
		return;
	run = run_plan(check, session, stubborn_tree(check, dir, "wait"));
	run->command.timeout_ms = kit_ms(check->kit, 1000); /* for the tree to be there */
	run_do(run);
	MUST(check, !run->rc && run->ending.kind == BERTH_ENDING_TIMEOUT,
	     "a command past its timeout is reported as %s", run_ending_word(run));
	MUST(check, run->ending.quiescent != BERTH_QUIESCENT_NO, "the timeout is reported with processes left");
	tree_gone(check, session, dir);
}

void rule_background(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check);
	struct run *run;

	if (!session)
		return;
	run = run_plan(check, session, stubborn_tree(check, dir, "exit 3"));
	run_do(run);
	MUST(check, run_exited(run, 3), "a command with children in the background ended with %s",
	     run_ending_word(run));
	MUST(check, run_took_ms(run) < kit_ms(check->kit, 8000),
	     "children in the background delayed the ending by %lld ms", (long long)run_took_ms(run));
	MUST(check, run->out[0].len == 6, "the output before the ending has %zu bytes instead of 6", run->out[0].len);
	MUST(check, run->ending.survivors >= 3, "three children outlived the command and %u are reported",
	     run->ending.survivors);
	tree_gone(check, session, dir);
}

/* The shell itself takes it: what a child's end means is the script's own affair. */
void rule_oom(struct check *check)
{
	struct session *session = session_make(check, NULL);
	struct run *run;

	if (!session)
		return;
	if (!session->memory_bytes || session->memory_bytes > OOM_MOST) {
		check_skip(check, session->memory_bytes ? "the session's memory limit of more than 4 GiB is not filled"
							: "the session reports no memory limit");
		return;
	}
	run = run_plan(check, session, "echo on; x=0123456789abcdef; while :; do x=$x$x; done");
	run_do(run);
	MUST(check, run->rc == ERR_SESSION_GONE || (!run->rc && (run->ending.kind == BERTH_ENDING_OOM ||
								   run->ending.kind == BERTH_ENDING_SESSION_LOST)),
	     "a command that takes more than the %llu MiB of its session ended with %s",
	     (unsigned long long)(session->memory_bytes >> 20), run_ending_word(run));
	if (!run->rc && run->ending.kind == BERTH_ENDING_OOM)
		run_shell(check, session, "true");
}

static void end_kept(struct check *check, struct session *session, const char *file)
{
	run_shell(check, session, check_printf(check, "kill -9 $(cat %s)", file));
}

void rule_keep(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check);
	struct run *run;

	if (!session)
		return;
	/* It writes to a standard output that nobody reads any more. */
	run = run_plan(
		check, session,
		check_printf(check,
			     "sh -c 'echo $$ >%s; while :; do echo tick; echo tick >>%s.beat; sleep 0.05; done' &\n"
			     "until [ -s %s.beat ]; do sleep 0.02; done; exit 4",
			     dir, dir, dir));
	run->command.keep_descendants = 1;
	run_do(run);
	MUST(check, run_exited(run, 4), "a command with a kept child ended with %s", run_ending_word(run));
	MUST(check, run_took_ms(run) < kit_ms(check->kit, 8000), "a kept child delayed the ending by %lld ms",
	     (long long)run_took_ms(run));
	MUST(check, run->ending.survivors >= 1, "a kept child is not counted as survivor");
	if (run_until(check, session,
		      check_printf(
			      check,
			      "a=$(wc -l <%s.beat); sleep 0.2; b=$(wc -l <%s.beat); [ $b -gt $a ] && kill -0 $(cat %s)",
			      dir, dir, dir),
		      "a kept child does not live on after the command's ending"))
		end_kept(check, session, dir);
}

void rule_quiescent(struct check *check)
{
	struct session *session = session_shared(check);
	struct run *run;

	if (!session)
		return;
	run = run_plan(check, session, "sleep 0.2; true | true");
	run_do(run);
	MUST(check, run_exited(run, 0), "the command ended with %s", run_ending_word(run));
	MUST(check, run->ending.survivors == 0 && run->ending.quiescent != BERTH_QUIESCENT_NO,
	     "a command that left nothing is reported with %u survivors, quiescent %u", run->ending.survivors,
	     run->ending.quiescent);
	MUST(check, run->ending.duration_ms >= 200 && run->ending.duration_ms <= run_took_ms(run),
	     "a command of 200 ms, which took %lld ms for the caller, is reported with %lld ms",
	     (long long)run_took_ms(run), (long long)run->ending.duration_ms);
}

void rule_started(struct check *check)
{
	struct session *session = session_shared(check);
	struct run *run;

	if (!session)
		return;
	run = run_plan(check, session, "true");
	run_do(run);
	MUST(check, run_exited(run, 0), "the command ended with %s", run_ending_word(run));
	MUST(check, run->started <= 1, "started() was called %u times", run->started);
}

void rule_many(struct check *check)
{
	struct session *session = session_shared(check);
	int count = check->kit->opt->stress ? 1000 : 20;

	for (int i = 0; session && i < count; i++) {
		struct run *run = run_plan(check, session, "printf x; exit 7");

		run_do(run);
		MUST(check, run_exited(run, 7), "command %d of %d ended with %s", i + 1, count, run_ending_word(run));
		MUST(check, run->out[0].len == 1 && run->out[0].ptr[0] == 'x',
		     "command %d of %d has %zu bytes of output instead of 1", i + 1, count, run->out[0].len);
	}
}
