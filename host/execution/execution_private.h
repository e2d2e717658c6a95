/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of this layer share. The central object is struct run: one open execution as this process knows it.
 *
 * Ownership of a run: at each moment it is READY (in its task's line), PARKED (waits for a notice or a timer, holds no
 * thread) or OWNED by exactly one thread: who creates it, the worker that runs it, who cancels or expires it. State,
 * line and the fields named below are guarded by executions.lock; everything else belongs to the owner.
 */
#ifndef EXECUTION_PRIVATE_H
#define EXECUTION_PRIVATE_H

#include <stdatomic.h>

#include "core/map.h"
#include "core/thread.h"
#include "core/trace.h"
#include "execution/ended.h"
#include "execution/event.h"
#include "execution/execution.h"
#include "execution/record.h"
#include "execution/spool.h"
#include "execution/transition.h"

/* Notices to other hosts, beside the watch keys. */
#define FLEET_REQUESTS "requests"
#define FLEET_GIVEN "given"
#define FLEET_CANCEL "cancel:"
#define EXECUTION_WATCH "exec:" /* of the watch key */

#define RUN_MAGIC 0x72756e21u
#define REASON_MAX 31

enum run_state { RUN_OWNED, RUN_READY, RUN_PARKED, RUN_ENDED };
/* What a run last waited for. */
enum run_wait { WAIT_NOTHING, WAIT_SESSION, WAIT_CAPACITY, WAIT_RATE, WAIT_BUSY, WAIT_PROVIDER, WAIT_STORE };

/* A place in a ring of those that could go on now. */
struct run_turn {
	struct run_turn *next, *prev;
	struct run_turn **ring; /* NULL: in none */
};

/* The tasks of one workspace that have runs. Under executions.lock. */
struct run_tenant {
	char workspace[IDENT_PART_MAX + 1];
	unsigned tasks;
	unsigned taken;		  /* runs that count for its concurrency */
	unsigned waiting, parked; /* as those of all tenants, below */
	struct run_turn *again;	  /* tasks whose next run had its turn already: not held to the limit */
	struct run_turn *fresh;	  /* tasks whose next run waits for its first turn */
	bool was_fresh;		  /* the last one that went on */
	struct run_turn turn;	  /* of all tenants */
};

/* The runs of one task. Under executions.lock. */
struct run_task {
	char key[IDENT_KEY_MAX + 1];
	struct run_tenant *tenant;
	struct run *first, *last;     /* ready, in order */
	unsigned open;		      /* runs in all */
	unsigned taken;		      /* that count for the task's concurrency */
	unsigned waiting;	      /* ready or parked, not taken to a session yet */
	struct run_turn turn;	      /* of its tenant's tasks */
};

/* A watch_waiter that holds a reference to its run while added. */
struct run_waiter {
	struct watch_waiter waiter;
	char key[IDENT_KEY_MAX + 16];
	struct run *run;
	bool armed; /* under executions.lock */
};

/* What a command needs to run. */
struct run_plan {
	struct arena *arena;
	const char *body;
	size_t body_len;
	const char *cwd, *env_ref, *stdin_ref;
	const char **artifact_paths;
	size_t artifact_count;
	int64_t timeout_ms, stdout_max, stderr_max;
	bool keep_descendants;
};

/* What the store says of an execution, as its owner last read it. */
struct run_facts {
	int64_t attempt, sent_attempt;
	int64_t lasts_ms; /* timeout and grace; 0: nothing was read yet */
	int64_t queue_expires_ms;
	int64_t expires_ms; /* of the command, store time */
	int64_t incarnation;
	int64_t sure_ns;    /* until then no other host can have ended it; 0: this one has no claim */
	char region[IDENT_PART_MAX + 1];
	char traceparent[TRACE_MAX + 1];
	char cancel[REASON_MAX + 1]; /* why it was asked to end, or "" */
};

/* Of a running command, for a store that takes the place of a lost one; see lost.c. */
struct run_docs {
	char *record, *claim; /* NULL: not kept */
};

#define RUN_LOST_MAX 16 /* ranges told one by one; more are joined with the last of their stream */

struct run {
	unsigned magic;
	_Atomic unsigned refs;
	struct executions *e;
	struct ident ident;
	char id[IDENT_ID_MAX + 1];
	struct spool_output *out;

	/* Under executions.lock. */
	enum run_state state;
	struct run_task *task;
	struct run *next, *prev; /* of the task's line */
	bool woken;		 /* a notice or timer came while it was owned */
	bool slot;		 /* counts as busy */
	bool taken;		 /* counts for the concurrency of its task and tenant */
	bool heir;		 /* a former runner had it: its operation may have a place at the session already */
	bool passed;		 /* another host took or ended it, as is told */
	bool cancel;		 /* asked for; reason below */
	char cancel_reason[REASON_MAX + 1];
	char lost[REASON_MAX + 1]; /* why the hold was lost, or "" */
	bool moved;		   /* another host goes on with it: it is left as it stands */
	struct call *call;	   /* the provider call to cancel */
	bool has_session;	   /* its record is running */
	bool told;		   /* its end was tried to be stored: only the store knows whether it is there */
	bool unsure;		   /* a former attempt left it running: only its worker can tell what runs */
	int64_t claimed;	   /* attempt of this host's claim, which is to be renewed; 0: none */
	int64_t ready_ns;	   /* when it came into the line */
	bool stuck;		   /* its worker is stuck in the plugin: this one is another */
	int64_t sure_ns;	   /* as in run_facts */
	int64_t queue_expires_ms;  /* for the sweep; 0: not known yet */
	uint64_t published[2];	   /* bytes of each stream that other hosts can read */
	struct run_docs docs;
	bool has_plan; /* the plan is there, and stays as it is */

	/* The owner's. */
	struct run_waiter notice, timer;
	bool begin_prepared;
	struct session_begin begin;
	struct session_hold *hold;
	struct run_plan plan; /* arena NULL: not loaded; body NULL: only the options could be */
	struct run_facts facts;
	enum run_wait wait;		   /* what it last waited for */
	bool waited;			   /* waited for a provisioning at least once */
	bool started;			   /* the record is running under this attempt */
	bool resume;			   /* a former attempt may have started the command: reattach first */
	bool touched;			   /* the provider gave a sign of the command */
	bool ran;			   /* the command may have run: outputs are stored */
	bool asking;			   /* the call under way, or the last one, is a reattach */
	char handle[BERTH_HANDLE_MAX + 1]; /* as the provider gave it */
	struct run_docs fresh;		   /* of a step that may not have been committed */
	bool once;			   /* the thread has other things to do than wait: one try, and nothing is begun */
	int64_t first_try_ns;		   /* of the provider call that is tried again */
	unsigned tries;
	unsigned restarts; /* starts of this process that certainly did not happen */
	struct err wait_err; /* what it last waited for, or what its start answered */
	struct record_lost lost_ranges[RUN_LOST_MAX];
	size_t lost_count;
};

struct fleet;
struct look;

struct executions {
	/* Constant once made; what they point to has locks of its own. */
	struct executions_config config;
	struct ended *ended;
	struct spool *spool;
	struct pool *pool;
	struct fleet *fleet; /* NULL: the store is this host's alone */
	unsigned roles;	     /* without ROLE_RUNNER no run is kept longer than its acceptance takes */
	unsigned task_concurrency;
	_Atomic bool dead; /* freed without a stop: nothing is written any more, as if the process had died */

	/* One thread's: the main thread's, before it has others and after; between, the GC's. */
	bool stopped;	   /* executions_stop is through */
	_Atomic bool reconciled; /* every open record was looked for once */
	char store_id[48]; /* that this host works with, and since when it is lost (0: it is not); the fleet's thread only */
	int64_t lost_ns;
	bool opens; /* at open_ns those who wait are told to look again */
	_Atomic bool lost;	 /* rows that are missing mean nothing: the new store does not know yet what runs here */
	_Atomic int64_t open_ns; /* nothing is accepted before */
	int64_t role_gone_ns[ROLE_COUNT]; /* since when no living host has it; the fleet's thread only */
	unsigned role_told;
	uint64_t last_seq; /* of the request stream, as read; with a shared store the fleet's thread has it */

	struct lock lock;
	struct cond changed; /* a worker came back, a wait should end */
	/* Under the lock. */
	struct map *runs;  /* id -> run */
	struct map *tasks; /* key -> run_task */
	struct map *tenants;   /* workspace -> run_tenant */
	struct run_turn *ring; /* of tenants */
	struct look *looks;    /* of recover.c, under way */
	unsigned runner_concurrency, queue_max;
	unsigned tenant_concurrency, tenant_queue_max; /* 0: no limit */
	unsigned busy;	  /* runs that workers have */
	unsigned waiting; /* ready or parked runs */
	unsigned parked;
	unsigned armed;	  /* waiters that the watch has or is firing */
	unsigned stuck;	  /* workers that gave their run to another one and are not back from the plugin */
	uint64_t defects; /* illegal transitions that were tried */
	/* Without the role runner: what the other hosts have, as last looked at, and what was accepted since. */
	uint64_t open_elsewhere, accepted_since, room_elsewhere;
	bool started, stopping;
	bool detaching; /* running commands are left alone from now on */
	bool give_up;	/* the time to stop is over: no more tries */
};

/* What a worker does with a run after working on it. */
enum next {
	NEXT_COMMAND, /* its session is there: run the command */
	NEXT_PARK,    /* until a notice or the timer that was set */
	NEXT_READY,   /* in line as before: its time is not over, and `once` begins nothing */
	NEXT_DONE,    /* terminal, or gone from the store */
	NEXT_LEAVE,   /* the process stops: left as it stands for the next one */
	NEXT_FOREIGN, /* another host has it: nothing of it is touched here any more */
	NEXT_GIVEN,   /* another worker has the run: this one was stuck, and touches nothing of it any more */
};

/* ---- queue.c: lines, rings, slots ---- */
/* A new run, OWNED. `limited`: ERR_QUEUE_FULL when it would have to wait and the queue, or its tenant's share, is full;
 * with a slot and taken, when the runner has room and nothing of the task is before it; *ret_room tells. ERR_CONFLICT:
 * the execution has a run, and never gets two. */
int queue_add(struct executions *e, const struct ident *ident, const char *id, bool limited, bool *ret_room,
	      struct run **ret, struct err *err);
/* OWNED -> READY, or its end, when it was passed on. The owner has no claim to it any more. */
void queue_ready(struct run *run);
/* Hands an OWNED run with a slot to a worker. */
void queue_submit(struct run *run);
/* OWNED -> PARKED (or READY, when it was woken meanwhile). Its slot is free. */
void queue_park(struct run *run);
/* READY or PARKED -> OWNED; false when somebody owns it. */
bool queue_take_locked(struct run *run);
/* The same of one that waits for its first turn though it was passed on: it is to be left with queue_leave. */
bool queue_pass_locked(struct run *run);
void queue_leave(struct run *run);
void queue_wake_locked(struct run *run); /* PARKED -> READY */
/* The run ended, as far as this process is concerned: off the lists; the owner's reference is dropped. */
void queue_end(struct run *run);
void queue_dispatch_locked(struct executions *e);
void queue_set_limits_locked(struct executions *e, unsigned concurrency, const struct conf *conf);
struct run *queue_find_locked(struct executions *e, const char *id);
/* A run whose former runner had it claimed, or running, goes before its task's others and is not held to their limit, nor
 * to its tenant's: they may wait for the place at the session that its operation has. */
void queue_inherit_locked(struct run *run, bool running);
void queue_fire(struct watch_waiter *waiter, bool timed_out);
/* Adds the run's notice waiter, if it is not there: what is looked at afterwards cannot be missed. */
void queue_listen(struct run *run);
void queue_timer(struct run *run, int64_t deadline_ns);
void queue_deaf(struct run *run); /* takes both waiters off */
struct run *run_ref(struct run *run);
void run_unref(struct run *run);

/* Does this host run commands? */
static inline bool runs_commands(const struct executions *e)
{
	return e->roles & ROLE_RUNNER;
}
/* How many executions wait, here or, without the role runner, anywhere. */
unsigned queue_waiting_locked(const struct executions *e);

/* ---- steps.c: what a store step of this layer does again and again ---- */
int steps_update(struct executions *e, store_step step, void *arg, struct err *err);
/* Keeps trying while the store is away; gives up when the process dies or has to stop by now. */
int steps_update_surely(struct executions *e, store_step step, void *arg, struct err *err);
bool steps_wait(struct executions *e, int64_t ms); /* false: the process stops, and the wait is over for good */
bool steps_may_pass(int code); /* the same step may go through later */
/* ERR_NOT_FOUND; ERR_CORRUPT. Strings live as long as the step. */
int steps_load(struct txn *txn, const char *id, struct record *ret_record, struct claim *ret_claim, struct err *err);
/* Applies an event, writes record and event. */
int steps_apply(struct executions *e, struct txn *txn, struct record *r, enum record_event event,
		const struct record_change *change, const char *event_id, bool *ret_replay, struct err *err);
/* The two halves of it, for a step that applies several events: the record is written once, after the last one. */
int steps_move(struct executions *e, struct txn *txn, struct record *r, enum record_event event,
	       const struct record_change *change, const char *event_id, bool *ret_replay, struct err *err);
int steps_put_record(struct executions *e, struct txn *txn, const struct record *r, struct err *err);
/* A message for whoever has room, of a record that was just requested and that nobody has claimed in the same step. */
int steps_request(struct txn *txn, const struct record *r, const char *event_id, struct err *err);
int steps_put_claim(struct txn *txn, const char *id, const struct claim *c, struct err *err);
/* A claim of this host is free for any host from now on; the others are told. */
int steps_hand_back(struct executions *e, struct txn *txn, const char *id, struct claim *c, struct err *err);
int steps_dead_letter(struct txn *txn, const char *why, const char *subject, uint64_t seq, const char *doc, size_t len,
		      struct err *err);
/* What goes with an end that is written without a run: claim, message, the operation that waits. */
int steps_close(struct executions *e, struct txn *txn, const struct record *r, struct ident *ret_ident, struct err *err);
void steps_closed(struct executions *e, const struct ident *ident, const char *id); /* after that step */
void steps_event_id(char ret_id[IDENT_ID_MAX + 1]);
void steps_changed(struct executions *e, const char *id); /* notifies who watches the record */
/* What the transition table refused; with a shared store another host may only have been faster (reason `taken_over`).
 */
void steps_defect(struct executions *e, const char *id, const struct err *err);
/* Fails a step, since the record went on without this run: a defect, or with a shared store another host. */
int steps_overtaken(const struct run *run, struct err *err);
int64_t steps_now(struct executions *e); /* store time; a guess from the wall clock while the store is away */

/* ---- fleet.c: other hosts of the same store ---- */
#define CLAIM_GIVEN_MS 1 /* the due time of a claim that was handed back */
int fleet_start(struct executions *e, struct err *err);
void fleet_stop(struct executions *e);
/* Puts all that is claimed in line; at the start, where nobody else can have claimed anything. */
int fleet_inherit_all(struct executions *e, struct err *err);
/* Claimed by another host that lives, or, with `hold`, may live: the store was away, see store_hold_ms. */
bool fleet_is_foreign(const struct executions *e, const struct claim *c, int64_t now_ms, bool hold);
/* Inside a step. */
int fleet_notify_changed(struct txn *txn, const char *id, struct err *err);
int fleet_notify_cancel(struct txn *txn, const char *id, struct err *err);
/* A cancel that was asked of another host, for a run of this one. */
void cancel_local(struct executions *e, const char *id, const char *reason);

/* ---- elsewhere.c: what a host with some of the roles knows of the others ---- */
void elsewhere_look(struct executions *e);

/* ---- lost.c: a store that is lost while this host runs ---- */
/* Inside a step that starts or takes over a command, and after its commit: what a new store would be told of it. */
int lost_keep_step(struct run *run, struct txn *txn, struct err *err);
void lost_kept_locked(struct run *run);
void lost_forget(struct run *run);
/* True: there is no store to work with. */
bool lost_look(struct executions *e);
/* In a step: the key leads to the record; sha256 "": nobody knows the request's body any more, any one is taken for it. */
int create_put_idempotency(struct txn *txn, const struct record *r, const char *sha256, struct err *err);

/* ---- segment.c: output of running commands, for other hosts ---- */
/* Shows what the commands of this host have written since the last time. */
void segment_publish(struct executions *e);
/* The whole output is stored, the segments are not needed any more. */
void segment_drop(struct run *run);
/* Of a command that another host runs. *ret_open false: it has ended, its output is stored. *ret_len 0: nothing yet. */
int segment_read(struct executions *e, const char *id, unsigned stream, uint64_t offset, void *buf, size_t cap,
		 size_t *ret_len, bool *ret_open, struct err *err);
uint64_t segment_size(struct executions *e, const char *id, unsigned stream, bool *ret_open, struct err *err);

/* ---- take.c: to a session ---- */
enum next take_run(struct run *run);
/* This host has the claim, and has not handed it back. */
bool take_is_ours(const struct run *run, const struct claim *c);
/* When it has waited for too long. */
int64_t take_wait_ends_ms(const struct run *run, bool claimed, int64_t queue_expires_ms);
void take_prepare(struct run *run);   /* its session_begin, once */
void take_unprepare(struct run *run); /* the next try asks anew */
/* Inside a step: the event, the claim and what belongs to them; take_put_step writes what became of both. */
int take_claimed_step(struct run *run, struct txn *txn, struct record *r, struct claim *c, enum record_event event,
		      const char *event_id, struct err *err);
int take_started_step(struct run *run, struct txn *txn, struct record *r, struct claim *c, enum record_event event,
		      const char *event_id, struct err *err);
int take_put_step(struct run *run, struct txn *txn, const struct record *r, const struct claim *c, struct err *err);
/* After the commit of a step with a begin: LIVE gives run->hold. */
int take_begun(struct run *run, struct err *err);
void take_facts(struct executions *e, int64_t now_ms, const struct record *r, const struct claim *c,
		struct run_facts *ret);
void take_set_started(struct run *run);
void take_set_facts(struct run *run, const struct run_facts *facts);
/* The fault of a begin as seen by an execution: NEXT_PARK, or NEXT_DONE after the record was ended. */
enum next take_begin_failed(struct run *run, const struct err *why);

/* ---- command.c, call.c, verdict.c: the provider's side ---- */
enum next command_run(struct run *run);
/* Goes on with a run whose worker is stuck in the provider's call. */
enum next command_stuck(struct run *run);
struct berth_execution call_execution(const struct run *run);
/* What one execute or reattach came to. */
struct attempt {
	bool reattach;
	bool held_back; /* the call was not made: cancel, a lost hold or a stop came first */
	bool given;	/* the call was given up, and the run is another worker's */
	int code;
	struct err err;
	bool has_ending;
	struct berth_ending ending; /* reason points to reason below */
	char reason[BERTH_REASON_MAX + 1];
};
struct inputs;
/* A session that a call may read after the hold is gone. False: no memory. */
struct kept_session {
	struct berth_session session;
	char *text;
	size_t len;
};
bool call_keep_session(const struct berth_session *from, struct kept_session *ret);
void call_drop_session(struct kept_session *kept);
void call_perform(struct run *run, const struct inputs *in, bool reattach, struct attempt *ret);
/* How long the command may still run, if it starts now: its end stands since the first start. What stopping it takes is
 * kept apart. Not above 0: it is not started any more. */
int64_t call_time_left(struct run *run);
/* One short call that only this layer's cancel may end: 0, or the call's code. */
int call_short(struct run *run, int64_t ms, const struct call_sink *sink,
	       int (*op)(struct run *run, struct call *call, void *arg, struct err *err), void *arg, struct err *err);
void call_kill(struct run *run);
/* The hold was lost, from the keeper's thread. */
void call_on_lost(void *run, const char *reason);
/* Another host has it: a call under way is left, no other is made. With executions.lock held. */
void call_moved_locked(struct run *run);
bool call_has_moved(struct run *run);
void call_is_back(struct run *run); /* this host has claimed it again */
/* Cancel: reaches the call under way. With executions.lock held. */
void call_stop_locked(struct run *run, uint32_t state);
/* No new provider call for this run: cancelled, lost, or the process stops. */
bool call_unwanted(struct run *run);

enum verdict {
	VERDICT_ENDED,	     /* there is an ending */
	VERDICT_REFUSED,     /* nothing ran and nothing will */
	VERDICT_AGAIN,	     /* nothing ran; the same call may work later */
	VERDICT_REATTACH,    /* it may have run: ask for it, now or later */
	VERDICT_DOUBT,	     /* the provider was asked for it and does not know */
	VERDICT_NOT_STARTED, /* certainly not, and no former attempt will */
	VERDICT_LOST,	     /* the session is gone */
	VERDICT_FORGOTTEN,   /* it ended, and was forgotten as this host asked in a state that the store has lost since */
	VERDICT_DETACHED,
	VERDICT_GIVE_UP, /* it may have run and cannot be asked for */
};
/* reattach: which call answered. touched: the provider gave a sign of the command. Pure. */
enum verdict verdict_of(int code, uint32_t ending_kind, bool reattach, bool touched);

/* ---- plan.c, inputs.c: what a command needs to run ---- */
/* From the store, unless it is there. ERR_CORRUPT: the body is not, though the options may be. */
int plan_load(struct run *run, struct err *err);
int plan_set(struct run *run, const struct record *r, const char *body, size_t len, struct err *err);

struct inputs {
	struct arena *arena;
	struct berth_pair *env;
	size_t env_count;
	struct buf env_text;
	int stdin_fd; /* -1: none */
};
void inputs_init(struct inputs *in);
void inputs_fini(struct inputs *in);
/* Reads the files of the session that the command names. 0, or an error to judge as a provider call's;
 * ERR_INVALID_REQUEST with reason env_ref or stdin_ref: the file is at fault. */
int inputs_load(struct run *run, struct inputs *in, struct err *err);

/* ---- finish.c: the terminal step ---- */
struct finish {
	enum record_event event; /* COMPLETED, FAILED, CANCELLED */
	const char *reason, *error;
	int64_t retry_after_ms;
	const struct record_ending *ending;
	bool timed; /* duration_ms is the provider's; else what ran is taken to have run until now */
	int64_t duration_ms, survivors;
	uint64_t dropped[2]; /* by the provider, past the limits */
	struct session_end end;
};
/* Writes it (as long as it takes) and gives the hold back. NEXT_DONE, or NEXT_LEAVE when the process stops first. */
enum next finish_run(struct run *run, const struct finish *finish);
enum next finish_cancelled(struct run *run);			 /* nothing has started */
enum next finish_failed(struct run *run, const struct err *why); /* nothing has started */
enum next finish_expired(struct run *run);			 /* queue_expires_at passed */
void finish_hand_back(struct run *run);				 /* stop: the claim is free, the hold detached */

/* ---- recover.c, sweep.c: hooks and the request stream ---- */
/* Reads the request stream from where it stopped: garbage to the dead letters, the rest to the line. */
int recover_stream(struct executions *e, struct err *err);
/* Takes away the messages that ask for what was claimed or has ended, whoever appended them. */
int recover_spent(struct executions *e, struct err *err);
/* Looks at every record once: an open one that nobody has is put in line. */
int recover_lost(struct executions *e, struct err *err);
/* The same for those young enough to wait: cheap enough to be done again and again. */
int recover_waiting(struct executions *e, struct err *err);
int recover_adopt(struct executions *e, const char *id, struct err *err);
/* The same of one whose claim is over, which may stand in line here since before it was claimed. */
int recover_inherit(struct executions *e, const char *id, struct err *err);
/* Another host took or ended it: it does not wait here any more, unless it had a turn here. Asks no store; should it not be
 * so, the looks for missing messages and ended claims bring it back. */
void recover_passed(struct executions *e, const char *id);
/* A claim without a record that can be read becomes a dead letter. */
int recover_bury_claim(struct executions *e, const char *id, struct err *err);
void sweep_line(struct executions *e); /* ends what waited in line for too long, or was cancelled there */
bool sweep_round(void *executions);
bool retain_round(struct executions *e); /* removes what is old; true: a part of it, there is more */
void sweep_keep(void *executions);
void cancel_task(const struct ident *ident, bool force, void *executions);
bool recover_is_open(struct txn *txn, const char *id, void *executions);
void create_idempotency_key(const char *workspace, const char *task, const char *key, char *ret, size_t cap);

uint64_t output_size_now(struct output_reader *reader);
/* How far a stream is: of an ended execution as its record says, whether or not the object is there. */
int output_reach(struct executions *e, const char *id, unsigned stream, uint64_t *ret_size, bool *ret_final,
		 struct err *err);
/* Up to cap bytes of an object at offset; *ret_len says how many there were. */
int output_read_object(struct executions *e, const char *key, uint64_t offset, void *buf, size_t cap, size_t *ret_len,
		       struct err *err);
/* The run's command is another host's now: readers look there. */
void output_moved(struct run *run);

/* ---- runner.c ---- */
void runner_main(void *run);
/* Ends an OWNED run that waited, on a thread that must not wait for the store: what cannot be written (NEXT_LEAVE) is in
 * line again, for a worker or the sweep. */
enum next runner_at_once(struct run *run, enum next (*end)(struct run *run));

#endif
