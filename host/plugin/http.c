/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP service of the host's table: a plugin's request becomes an exchange of net/ on behalf of the call. The call's
 * own thread, or with no call a thread of the plugin's own. Holds no lock while the exchange runs.
 */
#include "plugin/private.h"

#include <stddef.h>

#include "core/clock.h"
#include "net/net.h"

#define DETACHED_MS 1000       /* what a detached call may still use */
#define WITHOUT_CALL_MS 30000  /* of an exchange that no call limits */
#define REQUEST_SIZE_MAX 65536 /* of the struct; a larger one is no struct */

/* ---- cancel ---- */

/* A cancel that the plugin has not been told of. Once it knows, it may use HTTP to stop the command. */
static bool is_news(void *arg)
{
	struct call *call = arg;

	return atomic_load(&call->cancel) > call->told;
}

static void listen_to(void *arg, struct net_waker *waker)
{
	struct call *call = arg;

	lock_take(&call->lock);
	waker->next = call->wakers;
	call->wakers = waker;
	lock_drop(&call->lock);
}

static void unlisten_to(void *arg, struct net_waker *waker)
{
	struct call *call = arg;

	lock_take(&call->lock);
	call->wakers = waker->next;
	lock_drop(&call->lock);
}

void http_wake_locked(struct call *call)
{
	lock_assert(&call->lock);
	for (const struct net_waker *waker = call->wakers; waker; waker = waker->next)
		waker->fn(waker->arg);
}

/* ---- the end of a target: what threads of the plugin's own are waiting for ---- */

static bool is_ending(void *arg)
{
	struct target_state *ts = arg;

	return atomic_load(&ts->ending);
}

static void listen_to_end(void *arg, struct net_waker *waker)
{
	struct target_state *ts = arg;

	lock_take(&ts->lock);
	waker->next = ts->wakers;
	ts->wakers = waker;
	lock_drop(&ts->lock);
}

/* Several threads of a plugin may wait, so that the first in need not be the last out. */
static void unlisten_to_end(void *arg, struct net_waker *waker)
{
	struct target_state *ts = arg;
	struct net_waker **at = &ts->wakers;

	lock_take(&ts->lock);
	while (*at && *at != waker)
		at = &(*at)->next;
	if (*at)
		*at = waker->next;
	lock_drop(&ts->lock);
}

void http_end(struct target_state *ts)
{
	lock_take(&ts->lock);
	atomic_store(&ts->ending, true);
	for (const struct net_waker *waker = ts->wakers; waker; waker = waker->next)
		waker->fn(waker->arg);
	lock_drop(&ts->lock);
}

/* ---- structs ---- */

static bool take_request(struct berth_http_request *ret, const struct berth_http_request *theirs)
{
	memset(ret, 0, sizeof(*ret));
	if (!theirs || theirs->struct_size < offsetof(struct berth_http_request, method) ||
	    theirs->struct_size > REQUEST_SIZE_MAX)
		return false;
	memcpy(ret, theirs, theirs->struct_size < sizeof(*ret) ? theirs->struct_size : sizeof(*ret));
	ret->struct_size = sizeof(*ret);
	return true;
}

static void give_response(struct berth_http_response *ret, const struct berth_http_response *ours)
{
	uint32_t theirs = ret ? ret->struct_size : 0;

	if (theirs < 2 * sizeof(uint32_t) || theirs > REQUEST_SIZE_MAX)
		return;
	memcpy(ret, ours, theirs < sizeof(*ours) ? theirs : sizeof(*ours));
	ret->struct_size = theirs;
}

/* ---- the service ---- */

static const char *misuse(const struct call *call)
{
	if (!call->op || !pthread_equal(call->thread, pthread_self()))
		return "used a call outside its operation or thread";
	if (call->op == &op_table[OP_OPEN])
		return "used HTTP in open";
	return NULL;
}

static int64_t limit_of(const struct call *call)
{
	int64_t detached_ns = clock_after_ms(DETACHED_MS);

	if (!call)
		return clock_after_ms(WITHOUT_CALL_MS);
	if (atomic_load(&call->cancel) == BERTH_CANCEL_DETACH && detached_ns < call->deadline_ns)
		return detached_ns;
	return call->deadline_ns;
}

static int32_t explain(struct call *call, int32_t code, const struct net_failure *failure,
		       const struct berth_http_response *response)
{
	if (code == BERTH_CANCELLED && call)
		call->told = atomic_load(&call->cancel);
	/* What a callback of the plugin returned is the plugin's to explain. */
	if (code == BERTH_OK || !call || !strcmp(failure->reason, "callback"))
		return code;
	return hostapi_table.fail((struct berth_call *)(void *)call, code, failure->reason, failure->retryable,
				  response->retry_after_ms, failure->text);
}

int32_t http_exchange(struct berth_target *abi_target, struct berth_call *abi_call,
		      const struct berth_http_request *abi_request, struct berth_http_response *ret_response)
{
	const struct target *target = (const struct target *)(const void *)abi_target;
	struct call *call = call_of(abi_call);
	struct berth_http_response response = {.struct_size = sizeof(response)};
	struct berth_http_request request;
	struct net_failure failure = {.reason = "request"};
	struct net_caller caller = {.deadline_ns = limit_of(call)};
	const char *rule = call ? misuse(call) : NULL;
	int32_t code;

	give_response(ret_response, &response);
	if (rule) {
		call_violate(call, "%s", rule);
		return BERTH_INTERNAL;
	}
	if (!target || target->magic != TARGET_MAGIC || !target->state->net || (call && call->target != target) ||
	    (abi_call && !call) || !take_request(&request, abi_request)) {
		snprintf(failure.text, sizeof(failure.text), "http: not the call's target, or no request");
		return explain(call, BERTH_INVALID, &failure, &response);
	}
	caller.owner = target->conf->name;
	if (call) {
		caller.cancelled = is_news;
		caller.listen = listen_to;
		caller.unlisten = unlisten_to;
		caller.arg = call;
	} else {
		caller.cancelled = is_ending;
		caller.listen = listen_to_end;
		caller.unlisten = unlisten_to_end;
		caller.arg = target->state;
	}
	code = net_exchange(target->state->net, &caller, &request, &response, &failure);
	give_response(ret_response, &response);
	return explain(call, code, &failure, &response);
}
