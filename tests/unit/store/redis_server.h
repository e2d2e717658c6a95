/* SPDX-License-Identifier: Apache-2.0 */
/* A redis-server of a test's own, on a socket in its folder. Failures fail the running test. */
#ifndef TESTS_STORE_REDIS_SERVER_H
#define TESTS_STORE_REDIS_SERVER_H

#include <sys/types.h>

#include "store/store.h"
#include "tempdir.h"

#define REDIS_SERVER_WORDS 24

struct redis_server {
	struct tempdir dir;
	pid_t pid; /* 0: not running */
	int port;  /* 0: the socket only */
	char socket[TEMPDIR_PATH];
	char url[TEMPDIR_PATH + 32];
	const char *clock_shim;		       /* not NULL: its wall clock is what redis_server_set_clock says */
	const char *words[REDIS_SERVER_WORDS]; /* more arguments, NULL at the end */
};

/* Starts one with an append-only file and noeviction; words (NULL at the end, may be NULL) are added after that. */
void redis_server_start(struct redis_server *server, const char *const *words);
/* The same on a free port of loopback, too. */
void redis_server_start_tcp(struct redis_server *server, const char *const *words);
/* The same with a wall clock of its own; clock_shim: the library made of shim/fakeclock.c. */
void redis_server_start_faked(struct redis_server *server, const char *clock_shim);
void redis_server_set_clock(struct redis_server *server, const char *offset); /* "+0", "+3600", "-120": seconds */
void redis_server_kill(struct redis_server *server);			      /* SIGKILL, and waits for the end */
void redis_server_again(struct redis_server *server);			      /* after a kill; waits until it answers */
void redis_server_launch(struct redis_server *server);			      /* after a kill; waits for nothing */
void redis_server_stop(struct redis_server *server);			      /* kill and remove the folder */
/* One command of words without blanks in them; the answer as text, of a list how long it is; to be freed. */
char *redis_server_ask(struct redis_server *server, const char *command);
char *redis_server_try(struct redis_server *server, const char *command); /* NULL: the connection failed */
void redis_server_must(struct redis_server *server, const char *command, const char *answer);
/* A moment to give, between two looks at what a test waits for. */
void redis_server_breathe(void);
/* A port that was free a moment ago. */
int redis_server_free_port(void);

/* Opens a store with the test's names. */
int redis_server_open(struct redis_server *server, const char *prefix, struct store **ret, struct err *err);

#endif
