/* SPDX-License-Identifier: Apache-2.0 */
/* A round over one target: its own list of sessions, and what is done about it. */
#ifndef SESSION_SWEEP_H
#define SESSION_SWEEP_H

#include "session/lookup.h"
#include "session/session_private.h"
#include "session/warm.h"

struct seen { /* everything that a provider lists, complete */
	struct made *sessions;
	size_t count, cap;
	struct map *refs;   /* ref -> struct made, and */
	struct map *tokens; /* token -> struct made */
	int64_t listed_ms;  /* store time before it was asked */
};

/* The job's arena holds it. An error is an error: nothing may be concluded then. */
int seen_list(struct job *job, struct seen *ret, struct err *err);
void seen_fini(struct seen *seen);

/* What the store says about itself. */
struct sweep_state {
	bool on;      /* orphans may be taken */
	bool pending; /* this target's sessions are still to be adopted */
};
int sweep_look(struct sessions *s, const struct target *target, struct sweep_state *ret, struct err *err);
/* After the store was lost: sessions that carry an identity get their row back. last: what is not ready by now is given
 * up. What could not be asked is marked in seen, and asked again in the next round. */
int sweep_adopt(struct job *job, const struct seen *seen, bool last, struct err *err);

/* The entries of the target's pool, beside the list. Works on what the former process left, replaces old and dead ones. */
int sweep_pool(struct job *job, const struct seen *seen, struct err *err);
/* Does the target have entries at all, or shall it? */
int sweep_has_pool(struct job *job, bool *ret, struct err *err);

#endif
