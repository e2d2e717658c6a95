/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a record changes: by the events of one table, never by a caller's word. Pure: a record, an event, a time.
 */
#ifndef EXECUTION_TRANSITION_H
#define EXECUTION_TRANSITION_H

#include "execution/record.h"

/* X(NAME, type word of the published event) */
#define RECORD_EVENTS(X)                                                                                               \
	X(REQUESTED, "requested")                                                                                      \
	X(CLAIMED, "claimed")                                                                                          \
	X(RECLAIMED, "claimed") X(RESTARTED, "started") X(STARTED, "started") X(PROGRESS, "progress")                  \
		X(COMPLETED, "completed") X(FAILED, "failed") X(CANCELLED, "cancelled")
enum record_event {
#define X(name, word) EVENT_##name,
	RECORD_EVENTS(X)
#undef X
		RECORD_EVENT_COUNT
};

/* What an event carries. Fields that the event does not use are ignored. Borrowed: the record points to it afterwards.
 */
struct record_change {
	int64_t attempt; /* CLAIMED, RECLAIMED, RESTARTED: the new one. Others: the owner's; 0 = not the owner (cancel,
			    expiry) */
	int64_t incarnation;		    /* STARTED, RESTARTED */
	const char *target;		    /* likewise */
	int64_t grace_ms;		    /* STARTED: added to the timeout for execution_expires_at */
	const struct record_result *result; /* terminal events, as the rest; NULL = the command never ran */
	const struct record_ending *ending;
	const char **output_refs;
	size_t output_ref_count;
	int64_t survivors;
	struct record_lost *lost;
	size_t lost_count;
	const char *reason, *error;
	int64_t retry_after_ms;
};

const char *record_event_word(enum record_event event);
/* Where the event leads from this status; RECORD_NONE when it is illegal there. */
enum record_status transition_next(enum record_status from, enum record_event event);
/* Applies it: status, revision + 1, times and what the change carries. A terminal record takes an exact replay silently
 * (*ret_replay, nothing changed); everything else that the table does not allow, and an attempt that is not the owner's
 * any more, is ERR_EXECUTION_CONFLICT and changes nothing. */
int transition_apply(struct record *r, enum record_event event, const struct record_change *change, int64_t now_ms,
		     bool *ret_replay, struct err *err);

#endif
