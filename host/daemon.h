/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of berthd share that belong to no layer: the daemon's parts in one struct, and what main.c makes of it.
 * All of it is the main thread's.
 */
#ifndef DAEMON_H
#define DAEMON_H

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "conf/conf.h"
#include "core/err.h"
#include "core/ident.h"

#define EXIT_USAGE 2
#define EXIT_IN_USE 75 /* sysexits.h: EX_TEMPFAIL; another process has it, a later start may get it */
#define EXIT_CONFIG 78 /* sysexits.h: EX_CONFIG */

struct host {
	struct conf *conf;
	const struct conf *read_last; /* by a reload, and in the api's keeping; NULL: there was none */
	struct store *store;
	struct seal *seal;
	struct blob_store *blobs;
	struct registry *registry;
	struct watch *watch;
	struct sessions *sessions;
	struct executions *executions;
	struct api *api;
	bool sessions_run, executions_run;
	int64_t stop_by_ns;
	bool dev;
	sigset_t signals; /* blocked from the beginning; serve waits for them */
	char id[IDENT_ID_MAX + 1];
	char probe[PATH_MAX]; /* this program */
	struct conf one;      /* of -t: the configuration with the targets to open, and another state_dir */
};

/* parts.c: what a daemon consists of, started in the order of one list and stopped the other way. */

/* By serve. Stops at the first part that does not start: its place and its words, and what was started before it runs. */
int parts_start(struct host *host, const char **ret_place, struct err *err);
/* By serve, whatever was started. False: something is stuck; it was named in the log, and nothing may be freed under it. */
bool parts_stop(struct host *host);
/* After parts_stop, or after a check. */
void parts_free(struct host *host);
/* Two of the parts that a check tries too. */
int parts_limits(struct host *host, struct err *err);
int parts_providers(struct host *host, struct err *err);
/* The path of this program, which the probes of plugins run. */
int parts_program(char ret[PATH_MAX], struct err *err);

/* serve.c: the daemon from its start to its stop, by signals; the service manager hears of both. */

/* By main, before there is another thread. */
void serve_block_signals(struct host *host);
/* By main with a configuration read; returns the exit code, when everything is stopped. */
int serve(struct host *host);

/* reload.c: by serve, at each SIGHUP. What is running stays as it is unless the whole of the new configuration is good. */
void reload(struct host *host);

/* check.c: -t, by main with a configuration read. Everything a start would check, short of opening the store and the
 * port; of one target, what is its own. NULL: of all. Prints the effective configuration when there is nothing to say
 * against it; returns the exit code. */
int check_conf(struct host *host, const char *target);

/* overdue.c: by parts.c. From begin to end a stop that is not over by then ends the process, with 1, and the part it was at is
 * named. */
void overdue_begin(int64_t by_ns);
void overdue_at(const char *part);
void overdue_end(void);

/* fail.c: by whoever ends the program. One sentence, "berthd: <place>: <why>", and the exit code of the error. */
int fail(const char *place, const struct err *err);
int fail_code(const struct err *err);

#endif
