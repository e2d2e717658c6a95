/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands as the kit sees them: started on this thread or on one of its own, watched, cancelled, waited for. The
 * thread that runs the call writes the results under the run's lock; others wait on its condition.
 */
#include "kit.h"

#include "core/ident.h"

#define KEEP_MAX ((size_t)64 << 20)
#define TIMEOUT_MS 20000

static struct run *plan(struct check *check, struct session *session)
{
	struct run *run = calloc(1, sizeof(*run));

	if (!run)
		abort();
	run->check = check;
	run->session = session;
	run->limit_ms = kit_ms(check->kit, 2 * TIMEOUT_MS);
	lock_init(&run->lock, LOCK_LEAF);
	cond_init(&run->cond);
	for (unsigned i = 0; i < 2; i++)
		buf_init(&run->out[i], KEEP_MAX);
	lock_take(&check->lock);
	run->next = check->runs;
	check->runs = run;
	lock_drop(&check->lock);
	return run;
}

struct run *run_plan(struct check *check, struct session *session, const char *script)
{
	struct run *run = plan(check, session);

	snprintf(run->id, sizeof(run->id), "e-%.20s-%u", check->kit->tag, check->kit->serial++);
	run->command = (struct berth_command){
		.struct_size = sizeof(run->command),
		.attempt = 1,
		.execution_id = str(run->id),
		.script = str(script),
		.cwd = str("."),
		.timeout_ms = kit_ms(check->kit, TIMEOUT_MS),
		.stdout_max = KEEP_MAX,
		.stderr_max = KEEP_MAX,
	};
	return run;
}

struct run *run_plan_reattach(struct check *check, struct session *session, const char *id, uint32_t attempt)
{
	struct run *run = plan(check, session);

	snprintf(run->id, sizeof(run->id), "%s", id);
	run->is_reattach = true;
	run->resume = (struct berth_resume){
		.struct_size = sizeof(run->resume),
		.attempt = attempt,
		.execution_id = str(run->id),
		.handle = str(""),
	};
	return run;
}

static int on_write(void *arg, unsigned stream, const void *ptr, size_t len)
{
	struct run *run = arg;
	unsigned at = stream == BERTH_STREAM_STDERR;
	int rc = run->refuse;

	lock_take(&run->lock);
	run->total[at] += len;
	if (!rc && run->taste)
		rc = run->taste(run, at, ptr, len);
	else if (!rc)
		rc = buf_append(&run->out[at], ptr, len);
	cond_wake_all(&run->cond);
	lock_drop(&run->lock);
	return rc;
}

static int on_read(void *arg, void *buf, size_t cap, size_t *ret_len)
{
	struct run *run = arg;
	size_t left = run->input_len - run->input_at;

	*ret_len = left < cap ? left : cap;
	if (*ret_len)
		memcpy(buf, run->input + run->input_at, *ret_len);
	run->input_at += *ret_len;
	return 0;
}

static int on_started(void *arg, const char *handle, size_t len)
{
	struct run *run = arg;

	lock_take(&run->lock);
	run->started++;
	run->handle_len = len;
	if (len)
		memcpy(run->handle, handle, len);
	cond_wake_all(&run->cond);
	lock_drop(&run->lock);
	return 0;
}

static int on_gap(void *arg, unsigned stream, uint64_t from, uint64_t to)
{
	struct run *run = arg;

	(void)stream;
	(void)from;
	(void)to;
	lock_take(&run->lock);
	run->gaps++;
	lock_drop(&run->lock);
	return 0;
}

static void make_call(struct run *run)
{
	const struct call_sink sink = {
		.write = on_write, .read = on_read, .started = on_started, .gap = on_gap, .arg = run};

	if (run->input)
		run->command.has_stdin = 1;
	run->call = call_new(run->check->kit->target, clock_after_ms(run->limit_ms), &sink);
	if (!run->call)
		abort();
	run->begin_ns = clock_boot_ns();
}

static void perform(struct run *run)
{
	const struct berth_ending *ending;
	struct err err = {0};
	int rc = run->is_reattach ? call_reattach(run->call, &run->session->abi, &run->resume, &err)
				  : call_execute(run->call, &run->session->abi, &run->command, &err);

	ending = call_ending(run->call);
	lock_take(&run->lock);
	run->rc = rc;
	run->err = err;
	run->end_ns = clock_boot_ns();
	if (ending) {
		run->ending = *ending;
		snprintf(run->ending_reason, sizeof(run->ending_reason), "%.*s", (int)ending->reason.len,
			 ending->reason.ptr);
	}
	run->done = true;
	cond_wake_all(&run->cond);
	lock_drop(&run->lock);
}

void run_do(struct run *run)
{
	make_call(run);
	perform(run);
}

static void *run_main(void *arg)
{
	perform(arg);
	return NULL;
}

void run_start(struct run *run)
{
	make_call(run);
	if (thread_start(&run->thread, "run", run_main, run))
		abort();
	run->threaded = true;
}

bool run_wait(struct run *run, int64_t ms)
{
	int64_t until = clock_after_ms(kit_ms(run->check->kit, ms));
	bool done;

	lock_take(&run->lock);
	while (!run->done && cond_wait_until(&run->cond, &run->lock, until))
		;
	done = run->done;
	lock_drop(&run->lock);
	if (done && run->threaded) {
		pthread_join(run->thread, NULL);
		run->threaded = false;
	}
	return done;
}

bool run_wait_output(struct run *run, const char *text, int64_t ms)
{
	int64_t until = clock_after_ms(kit_ms(run->check->kit, ms));
	bool found;

	lock_take(&run->lock);
	do
		found = run->out[0].len && memmem(run->out[0].ptr, run->out[0].len, text, strlen(text));
	while (!found && !run->done && cond_wait_until(&run->cond, &run->lock, until));
	found = run->out[0].len && memmem(run->out[0].ptr, run->out[0].len, text, strlen(text));
	lock_drop(&run->lock);
	return found;
}

void run_cancel(struct run *run, uint32_t state)
{
	call_cancel(run->call, state);
}

int64_t run_took_ms(const struct run *run)
{
	return (run->end_ns - run->begin_ns) / CLOCK_NS_PER_MS;
}

void run_end(struct run *run)
{
	if (!run->call)
		run->done = true;
	if (!run->threaded)
		return;
	run_cancel(run, BERTH_CANCEL_STOP);
	if (!run_wait(run, 5000))
		run_wait(run, run->limit_ms + 5000);
}

void run_free(struct run *run)
{
	call_free(run->call);
	for (unsigned i = 0; i < 2; i++)
		buf_fini(&run->out[i]);
	cond_fini(&run->cond);
	lock_fini(&run->lock);
	free(run);
}

bool run_exited(const struct run *run, int code)
{
	return !run->rc && run->ending.kind == BERTH_ENDING_EXIT && run->ending.exit_code == code;
}

const char *run_ending_word(const struct run *run)
{
	static const char *const words[] = {"no ending", "exit", "signal",	 "timeout",
					    "cancelled", "oom",	 "session_lost", "unknown"};
	const struct berth_ending *ending = &run->ending;

	if (run->rc)
		return check_printf(run->check, "%s (%s)", kit_code(run->rc), run->err.msg);
	if (ending->kind == BERTH_ENDING_EXIT || ending->kind == BERTH_ENDING_SIGNAL)
		return check_printf(run->check, "%s %d", words[ending->kind],
				    ending->kind == BERTH_ENDING_EXIT ? ending->exit_code : ending->signal);
	return words[ending->kind <= BERTH_ENDING_UNKNOWN ? ending->kind : 0];
}

const char *run_shell(struct check *check, struct session *session, const char *script)
{
	struct run *run = run_plan(check, session, script);

	run_do(run);
	if (!run_exited(run, 0)) {
		check_fail(check, "a helping command of the rule ended with %s: %.200s", run_ending_word(run),
			   run->out[1].len ? run->out[1].ptr : script);
		return NULL;
	}
	return run->out[0].len ? run->out[0].ptr : "";
}

bool run_until(struct check *check, struct session *session, const char *script, const char *what)
{
	char *loop = check_printf(
		check, "i=0; until { %s\n}; do i=$((i+1)); [ $i -gt 300 ] && exit 9; sleep 0.05; done", script);
	struct run *run = run_plan(check, session, loop);

	run_do(run);
	if (run_exited(run, 0))
		return true;
	if (run_exited(run, 9))
		check_fail(check, "%s", what);
	else
		check_fail(check, "a waiting command of the rule ended with %s", run_ending_word(run));
	return false;
}

bool run_pid_gone(struct check *check, struct session *session, const char *file)
{
	struct run *run = run_plan(
		check, session,
		check_printf(check,
			     "p=$(cat %s) || exit 8; [ -n \"$p\" ] || exit 8; kill -0 $p 2>/dev/null && exit 7; exit 0",
			     file));

	run_do(run);
	if (run_exited(run, 0))
		return true;
	if (run_exited(run, 7))
		check_fail(check, "the process of %s still runs after the command's ending", file);
	else
		check_fail(check, "looking for the process of %s ended with %s", file, run_ending_word(run));
	return false;
}

int64_t run_count_lines(struct check *check, struct session *session, const char *file)
{
	const char *text =
		run_shell(check, session, check_printf(check, "[ -e %s ] && wc -l <%s || echo -1", file, file));

	return text ? strtoll(text, NULL, 10) : -2;
}
