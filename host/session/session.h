/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions of tasks: begin and end of operations, provisioning, keeper, GC, teardown, verify. Knows stores, targets and
 * watches; never HTTP, never execution records (what those need to know or be told comes through session_hooks).
 */
#ifndef SESSION_SESSION_H
#define SESSION_SESSION_H

#include <stdbool.h>

#include "conf/conf.h"
#include "core/ident.h"
#include "core/secret.h"
#include "core/watch.h"
#include "plugin/call.h"
#include "plugin/target.h"
#include "session/binding.h"
#include "store/store.h"

struct sessions;

/* Notice to the hosts that collect: a row is due now (see store_listen). */
#define SESSION_NOTICE_GC "gc"

struct session_hooks {
	/* Inside a step: is this execution's record still open? */
	bool (*execution_open)(struct txn *txn, const char *execution_id, void *arg);
	/* A teardown was asked: cancel the task's queued and claimed executions; with force the running ones too. Blocks little. */
	void (*teardown)(const struct ident *ident, bool force, void *arg);
	/* Called by the keeper every round (a third of the shortest TTL), on its thread: renew claims. */
	void (*keep)(void *arg);
	/* Called by the GC every round, on its thread: retention, expired queue entries, expired claims. A bounded part;
	 * true: there is more, and the next round follows at once. */
	bool (*sweep)(void *arg);
	void *arg;
};

struct sessions_config {
	const struct conf *conf;
	struct store *store;
	struct registry *registry;
	struct watch *watch;
	const struct seal *seal;
	const char *host_id;
};

int sessions_new(const struct sessions_config *config, struct sessions **ret, struct err *err);
void sessions_hook(struct sessions *s, const struct session_hooks *hooks); /* before start */
/* Frees what the former process of an exclusive store held (dead operations, owners), then starts keeper and GC. */
int sessions_start(struct sessions *s, struct err *err);
/* Stops keeper and GC, lets provisioners finish until deadline_ns (their rows are taken over by the next process). */
void sessions_stop(struct sessions *s, int64_t deadline_ns);
/* False: a thread did not end, and what it uses has to stay. */
bool sessions_free(struct sessions *s);

/* ---- operations ---- */
/* One operation's hold on a live session. The keeper renews it until it ends. */
struct session_hold {
	struct ident ident;
	char op_id[IDENT_ID_MAX + 1];
	struct target *target;
	struct berth_session session; /* unsealed; points into this hold */
	int64_t incarnation, fence, ceiling_ms;
	/* Set by whoever may block in the session: called at most once, from the keeper's thread, when the hold was lost (ceiling,
	 * forced teardown, fence, SESSION_MOVED). Must not block. Set and cleared through session_hold_on_lost. */
	struct session_hold_private *private;
};
/* The reason of a loss that ends nothing: another host took this one for dead and goes on with the same operation. */
#define SESSION_MOVED "taken_over"
/* fn runs on the keeper's thread, soon, also when the hold was lost before. After a return with fn = NULL the former one is not
 * running; hence no lock that it takes may be held then. */
void session_hold_on_lost(struct session_hold *hold, void (*fn)(void *arg, const char *reason), void *arg);
bool session_hold_lost(const struct session_hold *hold, const char **ret_reason);

/* What a committed change of a row asks of this process; private to session/. */
struct session_effect {
	bool notify, ended, kick;
	bool refill; /* a pool lost a session to this row */
	int64_t incarnation;
	enum binding_cause cause;
};

struct session_begin {
	/* in */
	struct ident ident;
	const char *region; /* NULL or "" = none asked */
	const char *op_id;
	const char *op_kind; /* "execution" | "file" */
	int64_t lasts_ms;
	bool only_live; /* do not provision and do not wait: ERR_SANDBOX_EXPIRED, or ERR_NOT_FOUND for a task never seen */
	bool only_known; /* a task never seen is ERR_NOT_FOUND, and nothing is made for it */
	/* out of the step */
	enum begin_outcome outcome;
	int64_t retry_at_ms; /* store time; 0 = only a change of the row helps */
	/* private */
	int64_t seen_fence;  /* of the provisioning that it waited for */
	int64_t waits_fence; /* likewise, as the step saw it; counts once committed */
	bool extends;        /* the provider's expiry is to be moved */
	int64_t over_in_ms;  /* until the owner that it waits for may be taken for dead; -1: it is this host, or there is none */
	char intent[IDENT_ID_MAX + 1];
	char *doc; /* the row as decided, malloc'ed; moved into the hold */
	struct session_effect effect;
};

/* For callers that put begin into a larger step (executions): prepare once; session_begin_step inside the step (repeatable);
 * session_begin_done after the commit: LIVE gives the hold, PROVISION starts the provisioner and leaves outcome WAIT. */
void session_begin_prepare(struct sessions *s, struct session_begin *begin);
int session_begin_step(struct sessions *s, struct txn *txn, struct session_begin *begin, struct err *err);
int session_begin_done(struct sessions *s, struct session_begin *begin, struct session_hold **ret_hold, struct err *err);
void session_begin_fini(struct session_begin *begin);
/* Registered waiter that gives up (cancel, deadline): takes its waiting operation off. Inside a step. */
/* Also takes an activated one off that never got its hold. */
int session_unwait_step(struct sessions *s, struct txn *txn, const struct ident *ident, const char *op_id, struct err *err);
/* After the commit of that step: wakes whoever may go on now. */
void session_unwait_done(struct sessions *s, const struct ident *ident);

/* For callers with nothing else to write (files): begins, waits until live or deadline_ns (then ERR_SESSION_BUSY, or the reason
 * the provisioning gave). Blocks. */
int session_acquire(struct sessions *s, struct session_begin *begin, int64_t deadline_ns, struct session_hold **ret,
		    struct err *err);

struct session_end {
	bool proven; /* quiescence is certain */
	bool lost;   /* the session is gone or can never answer */
};
/* Inside a step; after its commit call session_end_done, which also frees the hold. */
int session_end_step(struct sessions *s, struct txn *txn, const struct session_hold *hold, const struct session_end *end,
		     struct err *err);
void session_end_done(struct sessions *s, struct session_hold *hold);
/* Both in one, retried until the store answers; frees the hold. */
void session_release(struct sessions *s, struct session_hold *hold, const struct session_end *end);
/* Stops renewing and frees the hold without ending the operation (detach: host stop). */
void session_detach(struct sessions *s, struct session_hold *hold);
/* After a restart: the hold of an operation that the row still carries, now renewed by this host. ERR_SESSION_GONE when the row
 * lost it. Blocks. */
int session_resume(struct sessions *s, const struct ident *ident, const char *op_id, struct session_hold **ret,
		   struct err *err);

/* ---- the task ---- */
/* Asks for teardown; idempotent; then waits until gone or deadline_ns. *ret_gone tells which. */
int session_teardown(struct sessions *s, const struct ident *ident, bool force, int64_t deadline_ns, bool *ret_gone,
		     struct err *err);
/* The row for people: JSON of one task {workspace_id, task_id, stage, state, incarnation, target, region, provider, isolation,
 * created_at, lease_until, ceiling_at, operations[], phase?, failure?, release?}. ERR_NOT_FOUND. Never renews. */
int session_describe(struct sessions *s, const struct ident *ident, struct buf *buf, struct err *err);
/* Items of GET /sandbox/sessions: {id, provider, workspace_id, task_id, state, stage, created_at, expires_at, resources, isolation, …}
 * of one workspace in key order after `after`; *ret_next is malloc'ed or NULL. workspace NULL = all (admin). */
int session_list(struct sessions *s, const char *workspace, const char *after, size_t limit, struct buf *buf,
		 size_t *ret_count, char **ret_next, struct err *err);
/* Compares every target's own list with the rows: {ok, targets:[{name, provider_sessions, bindings, warm, unknown:[ref…],
 * missing:[task…], error?}]}. Blocks for as long as the providers take. */
int session_verify(struct sessions *s, int64_t deadline_ns, struct buf *buf, bool *ret_ok, struct err *err);
/* Which workspaces hold a task of this name (teardown without workspace_id): the only one into ret, else ERR_NOT_FOUND or
 * ERR_INVALID_REQUEST when several. */
int session_find_workspace(struct sessions *s, const char *task, char ret_workspace[IDENT_PART_MAX + 1], struct err *err);
/* Would placement find a target now? ERR_NO_TARGET with a sentence. Pure. */
int session_placeable(struct sessions *s, const char *region, struct err *err);
/* Heartbeat unconfirmed for 0.8 x TTL: no new side effect may start. */
bool session_may_act(struct sessions *s);
/* Nothing happens on a host without the role gc. */
void session_kick_gc(struct sessions *s);
/* How many commands this host runs at once, for the hosts that only accept them; told with its next heartbeat. */
void session_set_capacity(struct sessions *s, unsigned commands);
/* The other hosts of the store that live. */
struct session_host {
	const char *id, *version;
	unsigned roles;
	int64_t commands; /* at once; 0 without the role runner */
};
int session_hosts(struct sessions *s, struct arena *arena, struct session_host **ret, size_t *ret_count, struct err *err);
/* Around a loss of the store, by whoever renews it: from before store_renew until session_announce is through, a row that is not there
 * is no word on a session. Then tells the new store of the sessions that this host holds, and that it is new; *ret_count: how many. */
void session_set_lost(struct sessions *s, bool lost);
int session_announce(struct sessions *s, size_t *ret_count, struct err *err);
/* The operator's word that the store is whole again: orphans are swept from now on (POST /admin/recover). */
int session_recover(struct sessions *s, struct err *err);

#endif
