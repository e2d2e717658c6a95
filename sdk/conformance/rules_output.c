/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of output: every byte, in order, none invented, and none lost without a word. */
#include "rules.h"

static bool is_counting(const struct buf *buf)
{
	for (size_t i = 0; i < buf->len; i++)
		if ((unsigned char)buf->ptr[i] != (unsigned char)i)
			return false;
	return buf->len == 256;
}

void rule_output_bytes(struct check *check)
{
	struct session *session = session_shared(check);
	struct buf *script = check_buf(check);
	struct run *run;

	if (!session)
		return;
	buf_puts(script, "p() { printf '");
	for (unsigned i = 0; i < 256; i++)
		buf_printf(script, "\\%03o", i);
	buf_puts(script, "'; }; p; p >&2");
	run = run_plan(check, session, script->ptr);
	run_do(run);
	MUST(check, run_exited(run, 0), "the command ended with %s", run_ending_word(run));
	MUST(check, is_counting(&run->out[0]), "256 bytes of standard output came as %zu, or changed", run->out[0].len);
	MUST(check, is_counting(&run->out[1]), "256 bytes of standard error came as %zu, or changed", run->out[1].len);
}

/* The lines of seq, checked as they come: taste_state[0] is the number whose line comes next, [1] what of it has come.
 */
static int taste_seq(struct run *run, unsigned stream, const char *ptr, size_t len)
{
	char line[24];
	size_t size = (size_t)snprintf(line, sizeof(line), "%llu\n", (unsigned long long)run->taste_state[0] + 1);

	if (stream)
		return 0;
	for (size_t i = 0; i < len; i++) {
		if (ptr[i] != line[run->taste_state[1]])
			return ERR_CORRUPT;
		if (++run->taste_state[1] < size)
			continue;
		run->taste_state[0]++;
		run->taste_state[1] = 0;
		size = (size_t)snprintf(line, sizeof(line), "%llu\n", (unsigned long long)run->taste_state[0] + 1);
	}
	return 0;
}

void rule_output_big(struct check *check)
{
	unsigned long long last = check->kit->opt->stress ? 12000000 : 2650000; /* 98 MB, 20 MB */
	struct session *session = session_shared(check);
	struct run *run;

	if (!session)
		return;
	run = run_plan(check, session, check_printf(check, "seq 1 %llu; exit 5", last));
	run->taste = taste_seq;
	run->command.stdout_max = UINT64_C(1) << 30;
	run->limit_ms = kit_ms(check->kit, 120000);
	run->command.timeout_ms = run->limit_ms;
	run_do(run);
	MUST(check, run->rc != ERR_CORRUPT,
	     "a byte is lost, changed or moved after line %llu of the output (byte %llu)",
	     (unsigned long long)run->taste_state[0], (unsigned long long)run->total[0]);
	MUST(check, run_exited(run, 5), "the command ended with %s", run_ending_word(run));
	MUST(check, run->taste_state[0] == last && run->gaps == 0, "of %llu lines %llu came", last,
	     (unsigned long long)run->taste_state[0]);
	MUST(check, run->ending.stdout_dropped == 0, "output below the limit is reported as dropped");
}

void rule_output_burst(struct check *check)
{
	struct session *session = session_shared(check);
	struct run *run;

	if (!session)
		return;
	run = run_plan(check, session, "head -c 4194304 /dev/zero; exit 3");
	run_do(run);
	MUST(check, run_exited(run, 3), "the command ended with %s", run_ending_word(run));
	MUST(check, run->out[0].len == 4194304, "of a last burst of 4194304 bytes %zu came", run->out[0].len);
	for (size_t i = 0; i < run->out[0].len; i++)
		MUST(check, !run->out[0].ptr[i], "a NUL came as %02x", (unsigned char)run->out[0].ptr[i]);
}

void rule_output_both(struct check *check)
{
	struct session *session = session_shared(check);
	struct run *run;
	char line[16];
	size_t at[2] = {0};

	if (!session)
		return;
	run = run_plan(check, session, "i=0; while [ $i -lt 1000 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done");
	run_do(run);
	MUST(check, run_exited(run, 0), "the command ended with %s", run_ending_word(run));
	for (int i = 0; i < 1000; i++)
		for (unsigned stream = 0; stream < 2; stream++) {
			size_t len = (size_t)snprintf(line, sizeof(line), "%c%d\n", "oe"[stream], i);

			MUST(check,
			     run->out[stream].len >= at[stream] + len &&
				     !memcmp(run->out[stream].ptr + at[stream], line, len),
			     "line %d of %s is not in its place", i, stream ? "standard error" : "standard output");
			at[stream] += len;
		}
	MUST(check, run->out[0].len == at[0] && run->out[1].len == at[1], "there is more output than was written");
}

void rule_output_silent(struct check *check)
{
	struct session *session = session_shared(check);
	struct run *run;

	if (!session)
		return;
	run = run_plan(check, session, ":");
	run_do(run);
	MUST(check, run_exited(run, 0), "the command ended with %s", run_ending_word(run));
	MUST(check, run->total[0] == 0 && run->total[1] == 0, "a silent command has %llu and %llu bytes of output",
	     (unsigned long long)run->total[0], (unsigned long long)run->total[1]);
}

void rule_output_limit(struct check *check)
{
	struct session *session = session_shared(check);
	struct run *run;

	if (!session)
		return;
	run = run_plan(check, session,
		       "head -c 300000 /dev/zero | tr '\\0' a; head -c 5000 /dev/zero | tr '\\0' b >&2; exit 2");
	run->command.stdout_max = 1000;
	run->command.stderr_max = 5000;
	run_do(run);
	MUST(check, run_exited(run, 2), "a command past its output limit ended with %s", run_ending_word(run));
	MUST(check, run->out[0].len == 1000 && run->ending.stdout_dropped == 299000,
	     "of 300000 bytes with a limit of 1000 came %zu, and %llu are reported as dropped", run->out[0].len,
	     (unsigned long long)run->ending.stdout_dropped);
	MUST(check, run->out[1].len == 5000 && run->ending.stderr_dropped == 0,
	     "of 5000 bytes with a limit of 5000 came %zu, and %llu are reported as dropped", run->out[1].len,
	     (unsigned long long)run->ending.stderr_dropped);
}

void rule_output_streams(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check);
	struct run *run;

	if (!session)
		return;
	run = run_plan(check, session,
		       check_printf(check, "echo early; until [ -e %s ]; do sleep 0.05; done; echo late", dir));
	run_start(run);
	MUST(check, run_wait_output(run, "early", 10000), "output does not come while the command runs");
	if (!run_shell(check, session, check_printf(check, ": >%s", dir)))
		return;
	MUST(check, run_wait(run, 10000) && run_exited(run, 0), "the command ended with %s", run_ending_word(run));
	MUST(check, run->out[0].len == 11, "the output has %zu bytes instead of 11", run->out[0].len);
}

void rule_output_refused(struct check *check)
{
	struct session *session = session_shared(check);
	struct run *run;

	if (!session)
		return;
	run = run_plan(check, session, "i=0; while [ $i -lt 100 ]; do echo x; sleep 0.1; i=$((i+1)); done");
	run->command.timeout_ms = kit_ms(check->kit, 9000);
	run->refuse = ERR_STORAGE_FULL;
	run_start(run);
	MUST(check, run_wait(run, 6000), "execute goes on though its output was refused");
	MUST(check, run->rc == ERR_STORAGE_FULL, "execute whose output was refused ended with %s",
	     run_ending_word(run));
}
