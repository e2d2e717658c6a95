/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Warm sessions: provisioned without a task, kept ready, given to the next new task. One row of STORE_WARM per entry, key
 * target/intent. An entry stays "reserved" for as long as its binding's incarnation, so that the sweep can tell by a session's
 * token alone that it belongs to somebody. Entry functions are pure; those with a txn run inside steps.
 */
#ifndef SESSION_WARM_H
#define SESSION_WARM_H

#include "session/lookup.h"
#include "session/session_private.h"

#define WARM_KEY_MAX IDENT_KEY_MAX

/* making -> ready -> reserved -> (ready, when it never had a task) or gone; any but reserved -> releasing -> gone */
#define WARM_STATES(X) X(ABSENT, "") X(MAKING, "making") X(READY, "ready") X(RESERVED, "reserved") X(RELEASING, "releasing")
enum warm_state {
#define X(name, word) WARM_##name,
	WARM_STATES(X)
#undef X
		WARM_STATE_COUNT
};

struct warm_entry {
	const char *state_word; /* stored form of state; use state */
	enum warm_state state;
	const char *key, *target; /* from the row's key */
	const char *intent;
	const char *pool_key;
	const char *owner;	 /* making: host whose job makes it */
	int64_t create_until_ms; /* making: a create could last have been sent by then */
	const char *ref, *sealed_state, *boot_id, *root, *isolation; /* sealed for the entry's key */
	int64_t created_ms, expires_ms;
	int64_t made_ms;  /* ready since */
	const char *task; /* reserved for */
	bool used;	  /* it was, or may have been, given its task: never back to the pool */
	int64_t tries, next_ms; /* releasing */
	const char *error;
};

/* ---- pure ---- */
void warm_key(const char *target, const char *intent, char ret[WARM_KEY_MAX + 1]);
int warm_decode(struct arena *arena, const char *key, const char *doc, size_t len, struct warm_entry *ret, struct err *err);
/* Does it take one of the pool's slots? */
bool warm_counts(enum warm_state state);
/* Past half of what its provider grants: to be replaced. */
bool warm_is_old(const struct warm_entry *entry, int64_t now);
/* Fit for an operation that may take lasts_ms? */
bool warm_fits(const struct warm_entry *entry, const char *pool_key, int64_t now, int64_t margin_ms, int64_t lasts_ms);
/* What makes sessions of a target interchangeable. */
void warm_pool_key(const struct target *target, char ret[65]);
void warm_to_ready(struct warm_entry *entry, int64_t now);
void warm_to_releasing(struct warm_entry *entry, int64_t now);
/* A release was tried and not confirmed. */
void warm_release_failed(struct warm_entry *entry, int64_t now, int64_t most_ms, const char *why);

/* ---- inside steps ---- */
/* Absent: state WARM_ABSENT. */
int warm_get(struct txn *txn, const char *key, struct warm_entry *ret, struct err *err);
/* Writes it (WARM_ABSENT: deletes) and keeps the count of its pool; was: its state before. */
int warm_put(struct txn *txn, const struct warm_entry *entry, enum warm_state was, struct err *err);
int warm_count(struct txn *txn, const char *target, int64_t *ret, struct err *err);
/* A ready entry that fits, or state WARM_ABSENT. */
int warm_pick(struct sessions *s, struct txn *txn, const struct target *target, int64_t lasts_ms, struct warm_entry *ret,
	      struct err *err);
int warm_reserve(struct txn *txn, struct warm_entry *entry, const char *task, struct err *err);
/* The binding took this session: the entry is used if it is its own, else it goes back to the pool. */
int warm_bound(struct txn *txn, struct binding *b, const char *ref, struct err *err);
/* The binding is gone, and with it what is left of the reservation. */
int warm_unbind(struct txn *txn, struct binding *b, struct err *err);

/* ---- background ---- */
struct warm_pool { /* of one target; under sessions.lock */
	size_t making;
	int64_t fails, next_ns; /* no new one before */
	int64_t put_off_ns;	/* it gives way until then; 0: it has not had to since it was full */
	size_t given_up;	/* of WARM_MAKING_MAX, to a crowd */
	int64_t shrink_ns;	/* no more is given up before */
	int64_t sweep_ns;	/* the next round; of the GC's thread only, as the next three */
	uint64_t heard;		/* target_changes that the last round began after */
	int64_t hear_ns;	/* no round for a hint before */
	int64_t hear_gap_ns;	/* from one to the next */
	struct map *suspects;	/* of the sweep's job only: ref -> when first seen */
	bool checked;		/* likewise: the reservations that a former process left */
	size_t ask_from;	/* likewise: where in the list the next round's questions begin */
};
#define WARM_MAKING_MAX 32 /* of one target at once: demand goes first */
/* warm_pace.c: how many may be started now. crowd_ns: when many first commands last waited for their sessions. 0: ask again at
 * *ret_again_ns; INT64_MAX: when one that is being made has ended, or at next_ns. */
size_t warm_pace(struct warm_pool *pool, int64_t crowd_ns, int64_t now_ns, int64_t *ret_again_ns);
bool warm_pace_is_crowd(int64_t crowd_ns, int64_t now_ns);
/* One was made. */
void warm_pace_made(struct warm_pool *pool, bool crowded);
struct warm_pool *warm_pool_of(struct sessions *s, const struct target *target);
/* Called by the GC: reserves slots and starts what makes and deletes entries. */
void warm_round(struct sessions *s);
/* The slots alone. */
void warm_fill(struct sessions *s);
/* The sweeps alone: those that are due, and one where a provider hinted that a pool's sessions may have changed. */
void warm_sweep(struct sessions *s);
/* When to look for hints again; INT64_MAX: no target has a pool. */
int64_t warm_look_ns(const struct sessions *s);
/* Starts the job that goes on with an entry in making, which a step gave to this host. */
void warm_resume(struct sessions *s, struct target *target, const char *intent);
/* The session as a job hands it to calls; its opened state lives in the job's arena. A state that cannot be opened is left out. */
int warm_open(struct job *job, const struct warm_entry *entry, struct made *ret, struct err *err);
/* Moves an entry that is still as it was seen to releasing. */
int warm_retire(struct sessions *s, const struct warm_entry *entry, struct err *err);

/* sweep.c */
void sweep_forget(struct warm_pool *pool);

#endif
