/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a run directory as berth-supervise writes and the library reads them. Built into both programs, so it
 * uses nothing but libc. Layout: see berth/supervised.h. All functions return 0 or a length, or a negative errno.
 */
#ifndef SUPERVISED_FILES_H
#define SUPERVISED_FILES_H

#include <stddef.h>
#include <stdint.h>

/* Exit codes of `berth-supervise run`, before anything of the command ran. */
#define SUP_EXIT_STARTED 0    /* the supervisor lives on in its own session; its status file tells the rest */
#define SUP_EXIT_USAGE 2      /* arguments */
#define SUP_EXIT_ALREADY 10   /* an attempt of this id has started */
#define SUP_EXIT_POISONED 11  /* this attempt must never start */
#define SUP_EXIT_SPEC 12      /* spec, script or environment missing or malformed */
#define SUP_EXIT_STORAGE 13   /* the run directory cannot be used */
#define SUP_EXIT_RESOURCES 14 /* no process or descriptor left */
#define SUP_EXIT_TIMEOUT 15   /* kill-all: processes are left at the deadline */
#define SUP_EXIT_NOTHING 16   /* kill-all --id: no process was found */

/* A job for `berth-supervise attend`: a message of a SOCK_SEQPACKET socket, cut behind the NUL of dir, with the writing end
 * of a pipe that gets the exit code of `run` as one byte. */
#define SUP_DIR_MAX 4096u
struct sup_attend {
	uint32_t attempt;
	char dir[SUP_DIR_MAX];
};

/* Signals a supervisor understands: SIGTERM = cancel with grace, SIGUSR1 = kill the tree at once. */

/* A status that says nothing ran; its reason says why. Beyond the BERTH_ENDING_ kinds. */
#define SUP_KIND_REFUSED UINT32_C(100)

#define SUP_SMALL_MAX 1024u  /* poison and status files, facts of a start */
#define SUP_SPEC_MAX 32768u  /* spec and started files: three escaped paths and some numbers */
#define SUP_BOOT_MAX 40u
#define SUP_REASON_MAX 32u

struct sup_started {
	uint32_t attempt;
	int32_t pid; /* the supervisor */
	uint64_t start; /* its start time in clock ticks, field 22 of /proc/<pid>/stat */
	int32_t leader; /* the command's first process and session id; 0 = not written yet */
	uint64_t leader_start;
	int64_t timeout_ms; /* 0 = not known */
	char boot[SUP_BOOT_MAX];
};

struct sup_status {
	uint32_t kind;
	int32_t exit_code;
	int32_t signal;
	uint32_t survivors;
	uint32_t quiescent;
	int64_t duration_ms;
	uint64_t kept[2]; /* bytes in the stdout and stderr files */
	uint64_t dropped[2];
	char reason[SUP_REASON_MAX];
};

struct sup_proc {
	char state;
	int32_t ppid;
	int32_t session;
	uint64_t start;
};

/* What a read of one of these files failed with says: something is there, but not what was written there whole. */
int sup_damaged(int rc);

/* Reads a whole small file, NUL-terminates it and returns its length; -EFBIG when it does not fit. */
int sup_read_file(int dir, const char *name, char *buf, size_t cap);
int sup_write_all(int fd, const void *data, size_t len);
/* Replaces name in one step by a file made as `temporary` in the same directory, or already there under that name. */
int sup_replace_file(int dir, const char *temporary, const char *name, const void *data, size_t len, int sync);

/* One key=value a line. -ENOENT when the key is absent; values may be %XX-escaped. */
int sup_value(const char *text, const char *key, char *buf, size_t cap);
int sup_number(const char *text, const char *key, int64_t *ret_value);
/* -ERANGE when it is not between the two. */
int sup_number_in(const char *text, const char *key, int64_t min, int64_t max, int64_t *ret_value);
/* Escapes control bytes and '%'; returns the length, or -ENAMETOOLONG. */
int sup_escape(const char *src, size_t len, char *buf, size_t cap);

/* Locks <id> itself; closing the returned descriptor unlocks it, unless another process inherited it. -ETIMEDOUT: it was
 * held for 5 s. */
int sup_lock(int id_dir);
int sup_started_read(int id_dir, struct sup_started *ret_started);
int sup_poison_read(int id_dir, uint32_t *ret_attempt); /* 0 = none */
/* Under the lock: raises the poison mark. 1 = started already (ret_started filled), 0 = poisoned. */
int sup_poison(int id_dir, uint32_t attempt, struct sup_started *ret_started);
/* The same without waiting: -ETIMEDOUT when the lock is held. */
int sup_poison_now(int id_dir, uint32_t attempt, struct sup_started *ret_started);

int sup_status_read(int attempt_dir, struct sup_status *ret_status);
int sup_status_write(int attempt_dir, const struct sup_status *status, int sync);

int sup_boot_id(char *buf, size_t cap);
int sup_proc_read(int32_t pid, struct sup_proc *ret_proc);
/* 1 when that very process runs (no zombie, no reused number), 0 when it is gone; a negative errno: it could not be
 * looked at, and whoever takes that for gone loses a command. */
int sup_alive(int32_t pid, uint64_t start);
/* The same of the supervisor of this mark, in this boot. */
int sup_supervisor_alive(const struct sup_started *started);
/* Signals exactly that process; -ESRCH when it is gone. */
int sup_signal_exact(int32_t pid, uint64_t start, int sig);
/* The same to a supervisor, which heeds it also when it was stopped. */
int sup_signal_supervisor(const struct sup_started *started, int sig);

int64_t sup_now_ns(void);

#endif
