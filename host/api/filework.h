/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One file operation on a task's session: acquire, calls, release. Workers only.
 */
#ifndef API_FILEWORK_H
#define API_FILEWORK_H

#include <string.h>

#include "api/req.h"
#include "core/ident.h"
#include "plugin/call.h"
#include "session/session.h"

/* Which session, and whether it may be brought up for this. */
struct file_place {
	struct ident ident;
	const char *region; /* or NULL */
	bool ensure;
};

/* From the query: workspace_id, task_id, ensure, region; checked against the token. */
int filework_place(struct req *req, struct file_place *ret, struct err *err);
/* From a body's fields. */
int filework_place_named(struct req *req, const char *workspace, const char *task, const char *region,
			 struct file_place *ret, struct err *err);

#define FILEWORK_SHORT_MS (2 * 60 * 1000) /* an operation that answers JSON; any that moves no bytes */

struct filework {
	struct session_hold *hold;
	const struct berth_session *session; /* the hold's */
	struct call *call;
	int64_t deadline_ns, stall_ms;
	bool unproven; /* one of its calls was given up: the plugin may still be at it */
};

/* Blocks until the session is live. Always pair with filework_end, also after an error. */
int filework_begin(struct req *req, const struct file_place *place, int64_t lasts_ms, struct filework *work,
		   struct err *err);
/* A fresh call on the session; results of the one before are gone. `sink` NULL: results are collected. NULL: memory
 * is out. One without is short; one with bytes to move ends when the provider moves none for files.stall_timeout. */
struct call *filework_call(struct filework *work, const struct call_sink *sink);
/* What a call_… function returned: turned into what a caller may see. 0 stays 0. */
int filework_result(struct filework *work, int code, struct err *err);
/* Gives the hold back; `code` is how the work ended. */
void filework_end(struct req *req, struct filework *work, int code);

static inline struct berth_str filework_str(const char *text)
{
	return (struct berth_str){.ptr = text, .len = text ? strlen(text) : 0};
}

#endif
