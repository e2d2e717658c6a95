/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conformance kit: rules that every provider plugin keeps, run through the host's own loader and call path.
 *
 * A rule is a function over a struct check. It says what must hold with MUST; the first thing that does not ends it.
 * What it made (sessions, commands, calls, buffers) belongs to the check and is ended, released and freed by
 * check_fini, whatever happened.
 */
#ifndef CONFORMANCE_KIT_H
#define CONFORMANCE_KIT_H

#include <stdbool.h>
#include <stdio.h>

#include "core/buf.h"
#include "core/clock.h"
#include "core/thread.h"
#include "plugin/call.h"
#include "plugin/cursors.h"
#include "plugin/guard.h"
#include "plugin/target.h"

#define KIT_VERSION "1.3"
#define KIT_TEXT_MAX 512
/* Set in the kit's own environment: no command may see it. */
#define KIT_SECRET_NAME "BERTH_CONFORMANCE_HOST_VARIABLE"

enum kit_format { KIT_TAP, KIT_JSON };

/* What a rule needs beside capabilities. An operator who knows that a target lacks one says so with --without. */
#define NEED_COMMANDS 1u
#define NEED_FILES 2u
#define NEED_STRESS 4u /* runs with --stress only */
#define NEED_HTTP 8u   /* the target talks HTTP through the host */

struct kit_options {
	const char *plugin, *config, *deployment, *helpers, *state, *summary;
	enum kit_format format;
	bool list, help, stress;
	unsigned without; /* NEED_* */
	int64_t patience; /* factor of every time limit */
	int64_t gone_s;	  /* how long after a release its session may still be seen */
	const char **rules;
	size_t rule_count;
};

struct kit {
	const struct kit_options *opt;
	struct conf *conf;
	struct registry *registry;
	struct target *target;	    /* NULL once closed */
	struct berth_provider desc; /* a copy: its texts live as long as the process */
	uint64_t capabilities;	    /* the target's effective ones */
	char state_dir[256];
	bool own_state_dir;
	char tag[48]; /* random, part of all names of this run */
	_Atomic unsigned serial;
	struct session *shared; /* a ready session for rules that only use one; dropped when one of them fails */
	struct guard guard;
	int fds, threads; /* of the process before the target was opened */
	bool swept;	  /* what was there at the start has been released */
	bool stuck;	  /* a call did not come back: its target cannot be closed */
};

struct check;
struct rule {
	const char *id;
	uint64_t capabilities;
	unsigned needs; /* NEED_* */
	const char *sentence;
	void (*fn)(struct check *check); /* NULL: judged by main after the target was closed */
};
extern const struct rule rules[]; /* a NULL id ends it */

enum verdict { PASSED, FAILED, SKIPPED };

struct check {
	struct kit *kit;
	const struct rule *rule;
	struct lock lock; /* LOCK_SERVER: the verdict and the lists */
	enum verdict verdict;
	char message[KIT_TEXT_MAX];
	struct session *sessions;
	struct run *runs;
	struct owned *owned; /* calls and memory */
};

#define MUST(check, condition, ...)                                                                                    \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			check_fail(check, __VA_ARGS__);                                                                \
			return;                                                                                        \
		}                                                                                                      \
	} while (0)
/* The same in functions that hand on what went wrong. */
#define MUST_OR(check, condition, result, ...)                                                                         \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			check_fail(check, __VA_ARGS__);                                                                \
			return result;                                                                                 \
		}                                                                                                      \
	} while (0)
/* What an operation answered, as the end of a message: alone, or apart when other arguments stand before it. */
#define OK_FMT "answered %s (%s: %s)"
#define OK_ARGS(err) kit_code((err).code), (err).reason, (err).msg
#define OK_RC(err) OK_FMT, OK_ARGS(err)

/* kit.c */
int kit_open(struct kit *kit, const struct kit_options *opt, struct err *err);
/* False: it could not be closed, since a call hangs in the plugin. */
bool kit_close(struct kit *kit);
int64_t kit_ms(const struct kit *kit, int64_t ms); /* with patience */
const char *kit_code(int err_code); /* what the contract calls the answer that the host has as this error */
/* Releases every session of the deployment; kit_close does it again. */
int kit_sweep(struct kit *kit, struct err *err);
int kit_count_fds(void);
int kit_count_threads(void);

/* check.c: safe from any thread of the rule. The first failure stays. */
void check_init(struct check *check, struct kit *kit, const struct rule *rule);
void check_fini(struct check *check);
void check_fail(struct check *check, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void check_skip(struct check *check, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool check_failed(struct check *check);
void *check_alloc(struct check *check, size_t size); /* zeroed */
char *check_printf(struct check *check, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const struct berth_execution *check_execution(struct check *check, const char *id, uint32_t attempt);
struct buf *check_buf(struct check *check);
/* A new call, for one operation after the other. */
struct call *check_call(struct check *check);
struct call *check_call_ms(struct check *check, int64_t ms, const struct call_sink *sink);
/* Runs fn(arg, i) on count threads at once, begun together, and waits for all. */
void check_threads(struct check *check, unsigned count, void (*fn)(struct check *check, void *arg, unsigned i),
		   void *arg);

/* session.c */
struct session {
	struct session *next;
	struct kit *kit;
	char workspace[64], task[160]; /* as asked for; empty: warm */
	char intent[48];
	char ref[BERTH_REF_MAX + 1], boot_id[BERTH_REF_MAX + 1], root[BERTH_PATH_MAX + 1];
	char state[BERTH_STATE_MAX];
	struct berth_session abi; /* what operations get */
	int64_t expires_ms;
	uint32_t phase, isolation;
	uint64_t memory_bytes;
	unsigned created; /* how often created() came */
	int rc;		  /* of the provision */
	struct err err;
	bool gone;
};
struct berth_str str(const char *text);
bool str_is(struct berth_str text, const char *word);
bool is_invalid(int rc); /* the plugin's INVALID, or the host's own refusal of a request */
/* Names of this run that no other rule uses. */
void session_name(struct check *check, char ret_task[64]);
/* The spec of a session that is still to be provisioned: a name of its own when task is NULL, warm when it is "". */
struct session *session_plan(struct check *check, const char *task);
/* "", or NULL with NATIVE_POOL: no host asks such a provider for warm sessions. */
const char *session_warm(const struct check *check);
struct berth_spec session_spec(const struct session *session);
/* Provisions; the result is in session->rc too. `spec` NULL: the planned one. */
int session_provision(struct check *check, struct session *session, const struct berth_spec *spec);
int session_provision_ms(struct check *check, struct session *session, const struct berth_spec *spec, int64_t ms);
/* Planned, provisioned, ready; NULL after check_fail. */
struct session *session_make(struct check *check, const char *task);
int session_await(struct check *check, struct session *session);
struct session *session_shared(struct check *check);
void session_drop_shared(struct kit *kit);
/* Retries transient refusals; 0 once the provider confirmed. */
int session_release(struct kit *kit, struct session *session, struct err *err);
void session_take(struct session *session, const struct berth_session_info *info);
/* Waits until inspect says that it is gone or dead. */
bool session_wait_gone(struct check *check, struct session *session);
/* Among what the last operation of call emitted. */
const struct berth_session_info *session_among(const struct call *call, const char *ref, size_t *ret_times);
/* The pages of list, one after another: zeroed for the first. False: after the last one, or it failed and so did the check. */
struct pages {
	struct call *call; /* of the page that is there */
	struct cursors cursors;
	bool failed;
};
bool session_list(struct check *check, struct pages *pages);
/* All pages of list: how often the ref came, -1 on an error (reported). */
int session_listed(struct check *check, const char *ref);

/* run.c: one command, or one reattach. */
struct run {
	struct run *next;
	struct check *check;
	struct session *session;
	struct berth_command command;
	struct berth_resume resume;
	bool is_reattach;
	char id[48];
	const char *input;
	size_t input_len, input_at;
	int64_t limit_ms; /* the call's deadline, from its start */
	int refuse;	  /* the sink answers this err code from the first byte on */
	int (*taste)(struct run *run, unsigned stream, const char *ptr,
		     size_t len); /* instead of keeping; 0 = as expected */
	uint64_t taste_state[2];

	struct lock lock; /* LOCK_LEAF: everything below */
	struct cond cond;
	struct call *call;
	pthread_t thread;
	bool threaded, done;
	int rc;
	struct err err;
	struct berth_ending ending; /* kind 0: none came */
	char ending_reason[BERTH_REASON_MAX + 1];
	struct buf out[2];
	uint64_t total[2];
	unsigned started, gaps;
	char handle[BERTH_HANDLE_MAX];
	size_t handle_len;
	int64_t begin_ns, end_ns;
};
/* A command that is not started yet; `script` is kept by the caller or the check. */
struct run *run_plan(struct check *check, struct session *session, const char *script);
struct run *run_plan_reattach(struct check *check, struct session *session, const char *id, uint32_t attempt);
void run_do(struct run *run);	 /* on this thread */
void run_start(struct run *run); /* on its own */
bool run_wait(struct run *run, int64_t ms);
/* Until the text stands in its standard output. */
bool run_wait_output(struct run *run, const char *text, int64_t ms);
void run_cancel(struct run *run, uint32_t state);
int64_t run_took_ms(const struct run *run);
void run_end(struct run *run); /* for check_fini: makes it come back */
void run_free(struct run *run);
bool run_exited(const struct run *run, int code);
const char *run_ending_word(const struct run *run); /* "exit 3", "signal 9", "timeout", "no ending, not_found" */
/* Runs a script that must end with exit 0; its standard output, NUL-terminated, or NULL after check_fail. */
const char *run_shell(struct check *check, struct session *session, const char *script);
/* Waits, inside the session, until the script exits 0; fails the check with `what` when it never does. */
bool run_until(struct check *check, struct session *session, const char *script, const char *what);
/* True when the process whose id stands in that file of the session is gone; reports otherwise. */
bool run_pid_gone(struct check *check, struct session *session, const char *file);
int64_t run_count_lines(struct check *check, struct session *session, const char *file); /* -1: no such file */

/* file.c */
struct source {
	const char *ptr;
	size_t len, at, step;
	int end_rc;			     /* what the end of the source says */
	void (*peek)(struct source *source); /* called once in the middle */
	void *arg;
};
int file_write(struct check *check, struct session *session, const char *path, unsigned mode, uint64_t size,
	       struct source *source, struct err *err);
int file_put(struct check *check, struct session *session, const char *path, unsigned mode, const void *ptr, size_t len,
	     struct err *err);
int file_get(struct check *check, struct session *session, const char *path, uint64_t offset, uint64_t length,
	     struct buf *ret, struct err *err);
int file_import(struct check *check, struct session *session, const char *path, const void *ptr, size_t len,
		struct err *err);
/* From a source that may say something else at its end than that it was all. */
int file_import_from(struct check *check, struct session *session, const char *path, struct source *source,
		     struct err *err);
int file_export(struct check *check, struct session *session, const char *const *paths, size_t count, struct buf *ret,
		struct err *err);
/* Deterministic bytes that do not repeat soon. */
void file_fill(char *ptr, size_t len, uint64_t seed);
/* A folder of this rule alone below the root; its name. */
const char *file_dir(struct check *check);
/* One tar entry appended; the end is two zero blocks. */
void file_tar_entry(struct buf *tar, const char *name, char type, const char *link, unsigned mode, const void *data,
		    size_t len);
void file_tar_end(struct buf *tar);

/* report.c */
struct outcome {
	const struct rule *rule;
	enum verdict verdict;
	char message[KIT_TEXT_MAX];
	int64_t took_ms;
};
void report_begin(FILE *out, const struct kit *kit, size_t count);
void report_one(FILE *out, const struct kit *kit, size_t number, const struct outcome *outcome);
void report_end(FILE *out, const struct kit *kit, const struct outcome *outcomes, size_t count);
int report_summary(const struct kit *kit, const struct outcome *outcomes, size_t count, struct err *err);
void report_needs(const struct rule *rule, char *ret, size_t size); /* "REATTACH, commands" or "-" */

#endif
