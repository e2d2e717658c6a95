/* SPDX-License-Identifier: Apache-2.0 */
/*
 * berthctl: what its commands share. A command is one row of the table in commands.c: help, shell completion and man pages
 * are made of the same rows. Commands run on the main thread and return an exit code of CTL_EXITS.
 */
#ifndef CTL_CTL_H
#define CTL_CTL_H

#include <json-c/json_object.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/buf.h"

/* X(NAME, code, sentence). `exec` passes the command's own code on and says BERTH for everything that is ours. */
#define CTL_EXITS(X)                                                                                                   \
	X(OK, 0, "done")                                                                                               \
	X(ERROR, 1, "failed, here or in the daemon; a part could not be copied; what was compared differs")            \
	X(USAGE, 2, "wrong arguments or settings")                                                                     \
	X(NOT_FOUND, 3, "no such task, file, execution or target, or its session is gone")                             \
	X(DENIED, 4, "the token is missing, not known, or does not allow this")                                        \
	X(UNAVAILABLE, 5, "berthd cannot be reached, or something asks to try again later")                            \
	X(REFUSED, 6, "this can never work as it is: invalid, in conflict, too large, not supported")                  \
	X(BERTH, 125, "exec and wait only: the command was not run, or its outcome is not known")                               \
	X(CANCELLED, 130, "exec and wait only: the command was cancelled")

enum ctl_exit {
#define X(name, code, text) CTL_##name = code,
	CTL_EXITS(X)
#undef X
};

/* Where and as whom: flags, environment, file, in this order (settings.c). */
struct ctl {
	char *address;
	char *token;	 /* NULL: none is set */
	char *token_from; /* words for messages: "BERTH_TOKEN", "the file /…" */
	char *workspace;
	char *ca_file; /* NULL: the system's certificates */
	bool json;
	/* A sandbox that an upload waits for (waiting.c). */
	const char *waits_for;
	int64_t waits_since_ns;
	bool waits_shown;
	bool hurried;	/* completion: short limits, nothing is said */
	void *easy;	/* client.c: the handle that keeps the connection */
	bool easy_busy; /* it is inside an exchange: a nested one takes another */
};

/* ---- the table of commands ---- */

enum ctl_type {
	CTL_FLAG, /* bool */
	CTL_TEXT, /* const char *, NULL = not given */
	CTL_TIME, /* int64_t seconds; text as 90s, 10m or plain seconds */
	CTL_COUNT, /* int64_t, 1 or more */
	CTL_MANY, /* struct ctl_many: may be given again and again */
};

struct ctl_many {
	const char **words; /* borrowed from argv */
	size_t count;
};

/* One option; rows end with name NULL. `off` is in the command's own struct of options. */
struct ctl_option {
	const char *name;
	char letter; /* 0 = none */
	enum ctl_type type;
	const char *argument; /* the word shown; NULL for a flag. FILE is completed with local files */
	size_t off;
	const char *doc;
	const char *words; /* blank-separated values that it may have, or NULL */
};

struct ctl_args {
	int count;
	char **words;	     /* operands */
	bool dashes;	     /* "--" stood there: what follows is meant as operands */
	const void *options; /* the command's own struct */
};

#define CTL_LOCAL 1u /* needs no daemon: takes neither address nor token */
#define CTL_STOPS 2u /* after the first operand and options only operands follow, whatever they look like */
#define CTL_PASSES 4u /* the exit code is a command's: every error of our own is CTL_BERTH */
#define CTL_OPEN 8u /* completion offers executions that have not ended */
#define CTL_OPTIONS_MAX 256

/* What --json makes of a command: X(NAME, sentence for help). The one rule of all of them stands in ctl_json_rule. */
#define CTL_SHAPES(X)                                                                                                  \
	X(ONE, "print JSON: one object")                                                                               \
	X(LIST, "print JSON: {\"items\": […]}")                                                                        \
	X(LINES, "print JSON: one object a line")                                                                      \
	X(NONE, NULL)

enum ctl_shape {
#define X(name, text) CTL_SHAPE_##name,
	CTL_SHAPES(X)
#undef X
};
extern const char ctl_json_rule[]; /* for people; document.c */

struct ctl_command {
	const char *name;  /* one or two words */
	const char *usage; /* operands: WORD, [WORD], and … at the end of one that repeats. Completion knows some of the words */
	const char *doc;   /* one sentence */
	const char *more;  /* further help, or NULL */
	const char *examples; /* lines, or NULL */
	const struct ctl_option *options;
	size_t options_size;
	unsigned flags;
	enum ctl_shape json;
	int (*run)(struct ctl *ctl, const struct ctl_args *args);
};
/* The sentence of its --json; NULL where it has none. */
const char *ctl_shape_text(const struct ctl_command *command);

struct ctl_group {
	const char *title;
	const struct ctl_command *commands; /* name NULL ends */
};
extern const struct ctl_group ctl_groups[]; /* title NULL ends */

/* The command that the first words name and how many words that took; NULL when there is none. */
const struct ctl_command *ctl_find(int argc, char **argv, int *ret_words);
/* "there is no command …" with the nearest one, or the list of a family ("providers"); CTL_USAGE. */
int ctl_no_command(int argc, char **argv);

/* Options that every command takes, in `struct ctl_shared`; of a CTL_LOCAL one the last two only, without JSON the last one. */
struct ctl_shared {
	const char *address, *token_file, *workspace, *ca_file;
	bool json, help;
};
extern const struct ctl_option ctl_shared_options[];
const struct ctl_option *ctl_shared_of(const struct ctl_command *command);

/* The option of the command, its own or shared, that the word's first len bytes are ("--name" or "-n"); NULL when none is. */
const struct ctl_option *ctl_option_of(const struct ctl_command *command, const char *word, size_t len);
/* Refuses a word that would be a token on the command line: "--token", a shortened --token-file. The value is never printed. */
int ctl_refuse_token(const char *word);
/* argv[0…] after the command's name, into operands, its options (zeroed by the caller) and the shared ones. 0, or CTL_USAGE
 * with the sentence printed. ctl_args_fini frees what parsing made. */
int ctl_args_parse(const struct ctl_command *command, int argc, char **argv, struct ctl_shared *shared, void *options,
		   struct ctl_args *ret);
void ctl_args_fini(const struct ctl_command *command, void *options, struct ctl_args *args);

/* One operand of a usage text; next: its end. False at the end. */
struct ctl_operand {
	char name[32];
	bool optional, repeats;
};
bool ctl_operand_next(const char **usage, struct ctl_operand *ret);

int ctl_settings(struct ctl *ctl, const struct ctl_shared *shared); /* 0 or an exit code, with the sentence printed */
void ctl_fini(struct ctl *ctl);

/* Settings by environment and file: name, sentence. NULL ends. For help and man page. */
struct ctl_setting {
	const char *name, *doc;
};
extern const struct ctl_setting ctl_environment[], ctl_file_keys[];

void ctl_usage(FILE *out);
void ctl_help(const struct ctl_command *command);
int ctl_man(const char *page);
/* Lists what may follow words[0…count-1], the last of them unfinished, for the shells' scripts. */
int ctl_complete(int count, char **words);

/* "berthctl: <text>" on standard error, without control bytes but line breaks; returns code. */
int ctl_fail(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A 2xx that no berthd gives; says so. */
int ctl_not_berthd(const struct ctl *ctl);

/* ---- HTTP (client.c) ---- */
struct ctl_reply {
	long status; /* 0: no answer, and the sentence has been printed */
	struct buf body;
	struct json_object *json; /* parsed when the body is JSON */
	int64_t retry_after_ms;
	int64_t size;  /* Content-Length; -1 when there was none */
	unsigned mode; /* X-AgentArea-File-Mode; 0 when there was none */
	bool lost;     /* the connection ended when an answer was due: what was asked for may have happened */
};
void ctl_reply_fini(struct ctl_reply *reply);
/* One exchange with a small answer. path holds the query already (ctl_query). Body NULL = none. Returns 0 when an answer came. */
int ctl_call(struct ctl *ctl, const char *method, const char *path, const char *body, struct ctl_reply *reply);
/* The same with one more header, and silent about a connection that failed (reply->lost, and the code). */
int ctl_try(struct ctl *ctl, const char *method, const char *path, const char *body, const char *header,
	    struct ctl_reply *reply);
/* Prints the API's error sentence and what to do next (hint, or what the status suggests); returns the exit code. */
int ctl_explain(const struct ctl *ctl, const struct ctl_reply *reply, const char *what, const char *hint);
/* The same about a file of a task: where the task is what is missing, that is what is named. */
int ctl_explain_file(const struct ctl *ctl, const struct ctl_reply *reply, const char *task, const char *name);
/* What opens a target again, where the sentence says that one is drained. */
void ctl_hint_drained(const char *sentence);
int ctl_code_of(long status);
/* As good as no answer for what is to be had in the end: the same may be answered otherwise by the next try, or the next daemon. */
bool ctl_comes_back(long status);
/* Appends "?key=value" or "&key=value", percent-encoded; value NULL = nothing. */
void ctl_query(struct buf *path, const char *key, const char *value);
/* Appends one percent-encoded path component. */
void ctl_component(struct buf *path, const char *text);
void ctl_disconnect(struct ctl *ctl); /* gives the kept connection up */
/* A second user of the same settings, for another thread; it borrows them, and ends with ctl_disconnect. */
struct ctl ctl_twin(const struct ctl *ctl);

/* Streams. download: body to sink; upload: body from source. Nothing is printed for an answer; a failed connection is said
 * unless ctl->hurried. `begun` is called when the head of a good answer is there. */
typedef int (*ctl_sink)(void *arg, const void *ptr, size_t len); /* non-zero stops */
typedef long (*ctl_source)(void *arg, void *buf, size_t cap);	  /* bytes, 0 = end, -1 = error */
struct ctl_download {
	const char *header; /* one more, or NULL */
	ctl_sink sink;
	void (*begun)(void *arg, const struct ctl_reply *reply); /* or NULL */
	void *arg;
	bool silent; /* says nothing about a connection that failed */
	bool patient; /* may be silent for as long as it likes */
};
int ctl_download(struct ctl *ctl, const char *path, const struct ctl_download *how, struct ctl_reply *reply);
struct ctl_upload {
	ctl_source source;
	void *arg;
	int64_t size; /* -1 = not known */
	bool silent;
};
int ctl_upload(struct ctl *ctl, const char *path, const struct ctl_upload *how, struct ctl_reply *reply);

#define CTL_NO_TASK "berthctl sessions lists the tasks of a workspace; -w NAME names another one"

/* ---- executions (follow.c, execute.c, ending.c) ---- */
/* What to do about an execution that is not known: the word may name a task. */
const char *ctl_no_execution(const char *word);
/* "/sandbox/executions/<id><rest>" into path (initialised here). */
void ctl_execution_path(struct buf *path, const char *id, const char *rest);
/* Copies both streams to standard output and error; live: until the command ends, reconnecting by offset, else what is there. */
int ctl_follow(struct ctl *ctl, const char *id, bool want_stdout, bool want_stderr, bool live);
/* On a terminal: says that a command still waits for its sandbox, until it runs. */
void ctl_wait_running(struct ctl *ctl, const char *id, const char *task);
/* The same of an upload, between begin and end; each tick of its exchange looks (waiting.c). */
void ctl_waiting_begin(struct ctl *ctl, const char *task);
void ctl_waiting_tick(struct ctl *ctl);
void ctl_waiting_end(struct ctl *ctl);
/* Says what the task waits for since then, with the record's status where it is a command that waits; true when it said. */
bool ctl_waiting_say(struct ctl *ctl, const char *task, const char *status, int64_t since_ns);
bool ctl_is_end(const char *status);
/* Waits for the terminal record; the caller puts it. */
int ctl_wait_terminal(struct ctl *ctl, const char *id, struct json_object **ret);
/* An outage while something is followed (outage.c): what takes a while is said, once, and tried for CTL_OUTAGE_MS in all. */
#define CTL_OUTAGE_MS 60000 /* a daemon that is being replaced is back by then */
void ctl_outage_noticed(void); /* at each try that failed */
void ctl_outage_over(void);    /* at each answer */
/* What of its outputs a terminal record says is not there: cut at a limit, lost on the way. One line each; nothing when all is. */
void ctl_missing_text(struct buf *out, struct json_object *record, bool of_stdout, bool of_stderr);
void ctl_say_missing(struct json_object *record, bool of_stdout, bool of_stderr);
/* The exit code of exec for a terminal record, with a sentence for what a code alone does not tell. */
int ctl_end(struct json_object *record, bool quiet);
/* SIGINT and SIGTERM ask for a cancel from now on, of the execution that ctl_cancel_target names; a second one leaves. */
void ctl_cancel_on_signal(void);
void ctl_cancel_target(const char *id);
void ctl_leave_behind(const char *sentence); /* the line to say on leaving, lent; NULL: nothing is left */
/* Sends the cancel that was asked for until it is taken or refused for good. Called again and again while an exchange waits. */
void ctl_pass_interrupt(struct ctl *ctl);

/* What an execution is asked for with. */
struct ctl_create {
	const char *task, *cwd, *region, *env_ref, *stdin_ref, *key;
	int64_t timeout; /* seconds; 0 = the daemon's */
	bool keep;
	const char *script;
	size_t script_len;
};
/* Creates it, exactly once even when answers are lost. 0 or an exit code, with the sentence printed; the caller puts the record. */
int ctl_create(struct ctl *ctl, const struct ctl_create *create, struct json_object **ret);
/* Runs a small script of our own and gives its standard output. 0 or an exit code, with the sentence printed. */
int ctl_run_script(struct ctl *ctl, const char *task, const char *script, struct buf *out);
/* Appends the word as one word of a shell. */
void ctl_quote(struct buf *script, const char *word);

/* Ctrl-C sets a flag from now on that ends exchanges and workers, so that they can clean up (interrupt.c); or no more. */
void ctl_stop_on_signal(bool on);
bool ctl_stopped(void);
void ctl_die_if_stopped(void); /* by that signal, at the end */

/* ---- files (content.c) ---- */
/* "/sandbox/<route>?workspace_id=…&task_id=…&<key>=<name>" into path (initialised here). */
void ctl_file_path(struct buf *path, const struct ctl *ctl, const char *route, const char *task, const char *key,
		   const char *name);
/* Sends what fd holds as the file `name` of the task; label for progress. 0 or an exit code, with the sentence printed. */
int ctl_send(struct ctl *ctl, const char *task, const char *name, int fd, const char *label, unsigned mode,
	     struct json_object **ret);
int ctl_send_bytes(struct ctl *ctl, const char *task, const char *name, const void *ptr, size_t len);
int ctl_remove(struct ctl *ctl, const char *task, const char *name, bool recursive);
const char *ctl_base_name(const char *path);

/* ---- progress (progress.c): on a terminal's standard error only, and only for what takes a while ---- */
struct ctl_progress {
	const char *label;
	int64_t total; /* bytes; -1 = not known */
	int64_t done;
	int64_t files, files_done; /* 0 files: of one */
	int64_t began_ns, shown_ns;
	bool on, shown;
};
void ctl_progress_begin(struct ctl_progress *p, const char *label, int64_t total);
void ctl_progress_add(struct ctl_progress *p, int64_t bytes);
void ctl_progress_end(struct ctl_progress *p); /* takes the line away */
void ctl_progress_line(const struct ctl_progress *p, int64_t now_ns, struct buf *line);
void ctl_put_bytes(struct buf *out, int64_t bytes); /* "12.3 MiB" */

/* ---- output (table.c, value.c) ---- */
enum ctl_form { CTL_PLAIN, CTL_AGE, CTL_AGO, CTL_UNTIL, CTL_MS, CTL_BYTES, CTL_LIST };
struct ctl_column {
	const char *title;
	const char *path; /* dotted path in each item */
	bool shrink;	  /* cut when the terminal is too narrow */
	enum ctl_form form;
};
/* Prints items as a table that fits the terminal; columns end with title NULL. */
void ctl_table(struct json_object *items, const struct ctl_column *columns);
/* The same as text, at most `room` columns wide (SIZE_MAX = any); `wide`: the terminal knows UTF-8. */
void ctl_table_text(struct buf *out, struct json_object *items, const struct ctl_column *columns, size_t room, bool wide,
		    int64_t now_ms);
/* Prints one thing as "title value" rows; absent ones are left out. */
void ctl_rows(struct json_object *item, const struct ctl_column *rows);
void ctl_value(struct buf *out, struct json_object *item, const struct ctl_column *column, int64_t now_ms);
/* Text with control bytes shown as '?'. */
void ctl_clean(struct buf *out, const char *text);
/* Bytes of the control character there, also of those that have two in UTF-8; else 0. */
size_t ctl_control(const char *at);

/* The document of a command, once (document.c): pretty, to standard output; NULL = {}. */
void ctl_json(struct json_object *json);
void ctl_json_items(struct json_object *items); /* {"items": items}; takes none of the caller's references */
void ctl_json_line(struct json_object *json);	/* one of a stream */
/* What became of one of several things, {name: word, done: true} or with "error" and "message"; the caller's to put. */
struct json_object *ctl_json_item(const char *name, const char *word, const char *done, int rc, const struct ctl_reply *reply);
/* For the document of a command that failed without one: the first answer that was an error, the first sentence of our own. */
void ctl_json_refused(struct json_object *answer);
void ctl_json_failed(int code, const char *sentence);
/* At the end of a command with --json: an error that no document told becomes one. */
void ctl_json_end(const struct ctl_command *command, int rc);
const char *ctl_text(struct json_object *json, const char *path); /* "" when absent; scalars as text, borrowed */
int64_t ctl_number(struct json_object *json, const char *path, int64_t absent);
struct json_object *ctl_at(struct json_object *json, const char *path);
/* Of an array in an answer; 0 where something else stands, as whoever answers may be no berthd. */
size_t ctl_length(struct json_object *list);
/* Durations as "15m", "900s" or plain seconds, into whole seconds; -1 when not one. */
int64_t ctl_seconds(const char *text);
/* Fetches the pages of a list route into one list as the API answers it, "items" and, where limit cut it, "next_cursor"; 0 or an
 * exit code, with the sentence printed about `what`. */
int ctl_list(struct ctl *ctl, const char *what, const char *path, int64_t limit, struct json_object **ret_list);
/* One exchange whose good answer is printed: JSON with --json, else by `show` (NULL: as JSON). */
int ctl_show(struct ctl *ctl, const char *method, const char *path, const char *what, const char *hint,
	     void (*show)(struct json_object *json));

#endif
