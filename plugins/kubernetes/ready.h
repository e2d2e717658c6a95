/* SPDX-License-Identifier: Apache-2.0 */
/* From a pod to a session that answers. */
#ifndef KUBERNETES_READY_H
#define KUBERNETES_READY_H

#include "kube.h"
#include "session.h"

/* await_ready of provider.h. */
int32_t ready_wait(struct kube *k, struct berth_call *call, struct session *session, struct kerr *err);

#endif
