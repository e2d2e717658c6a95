/* SPDX-License-Identifier: Apache-2.0 */
/* What a provider told of a task's sessions, and which of them the task may use. */
#ifndef SESSION_LOOKUP_H
#define SESSION_LOOKUP_H

#include "session/session_private.h"

struct made { /* a session as a provider told of it; strings in the job's arena */
	const char *ref, *state, *boot_id, *root, *intent, *workspace, *task;
	size_t state_len;
	int64_t created_ms, expires_ms;
	uint32_t isolation, phase;
	bool unasked; /* of the sweep: what it is could not be learned, so that it is left alone */
};

int made_copy(struct arena *arena, const struct berth_session_info *info, struct made *ret, struct err *err);
/* A later word about the same session: what it leaves out is kept, but for the identity, which is always told. */
void made_merge(struct made *made, const struct made *told);
/* Seals the state for the row. */
int made_seal(struct job *job, const struct made *made, struct binding_session *ret, struct err *err);

/* The one to use: exactly one usable; of several that of our intent, else the oldest; NULL: none. ours: only what carries the row's
 * intent is usable. Dead ones and those with a superseded token never are. Pure. */
const struct made *lookup_pick(const struct made *found, size_t count, const struct binding *row, bool ours);
bool lookup_superseded(const struct binding *row, const char *intent);

/* Asks the provider for the task's sessions. An error is an error, never "none". */
int lookup_find(struct job *job, int64_t deadline_ns, struct made **ret, size_t *ret_count, struct err *err);

#endif
