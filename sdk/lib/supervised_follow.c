/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Follows a started command: waits on the wake-up FIFO and the call's cancel descriptor, hands new output bytes to the
 * host, and reports the one ending that the status file gives. Entered by the thread of the call; holds one descriptor
 * while it waits. Must never report an exit without a status file, nor a byte twice.
 */
#include "supervised_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MS INT64_C(1000000)
#define BLOCK 65536u
/* Hang-up of the FIFO tells of a dead supervisor at once; this is for a command that holds the FIFO open itself. */
#define LIVENESS_MS 15000
/* How long the directories stay open for a command that may end any moment. */
#define SHORT_WAIT_MS 50
/* As many as the FIFO holds. */
#define WAKE_READS 128
/* Without a descriptor to poll, and after a stop was heard (it may be owed, and a detach may still come). */
#define CANCEL_POLL_MS 250
/* For the end of a command from outside: the helper has 6 s of patience. */
#define END_MS 10000

struct follow {
	struct sup_op *op;
	struct sup_started started;
	int64_t deadline_ns;
	int64_t alive_ns; /* when to look at the supervisor again */
	int64_t stop_due_ns; /* the end of the grace of a stop that was passed on */
	int overdue; /* it should have ended by the last look */
	int cancel_fd;
	int stop_heard;
	int stop_sent;
	int64_t stop_ns; /* when to try again, while it is owed */
	int dead; /* the supervisor is gone: what is not in the files will never be */
};

static int64_t after_ms(int64_t from_ns, int64_t ms)
{
	return ms > (INT64_MAX - from_ns) / MS ? INT64_MAX : from_ns + ms * MS;
}

/* The mark is written under the lock, right after the launcher left; so the lock is worth waiting for. */
static int load_started(struct follow *f)
{
	int lock, rc = f->started.leader_start ? 0 : sup_started_read(f->op->id_fd, &f->started);

	if (f->started.pid)
		return 0;
	if (rc != -ENOENT)
		return rc;
	lock = sup_lock(f->op->id_fd);
	if (lock < 0)
		return lock;
	rc = sup_started_read(f->op->id_fd, &f->started);
	close(lock);
	return rc;
}

static int end_from_outside(struct follow *f)
{
	return sup_op_end(f->op, sup_now_ns() + END_MS * MS);
}

static int pass_stop(struct follow *f)
{
	int rc = load_started(f);

	if (rc == 0)
		rc = sup_signal_supervisor(&f->started, SIGTERM);
	else if (sup_damaged(rc) || rc == -EACCES)
		rc = end_from_outside(f);
	if (rc == 0) {
		f->stop_due_ns = after_ms(sup_now_ns(), f->op->sup->kill_grace_ms);
		f->alive_ns = f->stop_due_ns < f->alive_ns ? f->stop_due_ns : f->alive_ns;
	}
	/* A supervisor that is gone shows as a hang-up or a status. */
	return rc == 0 || rc == -ESRCH;
}

/* Passes a stop on, once; without a descriptor or memory for that it is owed. */
static uint32_t hear_cancel(struct follow *f)
{
	uint32_t state = f->op->host->cancel_state(f->op->call);

	if (state != BERTH_CANCEL_STOP || f->stop_sent || (f->stop_heard && sup_now_ns() < f->stop_ns))
		return state;
	f->stop_heard = 1;
	f->stop_sent = pass_stop(f);
	f->stop_ns = sup_now_ns() + CANCEL_POLL_MS * MS;
	return state;
}

static int32_t send_block(struct follow *f, int stream, const char *block, size_t len)
{
	struct sup_op *op = f->op;
	int32_t rc = op->host->sink_write(op->call, stream ? BERTH_STREAM_STDERR : BERTH_STREAM_STDOUT, block, len);

	if (rc == BERTH_OK)
		op->offset[stream] += len;
	return rc;
}

static int32_t read_stream(struct follow *f, int stream, int fd, char *block)
{
	for (;;) {
		ssize_t n = pread(fd, block, BLOCK, (off_t)f->op->offset[stream]);
		int32_t rc;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return localfs_fail_errno(f->op->host, f->op->call, errno, "read output");
		if (n == 0)
			return BERTH_OK;
		rc = send_block(f, stream, block, (size_t)n);
		/* A stream that is written faster than it is sent must not keep a cancel waiting. */
		if (rc || hear_cancel(f) == BERTH_CANCEL_DETACH)
			return rc;
	}
}

/* Files of silent streams do not exist, and none is held open between two looks. */
static int32_t pump(struct follow *f, int stream)
{
	int fd = openat(f->op->attempt_fd, stream ? "stderr" : "stdout",
			O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	char *block;
	int32_t rc;

	if (fd < 0 && errno == ENOENT)
		return BERTH_OK;
	if (fd < 0)
		return localfs_fail_errno(f->op->host, f->op->call, errno, "open output");
	block = malloc(BLOCK);
	rc = block ? read_stream(f, stream, fd, block)
		   : localfs_fail_errno(f->op->host, f->op->call, ENOMEM, "read output");
	free(block);
	close(fd);
	return rc;
}

static int32_t emit_lost(struct follow *f)
{
	static const char reason[] = "supervisor_lost";
	struct berth_ending ending = {.struct_size = sizeof(ending),
				      .kind = BERTH_ENDING_UNKNOWN,
				      .quiescent = BERTH_QUIESCENT_UNKNOWN,
				      .reason = {reason, sizeof(reason) - 1}};
	struct sup_started started;
	int rc = sup_poison(f->op->id_fd, f->op->attempt, &started);

	/* The execution's own directory goes with the session only, and nobody will find out more. */
	if (rc == -ENOENT)
		return localfs_fail(f->op->host, f->op->call, BERTH_NOT_FOUND, "removed",
				    "the command's files were removed");
	/* It may have died before it could write the mark; then nothing ran, and now nothing will. */
	if (rc == 0)
		return f->op->host->fail(f->op->call, BERTH_UNAVAILABLE, "start_failed", 1, 0,
					 "the supervisor ended before it started the command");
	if (rc < 0 && !sup_damaged(rc))
		return localfs_fail_errno(f->op->host, f->op->call, rc, "look for the command");
	return f->op->host->emit_ending(f->op->call, &ending);
}

static int32_t fail_refused(struct follow *f, const struct sup_status *status)
{
	const struct berth_host *host = f->op->host;

	if (strcmp(status->reason, "resources") == 0)
		return host->fail(f->op->call, BERTH_UNAVAILABLE, "resources", 1, 0,
				  "no process or descriptor is left for the command");
	return localfs_fail_errno(host, f->op->call, 0, status->reason);
}

static const struct {
	const char *reason;
	int32_t code;
	const char *text;
} refusals[] = {
	{"cwd", BERTH_INVALID, "cwd is missing, not a directory, not accessible, or leads out of the workspace root"},
	{"env", BERTH_INVALID, "the environment is larger than the system takes"},
	{"shell", BERTH_INVALID, "/bin/sh cannot be run in this session"},
	{"user", BERTH_INVALID, "the command's user cannot be taken"},
	{"cgroup", BERTH_INVALID, "the control group cannot be entered"},
	{"script", BERTH_INVALID, "the command's user cannot read the script: the run directory is closed to it"},
	{"stdin", BERTH_INTERNAL, "the standard input file is missing"},
};

static int32_t refused(struct follow *f, const struct sup_status *status)
{
	const struct berth_host *host = f->op->host;

	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++)
		if (strcmp(refusals[i].reason, status->reason) == 0)
			return localfs_fail(host, f->op->call, refusals[i].code, refusals[i].reason, refusals[i].text);
	return fail_refused(f, status);
}

static int32_t emit_status(struct follow *f, const struct sup_status *status)
{
	struct sup_op *op = f->op;
	struct berth_ending ending = {
		.struct_size = sizeof(ending),
		.kind = status->kind,
		.exit_code = status->exit_code,
		.signal = status->signal,
		.survivors = status->survivors,
		.quiescent = status->quiescent,
		.duration_ms = status->duration_ms,
		.stdout_dropped = status->dropped[0],
		.stderr_dropped = status->dropped[1],
		.reason = {status->reason, strlen(status->reason)},
	};

	if (status->kind == SUP_KIND_REFUSED)
		return refused(f, status);
	for (int i = 0; i < 2; i++) {
		uint32_t stream = i ? BERTH_STREAM_STDERR : BERTH_STREAM_STDOUT;
		int32_t rc;

		if (op->offset[i] >= status->kept[i])
			continue;
		/* Somebody shortened or removed the file. */
		rc = op->host->gap(op->call, stream, op->offset[i], status->kept[i]);
		if (rc)
			return rc;
	}
	return op->host->emit_ending(op->call, &ending);
}

/* Everything there is to see. The status is read before the bytes: what it speaks of is then in the files. */
static int32_t look(struct follow *f, int *ret_done)
{
	struct sup_status status;
	int rc = sup_status_read(f->op->attempt_fd, &status);
	int32_t code = pump(f, 0);

	if (code == BERTH_OK)
		code = pump(f, 1);
	if (code)
		return code;
	if (f->op->host->cancel_state(f->op->call) == BERTH_CANCEL_DETACH)
		return BERTH_OK; /* the pumps may have stopped early: the wait answers it */
	/* Of a dead one, half a status or what a command put in its place is none; an unreadable one may be good. */
	if (rc < 0 && rc != -ENOENT && !(f->dead && sup_damaged(rc)))
		return localfs_fail_errno(f->op->host, f->op->call, rc, "read the status");
	if (rc < 0 && !f->dead)
		return BERTH_OK;
	*ret_done = 1;
	return rc == 0 ? emit_status(f, &status) : emit_lost(f);
}

static int wait_ms(const struct follow *f)
{
	int64_t now = sup_now_ns();
	int64_t left = f->alive_ns - now;

	if (f->deadline_ns > 0 && f->deadline_ns - now < left)
		left = f->deadline_ns - now;
	if ((f->cancel_fd < 0 || f->stop_heard) && left > CANCEL_POLL_MS * MS)
		left = CANCEL_POLL_MS * MS;
	return left <= 0 ? 0 : (int)((left + MS - 1) / MS);
}

/* Returns OK to go on waiting. */
static int32_t heed_cancel(struct follow *f)
{
	if (hear_cancel(f) == BERTH_CANCEL_DETACH)
		return localfs_fail(f->op->host, f->op->call, BERTH_CANCELLED, "detached",
				    "detached; the command goes on");
	return BERTH_OK;
}

static int past_limit(const struct follow *f)
{
	int64_t second = sysconf(_SC_CLK_TCK);
	int64_t begin = (int64_t)f->started.leader_start;
	int64_t limit;

	if (f->started.timeout_ms == 0 || begin <= 0 || begin / second > INT64_MAX / (1000 * MS) - 1)
		return 0;
	limit = after_ms(begin / second * 1000 * MS + begin % second * 1000 * MS / second, f->started.timeout_ms);
	return sup_now_ns() >= after_ms(limit, f->op->sup->kill_grace_ms);
}

/* A supervisor that is held up keeps no time limit: its command may have seen to that. Continued once, one that was
 * only stopped can do all itself. */
static void help(struct follow *f)
{
	uint32_t how = f->overdue ? BERTH_SIGNAL_KILL : BERTH_SIGNAL_TERM;

	f->overdue = past_limit(f) || (f->stop_due_ns && sup_now_ns() >= f->stop_due_ns);
	if (f->overdue && sup_held_up(&f->started, how))
		(void)end_from_outside(f);
	else
		(void)sup_signal_exact(f->started.pid, f->started.start, SIGCONT);
}

static void check_alive(struct follow *f)
{
	if (sup_now_ns() < f->alive_ns)
		return;
	f->alive_ns = sup_now_ns() + LIVENESS_MS * MS;
	if (load_started(f) < 0)
		return;
	f->dead |= sup_supervisor_alive(&f->started) == 0;
	if (!f->dead)
		help(f);
}

static void drain_wake(struct follow *f, short events)
{
	char bytes[512];

	if (events & (POLLHUP | POLLERR | POLLNVAL))
		f->dead = 1;
	/* Not to the end: a command may write there without one. */
	for (int i = 0; i < WAKE_READS && (events & POLLIN); i++)
		if (read(f->op->wake_fd, bytes, sizeof(bytes)) != (ssize_t)sizeof(bytes))
			break;
}

/* Thousands may wait at once: after a moment only the FIFO stays open. */
static int wait_long(struct follow *f, struct pollfd fds[2])
{
	int rc, n;

	sup_op_rest(f->op);
	n = poll(fds, 2, wait_ms(f));
	if (n < 0)
		n = errno == EINTR ? 0 : -errno;
	rc = sup_op_resume(f->op);
	return rc < 0 ? rc : n;
}

static void tell_wait(const struct follow *f, uint32_t is_long)
{
	if (SUP_HAS(f->op->sup, waits) && f->op->sup->waits)
		f->op->sup->waits(f->op->call, is_long);
}

static int32_t wait_event(struct follow *f)
{
	struct pollfd fds[2] = {
		{.fd = f->op->wake_fd, .events = POLLIN},
		{.fd = f->stop_heard ? -1 : f->cancel_fd, .events = POLLIN},
	};
	int ms = wait_ms(f), n;
	int32_t rc;

	tell_wait(f, 0);
	n = poll(fds, 2, ms < SHORT_WAIT_MS ? ms : SHORT_WAIT_MS);
	if (n == 0 && ms > SHORT_WAIT_MS) {
		tell_wait(f, 1);
		n = wait_long(f, fds);
	}
	if (n == -ENOENT)
		return localfs_fail(f->op->host, f->op->call, BERTH_NOT_FOUND, "removed",
				    "the command's files were removed while it was followed");
	if (n < -1)
		return localfs_fail_errno(f->op->host, f->op->call, n, "wait for the command");
	if (n > 0)
		drain_wake(f, fds[0].revents);
	rc = heed_cancel(f);
	if (rc)
		return rc;
	check_alive(f);
	return BERTH_OK;
}

static int past_deadline(const struct follow *f)
{
	return f->deadline_ns > 0 && sup_now_ns() >= f->deadline_ns;
}

int32_t sup_follow(struct sup_op *op, int look_first)
{
	struct berth_call_info info = {.struct_size = sizeof(info)};
	struct follow f = {.op = op, .alive_ns = sup_now_ns() + LIVENESS_MS * MS};
	int done = 0;
	int32_t rc = BERTH_OK;

	op->host->info(op->call, &info);
	f.deadline_ns = info.deadline_ns;
	f.cancel_fd = op->host->cancel_fd(op->call);
	/* A FIFO that nobody has open for writing since before we came never hangs up. */
	if (look_first)
		f.alive_ns = 0;
	check_alive(&f);
	while (!done && rc == BERTH_OK) {
		if (look_first)
			rc = look(&f, &done);
		look_first = 1;
		if (rc || done)
			break;
		if (past_deadline(&f))
			return op->host->fail(op->call, BERTH_TIMEOUT, "deadline", 1, 0,
					      "the call's deadline passed; the command goes on");
		rc = wait_event(&f);
	}
	return rc;
}
