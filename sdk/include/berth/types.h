/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data that crosses the provider ABI.
 *
 * Every struct starts with `struct_size`, set (and the rest zeroed) by whoever allocates the struct; a reader
 * uses the smaller of that and its own size, and takes a zero in a later field as "absent". What is named
 * `reserved` is 0; the host refuses a writer that puts something else there. A struct berth_str is pointer and
 * length, need not end in NUL, may be NULL when its length is 0, and holds UTF-8 unless a field says bytes; a
 * `const char *` ends in NUL. Everything a call passes in is borrowed until the call returns.
 */
#ifndef BERTH_TYPES_H
#define BERTH_TYPES_H

#include <stddef.h>
#include <stdint.h>

/* This and the pair never grow: they are the elements of arrays and the parts of other structs. */
struct berth_str {
	const char *ptr;
	size_t len;
};

struct berth_pair {
	struct berth_str name;
	struct berth_str value; /* bytes; never holds a NUL */
};

/* Codes: what every operation returns. The host's one table maps them to HTTP. */
#define BERTH_OK INT32_C(0)
#define BERTH_INVALID INT32_C(1)          /* the request, image or configuration can never work */
#define BERTH_NOT_FOUND INT32_C(2)        /* certainly absent; never used for "could not look" */
#define BERTH_NOT_STARTED INT32_C(3)      /* reattach only: poisoned, no attempt up to this one will ever start */
#define BERTH_CONFLICT INT32_C(4)         /* exists already, or another writer or a later attempt won */
#define BERTH_CAPACITY INT32_C(5)         /* cannot be scheduled now */
#define BERTH_QUOTA INT32_C(6)            /* a limit of the account or namespace */
#define BERTH_RATE_LIMITED INT32_C(7)     /* slow down; see retry_after_ms of fail() */
#define BERTH_UNAUTHENTICATED INT32_C(8)  /* the provider does not accept our credential */
#define BERTH_FORBIDDEN INT32_C(9)        /* it does, but not for this */
#define BERTH_UNAVAILABLE INT32_C(10)     /* transient; nothing happened */
#define BERTH_TIMEOUT INT32_C(11)         /* the call's deadline passed */
#define BERTH_CANCELLED INT32_C(12)       /* the call was cancelled or detached before it was done */
#define BERTH_SESSION_LOST INT32_C(13)    /* the session is gone or can never answer again */
#define BERTH_UNSUPPORTED INT32_C(14)     /* this instance cannot do that */
#define BERTH_UNKNOWN INT32_C(15)         /* the outcome is not known; it may have happened */
#define BERTH_STORAGE_FULL INT32_C(16)    /* no room left in the session */
#define BERTH_INTERNAL INT32_C(17)        /* a defect of the plugin */
#define BERTH_CODE_MAX INT32_C(17) /* grows with the minor number */

/* Capabilities. A descriptor declares the most its kind can do; open() may report a subset for one target. */
#define BERTH_CAP_THREADSAFE (UINT64_C(1) << 0)      /* ops run concurrently on one instance */
#define BERTH_CAP_REATTACH (UINT64_C(1) << 1)        /* reattach, forget */
#define BERTH_CAP_SIGNAL (UINT64_C(1) << 2)          /* send_signal */
#define BERTH_CAP_BULK (UINT64_C(1) << 3)            /* import_tar, export_tar */
#define BERTH_CAP_CHANGES (UINT64_C(1) << 4)         /* mark, changes */
#define BERTH_CAP_RENEW (UINT64_C(1) << 5)           /* renew */
#define BERTH_CAP_ASSIGN_TAGS (UINT64_C(1) << 6)     /* assign */
#define BERTH_CAP_NATIVE_POOL (UINT64_C(1) << 7)     /* warm compute is taken inside provision */
#define BERTH_CAP_IDEMPOTENT_EXEC (UINT64_C(1) << 8) /* a repeated execute of one id and attempt starts nothing new */
#define BERTH_CAP_ALL ((UINT64_C(1) << 9) - 1) /* grows with the minor number: never declare it */

/* Where a session stands. QUEUED to STARTING: await_ready waits. PAUSED: alive, runs nothing; await_ready resumes it.
 * STOPPING: certainly on its way to DEAD; the host reuses neither. */
#define BERTH_PHASE_QUEUED UINT32_C(1)
#define BERTH_PHASE_UNSCHEDULABLE UINT32_C(2)
#define BERTH_PHASE_PULLING UINT32_C(3)
#define BERTH_PHASE_STARTING UINT32_C(4)
#define BERTH_PHASE_READY UINT32_C(5)
#define BERTH_PHASE_DEAD UINT32_C(6)
#define BERTH_PHASE_PAUSED UINT32_C(7)
#define BERTH_PHASE_STOPPING UINT32_C(8)

/* Isolation, weakest first; an observed level below the wanted one refuses the session. The numbers between are for
 * levels that a later minor may name. */
#define BERTH_ISOLATION_UNSET UINT32_C(0)
#define BERTH_ISOLATION_NONE UINT32_C(10)
#define BERTH_ISOLATION_CONTAINER UINT32_C(20)
#define BERTH_ISOLATION_GVISOR UINT32_C(30)
#define BERTH_ISOLATION_MICROVM UINT32_C(40)

/* What is asked of a running call (host->cancel_state). */
#define BERTH_CANCEL_NONE UINT32_C(0)
#define BERTH_CANCEL_STOP UINT32_C(1)   /* stop the command's tree, then report its ending */
#define BERTH_CANCEL_DETACH UINT32_C(2) /* return CANCELLED within 1 s and leave the command running */

/* Streams of sink_write and gap. */
#define BERTH_STREAM_DATA UINT32_C(0)
#define BERTH_STREAM_STDOUT UINT32_C(1)
#define BERTH_STREAM_STDERR UINT32_C(2)

/* How a command ended. */
#define BERTH_ENDING_EXIT UINT32_C(1)
#define BERTH_ENDING_SIGNAL UINT32_C(2)
#define BERTH_ENDING_TIMEOUT UINT32_C(3)
#define BERTH_ENDING_CANCELLED UINT32_C(4)
#define BERTH_ENDING_OOM UINT32_C(5)
#define BERTH_ENDING_SESSION_LOST UINT32_C(6)
#define BERTH_ENDING_UNKNOWN UINT32_C(7)

#define BERTH_QUIESCENT_UNKNOWN UINT32_C(0)
#define BERTH_QUIESCENT_YES UINT32_C(1)
#define BERTH_QUIESCENT_NO UINT32_C(2)

#define BERTH_SIGNAL_TERM UINT32_C(1)
#define BERTH_SIGNAL_KILL UINT32_C(2)

#define BERTH_FILE_REGULAR UINT32_C(1)
#define BERTH_FILE_DIRECTORY UINT32_C(2)
#define BERTH_FILE_SYMLINK UINT32_C(3)
#define BERTH_FILE_OTHER UINT32_C(4)

/* A size or length that is not known, or "to the end". */
#define BERTH_SIZE_UNKNOWN UINT64_MAX

/* Of an expiry: the provider never ends the session by itself. */
#define BERTH_EXPIRES_NEVER INT64_MAX

/* Limits of strings a plugin emits; longer ones make the call fail as INTERNAL. Files and changes with longer paths are
 * left out by the plugin: who works in the session must not be able to break a listing. */
#define BERTH_REF_MAX 256u
#define BERTH_STATE_MAX 4096u
#define BERTH_HANDLE_MAX 1024u
#define BERTH_REASON_MAX 31u
#define BERTH_TEXT_MAX 1024u
#define BERTH_PATH_MAX 1024u
#define BERTH_CURSOR_MAX 4096u
#define BERTH_TOKEN_MAX 4096u
#define BERTH_INTENT_MAX 64u
#define BERTH_BOOT_ID_MAX 256u
#define BERTH_RESULTS_MAX 100000u /* sessions, files or changes of one call; see emit_file in host.h */

/* The pair that names a task. Each part: first [A-Za-z0-9], then [A-Za-z0-9._-], at most 128 bytes. */
struct berth_identity {
	uint32_t struct_size;
	uint32_t reserved;
	struct berth_str workspace_id;
	struct berth_str task_id;
};

/* What to provision. What cannot be given is refused before anything is created: INVALID, reason "isolation", "image",
 * "region", "resources" or "internet". internet_allowed 0 is a promise to the operator: a provider that cannot enforce it,
 * by itself or by what an option of the operator vouches for, refuses it. */
struct berth_spec {
	uint32_t struct_size;
	uint32_t isolation; /* wanted, BERTH_ISOLATION_*; UNSET = whatever the provider gives */
	struct berth_str deployment;
	struct berth_str workspace_id; /* both parts empty for a warm session */
	struct berth_str task_id;
	struct berth_str intent; /* the token that finds this session again; 32 hex digits */
	struct berth_str region;
	struct berth_str pool_key;
	struct berth_str image; /* image or template name; empty = the target's own */
	const struct berth_pair *env;
	size_t env_count;
	uint64_t cpu_millis; /* 0 = the target's own, as below */
	uint64_t memory_bytes;
	uint64_t disk_bytes;
	uint32_t internet_allowed; /* 0 or 1 */
	uint32_t reserved;
	int64_t expires_ms; /* Unix ms asked for as provider-side expiry; 0 = none */
};

/* A session as the host hands it to an operation. */
struct berth_session {
	uint32_t struct_size;
	uint32_t reserved;
	struct berth_str ref;
	struct berth_str state; /* bytes, exactly as the plugin emitted them */
	struct berth_str root;  /* workspace root as emitted */
	struct berth_str boot_id;
};

/* A session as the plugin reports it. Empty or 0 = not told: the host keeps what it knows. Always told: ref and phase, and
 * identity and intent where the session has them; with READY also root. */
struct berth_session_info {
	uint32_t struct_size;
	uint32_t phase;
	struct berth_str ref;          /* at most BERTH_REF_MAX bytes; includes the provider's uid */
	struct berth_str state;        /* at most BERTH_STATE_MAX bytes, opaque; may hold tokens: sealed, never logged */
	struct berth_str workspace_id; /* empty for a warm session */
	struct berth_str task_id;
	struct berth_str intent;
	struct berth_str boot_id;     /* changes when files or processes were lost */
	struct berth_str root;        /* absolute path of the workspace root inside the session */
	struct berth_str dead_reason; /* with PHASE_DEAD: oom, evicted, preempted, expired, deleted, … */
	int64_t created_ms;           /* Unix ms */
	int64_t expires_ms;           /* provider-side expiry, Unix ms or BERTH_EXPIRES_NEVER */
	uint32_t isolation;           /* observed */
	uint32_t reserved;
	uint64_t cpu_millis; /* observed, as the next two */
	uint64_t memory_bytes;
	uint64_t disk_bytes;
};

/* One command. */
struct berth_command {
	uint32_t struct_size;
	uint32_t attempt; /* from 1 */
	struct berth_str execution_id;
	struct berth_str script; /* bytes without NUL; run by /bin/sh from a file, never as an argument */
	struct berth_str cwd;    /* relative to the root; "." = the root */
	const struct berth_pair *env;
	size_t env_count;
	uint32_t has_stdin; /* 1: standard input is read with source_read; 0: end of file at once */
	uint32_t keep_descendants;
	int64_t timeout_ms; /* > 0; enforced inside the session */
	uint64_t stdout_max; /* bytes kept, 0 = none; the rest is drained and counted as dropped */
	uint64_t stderr_max;
};

/* A command that was started, and the attempt under which its caller has it: a session that knows a later attempt may
 * refuse this one as CONFLICT, reason "stale_attempt". */
struct berth_execution {
	uint32_t struct_size;
	uint32_t attempt; /* from 1 */
	struct berth_str id;
	struct berth_str handle; /* as in berth_resume */
};

/* Where a reattach goes on: bytes of each stream that the host already holds durably. */
struct berth_resume {
	uint32_t struct_size;
	uint32_t attempt;
	struct berth_str execution_id;
	struct berth_str handle; /* as given to started(), or empty; the execution id alone must suffice */
	uint64_t stdout_offset;
	uint64_t stderr_offset;
};

struct berth_ending {
	uint32_t struct_size;
	uint32_t kind;      /* BERTH_ENDING_* */
	int32_t exit_code;  /* with EXIT: 0..255 */
	int32_t signal;     /* with SIGNAL: the number on Linux, 1..64; 0 = not known */
	uint32_t survivors; /* processes left when the leader ended; 0 = none, or not known: see quiescent */
	uint32_t quiescent; /* BERTH_QUIESCENT_*: NO, or YES only when proven */
	int64_t duration_ms; /* 0 = not known, or less than 1 */
	uint64_t stdout_dropped; /* bytes past the limit */
	uint64_t stderr_dropped;
	struct berth_str reason; /* a short stable word, or empty */
};

struct berth_file_write {
	uint32_t struct_size;
	uint32_t mode; /* permission bits 0001..0777 */
	struct berth_str path;
	uint64_t size;           /* or BERTH_SIZE_UNKNOWN */
	struct berth_str sha256; /* 64 lower-case hex digits, or empty */
};

struct berth_file_info {
	uint32_t struct_size;
	uint32_t kind; /* BERTH_FILE_* */
	struct berth_str path; /* relative to the root */
	uint64_t size;
	int64_t mtime_ms;
	uint32_t mode;
	uint32_t reserved;
};

struct berth_change {
	uint32_t struct_size;
	uint32_t kind; /* BERTH_FILE_*; 0 = deleted */
	struct berth_str path;
	uint64_t size;
	uint32_t mode;
	uint32_t reserved;
};

#endif
