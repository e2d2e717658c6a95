/* SPDX-License-Identifier: Apache-2.0 */
/* What became of a session's pod, asked of the API server. */
#ifndef KUBERNETES_FATE_H
#define KUBERNETES_FATE_H

#include "kube.h"
#include "session.h"

/* A request to the executor came back with rc. When the way to it broke, the pod is looked at: SESSION_LOST with what
 * ended it, if it did; else rc as it was. */
int32_t fate_after(struct kube *k, struct berth_call *call, const struct session *session, int32_t rc,
		   struct kerr *err);
/* GET of the pod; SESSION_LOST, reason deleted, when it is certainly gone. To be put. */
int32_t fate_pod(struct kube *k, struct berth_call *call, const struct session *session, struct json_object **ret_pod,
		 struct kerr *err);
/* Before something begins in a session whose pod or claim the watch saw go: its pod may answer until its grace is over. OK when there
 * is no doubt, or nobody to ask. */
int32_t fate_before(struct kube *k, struct berth_call *call, const struct session *session, struct kerr *err);

#endif
