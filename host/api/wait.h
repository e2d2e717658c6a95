/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for a change without holding a thread: the request parks on a watch key and its handler is called again.
 */
#ifndef API_WAIT_H
#define API_WAIT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"

struct req;

/* Looks; when `look` says done (or fails, or the deadline has passed, or the client or the server does not want to
 * wait), REQ_DONE with look's error code in the usual way. Else REQ_PARKED: return it at once, req belongs to the
 * wait now, and the handler (or pump) is called again from its start, without the request's body. `key` is copied. */
int wait_for(struct req *req, const char *key, int64_t deadline_ns,
	     int (*look)(struct req *req, bool *ret_done, struct err *err), struct err *err);
/* Ends a wait early (client gone, server stops). Any thread that holds a reference. */
void wait_hurry(struct req *req);

#endif
