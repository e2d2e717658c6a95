/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The binding of one task: its row and its state machine. Everything here is a pure function of a row, a time and arguments;
 * no store, no provider, no clock, no lock. session/steps.c runs them inside store steps.
 *
 * States and what ends them (transitions are one table in binding.c; binding_move asserts it):
 *   provisioning, hydrating   publish -> live; failure -> releasing or gone; teardown -> condemned
 *   live                      expiry, ceiling, teardown, loss -> capturing or releasing; unproven quiescence -> quarantined
 *   capturing                 cause expired: begin -> live again; otherwise done -> releasing
 *   condemned                 teardown asked while owned: fence raised; owner gone -> releasing
 *   quarantined               -> releasing
 *   releasing                 release confirmed -> gone
 *   gone                      begin -> provisioning; retention over -> row deleted; found at the provider: by the sweep ->
 *                             releasing, after the store was lost -> live
 */
#ifndef SESSION_BINDING_H
#define SESSION_BINDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/arena.h"
#include "core/err.h"
#include "core/ident.h"
#include "core/json.h"

#define BINDING_STATES(X)                                                    \
	X(GONE, "gone", "reclaimed") X(PROVISIONING, "provisioning", "demand") \
	X(HYDRATING, "hydrating", "demand") X(LIVE, "live", "")               \
	X(CAPTURING, "capturing", "reclaimed") X(CONDEMNED, "condemned", "reclaimed") \
	X(QUARANTINED, "quarantined", "reclaimed") X(RELEASING, "releasing", "reclaimed")
enum binding_state {
#define X(name, word, stage) BINDING_##name,
	BINDING_STATES(X)
#undef X
		BINDING_STATE_COUNT
};

/* Why a session ends. */
#define BINDING_CAUSES(X)                                                              \
	X(NONE, "") X(EXPIRED, "expired") X(CEILING, "max_age") X(TEARDOWN, "teardown") \
	X(QUIESCENCE, "quiescence_unproven") X(LOST, "session_lost") X(FAILED, "provisioning_failed") \
	X(ORPHAN, "orphan")
enum binding_cause {
#define X(name, word) CAUSE_##name,
	BINDING_CAUSES(X)
#undef X
		CAUSE_COUNT
};

struct binding_op {
	const char *id;   /* an execution's id, or "op_…" */
	const char *kind; /* "execution" | "file" */
	const char *host; /* host id that renews it */
	int64_t until_ms; /* its own deadline; renewed */
	int64_t lasts_ms; /* longest it may take once active */
	int64_t ends_ms;  /* latest store time it may run to; 0 while waiting */
	bool waiting;     /* registered; activated in order by publish or by the end of another one */
};

struct binding_stray { /* a session of this task that must be deleted beside the main one */
	const char *ref;
	const char *state; /* sealed */
};

struct binding {
	const char *workspace_id, *task_id;
	const char *state_word; /* stored form of state; use state */
	const char *cause_word;
	enum binding_state state;
	enum binding_cause cause; /* of capturing, condemned, quarantined, releasing, gone */
	enum binding_cause doom;  /* of a live one that must end at its last operation; new operations wait */
	const char *doom_word;
	int64_t fence;       /* raised by every change of ownership */
	int64_t incarnation;
	const char *target, *region; /* region: the target's, "" = none */
	/* Provisioning, hydrating, condemned, releasing are owned while worked on. */
	const char *owner;
	int64_t owner_until_ms;
	const char *intent;        /* token of the create under way or done */
	int64_t create_until_ms;   /* a create under `intent` could last have been sent by then; 0 = none was */
	int64_t settle_ms;
	const char **superseded;   /* older tokens: sessions carrying one are deleted, never adopted */
	size_t superseded_count;
	const char *phase;         /* last progress word, for people */
	const char *warm;          /* key of the warm entry reserved for this incarnation, "" = none */
	/* The session. */
	const char *ref, *sealed_state, *boot_id, *root, *isolation;
	int64_t created_ms, provider_expires_ms;
	int64_t live_ms; /* published at */
	int64_t ceiling_ms;
	struct binding_stray *strays;
	size_t stray_count;
	/* Lease. */
	bool active;
	int64_t lease_until_ms;
	struct binding_op *ops;
	size_t op_count;
	/* Last provisioning failure; answered to those who waited for fail_fence and, until fail_until_ms, to newcomers. */
	const char *fail_code, *fail_reason, *fail_message;
	int64_t fail_fence, fail_until_ms, fail_count;
	/* Teardown and release. */
	int64_t teardown_ms; /* asked for at; 0 = not */
	int64_t release_tries, release_next_ms;
	const char *release_error;
	int64_t updated_ms;
};

extern const struct json_field binding_fields[];

/* Limits and durations the machine needs; from the configuration. */
struct binding_rules {
	int64_t active_ms, idle_ms, op_ttl_ms, owner_ttl_ms, max_age_ms, teardown_wait_ms, retention_ms;
	int64_t expiry_margin_ms;     /* a session ends that much before its provider would end it */
	int64_t release_retry_max_ms; /* longest wait between two tries of a release */
	size_t concurrency;  /* active operations of one task */
	size_t waiting_max;  /* registered waiters of one task; beyond: session_busy */
};

enum begin_outcome {
	BEGIN_LIVE,      /* the operation is active on the session in the row */
	BEGIN_PROVISION, /* the row is now provisioning and owned by this host: provision */
	BEGIN_WAIT,      /* try again when the task's row changes, or at retry_at_ms */
};

struct binding_begin {
	const char *host;
	const char *op_id, *op_kind;
	const char *region;     /* asked for; "" = none */
	int64_t lasts_ms;       /* longest the operation may take */
	int64_t seen_fence;     /* fence of the provisioning this operation waited for; 0 = none */
	const char *intent;     /* fresh token, used when provisioning starts */
	uint64_t fence, incarnation; /* fresh numbers, used likewise */
	const char *target, *target_region; /* placement's choice, used likewise; NULL with place_err set */
	int64_t settle_ms;
	const char *warm; /* key of a ready warm entry, used likewise; NULL = none */
	const struct err *place_err;
};

/* Decodes a row (absent text: a GONE binding) and encodes it. */
int binding_decode(struct arena *arena, const struct ident *ident, const char *doc, size_t len, struct binding *ret,
		   struct err *err);
int binding_encode(const struct binding *b, struct buf *buf);
/* When the GC must look at it next; 0 = never. */
int64_t binding_due(const struct binding *b, const struct binding_rules *rules);
const char *binding_stage(const struct binding *b); /* demand active idle reclaimed */
const char *binding_state_word(enum binding_state state);
const char *binding_cause_word(enum binding_cause cause);
bool binding_may_move(enum binding_state from, enum binding_state to);

/* Events. Each returns 0 or an err code (nothing changed then), and sets *changed when the row must be written. A repeated begin
 * with the same op id is answered from the row. */
int binding_begin(struct arena *a, struct binding *b, int64_t now, const struct binding_rules *r,
		  const struct binding_begin *in, enum begin_outcome *ret, int64_t *ret_retry_at, bool *changed, struct err *err);
/* The operation ended. proven: quiescence is certain. lost: the session is gone or unusable. No such operation: no change. */
void binding_end(struct binding *b, int64_t now, const struct binding_rules *r, const char *op_id, bool proven, bool lost,
		 bool *changed);
/* Never shortens, never passes the ceiling. False: the operation is not there any more (the holder has lost it). */
bool binding_renew(struct binding *b, int64_t now, const struct binding_rules *r, const char *op_id, const char *host);
/* Another host has resumed it since. */
bool binding_op_moved(const struct binding *b, const char *op_id, const char *host);
/* As renew, and this host becomes the one that renews it (after the former holder died). */
bool binding_resume(struct binding *b, int64_t now, const struct binding_rules *r, const char *op_id, const char *host);
bool binding_renew_owner(struct binding *b, int64_t now, const struct binding_rules *r, int64_t fence, const char *host);
/* An expiry as a provider tells it (BERTH_EXPIRES_NEVER), as rows keep it: 0 = none. */
static inline int64_t binding_expiry(int64_t told_ms)
{
	return told_ms == INT64_MAX ? 0 : told_ms;
}

struct binding_session { /* what a provider told */
	const char *ref, *sealed_state, *boot_id, *root, *isolation;
	int64_t created_ms, provider_expires_ms;
	bool renewable; /* the provider's expiry can be moved, so it is no ceiling yet */
};
/* The events of a provisioner answer ERR_CONFLICT when the fence is old, and 0 without a change when they are repeated. */
/* A create is about to be sent and could be until until_ms; 0 = certainly none was. */
int binding_creating(struct binding *b, int64_t fence, int64_t until_ms, struct err *err);
int binding_created(struct arena *a, struct binding *b, int64_t fence, const struct binding_session *s,
		    struct err *err);
int binding_publish(struct arena *a, struct binding *b, int64_t now, const struct binding_rules *r, int64_t fence,
		    const struct binding_session *s, struct err *err);
/* Provisioning failed: to releasing when anything was or may have been created, else to gone; the failure is kept for the waiters with
 * a back-off (1 s doubling to 30 s, or the provider's retry-after). */
int binding_fail(struct arena *a, struct binding *b, int64_t now, int64_t fence, const struct err *why, struct err *err);
/* Nothing usable came of the old token: it is superseded by a new one. A ref the row still has becomes a stray. */
int binding_retoken(struct arena *a, struct binding *b, int64_t fence, const char *intent, struct err *err);
int binding_add_stray(struct arena *a, struct binding *b, int64_t fence, const struct binding_stray *stray,
		      struct err *err);
/* The provisioner of this incarnation has stopped and sends nothing any more (condemned, or its fence is old). made: what
 * it created and could not record, or NULL. True when the row must be written. */
bool binding_let_go(struct arena *a, struct binding *b, int64_t now, int64_t incarnation, const char *host,
		    const struct binding_stray *made);
/* A stray is certainly gone (NULL: none is, try again later). */
void binding_stray_tried(struct binding *b, int64_t now, const struct binding_rules *r, const char *ref);
/* The provider moved its expiry to effective_ms when asked_ms was asked for; less becomes the ceiling, less the margin. */
void binding_extended(struct binding *b, const struct binding_rules *r, int64_t asked_ms, int64_t effective_ms);
/* The provider said that the session in the row is another task's: forgotten, never released. */
int binding_disclaim(struct binding *b, int64_t fence, struct err *err);
/* A session with this identity that was found at the provider. */
struct binding_found {
	const char *host;
	uint64_t fence, incarnation; /* fresh numbers, used when it becomes the row's own */
	const char *target, *region;
	const char *intent; /* the token it carries */
	const struct binding_session *session;
};
/* Are superseded tokens the row's? Not of a live one: a session that shows up late beside its own is nobody's. In any other
 * state whoever works on the row finds it. */
bool binding_names_superseded(const struct binding *b);
/* Does the row, in whatever state, name this ref or this token? */
bool binding_names(const struct binding *b, const char *ref, const char *intent);
/* The row does not name it: from gone it is released, so that begin waits; beside a live session it is a stray. False: nothing was
 * changed (it is named, or the row is on the move and will find it itself). */
bool binding_claim_orphan(struct arena *a, struct binding *b, int64_t now, const struct binding_found *found, struct err *err);
/* The store was lost, and with it this session's row: live again, with an idle lease. */
int binding_adopt(struct binding *b, int64_t now, const struct binding_rules *r, const struct binding_found *found,
		  struct err *err);
/* The text of a row as far as its one operation goes, to be told to a store that takes the place of a lost one. */
int binding_keep(const struct binding *b, const char *op_id, struct buf *buf);
/* Puts the row back where there is none, and the operation where the same session stands. False: the task has another session now
 * (or memory is out), and the holder has lost it. */
bool binding_announce(struct arena *a, struct binding *b, int64_t now, const struct binding_rules *r, bool existed,
		      const struct binding *kept, const char *op_id, const char *host, int64_t fence);
enum teardown_outcome { TEARDOWN_GONE, TEARDOWN_WAITS, TEARDOWN_UNDER_WAY };
enum teardown_outcome binding_teardown(struct binding *b, int64_t now, const struct binding_rules *r, bool force,
				       uint64_t fence, bool *changed);
/* What is due. dead(op): its host is dead; open(op): its record is still open (executions only). */
enum gc_action { GC_NOTHING, GC_TAKE_OVER, GC_RELEASE, GC_STRAYS, GC_DELETE_ROW };
struct binding_gc {
	const char *host;
	uint64_t fence; /* fresh */
	bool owned;     /* a job of this process works on the row */
	bool certain;   /* a dead host can send nothing any more (exclusive store) */
	bool hold;      /* what looks dead or over may only have been unable to say that it lives: see store_hold_ms */
	const char *const *held; /* operations that this process holds: never reaped */
	size_t held_count;
	bool (*dead)(void *arg, const char *host);
	bool (*open)(void *arg, const struct binding_op *op);
	void *arg;
};
enum gc_action binding_gc(struct binding *b, int64_t now, const struct binding_rules *r, const struct binding_gc *in,
			  bool *changed);
/* At the start of the only process (exclusive store): every other host is dead at once. File operations and waiting ones are
 * dropped, owned rows become due; operations of executions stay for the execution layer. */
void binding_restart(struct binding *b, int64_t now, const struct binding_rules *r, const char *host, bool *changed);
/* Result of a release attempt under this fence. ok: confirmed gone. */
int binding_released(struct arena *a, struct binding *b, int64_t now, const struct binding_rules *r, int64_t fence, bool ok,
		     const struct err *why, struct err *err);

#endif
