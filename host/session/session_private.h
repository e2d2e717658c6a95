/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared inside session/: the row helpers (steps.c), what this process holds of its tasks (local.c), the jobs that work on a
 * row (job.c) and the threads' entry points. Lock order: sessions.lock is LOCK_SESSION; it is never held over a store, plugin
 * or watch call, call_cancel excepted (which only sets a flag and wakes).
 */
#ifndef SESSION_PRIVATE_H
#define SESSION_PRIVATE_H

#include <stdatomic.h>

#include "core/buf.h"
#include "core/map.h"
#include "core/thread.h"
#include "session/binding.h"
#include "session/binding_private.h"
#include "session/session.h"

#define LIMIT_JOB_ARENA (8 * 1024 * 1024) /* what one job keeps of a row and of what providers told */
#define LIMIT_GC_KEYS (256 * 1024 * 1024) /* names of all rows that are due at once */
#define SESSIONS_MAGIC 0x73657373u
#define WATCH_KEY_MAX (IDENT_KEY_MAX + 8)

struct job;
struct warm_pool;

struct sessions {
	unsigned magic;
	struct sessions_config config;
	struct session_hooks hooks;
	struct binding_rules rules;
	int64_t find_ms; /* for one look for a task's sessions */
	bool exclusive;
	unsigned roles;
	_Atomic unsigned commands; /* see session_set_capacity */
	_Atomic bool lost;         /* the store is; rows that are missing mean nothing: see session_set_lost */
	struct pool *provisioners, *workers; /* workers: releases, strays, extensions */
	pthread_t keeper, gc;
	bool keeper_runs, gc_runs;
	int64_t started_ms; /* store time; what another process of an exclusive store sent, it sent before */
	_Atomic bool stopping;        /* nothing new begins */
	_Atomic int64_t confirmed_ns; /* when the last heartbeat that the store took was sent */
	struct warm_pool *pools;      /* one per target; what is in them is guarded */
	struct lock lock;
	struct cond keeper_wake, gc_wake, changed; /* changed: a job ended, or a callback returned */
	/* Under the lock. */
	struct map *tasks; /* key of the row -> struct local */
	uint64_t serial;
	pthread_t teller; /* runs the callbacks of lost holds; while one is firing */
	size_t jobs;
	size_t provisioning; /* first commands whose session is being found or made here */
	int64_t crowd_ns;    /* when they were last a crowd */
	int64_t gc_at_ns;    /* look again then, even without a kick */
	int64_t fill_at_ns;  /* fill the pools then */
	bool gc_kicked, gc_stop, keeper_kicked, keeper_stop;
	bool keeper_late; /* somebody wanted to act and the heartbeat was late */
};

/* ---- steps.c: one row inside a step ---- */
struct row {
	struct ident ident;
	char key[IDENT_KEY_MAX + 1];
	struct binding b;
	bool existed;
	bool changed; /* set by whoever changes b */
	bool notify;  /* others may wait for this change */
	bool delete;
	int64_t now;
	enum binding_state was;
	int64_t was_incarnation;
	const char *counted; /* target whose count of sessions this row was part of, or NULL */
};
int row_get(struct sessions *s, struct txn *txn, const struct ident *ident, struct row *ret, struct err *err);
/* The fence of the row's next owner. ERR_CORRUPT: the row's is not smaller, so this store did not write it. */
int row_next_fence(struct txn *txn, const struct row *row, uint64_t *ret, struct err *err);
/* Writes (or deletes) the row if it changed, and keeps its target's count of sessions. */
int row_put(struct sessions *s, struct txn *txn, struct row *row, struct session_effect *ret, struct err *err);
/* The malloc'ed text of the row. */
int row_text(const struct binding *b, char **ret, struct err *err);
/* One step on one row: fn decides, row_put follows; then the effect. fn may run again from the start. */
typedef int (*row_change)(struct sessions *s, struct txn *txn, struct row *row, void *arg, struct err *err);
int row_update(struct sessions *s, const struct ident *ident, row_change fn, void *arg, struct err *err);
/* After the commit of a change: wakes waiters, GC, holders and jobs whom it concerns. */
void row_effect(struct sessions *s, const struct ident *ident, const struct session_effect *effect);
void task_watch_key(const struct ident *ident, char ret_key[WATCH_KEY_MAX]);
bool host_is_dead(struct sessions *s, struct txn *txn, const char *host);

/* ---- local.c: what this process holds ---- */
struct local {
	struct ident ident;
	char key[IDENT_KEY_MAX + 1];
	struct kept *kept;
	struct job *jobs;
};
struct kept { /* an operation that the keeper renews */
	struct kept *next;
	struct local *local;
	uint64_t serial;
	char op_id[IDENT_ID_MAX + 1];
	struct session_hold_private *hold; /* NULL: a waiting operation */
	int64_t incarnation;               /* 0: any */
	bool lost;
	char reason[32];
};
int kept_add(struct sessions *s, struct kept *kept, const struct ident *ident, const char *op_id);
void kept_remove(struct sessions *s, struct kept *kept);
void kept_lose_locked(struct sessions *s, struct kept *kept, const char *reason);
struct local *local_get_locked(struct sessions *s, const char *key);
/* When many first commands last waited for their sessions: now, if they do. */
int64_t local_crowd_ns_locked(struct sessions *s);
/* Marks the task's holds of this incarnation lost, and stops its provisioner. */
void local_ended(struct sessions *s, const struct ident *ident, int64_t incarnation, enum binding_cause cause);

struct session_hold_private {
	struct session_hold hold; /* what the caller has; first */
	struct sessions *s;
	struct kept kept;
	void (*on_lost)(void *arg, const char *reason);
	void *arg;
	bool told, firing;
	int64_t provider_expires_ms;
	char *row; /* what is told to a new store when this one is lost; NULL: it cannot be */
	struct session_effect effect; /* of the end step */
	char *strings;
};
int hold_make(struct sessions *s, const struct ident *ident, const char *op_id, const char *doc,
	      struct session_hold **ret, struct err *err);
void hold_free(struct sessions *s, struct session_hold *hold);
/* Calls on_lost of lost holds; keeper's thread. */
void holds_tell_lost(struct sessions *s);

/* ---- job.c: work on one row ---- */
/* The latter three work for no task: its ident is a name of their own. */
enum job_kind { JOB_PROVISION, JOB_RELEASE, JOB_STRAYS, JOB_EXTEND, JOB_WARM, JOB_DROP, JOB_SWEEP };
struct job {
	struct job *next;
	struct local *local;
	struct sessions *s;
	struct ident ident;
	char key[IDENT_KEY_MAX + 1];
	enum job_kind kind;
	void (*run)(struct job *job);
	int64_t fence, incarnation;
	struct cond wake;
	/* Under sessions.lock. */
	struct call *call;
	bool cancelled; /* the row was lost or torn down, or the host stops */
	/* The job's own thread only. */
	struct arena *arena;
	struct binding row; /* as last read */
	struct target *target;
	bool refused; /* a step said that the fence is old */
	int64_t deadline_ns;
};
/* Starts the work on a row that a committed step gave to this host. */
int job_start(struct sessions *s, enum job_kind kind, const struct ident *ident, int64_t fence, int64_t incarnation,
	      struct err *err);
/* Background work on a target, named by an intent or the target; not started twice at once. */
int job_start_background(struct sessions *s, enum job_kind kind, struct target *target, const char *name, bool *ret_started,
			 struct err *err);
bool job_background_runs(struct sessions *s, const char *name);
void job_cancel_locked(struct job *job, uint32_t how);
bool job_cancelled(struct job *job);
/* Waits; false when the job was cancelled. */
bool job_wait(struct job *job, int64_t ms);
/* Reads the row into job->row and finds its target. */
int job_load(struct job *job, struct err *err);
/* row_update that holds on while the store is away, until the job's deadline or cancel. */
int job_update(struct job *job, row_change fn, void *arg, struct err *err);
/* One provider call, which can be cancelled with the job; waits while the target's bulkhead is full. op gets the call and arg. The
 * call is freed with job_done, also after an error (*ret may then be NULL). */
struct call_sink;
int job_call(struct job *job, int64_t deadline_ns, const struct call_sink *sink,
	     int (*op)(struct call *call, const void *arg, struct err *err), const void *arg, struct call **ret,
	     struct err *err);
void job_done(struct job *job, struct call *call);
/* A berth_session from a row's ref and sealed state; the box's bytes live in the job's arena. */
int job_session(struct job *job, const char *ref, const char *sealed, struct berth_session *ret, struct err *err);
int call_find_task(struct call *call, const void *ident, struct err *err); /* op of job_call; arg: struct ident */

void provision_run(struct job *job);
void release_run(struct job *job);
void strays_run(struct job *job);
void extend_run(struct job *job);
void warm_make_run(struct job *job);
void warm_drop_run(struct job *job);
void sweep_run(struct job *job);
/* Moment until which a provider is asked to keep a session; 0 = no expiry is asked for. */
int64_t extend_wanted(const struct sessions *s, const struct target *target, int64_t now, int64_t ceiling_ms);
void extend_start(struct sessions *s, const struct ident *ident, int64_t incarnation); /* a job */
bool extend_is_due(const struct sessions *s, const struct target *target, int64_t now, int64_t ceiling_ms,
		   int64_t expires_ms);

/* ---- reading ---- */
/* Splits "workspace/task"; false when it is no task's key. */
bool split_key(const char *key, struct ident *ret);
/* Calls fn with every row, a page of rows per snapshot; workspace NULL = all; after "" = from the start. fn false ends it. */
int rows_each(struct sessions *s, const char *workspace, const char *after,
	      bool (*fn)(const struct ident *ident, const struct binding *b, void *arg), void *arg, struct err *err);

/* Closed for new sessions, by its file or by a mark in the store. */
int target_drained(struct txn *txn, const struct target *target, bool *ret, struct err *err);

/* ---- create.c: calls that make and look at sessions ---- */
struct made;
/* One create, tagged with the identity (NULL: warm) and the token. */
int create_send(struct job *job, const struct ident *ident, const char *intent, const struct call_sink *sink,
		int64_t deadline_ns, struct err *err);
/* Asks about a session by await_ready or inspect; what is answered is merged into it. */
int create_ask(struct job *job, struct made *made, int (*op)(struct call *, const void *, struct err *),
	       const struct call_sink *sink, int64_t deadline_ns, struct err *err);
int call_await(struct call *call, const void *session, struct err *err);
int call_look(struct call *call, const void *session, struct err *err);
int call_let_go(struct call *call, const void *session, struct err *err);
/* What the plugin said leaves open whether it happened. */
bool create_is_open(int code);
/* Nothing happened, and it may go better soon. */
bool create_is_transient(int code);
bool create_is_dead(int code, const struct made *made);
/* The store was new or lost at start: until an active lease passed, or recover, nothing is taken for an orphan. */
int sweep_note_store(struct sessions *s, struct err *err);

/* ---- hosts.c: rows of the daemons of a store ---- */
#define HOST_DOC_MAX 256
size_t host_doc(const struct sessions *s, char ret[HOST_DOC_MAX]);

/* ---- threads ---- */
void *keeper_main(void *sessions);
void *gc_main(void *sessions);
int keeper_beat(struct sessions *s, struct err *err); /* heartbeat; confirms session_may_act */
void gc_wake_at(struct sessions *s, int64_t at_ns);
/* The pools are looked at then, and nothing else; several wishes of the same moment are one round. */
#define GC_FILL_SOON_MS 20
void gc_fill_at(struct sessions *s, int64_t at_ns);

#endif
