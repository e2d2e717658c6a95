/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of what is asked of a running call: stop, detach, deadline. */
#include "rules.h"

#define SOON_MS 5000
/* Of commands that are stopped before: so that they end when they are not. */
#define TIMEOUT_MS 8000
/* The contract says one second; the other is for a busy machine. */
#define DETACH_MS 2000

void rule_cancel_stop(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check);
	struct run *run;

	if (!session)
		return;
	run = run_plan(check, session, stubborn_tree(check, dir, "wait"));
	run->command.timeout_ms = kit_ms(check->kit, TIMEOUT_MS);
	run_start(run);
	MUST(check, run_wait_output(run, "ready", 10000), "the command did not begin");
	run_cancel(run, BERTH_CANCEL_STOP);
	MUST(check, run_wait(run, SOON_MS), "execute goes on for more than %d ms after a STOP", SOON_MS);
	MUST(check, !run->rc && run->ending.kind == BERTH_ENDING_CANCELLED, "a stopped command is reported as %s",
	     run_ending_word(run));
	if (tree_gone(check, session, dir))
		run_shell(check, session, "true");
}

void rule_cancel_flood(struct check *check)
{
	struct session *session = session_shared(check);
	struct run *run;

	if (!session)
		return;
	run = run_plan(check, session, "yes");
	run->command.stdout_max = 1 << 20;
	run->command.timeout_ms = kit_ms(check->kit, TIMEOUT_MS);
	run_start(run);
	MUST(check, run_wait_output(run, "y", 10000), "the command did not begin");
	run_cancel(run, BERTH_CANCEL_STOP);
	MUST(check, run_wait(run, SOON_MS), "execute of a command that never stops writing goes on after a STOP");
	MUST(check, !run->rc && run->ending.kind == BERTH_ENDING_CANCELLED, "a stopped command is reported as %s",
	     run_ending_word(run));
}

/* Detached, and the command goes on: it waits for a file that comes afterwards. */
void rule_detach(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check);
	int64_t begin_ns;
	struct run *run;

	if (!session)
		return;
	run = run_plan(
		check, session,
		check_printf(check, "echo ready; until [ -e %s.go ]; do sleep 0.05; done; echo x >>%s.done", dir, dir));
	run_start(run);
	MUST(check, run_wait_output(run, "ready", 10000), "the command did not begin");
	begin_ns = clock_boot_ns();
	run_cancel(run, BERTH_CANCEL_DETACH);
	MUST(check, run_wait(run, 10000), "execute does not return after a DETACH");
	MUST(check, run->rc == ERR_DETACHED, "a detached execute ended with %s", run_ending_word(run));
	MUST(check, run->end_ns - begin_ns < kit_ms(check->kit, DETACH_MS) * CLOCK_NS_PER_MS, "a DETACH took %lld ms",
	     (long long)((run->end_ns - begin_ns) / CLOCK_NS_PER_MS));
	if (run_shell(check, session, check_printf(check, ": >%s.go", dir)))
		run_until(check, session, check_printf(check, "[ -e %s.done ]", dir),
			  "a detached command does not go on");
}

void rule_deadline(struct check *check)
{
	struct session *session = session_shared(check);
	struct run *run;

	if (!session)
		return;
	run = run_plan(check, session, "sleep 15");
	run->command.timeout_ms = kit_ms(check->kit, 14000);
	run->limit_ms = kit_ms(check->kit, 500);
	run_start(run);
	MUST(check, run_wait(run, 500 + DETACH_MS), "execute goes on after its deadline");
	MUST(check, run->rc == ERR_PROVIDER_TIMEOUT || (!run->rc && run->ending.kind == BERTH_ENDING_UNKNOWN),
	     "execute past its deadline ended with %s", run_ending_word(run));
}

void rule_deadline_others(struct check *check)
{
	struct session *session = session_shared(check);

	for (int64_t ns = 2000; session && ns < 20000000; ns *= 4)
		for (int op = 0; op < 4; op++) {
			struct call *call = call_new(check->kit->target, clock_boot_ns() + ns, NULL);
			int64_t begin_ns = clock_boot_ns();
			struct err err = {0};
			int rc = op == 0   ? call_list(call, NULL, &err)
				 : op == 1 ? call_check(call, &err)
				 : op == 2 ? call_await_ready(call, &session->abi, &err)
					   : call_inspect(call, &session->abi, &err);

			call_free(call);
			MUST(check, clock_boot_ns() - begin_ns < ns + kit_ms(check->kit, DETACH_MS) * CLOCK_NS_PER_MS,
			     "an operation with a deadline of %lld us took %lld ms", (long long)ns / 1000,
			     (long long)((clock_boot_ns() - begin_ns) / CLOCK_NS_PER_MS));
			MUST(check, rc != ERR_INTERNAL, "an operation whose deadline passed " OK_RC(err));
		}
}
