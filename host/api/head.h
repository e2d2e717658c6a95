/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The strict look at a request's head that libmicrohttpd does not take: framing that two parsers could read differently
 * is refused. Fed one header at a time, so that it can be tested without a socket.
 */
#ifndef API_HEAD_H
#define API_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/arena.h"
#include "core/err.h"

struct head {
	/* First values, in the arena; NULL when absent. */
	const char *host, *authorization, *request_id, *idempotency_key, *range, *expect;
	const char *workspace, *task; /* X-Agentarea-Workspace-ID, X-Agentarea-Task-ID */
	const char *traceparent, *last_event_id;
	const char *content_type, *content_encoding, *content_range;
	const char *if_range, *if_match, *if_none_match;
	const char *forwarded_for; /* all of them, joined */
	int64_t length;		   /* Content-Length; -1 = none */
	bool chunked;
	unsigned authorizations;
	size_t bytes;
	/* The first fault found; the request must be refused and the connection closed. */
	int fault;
	char why[128];
};

void head_init(struct head *head);
/* For what the caller sees and this module cannot; the first fault counts. */
void head_fault(struct head *head, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Name and value as they came. */
void head_add(struct head *head, struct arena *arena, const char *name, size_t name_len, const char *value,
	      size_t value_len);
/* After the last header: 0, or the fault. */
int head_finish(struct head *head, const char *version, struct err *err);
/* What the request asks for that no route here can do; not a fault of its framing. `json`: its body is to be JSON. */
int head_check(const struct head *head, const char *method, const char *version, bool json, struct err *err);
static inline bool head_has_body(const struct head *head)
{
	return head->chunked || head->length > 0;
}

#endif
