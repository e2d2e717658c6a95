/* SPDX-License-Identifier: Apache-2.0 */
/* What Events say of a pod that does not start. One list; blocks within its call. */
#ifndef KUBERNETES_EVENTS_H
#define KUBERNETES_EVENTS_H

#include "kube.h"
#include "session.h"

/* Adds the newest warning about the pod to the sentence in err, whose code and reason stay. Does nothing where there is
 * none, or no right to see it. */
void events_explain(struct kube *k, struct berth_call *call, const struct session *session, struct kerr *err);

#endif
