/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One host for the component tests: the real SQLite store, object folder, mock provider and sessions, with executions
 * on top, in a folder of its own. It can be stopped or crashed and brought up again on what it left.
 */
#ifndef TEST_EXECUTION_SETUP_H
#define TEST_EXECUTION_SETUP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "execution/execution.h"
#include "execution/record.h"

#define WAIT_MS 60000 /* every wait is for a condition; this only ends a test that hangs */

struct host {
	char dir[64];
	char db[96], root[96], faults[96], key[96], objects[96];
	struct conf conf;
	struct conf_target target;
	struct conf_pair settings[8];
	struct store *store;
	struct blob_store *blobs;
	struct registry *registry;
	struct watch *watch;
	struct seal *seal;
	struct sessions *sessions;
	struct executions *e;
	unsigned starts;
	char id[32];
};

/* A folder and a configuration; change host->conf before host_up. runtime: "process" or "null". */
void host_make(struct host *host, const char *runtime);
void host_up(struct host *host);
void host_down(struct host *host, int64_t grace_ms); /* a stop in good order */
void host_die(struct host *host);		     /* from here on it writes nothing, not even that it stops */
void host_crash(struct host *host);		     /* nothing more is written */
void host_end(struct host *host);		     /* removes the folder */

/* Fixtures of a test whose initial state is the host: made, with runtime "process"; made and up; down and removed. */
int host_setup_made(void **state);
int host_setup(void **state);
int host_teardown(void **state);

void host_faults(struct host *host, const char *rules);
long host_counter(struct host *host, const char *name);
size_t host_sessions(struct host *host);

/* A create request for task of workspace "ws"; returns its code. */
struct execution_create host_request(const char *task, const char *body);
int host_create(struct host *host, const struct execution_create *in, char ret_id[IDENT_ID_MAX + 1]);
void host_start(struct host *host, const char *task, const char *body, char ret_id[IDENT_ID_MAX + 1]);
/* Waits for the record to be terminal, or to have a status. */
void host_finish(struct host *host, const char *id);
void host_until(struct host *host, const char *id, const char *status);
/* One from its start to its end, with a legal history. */
void host_run(struct host *host, const char *task, const char *body, char ret_id[IDENT_ID_MAX + 1]);
/* Until check(arg) holds, looking again now and then. */
void host_wait(struct host *host, bool (*check)(void *arg), void *arg);

/* A member of the shown record, "result.exit_code"; "" when absent. The caller frees. */
char *host_get(struct host *host, const char *id, const char *path);
void host_expect(struct host *host, const char *id, const char *path, const char *value);
/* The whole output; malloc'ed. */
char *host_output(struct host *host, const char *id, unsigned stream, size_t *ret_len);
void host_expect_output(struct host *host, const char *id, unsigned stream, const char *text);
/* The kinds of an execution's events, "requested claimed started completed"; and entries of a stream. */
void host_kinds(struct host *host, const char *id, char *ret, size_t cap);
size_t host_stream(struct host *host, enum store_stream stream);
void host_check_history(struct host *host, const char *id);
bool host_has_row(struct host *host, enum store_table table, const char *key);

#endif
