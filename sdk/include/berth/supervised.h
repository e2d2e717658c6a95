/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Supervised execution on a file system this process can reach: the plugin side of berth-supervise.
 *
 * The run directory's files are the truth; the wake-up FIFO only says "look again". Layout, per execution id:
 *
 *   <run_dir>/<id>/                     flock held on it while the start is decided
 *   <run_dir>/<id>/started              once: the spec of the attempt, supervisor pid and its start time
 *   <run_dir>/<id>/poison               highest attempt that must never start
 *   <run_dir>/<id>/<attempt>/spec       what to run, one key=value a line; moved to started
 *   <run_dir>/<id>/<attempt>/script  env  stdin
 *   <run_dir>/<id>/<attempt>/stdout  stderr  status  wake
 *
 * Making a file is what costs most here on some disks (0.1 to 1 ms each, six for a silent command). A run directory on
 * a tmpfs loses nothing: it is worth no more than the processes it speaks of.
 *
 * All functions may be called from any thread, return BERTH_ codes, and explain failures with host->fail.
 */
#ifndef BERTH_SUPERVISED_H
#define BERTH_SUPERVISED_H

#include <berth/host.h>

#ifdef __cplusplus
extern "C" {
#endif

struct berth_sup {
	uint32_t struct_size;
	uint32_t reserved;
	const char *helper;  /* path of berth-supervise */
	const char *run_dir; /* outside the workspace root; exists, mode 0700 (with uid: 0711, like its parents) */
	const char *root;    /* absolute workspace root */
	const struct berth_pair *env; /* the whole base environment; the command's pairs override it */
	size_t env_count;
	const char *cgroup;   /* directory of a cgroup to run in, or NULL */
	int32_t uid;          /* -1 = keep */
	int32_t gid;
	int64_t kill_grace_ms; /* between TERM and KILL on timeout and cancel; 0 = KILL at once */
	int64_t drain_grace_ms; /* how long pipes may drain after the leader ended */
	/* NULL, or what starts a supervisor instead of running the helper: returns its exit code or a negative errno; -ENOSYS:
	 * nothing was done, run the helper. For programs that keep a `berth-supervise attend`: berth/launcher.h. */
	int32_t (*launch)(void *ctx, const char *dir, uint32_t attempt);
	void *launch_ctx;
	/* NULL, or called before the command is waited for, on the call's thread: what a sink has gathered goes out now. At
	 * first a wait is short; `is_long` is 1 once nothing came of that. */
	void (*waits)(struct berth_call *call, uint32_t is_long);
};

/* Writes script, environment and stdin, starts berth-supervise outside this process's life, streams output to
 * sink_write, honours cancel (STOP: kills the tree and reports; DETACH: returns CANCELLED and leaves it running), emits
 * exactly one ending. CONFLICT: started before, or poisoned. INVALID, reason cwd | env: refused before anything ran. */
int32_t berth_sup_execute(const struct berth_host *host, struct berth_call *call, const struct berth_sup *sup,
			  const struct berth_command *command);

/* Goes on with a started command from the offsets, running or ended; otherwise poisons every attempt up to
 * resume->attempt and returns NOT_STARTED. A supervisor that died without a status gives ending UNKNOWN. */
int32_t berth_sup_reattach(const struct berth_host *host, struct berth_call *call, const struct berth_sup *sup,
			   const struct berth_resume *resume);

/* TERM or KILL to the whole tree through the supervisor, or from outside and without a grace where its command holds it
 * up; others are UNSUPPORTED. NOT_FOUND: not running. */
int32_t berth_sup_signal(const struct berth_host *host, struct berth_call *call, const struct berth_sup *sup,
			 const struct berth_str *execution_id, uint32_t signal);

/* Drops everything of an ended command except the mark that it started. NOT_FOUND is OK; CONFLICT while running. */
int32_t berth_sup_forget(const struct berth_host *host, struct berth_call *call, const struct berth_sup *sup,
			 const struct berth_str *execution_id);

/* Kills every process that any supervisor of this run directory still holds, kept descendants included, and waits
 * until they are gone or deadline_ns (CLOCK_BOOTTIME) passes: TIMEOUT. For release. */
int32_t berth_sup_kill_all(const struct berth_sup *sup, int64_t deadline_ns);

#ifdef __cplusplus
}
#endif

#endif
