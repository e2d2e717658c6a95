/* SPDX-License-Identifier: Apache-2.0 */
/* What a session is to the provider table: its state of life, its report, its runner, its removal. Any thread. */
#ifndef MOCK_SESSION_H
#define MOCK_SESSION_H

#include <berth/supervised.h>

#include "mock.h"

bool session_expired(const struct session *s);
int64_t session_expiry(const struct session *s); /* as the ABI tells it */
bool session_rebooted(const struct mock *m, const struct session *s);

/* A report that borrows its strings from m, s and root (filled here). */
#define SESSION_PATH_MAX 4352 /* of a file directly below a session */
void session_info(const struct mock *m, const struct session *s, char root[SESSION_PATH_MAX],
		  struct berth_session_info *ret);

/* Out of sight at once, then its processes, limits and files. 0; -ENOENT when it was not there; -ETIMEDOUT when
 * something still runs at deadline_ns; or another -errno. Repeating goes on where it stopped. */
int session_remove(struct mock *m, const char *ref, int64_t deadline_ns);
/* Finishes removals that died half-way at least age_ms ago. */
void session_sweep(struct mock *m, int64_t age_ms, int64_t deadline_ns);

/* What the supervised library needs to run commands of one session. Large: on the heap. */
struct runner {
	struct berth_sup sup;
	char run_dir[SESSION_PATH_MAX], root[SESSION_PATH_MAX], home[SESSION_PATH_MAX], tmp[SESSION_PATH_MAX];
	char cgroup[SESSION_PATH_MAX];
	char *own_env; /* of the spec */
	struct berth_pair *env;
};
/* 0 or -errno; free with runner_free. Makes the session's cgroup when limits are set. */
int runner_new(struct mock *m, const struct session *s, struct runner **ret);
void runner_free(struct runner *runner);

#endif
