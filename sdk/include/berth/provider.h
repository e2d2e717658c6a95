/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a provider plugin implements: one shared object, one provider kind, one exported function.
 *
 * Threads: init and fini run on the main thread, and before that once in a child process that only tries the plugin;
 * open and close of one target are serial. The other operations run concurrently on one instance when
 * BERTH_CAP_THREADSAFE is set, else the host serialises them, per instance. Threads of the host have 256 KiB of stack.
 * Blocking: every operation blocks and returns by its deadline (host->info) and soon after a cancel.
 * Ownership: what is passed in is borrowed until return; results go out through host->emit_*.
 * A plugin must not: fork or exec outside the SDK's helper, exit, abort, install signal handlers or atexit
 * functions, call setlocale, chdir, umask, setenv, touch stdio, or call global clean-ups of shared libraries.
 */
#ifndef BERTH_PROVIDER_H
#define BERTH_PROVIDER_H

#include <berth/abi.h>
#include <berth/host.h>
#include <berth/types.h>

/* Option types. Durations and sizes are written with units ("15m", "1GiB") and arrive as integers in ms and bytes. */
#define BERTH_OPTION_STRING UINT32_C(1)
#define BERTH_OPTION_INTEGER UINT32_C(2)
#define BERTH_OPTION_BOOLEAN UINT32_C(3)
#define BERTH_OPTION_DURATION UINT32_C(4)
#define BERTH_OPTION_SIZE UINT32_C(5)
#define BERTH_OPTION_FLOAT UINT32_C(6)

struct berth_option {
	uint32_t struct_size;
	uint32_t type;
	const char *key;
	const char *default_text; /* as an operator would write it; NULL = none */
	uint32_t required;
	uint32_t secret; /* the value is "file:<path>" or "env:<NAME>"; read with host->secret, never passed to open */
	const char *doc; /* one sentence */
};

/* One value of the target's config group, checked against the option table, defaults filled in. */
struct berth_option_value {
	uint32_t struct_size;
	uint32_t type;
	const char *key;
	uint32_t is_set; /* 0: neither given nor defaulted. Of a secret only this is told */
	uint32_t reserved;
	int64_t integer; /* INTEGER, BOOLEAN (0 or 1), DURATION (ms), SIZE (bytes) */
	double number;   /* FLOAT */
	struct berth_str string;
};

#define BERTH_METRIC_COUNTER UINT32_C(1)
#define BERTH_METRIC_HISTOGRAM UINT32_C(2)
struct berth_metric {
	uint32_t struct_size;
	uint32_t type;
	const char *name; /* [a-z0-9_]; the host puts berth_<provider>_ before it */
	const char *unit;
	const char *doc;
};

struct berth_open_args {
	uint32_t struct_size;
	uint32_t reserved;
	struct berth_target *target; /* for host services */
	struct berth_str name;       /* the target's */
	struct berth_str deployment;
	struct berth_str region;
	struct berth_str data_dir; /* a private directory of this target on the host; exists, mode 0700 */
	struct berth_str helper_dir; /* where the host's helpers (berth-supervise) are installed */
	const struct berth_option_value *const *options; /* one per row of the descriptor's table, in its order */
	size_t option_count;
};

/* Out of open(); sized by the host, and zero but for capabilities. */
struct berth_instance_info {
	uint32_t struct_size;
	uint32_t reserved;
	uint64_t capabilities;     /* effective; the host presets the descriptor's, open may take some away */
	int64_t create_settle_ms;  /* how long after a lost create one may still appear; 0 = names are deterministic; at most a year */
	uint32_t isolation;        /* the level that every session of this target has at least */
	uint32_t reserved2;
};

#define BERTH_REMOVE_RECURSIVE UINT32_C(1)
#define BERTH_LIST_RECURSIVE UINT32_C(1)

/*
 * What an operation may return, besides OK: INVALID, CAPACITY, QUOTA, RATE_LIMITED, UNAUTHENTICATED, FORBIDDEN,
 * UNAVAILABLE, TIMEOUT, UNSUPPORTED, UNKNOWN, STORAGE_FULL, INTERNAL; CANCELLED once it was told to stop. With a session
 * also NOT_FOUND and SESSION_LOST. Those that change something there (assign, execute, forget, send_signal, file_write,
 * file_remove, file_move, import_tar, renew) and provision also CONFLICT, reattach NOT_STARTED. Results are emitted as each
 * comment says. Anything else is a violation: the call fails as INTERNAL, and the plugin is named.
 */
struct berth_ops {
	uint32_t struct_size;
	uint32_t reserved;

	/* Makes one instance for one target. MUST NOT use the network. Failure leaves nothing behind. */
	int32_t (*open)(const struct berth_open_args *args, struct berth_call *call, void **ret_inst,
			struct berth_instance_info *ret_info);
	/* Ends an instance; no operation runs on it. MUST join every thread the plugin made for it. */
	void (*close)(void *inst);
	/* Reachability, credentials, versions. MUST tell UNAUTHENTICATED, FORBIDDEN and UNAVAILABLE apart. The host asks at
	 * its start: INVALID refuses the target, so it is for what only the configuration can mend. */
	int32_t (*check)(void *inst, struct berth_call *call);

	/* Emits every session that carries the identity. MUST read the authority, never a stale cache. OK without an
	 * emit means certainly none. */
	int32_t (*find)(void *inst, struct berth_call *call, const struct berth_identity *identity);
	/* Emits the sessions of this deployment, a page per call; cursor empty = first page; emit_cursor when more
	 * follow. Complete or an error. */
	int32_t (*list)(void *inst, struct berth_call *call, const struct berth_str *cursor);
	/* May tell progress(). Creates one session tagged with deployment, identity (none when warm) and intent; returns once the provider
	 * acknowledged it. MUST call host->created before anything else can fail. MUST NOT repeat the create: an outcome
	 * that is not known is UNKNOWN. "Exists already" is CONFLICT. */
	int32_t (*provision)(void *inst, struct berth_call *call, const struct berth_spec *spec);
	/* Blocks until the session's executor answers, telling progress(), then emits its info. A paused session is resumed.
	 * CAPACITY: cannot be scheduled now, the session
	 * stays. INVALID: image or configuration, named by reason. SESSION_LOST: it died. */
	int32_t (*await_ready)(void *inst, struct berth_call *call, const struct berth_session *session);
	/* Tags a warm session with its task (ASSIGN_TAGS); emits the new info. */
	int32_t (*assign)(void *inst, struct berth_call *call, const struct berth_session *session,
			  const struct berth_identity *identity);
	/* Emits the session's info, PHASE_DEAD with a reason included. NOT_FOUND only when certain. */
	int32_t (*inspect)(void *inst, struct berth_call *call, const struct berth_session *session);

	/* Runs one command to its end: started() as soon as a handle exists, bytes through sink_write, then exactly one
	 * emit_ending and OK. An outcome that is not known is an ending of kind UNKNOWN or a code, never an invented exit.
	 * Codes INVALID and STORAGE_FULL: refused before anything ran. CONFLICT: this id has started (with IDEMPOTENT_EXEC a
	 * repetition of the running attempt may follow it instead), or this attempt is poisoned. */
	int32_t (*execute)(void *inst, struct berth_call *call, const struct berth_session *session,
			   const struct berth_command *command);
	/* Goes on with a command that was started, running or ended, from the offsets (REATTACH): may tell started() anew, bytes
	 * and exactly one ending as execute. NOT_STARTED only after every attempt up to resume->attempt is poisoned in the
	 * session. A session that knows a later attempt: UNKNOWN, reason "stale_attempt". Ended and forgotten:
	 * NOT_FOUND, reason "forgotten"; any other NOT_FOUND is a session that is gone. */
	int32_t (*reattach)(void *inst, struct berth_call *call, const struct berth_session *session,
			    const struct berth_resume *resume);
	/* Drops output, script and environment of an ended command; idempotent. The mark that it started stays until the
	 * session ends (REATTACH). */
	int32_t (*forget)(void *inst, struct berth_call *call, const struct berth_session *session,
			  const struct berth_execution *execution);
	/* Signals the command's whole tree: BERTH_SIGNAL_* (SIGNAL). NOT_FOUND when it is not running; UNSUPPORTED for a signal
	 * that the plugin does not know. */
	int32_t (*send_signal)(void *inst, struct berth_call *call, const struct berth_session *session,
			       const struct berth_execution *execution, uint32_t signal);

	/* Files beneath the session's root; flags that the plugin does not know are UNSUPPORTED. Paths are checked by the host (relative, canonical); the plugin MUST resolve
	 * them beneath the root so that no symlink escapes (INVALID, reason "path_escapes"). */
	/* Bytes through sink_write as STREAM_DATA, from offset on, `length` of them or BERTH_SIZE_UNKNOWN = to the end; OK without
	 * bytes past the end. */
	int32_t (*file_read)(void *inst, struct berth_call *call, const struct berth_session *session,
			     const struct berth_str *path, uint64_t offset, uint64_t length);
	/* Source to a temporary name, verify, mode, rename. Makes missing parent directories. */
	int32_t (*file_write)(void *inst, struct berth_call *call, const struct berth_session *session,
			      const struct berth_file_write *write);
	/* Emits exactly one file, not following a symlink. */
	int32_t (*file_stat)(void *inst, struct berth_call *call, const struct berth_session *session,
			     const struct berth_str *path);
	/* Emits entries below path ("." = root), not following symlinks, in no order. With more than BERTH_RESULTS_MAX of them
	 * emit_file says INVALID, which is then what this returns. */
	int32_t (*file_list)(void *inst, struct berth_call *call, const struct berth_session *session,
			     const struct berth_str *path, uint32_t flags);
	/* A folder with something in it needs BERTH_REMOVE_RECURSIVE: CONFLICT, reason "not_empty". */
	int32_t (*file_remove)(void *inst, struct berth_call *call, const struct berth_session *session,
			       const struct berth_str *path, uint32_t flags);
	/* Replaces a file at `to`, as rename does. Makes missing parent directories. */
	int32_t (*file_move)(void *inst, struct berth_call *call, const struct berth_session *session,
			     const struct berth_str *from, const struct berth_str *to);

	/* Many files at once as a POSIX tar (BULK): from source_read, below path / to sink_write. Same path rules. */
	int32_t (*import_tar)(void *inst, struct berth_call *call, const struct berth_session *session,
			      const struct berth_str *path);
	int32_t (*export_tar)(void *inst, struct berth_call *call, const struct berth_session *session,
			      const struct berth_str *paths, size_t path_count);

	/* What changed since a mark (CHANGES): emit_token / emit_change. Judged by ctime and inode, not mtime alone. */
	int32_t (*mark)(void *inst, struct berth_call *call, const struct berth_session *session);
	int32_t (*changes)(void *inst, struct berth_call *call, const struct berth_session *session,
			   const struct berth_str *token);

	/* Moves the provider-side expiry to until_ms (Unix ms), never earlier than it is; emit_expiry (RENEW). */
	int32_t (*renew)(void *inst, struct berth_call *call, const struct berth_session *session, int64_t until_ms);
	/* Destroys the session; idempotent. OK only when it is gone or confirmed going; NOT_FOUND is success. */
	int32_t (*release)(void *inst, struct berth_call *call, const struct berth_session *session);
};

/* The descriptor. Fields in this order, without padding; constant for the life of the process. */
struct berth_provider {
	uint32_t magic;       /* BERTH_PROVIDER_MAGIC */
	uint16_t abi_major;   /* BERTH_ABI_MAJOR it was built with */
	uint16_t abi_minor;   /* lowest host minor it needs */
	uint32_t struct_size; /* sizeof(struct berth_provider) */
	uint32_t flags;       /* 0 */
	const char *name;     /* [a-z0-9-], the file's stem */
	const char *version;
	const char *build_id; /* any text that names the build */
	uint64_t capabilities;
	/* Once per process, before any open; host lives as long as the process. */
	int32_t (*init)(const struct berth_host *host);
	/* Once, after the last close; may be NULL. */
	void (*fini)(void);
	const struct berth_ops *ops;
	const struct berth_option *const *options; /* NULL-terminated; may be NULL */
	const struct berth_metric *const *metrics; /* NULL-terminated; may be NULL */
	const void *reserved[3];                   /* NULL */
};

#if defined(__GNUC__)
#define BERTH_EXPORT __attribute__((visibility("default")))
#else
#define BERTH_EXPORT
#endif

#ifdef __cplusplus
extern "C"
#endif
BERTH_EXPORT const struct berth_provider *berth_provider_entry_v1(void);

#endif
