/* SPDX-License-Identifier: Apache-2.0 */
/*
 * berthctl: what its commands share. One thread. A command is one row of the table in main.c; it gets its own arguments and
 * returns an exit code.
 */
#ifndef CTL_CTL_H
#define CTL_CTL_H

#include <json-c/json_object.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/buf.h"

/* Exit codes. `exec` passes the command's own code on and uses EXIT_BERTH for everything that is ours. */
enum {
	CTL_OK = 0,
	CTL_ERROR = 1,
	CTL_USAGE = 2,
	CTL_NOT_FOUND = 3,   /* no such task, file, execution; session gone or expired */
	CTL_DENIED = 4,      /* 401, 403 */
	CTL_UNAVAILABLE = 5, /* try again later: 429, 503, 504, daemon not reachable */
	CTL_REFUSED = 6,     /* the request can never work: 400, 409, 413, 422, 501 */
	CTL_BERTH = 125,     /* exec: Berth could not run the command or does not know its outcome */
	CTL_CANCELLED = 130, /* exec: the command was cancelled */
};

/* Where and as whom: flags, environment, file. */
struct ctl {
	char *address;   /* --address, BERTH_ADDRESS, `address` in the file; default http://127.0.0.1:8000 */
	char *token;     /* --token-file, BERTH_TOKEN, `token` in the file */
	char *workspace; /* --workspace, BERTH_WORKSPACE, `workspace`; default "default" */
	bool json;
	bool help;
};

/* Options of one command, a row each; `name` NULL ends. */
struct ctl_option {
	const char *name;
	char letter; /* 0 = none */
	const char *argument; /* word shown in the help; NULL = a flag (bool *) */
	void *value;          /* bool * or char ** (borrowed from argv) */
	const char *doc;
};

struct ctl_command {
	const char *name;
	const char *usage; /* what follows the name */
	const char *doc;   /* one sentence */
	const char *more;  /* further help with examples, or NULL */
	int (*run)(struct ctl *ctl, const struct ctl_command *command, int argc, char **argv);
};

/* Parses argv[1…] by the command's rows and the shared ones; loads the file and environment. Returns the index of the first operand, or
 * -exit code - 1 when the command should return (help was printed, or usage was wrong). Operand count is checked against
 * [least, most] (most < 0: any). Everything after the first operand is left alone when `stop_early`. */
int ctl_parse(struct ctl *ctl, const struct ctl_command *command, const struct ctl_option *options, int argc, char **argv,
	      int least, int most, bool stop_early);
#define CTL_PARSED_EXIT(parsed) (-(parsed)-1)
void ctl_help(const struct ctl_command *command, const struct ctl_option *options);
int ctl_config(struct ctl *ctl); /* 0 or an exit code, with the sentence printed */
void ctl_fini(struct ctl *ctl);

/* "berthctl: <text>" on standard error; returns code. */
int ctl_fail(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- HTTP (client.c) ---- */
struct ctl_reply {
	long status; /* 0: no answer, and the sentence has been printed unless quiet */
	struct buf body;
	struct json_object *json; /* parsed when the body is JSON */
	int64_t retry_after_ms;
};
void ctl_reply_fini(struct ctl_reply *reply);
/* One exchange with a small answer. path holds the query already (ctl_query). Body NULL = none. Returns 0 when an answer came. */
int ctl_call(struct ctl *ctl, const char *method, const char *path, const char *body, struct ctl_reply *reply);
/* Prints the API's error sentence and what to do next; returns the exit code for the status. */
int ctl_explain(const struct ctl *ctl, const struct ctl_reply *reply, const char *what);
/* Appends "?key=value" or "&key=value", percent-encoded; value NULL = nothing. */
void ctl_query(struct buf *path, const char *key, const char *value);
/* Appends one percent-encoded path component. */
void ctl_component(struct buf *path, const char *text);

/* Streams. download: body to fn; upload: body from fn. */
typedef int (*ctl_sink)(void *arg, const void *ptr, size_t len);     /* non-zero stops */
typedef long (*ctl_source)(void *arg, void *buf, size_t cap);        /* bytes, 0 = end, -1 = error */
int ctl_download(struct ctl *ctl, const char *path, ctl_sink sink, void *arg, struct ctl_reply *reply);
int ctl_upload(struct ctl *ctl, const char *path, ctl_source source, void *arg, int64_t size, struct ctl_reply *reply);

/* ---- following a command (follow.c) ---- */
/* Copies both streams to standard output and error as they come, reconnecting by offset, until the command ends. */
int ctl_follow(struct ctl *ctl, const char *id, bool want_stdout, bool want_stderr);
/* Waits for the terminal record; the caller puts it. Interrupted by SIGINT: cancels the execution once and goes on. */
int ctl_wait_terminal(struct ctl *ctl, const char *id, struct json_object **ret);
/* SIGINT and SIGTERM ask for cancel of id from now on; NULL = default again. */
void ctl_cancel_on_signal(const char *id);
/* Sends the cancel that a signal asked for, once. Called again and again while an exchange waits. */
void ctl_pass_interrupt(struct ctl *ctl);

/* ---- output (table.c) ---- */
struct ctl_column {
	const char *title;
	const char *path; /* dotted path in each item */
	bool shrink;      /* cut when the terminal is too narrow */
};
/* Prints items as a table that fits the terminal; columns end with title NULL. */
void ctl_table(struct json_object *items, const struct ctl_column *columns);
void ctl_json(struct json_object *json); /* pretty, to standard output */
const char *ctl_text(struct json_object *json, const char *path); /* "" when absent; scalars as text, borrowed */
int64_t ctl_number(struct json_object *json, const char *path, int64_t absent);
struct json_object *ctl_at(struct json_object *json, const char *path);
/* Durations as "15m", "900s" or plain seconds, into whole seconds; -1 when not one. */
int64_t ctl_seconds(const char *text);
/* Fetches every page of a list route into one array; 0 or an exit code. */
int ctl_list(struct ctl *ctl, const char *path, int64_t limit, struct json_object **ret_items);

int ctl_exec(struct ctl *ctl, const struct ctl_command *command, int argc, char **argv);
int ctl_put(struct ctl *ctl, const struct ctl_command *command, int argc, char **argv);
int ctl_get(struct ctl *ctl, const struct ctl_command *command, int argc, char **argv);
int ctl_ls(struct ctl *ctl, const struct ctl_command *command, int argc, char **argv);
int ctl_cat(struct ctl *ctl, const struct ctl_command *command, int argc, char **argv);
int ctl_task(struct ctl *ctl, const struct ctl_command *command, int argc, char **argv);
int ctl_sessions(struct ctl *ctl, const struct ctl_command *command, int argc, char **argv);
int ctl_retire(struct ctl *ctl, const struct ctl_command *command, int argc, char **argv);
int ctl_executions(struct ctl *ctl, const struct ctl_command *command, int argc, char **argv);
int ctl_logs(struct ctl *ctl, const struct ctl_command *command, int argc, char **argv);
int ctl_cancel(struct ctl *ctl, const struct ctl_command *command, int argc, char **argv);
int ctl_verify(struct ctl *ctl, const struct ctl_command *command, int argc, char **argv);

#endif
