/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread per instance that follows the deployment's pods. It wakes those who wait for one of them and tells the
 * host that something changed; it never answers what exists.
 */
#ifndef KUBERNETES_WATCH_H
#define KUBERNETES_WATCH_H

#include "kube.h"

/* No network before somebody needs it, with doubts or listen: from then on the thread runs. */
int32_t watch_start(struct kube *k, struct watch **ret, struct kerr *err);
/* Joins the thread. NULL is fine. */
void watch_stop(struct watch *watch);
/* Was the pod, or the claim, seen to go? Then it is worth asking about. False says nothing. */
bool watch_doubts(struct watch *watch, const char *uid);

/* On the stack of one that waits; from listen to unlisten. */
struct watch_waiter {
	const char *uid;
	int fd; /* readable when the pod is ready, failing or gone; -1: only time tells */
	struct watch_waiter *next;
};
void watch_listen(struct watch *watch, struct watch_waiter *waiter, const char *uid);
void watch_unlisten(struct watch *watch, struct watch_waiter *waiter);
/* Until the pod was seen so since the last wait, until_ns passed (both OK), or the call ends. */
int32_t watch_wait(struct watch_waiter *waiter, struct berth_call *call, int64_t until_ns, struct kerr *err);

#endif
