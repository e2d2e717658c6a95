/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of what a command gets: script, standard input, environment, working directory. */
#include "rules.h"

#include <fcntl.h>
#include <unistd.h>

#define BIG ((size_t)1 << 20)
#define MARK "CONFORMANCE_MARK_OF_A_SCRIPT"

void rule_stdin_empty(struct check *check)
{
	struct session *session = session_shared(check);
	struct run *run;

	if (!session)
		return;
	run = run_plan(check, session, "cat; read x; echo \"$?\"");
	run->command.timeout_ms = kit_ms(check->kit, 5000);
	run_do(run);
	MUST(check, run_exited(run, 0) && run->out[0].len == 2 && run->out[0].ptr[0] == '1',
	     "a command without input does not read end of file at once: %s", run_ending_word(run));
	MUST(check, run_took_ms(run) < kit_ms(check->kit, 8000), "reading nothing took %lld ms",
	     (long long)run_took_ms(run));
}

void rule_stdin_exact(struct check *check)
{
	struct session *session = session_shared(check);
	char *input = check_alloc(check, BIG);
	struct run *run;

	if (!session)
		return;
	file_fill(input, BIG, 1);
	run = run_plan(check, session, "cat");
	run->input = input;
	run->input_len = BIG;
	run_do(run);
	MUST(check, run_exited(run, 0), "cat of 1 MiB of input ended with %s", run_ending_word(run));
	MUST(check, run->out[0].len == BIG && !memcmp(run->out[0].ptr, input, BIG),
	     "1 MiB of standard input came back as %zu bytes, or changed", run->out[0].len);
}

void rule_stdin_unread(struct check *check)
{
	struct session *session = session_shared(check);
	struct run *run;

	if (!session)
		return;
	run = run_plan(check, session, "exit 6");
	run->input = check_alloc(check, BIG);
	run->input_len = BIG;
	run_do(run);
	MUST(check, run_exited(run, 6), "a command that does not read its input ended with %s", run_ending_word(run));
}

void rule_script_file(struct check *check)
{
	struct session *session = session_shared(check);
	struct run *run;

	if (!session)
		return;
	run = run_plan(check, session,
		       ": " MARK "\ntr '\\0' ' ' </proc/$$/cmdline; [ -r /proc/$$/cmdline ] || echo none");
	run_do(run);
	MUST(check, run_exited(run, 0) && run->out[0].len, "looking at the own command line ended with %s",
	     run_ending_word(run));
	MUST(check, !strstr(run->out[0].ptr, MARK), "the script is an argument of the command: %.100s",
	     run->out[0].ptr);
}

void rule_script_big(struct check *check)
{
	struct session *session = session_shared(check);
	struct buf *script = check_buf(check);
	struct run *run;

	if (!session)
		return;
	while (script->len + 128 < BIG)
		buf_puts(script, ": a script may be long, longer than any argument could be\n");
	buf_puts(script, "printf done; exit 9");
	run = run_plan(check, session, script->ptr);
	run_do(run);
	MUST(check, run_exited(run, 9) && run->out[0].len == 4, "a script of 1 MiB ended with %s",
	     run_ending_word(run));
}

void rule_script_bytes(struct check *check)
{
	struct session *session = session_shared(check);
	struct run *run;

	if (!session)
		return;
	run = run_plan(check, session, "printf %s '\xff\xfe\xc3\x28\x01\x7f\t'");
	run_do(run);
	MUST(check, run_exited(run, 0), "a script with bytes that are no UTF-8 ended with %s", run_ending_word(run));
	MUST(check, run->out[0].len == 7 && !memcmp(run->out[0].ptr, "\xff\xfe\xc3\x28\x01\x7f\t", 7),
	     "bytes of a script changed");
}

void rule_env_exact(struct check *check)
{
	struct session *session = session_shared(check);
	char *big = check_alloc(check, 100001);
	const char *const values[] = {"a b", "'\"`", "$(id) $HOME \\n", "line\nline", "\t", "\xff\xfe\xc3\x28",
				      "",    big};

	memset(big, 'v', 100000);
	for (size_t i = 0; session && i < sizeof(values) / sizeof(*values); i++) {
		const struct berth_pair pair = {str("CONFORMANCE_V"), str(values[i])};
		struct run *run =
			run_plan(check, session, "printf %s \"$CONFORMANCE_V\"; [ \"${CONFORMANCE_V+set}\" ]");

		run->command.env = &pair;
		run->command.env_count = 1;
		run_do(run);
		MUST(check, run_exited(run, 0), "with value %zu of the environment the command ended with %s", i + 1,
		     run_ending_word(run));
		MUST(check,
		     run->out[0].len == pair.value.len &&
			     (!pair.value.len || !memcmp(run->out[0].ptr, values[i], pair.value.len)),
		     "value %zu of the environment is not byte exact", i + 1);
	}
}

void rule_env_session(struct check *check)
{
	struct session *session = session_plan(check, NULL);
	const struct berth_pair pairs[] = {{str("CONFORMANCE_A"), str("from the session")},
					   {str("CONFORMANCE_B"), str("x y")}};
	struct berth_spec spec = session_spec(session);
	struct run *run;

	spec.env = pairs;
	spec.env_count = 2;
	MUST(check, !session_provision(check, session, &spec) && !session_await(check, session),
	     "provision with an environment " OK_RC(session->err));
	run = run_plan(check, session, "printf '%s|%s' \"$CONFORMANCE_A\" \"$CONFORMANCE_B\"");
	run->command.env = &(struct berth_pair){str("CONFORMANCE_A"), str("from the command")};
	run->command.env_count = 1;
	run_do(run);
	MUST(check, run_exited(run, 0) && run->out[0].len == 20 && !memcmp(run->out[0].ptr, "from the command|x y", 20),
	     "the session's environment, overridden by the command's, is \"%.60s\"",
	     run->out[0].len ? run->out[0].ptr : "");
}

void rule_env_clean(struct check *check)
{
	struct session *session = session_shared(check);
	const char *text = session ? run_shell(check, session, "env") : NULL;

	MUST(check, !text || !strstr(text, KIT_SECRET_NAME),
	     "a variable of the host's own environment is seen by commands");
}

void rule_cwd(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check);
	struct run *run;

	if (!session || !run_shell(check, session, check_printf(check, "mkdir -p '%s/in side'", dir)))
		return;
	run = run_plan(check, session, "pwd -P");
	run->command.cwd = str(check_printf(check, "%s/in side", dir));
	run_do(run);
	MUST(check, run_exited(run, 0), "a command in a folder ended with %s", run_ending_word(run));
	MUST(check, run->out[0].len > 9 && strstr(run->out[0].ptr, "/in side\n"),
	     "a command in a folder runs in %.100s", run->out[0].len ? run->out[0].ptr : "nothing");
	run = run_plan(check, session, "pwd");
	run_do(run);
	MUST(check,
	     run_exited(run, 0) && run->out[0].len == strlen(session->root) + 1 &&
		     !memcmp(run->out[0].ptr, session->root, strlen(session->root)),
	     "a command in \".\" runs in %.100s, the root is %.100s", run->out[0].len ? run->out[0].ptr : "nothing",
	     session->root);
}

void rule_cwd_refused(struct check *check)
{
	struct session *session = session_shared(check);
	const char *dir = file_dir(check);
	const char *bad[3];

	if (!session || !run_shell(check, session, check_printf(check, ": >%s.file; ln -s / %s.link", dir, dir)))
		return;
	bad[0] = check_printf(check, "%s.none", dir);
	bad[1] = check_printf(check, "%s.file", dir);
	bad[2] = check_printf(check, "%s.link", dir);
	for (size_t i = 0; i < 3; i++) {
		struct run *run = run_plan(check, session, "echo ran");

		run->command.cwd = str(bad[i]);
		run_do(run);
		MUST(check, is_invalid(run->rc) && !strcmp(run->err.reason, "cwd"),
		     "a working directory that is %s is answered with %s, reason \"%s\"",
		     i == 0   ? "missing"
		     : i == 1 ? "a file"
			      : "a link out of the root",
		     run_ending_word(run), run->err.reason);
		MUST(check, !run->out[0].len, "a refused command ran");
	}
	run_shell(check, session, "true");
}
