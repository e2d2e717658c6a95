/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of berth-supervise share. One process, one thread; all state hangs off struct sup. */
#ifndef SUP_H
#define SUP_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "../lib/supervised_files.h"

/* What to run: the spec file, the environment file and the names of the others. */
struct spec {
	char root[PATH_MAX];
	char cwd[PATH_MAX];
	char cgroup[PATH_MAX]; /* empty = none */
	int64_t timeout_ms;
	int64_t kill_grace_ms;
	int64_t drain_grace_ms;
	uint64_t max[2];
	bool keep_descendants;
	bool has_stdin;
	int32_t uid; /* -1 = keep */
	int32_t gid;
	char **env; /* NULL-terminated; lives as long as the process */
};

/* One output stream: pipe in, file out. */
struct stream {
	int pipe;         /* read end, non-blocking; -1 = closed */
	int file;         /* -1 = not made yet: silent streams cost no file */
	const char *name; /* of the file, in the attempt directory */
	uint64_t max;
	uint64_t kept;
	uint64_t dropped;
	bool broken; /* a write failed: what follows is counted as dropped, so that the file stays a prefix */
};

/* Counters of the control group the command runs in. */
struct counters {
	int memory; /* memory.events or memory.oom_control; -1 = not available */
	int pids;   /* pids.events */
	uint64_t oom_kills;
	uint64_t pids_max;
};

/* Why a command could not be started; set by the child before exec, in shared memory. */
struct refusal {
	const char *reason; /* NULL = it runs */
	int err;
};

struct sup {
	const char *dir; /* <run_dir>/<id> */
	uint32_t attempt;
	int id_fd;
	int attempt_fd;
	int started_fd;
	int wake;   /* FIFO, write end */
	int events; /* signalfd: CHLD, TERM, USR1 */
	bool subreaper;
	struct spec spec;
	struct stream out[2];
	int spare[2][2]; /* pipes made in advance; -1 = none */
	struct counters counters;
	bool counters_open; /* those of the group we are in, opened in advance */
	char boot[SUP_BOOT_MAX];
	uint64_t self_start; /* our start time; 0 = not looked up yet */
	pid_t leader;
	int leader_status;
	bool leader_done;
	bool childless;   /* waitpid said ECHILD: with a subreaper, proof that no descendant is left */
	bool asked_stop;  /* SIGTERM arrived */
	bool asked_kill;  /* SIGUSR1 arrived */
	bool output_over; /* status is written: later bytes are dropped uncounted */
	int64_t begin_ns;
	int64_t end_ns;   /* the leader's end */
	int64_t wake_ns;  /* when to tell the reader of new output; 0 = nothing to tell */
};

/* spec.c: 0 or a negative errno. */
int spec_load(struct spec *spec, int attempt_fd);

/* command.c: starts the leader; fills s->leader, pipes and started file, or refusal. */
void command_start(struct sup *s, struct refusal *ret_refusal);

/* output.c */
/* Reads once; returns true when bytes came. */
bool output_read(struct sup *s, struct stream *out);
/* Reads what the pipes hold now, at most what a pipe can hold. */
void output_drain(struct sup *s);
void output_close(struct stream *out);
void output_wake(struct sup *s);
/* Whether somebody reads the FIFO now. */
bool output_followed(const struct sup *s);

/* events.c */
/* Waits for output, signals or until_ns (INT64_MAX = none), then takes in what came. */
void events_wait(struct sup *s, int64_t until_ns);
void events_reap(struct sup *s);

/* loop.c: runs the command to its end, writes status, stays as long as descendants do. */
void loop_run(struct sup *s);
void loop_refused(struct sup *s, const struct refusal *refusal);

/* tree.c: the descendants of a process, in its PID namespace. */
struct tree {
	pid_t root;
	pid_t *pids;
	size_t count;
	size_t cap;
};
void tree_fini(struct tree *tree);
/* Lists all living descendants (no zombies). Negative errno: the list is not complete. */
int tree_list(struct tree *tree);
/* Signals every descendant once; returns how many. */
size_t tree_signal(struct tree *tree, int sig);
/* Stops them until no new one shows up, then kills all. Returns how many there were. */
size_t tree_kill(struct tree *tree, int64_t until_ns);

/* cgroup.c */
void cgroup_open(struct counters *counters, const char *dir);
/* Sets what they start from to what they show now. */
void cgroup_restart(struct counters *counters);
bool cgroup_oom_rose(const struct counters *counters);
bool cgroup_pids_rose(const struct counters *counters);

/* holder.c: calls found for each supervisor that holds the id's directory open. Negative errno: one may be missing. */
int holder_each(int id_fd, void (*found)(void *ctx, const struct sup_started *started), void *ctx);

/* start.c, attend.c, killall.c: the subcommands; they return an exit code. */
int start_run(const char *dir, uint32_t attempt);
int attend_run(void);
int killall_run(const char *run_dir, const char *id, int64_t until_ns);

/* start.c, for attend.c: sheds what was inherited; becomes the supervisor of an attempt and writes the exit code that the
 * launcher would have had to reply. */
int start_shed(unsigned first);
/* What does not depend on the job: once for all supervisors that will be forked, then in each. 0 or an exit code. */
int start_prepare_all(void);
int start_prepare_one(void);
_Noreturn void start_here(const char *dir, uint32_t attempt, int reply);

#endif
