/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events and messages of executions: CloudEvents 1.0, structured JSON. Never a command's body, its output or a secret.
 * Pure.
 */
#ifndef EXECUTION_EVENT_H
#define EXECUTION_EVENT_H

#include "execution/record.h"
#include "execution/transition.h"

#define EVENT_SOURCE "agentarea.mcp-manager.sandbox-control"
#define EVENT_TYPE_PREFIX "com.agentarea.sandbox.execution."
#define EVENT_MESSAGE_MAX ((size_t)64 * 1024)

/* The event of a record as it stands after `event` was applied. event_id: "evt_" + 24 hex, drawn by the caller. */
int event_render(const struct record *r, enum record_event event, const char *event_id, int64_t now_ms,
		 struct buf *buf);

/* Reads a message of the request stream: the execution it asks for. Else false, and a short stable word that says why
 * it can never be one: too_large, bad_json, no_id, wrong_type, unknown_version. */
bool event_parse_message(const char *doc, size_t len, char ret_id[IDENT_ID_MAX + 1], const char **ret_why);
/* The document of a dead letter: {reason, subject, seq, size, event (the text, when it is short and valid UTF-8)}. */
int event_render_dead(const char *reason, const char *subject, uint64_t seq, const char *doc, size_t len,
		      struct buf *buf);

/* The message inside a dead letter, in the arena; NULL when it has none. */
int event_parse_dead(struct arena *arena, const char *doc, size_t len, const char **ret_text, struct err *err);

#endif
