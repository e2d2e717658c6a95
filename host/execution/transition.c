/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the transition table of executions. Pure functions, any thread, inside steps above all. Never changes a terminal
 * record, and never lets a former owner change an open one.
 */
#include "execution/transition.h"

#include <string.h>

#define FROM(status) (1u << RECORD_##status)
#define OPEN (FROM(QUEUED) | FROM(CLAIMED) | FROM(RUNNING))

static const struct {
	const char *word;
	unsigned from;
	enum record_status to; /* RECORD_NONE: stays where it is */
	bool new_attempt;      /* the change's attempt must be the record's + 1; else it must be the record's */
} table[RECORD_EVENT_COUNT] = {
	[EVENT_REQUESTED] = {"requested", FROM(NONE), RECORD_QUEUED, false},
	[EVENT_CLAIMED] = {"claimed", FROM(QUEUED), RECORD_CLAIMED, true},
	[EVENT_RECLAIMED] = {"claimed", FROM(CLAIMED) | FROM(RUNNING), RECORD_NONE, true},
	[EVENT_RESTARTED] = {"started", FROM(RUNNING), RECORD_RUNNING, false},
	[EVENT_STARTED] = {"started", FROM(CLAIMED), RECORD_RUNNING, false},
	[EVENT_PROGRESS] = {"progress", FROM(RUNNING), RECORD_RUNNING, false},
	[EVENT_COMPLETED] = {"completed", FROM(RUNNING), RECORD_COMPLETED, false},
	[EVENT_FAILED] = {"failed", OPEN, RECORD_FAILED, false},
	[EVENT_CANCELLED] = {"cancelled", OPEN, RECORD_CANCELLED, false},
};

const char *record_event_word(enum record_event event)
{
	return table[event].word;
}

enum record_status transition_next(enum record_status from, enum record_event event)
{
	if (!(table[event].from & (1u << from)))
		return RECORD_NONE;
	return table[event].to == RECORD_NONE ? from : table[event].to;
}

static bool same_text(const char *a, const char *b)
{
	return strcmp(a ? a : "", b ? b : "") == 0;
}

static bool same_result(const struct record_result *a, const struct record_result *b)
{
	static const struct record_result none;

	a = a ? a : &none;
	b = b ? b : &none;
	return a->exit_code == b->exit_code && a->stdout_bytes == b->stdout_bytes &&
	       a->stderr_bytes == b->stderr_bytes && same_text(a->stdout_ref, b->stdout_ref) &&
	       same_text(a->stderr_ref, b->stderr_ref) && same_text(a->stdout_sha256, b->stdout_sha256) &&
	       same_text(a->stderr_sha256, b->stderr_sha256);
}

/* The same end told again, by whoever owned it then: the writer that did not hear the answer. */
static bool is_replay(const struct record *r, enum record_event event, const struct record_change *change)
{
	return record_status_terminal(r->status) && table[event].to == r->status &&
	       (change->attempt == 0 || change->attempt == r->attempt) && same_text(r->reason, change->reason) &&
	       same_text(r->error, change->error) &&
	       same_text(r->ending.kind, change->ending ? change->ending->kind : NULL) &&
	       same_result(&r->result, change->result);
}

static int check_attempt(const struct record *r, enum record_event event, const struct record_change *change,
			 struct err *err)
{
	int64_t want = table[event].new_attempt ? r->attempt + 1 : r->attempt;

	if (change->attempt == want || (change->attempt == 0 && record_status_terminal(table[event].to)))
		return 0;
	return err_set(err, ERR_EXECUTION_CONFLICT, "execution %s: event %s of attempt %lld, but the record is at %lld",
		       r->id, table[event].word, (long long)change->attempt, (long long)r->attempt);
}

static void set_end(struct record *r, const struct record_change *change, int64_t now_ms)
{
	r->completed_ms = now_ms;
	r->reason = change->reason;
	r->error = change->error;
	r->retry_after_ms = change->retry_after_ms;
	r->survivors = change->survivors;
	r->output_lost = change->lost;
	r->lost_count = change->lost_count;
	r->output_refs = change->output_refs;
	r->output_ref_count = change->output_ref_count;
	if (change->result)
		r->result = *change->result;
	if (change->ending)
		r->ending = *change->ending;
}

static void set_started(struct record *r, const struct record_change *change, int64_t now_ms)
{
	r->incarnation = change->incarnation;
	r->target = change->target;
	if (r->started_ms)
		return; /* restarted: the command's deadline goes on counting */
	r->started_ms = now_ms;
	r->execution_expires_ms = now_ms + r->command.timeout_seconds * 1000 + change->grace_ms;
}

int transition_apply(struct record *r, enum record_event event, const struct record_change *change, int64_t now_ms,
		     bool *ret_replay, struct err *err)
{
	enum record_status to = transition_next(r->status, event);
	int rc;

	*ret_replay = is_replay(r, event, change);
	if (*ret_replay)
		return 0;
	if (to == RECORD_NONE)
		return err_set(err, ERR_EXECUTION_CONFLICT, "execution %s: event %s does not fit status %s", r->id,
			       table[event].word, record_status_word(r->status));
	rc = check_attempt(r, event, change, err);
	if (rc)
		return rc;
	r->status = to;
	r->revision++;
	r->updated_ms = now_ms;
	if (table[event].new_attempt)
		r->attempt = change->attempt;
	if (event == EVENT_REQUESTED)
		r->created_ms = now_ms;
	if (event == EVENT_STARTED || event == EVENT_RESTARTED)
		set_started(r, change, now_ms);
	if (record_status_terminal(to))
		set_end(r, change, now_ms);
	return 0;
}
