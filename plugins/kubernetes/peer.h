/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One signed request to the executor of a session (docs/executor.md): frames out, frames in, and who it was that
 * answered. A peer is made on the stack of an operation and belongs to its thread.
 */
#ifndef KUBERNETES_PEER_H
#define KUBERNETES_PEER_H

#include "kube.h"
#include "session.h"

struct frame {
	char type;
	const unsigned char *ptr;
	size_t len;
};

/* A reply frame, on the calling thread; a code other than OK ends the request with it, explained in err. */
typedef int32_t peer_frame_fn(void *arg, const struct frame *frame, struct kerr *err);
/* More of the body: up to cap bytes, *ret_len = 0 at the end. */
typedef int32_t peer_source_fn(void *arg, void *buf, size_t cap, size_t *ret_len, struct kerr *err);

struct peer_request {
	const char *path;	  /* "/v1/…" */
	const char *execution_id; /* NULL: none */
	uint32_t attempt;
	struct json_object *arguments; /* NULL: {} */
	const struct buf *more;	       /* whole frames that follow A, or NULL */
	peer_source_fn *source;	       /* then a D frame for each piece */
	peer_frame_fn *frame;	       /* NULL: none are expected */
	void *arg;
	bool waiting;			 /* may be silent for long */
	bool safe;			 /* asking twice does what asking once does */
	int64_t *ret_forgotten;		 /* how many it forgot beside its work; -1: it said nothing of that. NULL: not wanted */
	struct json_object **ret_health; /* of /v1/check: the health object, to be put. NULL: not wanted */
};

/* Sends it and gives its frames to request->frame; OK when the executor's result was. Else err says it: the executor's
 * own words, or what stood between. `touched`: the executor may have begun. */
int32_t peer_send(struct kube *k, struct berth_call *call, struct session *session, const struct peer_request *request,
		  bool *ret_touched, struct kerr *err);

/* Appends frames to a body. */
void peer_put(struct buf *body, char type, const void *ptr, size_t len);

#endif
