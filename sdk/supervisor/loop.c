/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the command to its end: timeout, cancel, drain, the end of what is left, the status file; then stays as the
 * reaper of what may or cannot end. Must never write status before the fate of the tree is known, and never twice.
 */
#include "sup.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <berth/types.h>

#define MS INT64_C(1000000)
/* How long a tree that was sent SIGKILL may take to be gone before quiescence is denied. */
#define KILL_BOUND_NS (5000 * MS)
#define STATUS_RETRY_NS (200 * MS)
#define STATUS_TRIES 150 /* 30 s: room may be made */

struct fate {
	uint32_t cause; /* BERTH_ENDING_TIMEOUT or _CANCELLED; 0 = natural */
	uint32_t survivors;
	uint32_t quiescent;
};

static int64_t after_ms(int64_t from_ns, int64_t ms)
{
	return ms > (INT64_MAX - from_ns) / MS ? INT64_MAX : from_ns + ms * MS;
}

/* Where we were held up, kill-all has done it for us. */
static bool killed(const struct sup *s)
{
	return WIFSIGNALED(s->leader_status) && WTERMSIG(s->leader_status) == SIGKILL && !cgroup_oom_rose(&s->counters);
}

/* Until the leader ends or must be ended. One that ended before, but not by a KILL, wins over timeout and cancel. */
static uint32_t run_phase(struct sup *s)
{
	int64_t until = after_ms(s->begin_ns, s->spec.timeout_ms);

	for (;;) {
		bool late, due;

		events_wait(s, until);
		late = sup_now_ns() >= until;
		due = s->asked_stop || s->asked_kill || late;
		if (due)
			events_reap(s);
		if (s->leader_done && !(due && killed(s)))
			return 0;
		/* Both: whoever helps us past the limit asks. */
		if (due)
			return late ? BERTH_ENDING_TIMEOUT : BERTH_ENDING_CANCELLED;
	}
}

static bool pipes_open(const struct sup *s)
{
	return s->out[0].pipe >= 0 || s->out[1].pipe >= 0;
}

static void drain_phase(struct sup *s)
{
	int64_t until = after_ms(s->end_ns, s->spec.drain_grace_ms);

	output_drain(s);
	while (pipes_open(s) && !s->asked_kill && sup_now_ns() < until)
		events_wait(s, until);
	output_drain(s);
}

/* Sends SIGKILL until no child is left; returns how many there were at first. */
static size_t kill_phase(struct sup *s)
{
	struct tree tree = {.root = getpid()};
	int64_t until = sup_now_ns() + KILL_BOUND_NS;
	size_t first = 0;

	events_reap(s);
	for (bool again = false; !s->childless && sup_now_ns() < until; again = true) {
		size_t count = tree_kill(&tree, until);
		int64_t look_again = sup_now_ns() + 20 * MS;

		if (!again)
			first = count;
		events_reap(s);
		while (!s->childless && sup_now_ns() < look_again)
			events_wait(s, look_again);
	}
	tree_fini(&tree);
	return first;
}

static void term_phase(struct sup *s)
{
	struct tree tree = {.root = getpid()};
	int64_t until = after_ms(sup_now_ns(), s->spec.kill_grace_ms);

	if (s->spec.kill_grace_ms > 0 && !s->asked_kill)
		tree_signal(&tree, SIGTERM);
	tree_fini(&tree);
	events_reap(s);
	while (!s->childless && !s->asked_kill && sup_now_ns() < until)
		events_wait(s, until);
}

static size_t count_tree(void)
{
	struct tree tree = {.root = getpid()};
	size_t count;

	tree_list(&tree);
	count = tree.count;
	tree_fini(&tree);
	return count;
}

static struct fate run_to_end(struct sup *s)
{
	struct fate fate = {.cause = run_phase(s)};
	bool keep;

	if (fate.cause)
		term_phase(s);
	else
		drain_phase(s);
	events_reap(s);
	/* Who asks to stop a command that has ended asks for what it left. */
	keep = s->spec.keep_descendants && !fate.cause && !s->asked_stop && !s->asked_kill;
	if (!s->childless && keep)
		fate.survivors = (uint32_t)count_tree();
	else if (!s->childless)
		fate.survivors = (uint32_t)kill_phase(s);
	if (!keep)
		output_drain(s);
	if (s->childless || keep)
		fate.quiescent = s->subreaper ? BERTH_QUIESCENT_YES : BERTH_QUIESCENT_UNKNOWN;
	else
		fate.quiescent = BERTH_QUIESCENT_NO;
	return fate;
}

static void set_reason(struct sup_status *status, const char *reason)
{
	if (!status->reason[0])
		snprintf(status->reason, sizeof(status->reason), "%s", reason);
}

/* Who destroys a session moves or removes its directories first. What a command fails of from then on — its shell
 * cannot open the script, its paths are gone, it is killed — is not its own ending. The script itself is not looked
 * for: a command may remove that. */
static bool session_destroyed(const struct sup *s)
{
	char path[PATH_MAX];
	struct stat named, held;

	if ((size_t)snprintf(path, sizeof(path), "%s/%" PRIu32, s->dir, s->attempt) >= sizeof(path) ||
	    fstat(s->attempt_fd, &held) < 0)
		return false;
	if (stat(path, &named) < 0)
		return errno == ENOENT || errno == ENOTDIR;
	return named.st_ino != held.st_ino || named.st_dev != held.st_dev;
}

/* That no missing file brings about. */
static bool succeeded(const struct sup_status *status)
{
	return status->kind == BERTH_ENDING_EXIT && status->exit_code == 0;
}

static void set_natural(struct sup_status *status, const struct sup *s)
{
	int st = s->leader_status;

	if (WIFEXITED(st)) {
		status->kind = BERTH_ENDING_EXIT;
		status->exit_code = WEXITSTATUS(st);
	} else if (WTERMSIG(st) == SIGKILL && cgroup_oom_rose(&s->counters)) {
		status->kind = BERTH_ENDING_OOM;
	} else {
		status->kind = BERTH_ENDING_SIGNAL;
		status->signal = WTERMSIG(st);
	}
}

static struct sup_status compose(const struct sup *s, const struct fate *fate)
{
	struct sup_status status = {.survivors = fate->survivors, .quiescent = fate->quiescent, .kind = fate->cause};
	int64_t end = s->leader_done && !fate->cause ? s->end_ns : sup_now_ns();

	if (!fate->cause)
		set_natural(&status, s);
	if (!succeeded(&status) && session_destroyed(s))
		status = (struct sup_status){
			.kind = BERTH_ENDING_SESSION_LOST, .survivors = fate->survivors, .quiescent = fate->quiescent};
	status.duration_ms = (end - s->begin_ns) / MS;
	for (int i = 0; i < 2; i++) {
		status.kept[i] = s->out[i].kept;
		status.dropped[i] = s->out[i].dropped;
		if (s->out[i].broken)
			set_reason(&status, "storage_full");
	}
	if (cgroup_pids_rose(&s->counters))
		set_reason(&status, "pids_limit");
	return status;
}

/* Waits without losing signals. */
static void pause_for(struct sup *s, int64_t ns)
{
	int64_t until = sup_now_ns() + ns;

	while (sup_now_ns() < until)
		events_wait(s, until);
}

static void publish(struct sup *s, const struct sup_status *status)
{
	/* Who follows now takes the ending over at once; only one that nobody waits for must outlive a machine's crash.
	 * Without fsync such a crash can leave an empty file, which readers tell from a status. */
	int sync = !output_followed(s);

	s->output_over = true;
	for (int i = 0; i < STATUS_TRIES; i++) {
		int rc = sup_status_write(s->attempt_fd, status, sync);

		/* Removed: nobody can read it any more, and whoever follows waits for our hang-up. */
		if (rc == 0 || rc == -ENOENT)
			break;
		pause_for(s, STATUS_RETRY_NS);
	}
	output_wake(s);
	close(s->wake);
	s->wake = -1;
	s->wake_ns = 0;
}

static void linger_term(void)
{
	struct tree tree = {.root = getpid()};

	tree_signal(&tree, SIGTERM);
	tree_fini(&tree);
}

/* Kept descendants must not die of SIGPIPE, and those that could not be killed must not become anyone else's. */
static void linger(struct sup *s)
{
	int64_t kill_at = INT64_MAX;

	s->asked_stop = s->asked_kill = false;
	events_reap(s);
	while (!s->childless) {
		events_wait(s, kill_at);
		if (s->asked_stop && kill_at == INT64_MAX) {
			linger_term();
			kill_at = after_ms(sup_now_ns(), s->spec.kill_grace_ms);
		}
		if (s->asked_kill || sup_now_ns() >= kill_at) {
			kill_phase(s);
			/* What outlives that has its SIGKILL pending and ends when the kernel lets it. */
			s->asked_stop = s->asked_kill = false;
			kill_at = INT64_MAX;
		}
	}
}

void loop_run(struct sup *s)
{
	struct fate fate = run_to_end(s);
	struct sup_status status = compose(s, &fate);

	publish(s, &status);
	linger(s);
}

void loop_refused(struct sup *s, const struct refusal *refusal)
{
	struct sup_status status = {.kind = SUP_KIND_REFUSED, .quiescent = BERTH_QUIESCENT_YES};

	set_reason(&status, refusal->reason);
	status.exit_code = refusal->err;
	publish(s, &status);
}
