/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the provider calls of a command: execute, reattach, what they stream, and how a cancel, a lost hold or a stop
 * reaches them. The call runs on the worker's thread; stop and loss come from any. Never starts a command that is not
 * wanted any more, and never lets output fail it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/failpoint.h"
#include "core/log.h"
#include "core/secret.h"
#include "execution/execution_private.h"

#define KILL_MS 5000
#define ROOM_FIRST_MS 50
#define ROOM_MOST_MS 2000
#define LATE_STOP_MS INT64_C(100)

/* ---- reaching a call ---- */

void call_stop_locked(struct run *run, uint32_t state)
{
	if (run->call)
		call_cancel(run->call, state);
	cond_wake_all(&run->e->changed);
}

void call_moved_locked(struct run *run)
{
	run->moved = true;
	call_stop_locked(run, BERTH_CANCEL_DETACH);
	queue_wake_locked(run);
}

void call_is_back(struct run *run)
{
	lock_take(&run->e->lock);
	run->moved = false;
	lock_drop(&run->e->lock);
}

bool call_has_moved(struct run *run)
{
	bool moved;

	lock_take(&run->e->lock);
	moved = run->moved;
	lock_drop(&run->e->lock);
	return moved;
}

static void lose_locked(struct run *run, const char *reason)
{
	if (!run->lost[0])
		snprintf(run->lost, sizeof(run->lost), "%s", reason && *reason ? reason : "lost_lease");
	call_stop_locked(run, BERTH_CANCEL_STOP);
	queue_wake_locked(run);
}

void call_on_lost(void *arg, const char *reason)
{
	struct run *run = arg;

	lock_take(&run->e->lock);
	if (reason && strcmp(reason, SESSION_MOVED) == 0)
		call_moved_locked(run); /* a stop would kill the command under the other host */
	else
		lose_locked(run, reason);
	lock_drop(&run->e->lock);
}

bool call_unwanted(struct run *run)
{
	bool unwanted;

	lock_take(&run->e->lock);
	unwanted = run->cancel || run->lost[0] || run->moved || run->e->stopping;
	lock_drop(&run->e->lock);
	return unwanted;
}

/* False: the call must not be made. A reattach is made even for a command that is not wanted any more: it is what stops
 * it. A provider may refuse a call that is cancelled before it began, so the stop follows a moment later (*ret_late).
 */
static bool enter(struct run *run, struct call *call, bool reattach, bool *ret_late)
{
	struct executions *e = run->e;
	bool unwanted, go;

	lock_take(&e->lock);
	unwanted = run->cancel || run->lost[0];
	go = !run->moved && (reattach ? !e->detaching : !unwanted && !e->stopping);
	if (go)
		run->call = call;
	lock_drop(&e->lock);
	*ret_late = go && unwanted;
	return go;
}

static void leave(struct run *run)
{
	lock_take(&run->e->lock);
	run->call = NULL;
	lock_drop(&run->e->lock);
}

/* ---- what a call streams ---- */

struct stream {
	struct run *run;
	const struct inputs *in;
};

static void touch(struct run *run)
{
	if (!run->touched)
		(void)FAILPOINT("exec.running");
	run->touched = true;
}

enum room { ROOM_MAYBE, ROOM_NEVER, ROOM_LEFT };

/* Until somebody may have made room. A command that was cancelled has its time to end; one whose session is gone has no
 * output elsewhere that could be had later. */
static enum room wait_room(struct run *run, int64_t ms, int64_t *give_up_ns)
{
	struct executions *e = run->e;
	int64_t until = clock_after_ms(ms);
	enum room room = ROOM_MAYBE;

	lock_take(&e->lock);
	while (!e->detaching && !run->moved && !run->lost[0] && (!run->cancel || *give_up_ns != INT64_MAX) &&
	       cond_wait_until(&e->changed, &e->lock, until))
		continue;
	if (run->cancel && *give_up_ns == INT64_MAX)
		*give_up_ns = clock_after_ms(e->config.conf->completion_grace_ms);
	if (e->detaching || run->moved)
		room = ROOM_LEFT;
	else if (run->lost[0] || clock_boot_ns() >= *give_up_ns)
		room = ROOM_NEVER;
	lock_drop(&e->lock);
	return room;
}

/* There is no room for output, but the provider still has it: nothing more is taken from there until there is. The
 * command itself does not wait for that, where it writes into files of its sandbox. */
static int write_later(struct run *run, unsigned stream, const void *ptr, size_t len)
{
	int64_t give_up_ns = INT64_MAX, ms = ROOM_FIRST_MS;
	enum room room = ROOM_MAYBE;
	int rc = ERR_STORAGE_FULL;

	log_warn("there is no room for a command's output; it is waited for", KS("execution", run->id),
		 KS("why", strerror(errno)), KI("offset", spool_seen(run->out, stream)));
	while (rc && room == ROOM_MAYBE) {
		room = wait_room(run, ms, &give_up_ns);
		ms = ms * 2 < ROOM_MOST_MS ? ms * 2 : ROOM_MOST_MS;
		if (room == ROOM_NEVER)
			spool_give_up(run->out, stream);
		if (room != ROOM_LEFT)
			rc = spool_write(run->out, stream, ptr, len);
	}
	if (room == ROOM_LEFT)
		return ERR_DETACHED; /* the next process asks for it from its first byte */
	log_info(room == ROOM_NEVER ? "the rest of a command's output is dropped: there was no room for it"
				    : "there is room for a command's output again",
		 KS("execution", run->id));
	return 0;
}

static int on_write(void *arg, unsigned stream, const void *ptr, size_t len)
{
	struct stream *s = arg;

	touch(s->run);
	return spool_write(s->run->out, stream, ptr, len) ? write_later(s->run, stream, ptr, len) : 0;
}

static int on_read(void *arg, void *buf, size_t cap, size_t *ret_len)
{
	struct stream *s = arg;
	ssize_t n;

	do
		n = s->in && s->in->stdin_fd >= 0 ? read(s->in->stdin_fd, buf, cap) : 0;
	while (n < 0 && errno == EINTR);
	*ret_len = n > 0 ? (size_t)n : 0;
	return n < 0 ? ERR_IO : 0;
}

struct handle_step {
	const struct run *run;
	const char *handle;
};

static int handle_step(struct txn *txn, void *arg, struct err *err)
{
	struct handle_step *in = arg;
	struct record r;
	struct claim c;
	int rc = steps_load(txn, in->run->id, &r, &c, err);

	if (rc)
		return rc;
	if (record_status_terminal(r.status) || r.attempt != in->run->facts.attempt)
		return steps_overtaken(in->run, err);
	c.handle = in->handle;
	return steps_put_claim(txn, r.id, &c, err);
}

static int on_started(void *arg, const char *handle, size_t len)
{
	struct stream *s = arg;
	struct run *run = s->run;
	struct handle_step in = {.run = run, .handle = run->handle};
	struct err err = {0};
	int rc;

	touch(run);
	if (len == 0 || len > BERTH_HANDLE_MAX)
		return 0; /* the execution id alone suffices */
	memcpy(run->handle, handle, len);
	run->handle[len] = '\0';
	rc = steps_update_surely(run->e, handle_step, &in, &err);
	if (rc == ERR_EXECUTION_CONFLICT)
		steps_defect(run->e, run->id, &err);
	return rc;
}

/* Ranges past the list's end are joined with the last one of their stream, so that none is forgotten. */
static int on_gap(void *arg, unsigned stream, uint64_t from, uint64_t to)
{
	struct stream *s = arg;
	struct run *run = s->run;
	const char *name = stream == BERTH_STREAM_STDOUT ? "stdout" : "stderr";
	bool known = to != BERTH_SIZE_UNKNOWN;
	struct record_lost range = {.stream = name, .from = (int64_t)from, .to = known ? (int64_t)to : 0};

	touch(run);
	spool_gap(run->out, stream, from, known ? to : from);
	if (run->lost_count < RUN_LOST_MAX - 2) {
		run->lost_ranges[run->lost_count++] = range;
		return 0;
	}
	for (size_t i = RUN_LOST_MAX - 2; i < run->lost_count; i++) {
		if (strcmp(run->lost_ranges[i].stream, name) == 0) {
			run->lost_ranges[i].to = range.to;
			return 0;
		}
	}
	run->lost_ranges[run->lost_count++] = range;
	return 0;
}

/* ---- calls ---- */

static int64_t deadline_of(struct run *run)
{
	int64_t left = run->facts.expires_ms - steps_now(run->e);

	/* A command whose time is over may still be asked how it ended. */
	return clock_after_ms(left > KILL_MS ? left : KILL_MS);
}

int64_t call_time_left(struct run *run)
{
	int64_t spare = run->e->config.conf->completion_grace_ms / 2;

	return run->facts.expires_ms - steps_now(run->e) - (spare < KILL_MS ? spare : KILL_MS);
}

static struct berth_str str(const char *text)
{
	return (struct berth_str){text, text ? strlen(text) : 0};
}

/* ---- a session's copy ---- */

static struct berth_str copy_str(char **at, struct berth_str from)
{
	struct berth_str copy = {*at, from.len};

	if (from.len)
		memcpy(*at, from.ptr, from.len);
	*at += from.len;
	return copy;
}

bool call_keep_session(const struct berth_session *from, struct kept_session *ret)
{
	char *at;

	*ret = (struct kept_session){.session = {.struct_size = sizeof(ret->session)}};
	ret->len = from->ref.len + from->state.len + from->root.len + from->boot_id.len + 1;
	ret->text = at = malloc(ret->len);
	if (!at)
		return false;
	ret->session.ref = copy_str(&at, from->ref);
	ret->session.state = copy_str(&at, from->state);
	ret->session.root = copy_str(&at, from->root);
	ret->session.boot_id = copy_str(&at, from->boot_id);
	return true;
}

void call_drop_session(struct kept_session *kept)
{
	if (kept->text)
		secret_wipe(kept->text, kept->len);
	free(kept->text);
}

/* What the plugin may still read when the run is another worker's: the worker that is stuck keeps it. */
struct kept {
	struct kept_session copy;
	char handle[BERTH_HANDLE_MAX + 1];
};

static int execute(struct run *run, const struct inputs *in, const struct kept *kept, struct call *call,
		   struct err *err)
{
	const struct run_plan *plan = &run->plan;
	int64_t left = call_time_left(run);
	struct berth_command command = {
		.struct_size = sizeof(command),
		.attempt = (uint32_t)run->facts.sent_attempt,
		.execution_id = str(run->id),
		.script = {plan->body, plan->body_len},
		.cwd = str(plan->cwd),
		.env = in->env,
		.env_count = in->env_count,
		.has_stdin = in->stdin_fd >= 0,
		.keep_descendants = plan->keep_descendants,
		.timeout_ms = left < plan->timeout_ms ? (left > 1 ? left : 1) : plan->timeout_ms,
		.stdout_max = (uint64_t)plan->stdout_max,
		.stderr_max = (uint64_t)plan->stderr_max,
	};

	return call_execute(call, &kept->copy.session, &command, err);
}

static int reattach_to(struct run *run, const struct kept *kept, struct call *call, struct err *err)
{
	struct berth_resume resume = {
		.struct_size = sizeof(resume),
		.attempt = (uint32_t)run->facts.sent_attempt,
		.execution_id = str(run->id),
		.handle = str(kept->handle),
		.stdout_offset = spool_seen(run->out, BERTH_STREAM_STDOUT),
		.stderr_offset = spool_seen(run->out, BERTH_STREAM_STDERR),
	};

	return call_reattach(call, &kept->copy.session, &resume, err);
}

static void copy_ending(const struct call *call, struct attempt *ret)
{
	const struct berth_ending *ending = call_ending(call);

	ret->has_ending = ret->code == 0 && ending;
	if (!ret->has_ending)
		return;
	ret->ending = *ending;
	snprintf(ret->reason, sizeof(ret->reason), "%.*s", (int)ending->reason.len, ending->reason.ptr);
	ret->ending.reason = str(ret->reason);
}

/* The watchdog's thread. The command cannot wait for the plugin any longer: its run goes to another worker. This one's
 * place in the pool does, too, so that stuck calls of one target take no thread from the others. */
static void on_stuck(void *arg)
{
	const struct stream *s = arg;
	struct run *run = s->run;
	struct executions *e = run->e;

	lock_take(&e->lock);
	run->call = NULL;
	run->stuck = true;
	e->stuck++;
	lock_drop(&e->lock);
	pool_lend(e->pool);
	queue_submit(run);
}

/* A provider says what is wrong with the working directory, not which one it was given. */
static void name_cwd(const struct run *run, struct err *err)
{
	if (run->plan.cwd && err->code == ERR_PROVIDER && strcmp(err->reason, "cwd") == 0)
		err_prefix(err, "cwd '%.120s'", run->plan.cwd);
}

/* One call that was entered. With `given` nothing of the run is this worker's any more. */
static void perform(struct run *run, const struct stream *stream, const struct kept *kept, struct call *call, bool late,
		    struct attempt *ret)
{
	if (late)
		queue_timer(run, clock_after_ms(LATE_STOP_MS << (run->tries < 6 ? run->tries : 6)));
	run_ref(run); /* the plugin may read the plan for as long as it is in the call */
	ret->code = ret->reattach ? reattach_to(run, kept, call, &ret->err)
				  : execute(run, stream->in, kept, call, &ret->err);
	ret->given = call_given_up(call);
	if (ret->given)
		return; /* the reference is dropped with the worker's last look, runner.c */
	name_cwd(run, &ret->err);
	run_unref(run);
	leave(run);
	if (late)
		queue_deaf(run);
	copy_ending(call, ret);
	/* The cancel came between the two looks. */
	ret->held_back = !ret->reattach && ret->code == ERR_CANCELLED && strcmp(ret->err.reason, "not_sent") == 0;
}

void call_perform(struct run *run, const struct inputs *in, bool reattach, struct attempt *ret)
{
	struct stream stream = {.run = run, .in = in};
	struct call_sink sink = {.write = on_write,
				 .read = on_read,
				 .started = on_started,
				 .gap = on_gap,
				 .stuck = on_stuck,
				 .arg = &stream};
	struct call *call = call_new(run->hold->target, deadline_of(run), &sink);
	struct kept kept = {0};
	bool late = false;

	memset(ret, 0, sizeof(*ret));
	ret->reattach = run->asking = reattach;
	memcpy(kept.handle, run->handle, sizeof(kept.handle));
	if (!call || !call_keep_session(&run->hold->session, &kept.copy)) {
		ret->code = err_set(&ret->err, ERR_PROVIDER_UNAVAILABLE, "no memory for a provider call");
		goto out;
	}
	ret->held_back = !enter(run, call, reattach, &late);
	if (!ret->held_back)
		perform(run, &stream, &kept, call, late, ret);
out:
	call_drop_session(&kept.copy);
	call_free(call);
}

int call_short(struct run *run, int64_t ms, const struct call_sink *sink,
	       int (*op)(struct run *run, struct call *call, void *arg, struct err *err), void *arg, struct err *err)
{
	struct call *call = call_new(run->hold->target, clock_after_ms(ms), sink);
	bool late;
	int rc;

	if (!call)
		return err_set(err, ERR_PROVIDER_UNAVAILABLE, "no memory for a provider call");
	call_set_apart(call);
	if (enter(run, call, false, &late)) {
		rc = op(run, call, arg, err);
		leave(run);
	} else {
		rc = err_set(err, ERR_CANCELLED, "it is not wanted any more");
	}
	call_free(call);
	return rc;
}

/* Borrows from the run. */
struct berth_execution call_execution(const struct run *run)
{
	return (struct berth_execution){
		.struct_size = sizeof(struct berth_execution),
		.attempt = (uint32_t)run->facts.attempt,
		.id = {run->id, strlen(run->id)},
		.handle = {run->handle, strlen(run->handle)},
	};
}

void call_kill(struct run *run)
{
	const struct berth_execution execution = call_execution(run);
	struct err err = {0};
	struct call *call;

	if (call_has_moved(run) || !target_can(run->hold->target, BERTH_CAP_SIGNAL))
		return;
	call = call_new(run->hold->target, clock_after_ms(KILL_MS), NULL);
	if (!call)
		return;
	call_set_apart(call);
	if (call_signal(call, &run->hold->session, &execution, BERTH_SIGNAL_KILL, &err) && err.code != ERR_NOT_FOUND)
		log_warn("cannot kill what is left of a command", KS("execution", run->id), KS("error", err.msg));
	call_free(call);
}
