/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP client of the host: one blocking exchange, for plugins (host->http) and for whatever else of the host talks HTTP.
 * Short exchanges run on pooled handles in the calling thread, and so do the first few long ones (BERTH_HTTP_LONG): no
 * thread hands over to another. The others run on a few loop threads, where each costs one descriptor. Every callback of
 * the request runs on the calling thread, without a lock held. HTTP/1.1 only.
 */
#ifndef NET_NET_H
#define NET_NET_H

#include <berth/host.h>
#include <stdbool.h>

#include "core/err.h"

struct net;

struct net_config {
	unsigned loops;       /* threads for long exchanges; 0 = one per processor, at least 2, at most 4 */
	uint64_t descriptors; /* the most it holds; 0 = what RLIMIT_NOFILE leaves beside `reserved` */
	uint64_t reserved;
	unsigned direct; /* long exchanges that run as short ones do while no more than these run; 0 = none */
};

/* No thread and no descriptor until the first exchange. */
int net_new(const struct net_config *config, struct net **ret, struct err *err);
void net_free(struct net *net); /* no exchange may run; joins the loops */

/* Lives on the stack of an exchange, from listen to unlisten. */
struct net_waker {
	void (*fn)(void *arg); /* any thread, must not block */
	void *arg;
	struct net_waker *next; /* for the listener's list */
};

/* On whose behalf an exchange runs. */
struct net_caller {
	const char *owner;   /* pooled connections are never shared between two of them; "" is one too */
	int64_t deadline_ns; /* clock_boot_ns; INT64_MAX = none, then total_timeout_ms must be given */
	/* Asked from the calling thread, often: true ends the exchange. NULL = it cannot be cancelled. */
	bool (*cancelled)(void *arg);
	/* Between them a cancel runs the waker's function; once unlisten returned it is not running any more. Exchanges nest
	 * (a callback may begin another one): first in, last out. */
	void (*listen)(void *arg, struct net_waker *waker);
	void (*unlisten)(void *arg, struct net_waker *waker);
	void *arg;
};

/* Why an exchange gave another code than OK. Holds no header, path, query or credential. */
struct net_failure {
	const char *reason; /* a constant word */
	bool retryable;
	char text[200];
};

/* `request` is complete (its struct_size is the host's own). *ret_response is filled in any case, *ret_failure when the result is
 * not BERTH_OK. An answer of any status is BERTH_OK. */
int32_t net_exchange(struct net *net, const struct net_caller *caller, const struct berth_http_request *request,
		     struct berth_http_response *ret_response, struct net_failure *ret_failure);

/* As of now, for metrics and tests. */
struct net_usage {
	uint64_t descriptors; /* reserved now, idle connections included */
	uint64_t limit;
	unsigned idle;        /* pooled handles */
	unsigned long_running; /* on the loops */
};
void net_usage(struct net *net, struct net_usage *ret);

#endif
