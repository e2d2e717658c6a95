/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the parking of requests on watch keys. Entered from workers (wait_for), from the notifying thread (fire) and
 * from whoever ends a wait early. The gate decides which of the two parties of one arming goes on with the request: the
 * second one to pass it. Must never block in fire, nor touch a request after it was parked.
 */
#include "api/wait.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "api/intake.h"
#include "api/req.h"
#include "api/server.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/watch.h"

/* True for the party that comes last. */
static bool pass_gate(struct req *req)
{
	return atomic_fetch_sub(&req->wait.gate, 1) == 1;
}

/* As a worker would, without one: it takes longer to wake than the answer takes to make. The thread that brings the
 * notice is in the middle of something else, with its own names in the log. */
static bool answer_here(struct req *req)
{
	char request[LOG_REQUEST_MAX + 1], trace[TRACE_MAX + 1];
	bool made = req->wait.quick && req->wait.quick(req);

	if (!made)
		return false;
	snprintf(request, sizeof(request), "%s", log_request());
	snprintf(trace, sizeof(trace), "%s", log_trace());
	log_set_request(req->id);
	audit_log(req);
	log_set_request(request);
	log_set_trace(trace);
	stream_answer(&req->stream);
	req_unref(req);
	return true;
}

static void fire(struct watch_waiter *waiter, bool timed_out)
{
	struct req *req = waiter->arg;

	/* After a timeout the handler looks at the clock itself. */
	if (pass_gate(req) && (timed_out || !answer_here(req)))
		server_again(req->server, req);
}

/* A notice of another host can be lost. */
static int64_t next_look_ns(const struct req *req, int64_t deadline_ns)
{
	int64_t look_ms = server_look_ms(req->server);
	int64_t look_ns = look_ms > 0 ? clock_after_ms(look_ms) : INT64_MAX;

	return look_ns < deadline_ns ? look_ns : deadline_ns;
}

static void arm(struct req *req, const char *key, int64_t deadline_ns)
{
	struct req_wait *wait = &req->wait;

	assert(strlen(key) < sizeof(wait->key));
	memcpy(wait->key, key, strlen(key) + 1);
	atomic_store(&wait->gate, 2);
	/* Not as a whole: `added` may be looked at by wait_hurry right now, under the watch's lock. */
	wait->waiter.key = wait->key;
	wait->waiter.fire = fire;
	wait->waiter.arg = req;
	wait->waiter.deadline_ns = next_look_ns(req, deadline_ns);
	watch_add(server_watch(req->server), &wait->waiter);
}

int wait_for(struct req *req, const char *key, int64_t deadline_ns,
	     int (*look)(struct req *req, bool *ret_done, struct err *err), struct err *err)
{
	req_drop_body(req); /* many may wait, and for long */
	for (;;) {
		bool done = false;

		arm(req, key, deadline_ns);

		int r = look(req, &done, err);

		if (r != 0 || done || clock_boot_ns() >= deadline_ns || atomic_load(&req->hurried)) {
			/* Taken off in time, or the other party has already passed: the request is still ours. */
			if (watch_cancel(server_watch(req->server), &req->wait.waiter) || pass_gate(req))
				return r;
			return REQ_PARKED;
		}
		if (!pass_gate(req))
			return REQ_PARKED;
	}
}

void wait_hurry(struct req *req)
{
	atomic_store(&req->hurried, true);
	if (watch_cancel(server_watch(req->server), &req->wait.waiter) && pass_gate(req))
		server_again(req->server, req);
}
