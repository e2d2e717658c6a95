/* SPDX-License-Identifier: Apache-2.0 */
/* What outlives an executor process: the state directory with the pinned identity, the run directory and the marks. */
#ifndef EXECUTOR_STATE_H
#define EXECUTOR_STATE_H

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "token.h"

struct state {
	pthread_mutex_t lock;
	char root[PATH_MAX];	/* canonical */
	char run_dir[PATH_MAX]; /* <state>/run */
	int root_fd;
	int state_fd; /* locked: one executor per state directory */
	int run_fd;
	int marks_fd;
	char instance[33];
	char boot_id[33];
	char run_id[33]; /* of the state directory */
	bool pinned;
	char workspace_id[TOKEN_ID_MAX + 1]; /* once pinned they never change */
	char task_id[TOKEN_ID_MAX + 1];
};

/* Opens or makes root and state directory. shared: commands run as another user. 0, or -1 with a sentence in text. */
int state_open(struct state *state, const char *root, const char *dir, bool shared, char *text, size_t cap);

/* 0 = this is the identity served, pinned now if there was none; -EACCES = another one is; other negative errno: it
 * could not be pinned. Any thread. */
int state_pin(struct state *state, const char *workspace_id, const char *task_id);
bool state_pinned(struct state *state);

/* NULL, or what was lost for good: "state_lost", "root_lost". */
const char *state_lost(const struct state *state);

/* Takes the attempt for an execution id: 0; -ESTALE: a higher one has asked before; -EBADMSG: none is known to have, but a
 * mark is damaged, and will be for as long as the session lives; or another negative errno. */
int state_attempt(struct state *state, const char *execution_id, uint32_t attempt);

#endif
