/* SPDX-License-Identifier: Apache-2.0 */
/* One operation: what the SDK's functions take for a host's call. */
#ifndef EXECUTOR_CALL_H
#define EXECUTOR_CALL_H

#include "args.h"
#include "executor.h"
#include "frame.h"
#include "reply.h"
#include "siblings.h"

struct berth_call {
	struct executor *executor;
	struct http_conn *conn;
	struct token token;
	struct reply reply;
	struct frame_body body;
	struct args args;
	struct result result;
	uint64_t sent[3];	/* by BERTH_STREAM_: where the next byte of each stream belongs */
	char announce;		/* frame that tells that the command is being followed: S or H; '\0' = none or done */
	struct sibling sibling; /* of a stream */
	size_t announced;	/* bytes of the reply that hold no more than that frame */
	bool peer_gone;		/* noticed while the command ran */
	bool forgot;		/* what args.forget names; see forget.h */
};

/* Services that write into the reply. */
extern const struct berth_host call_host;

/* For struct berth_sup: before the command is waited for. */
void call_waits(struct berth_call *call, uint32_t is_long);
/* Sets the result and returns its code. */
int32_t call_fail(struct berth_call *call, int32_t code, const char *reason, bool retryable, const char *text);

#endif
