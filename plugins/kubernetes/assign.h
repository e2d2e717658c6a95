/* SPDX-License-Identifier: Apache-2.0 */
/* Mode pods: a warm pod becomes a task's. */
#ifndef KUBERNETES_ASSIGN_H
#define KUBERNETES_ASSIGN_H

#include "kube.h"
#include "session.h"

/* Tags the pod by one patch that only the version it was read at lets through; emits the new info. */
int32_t assign_pod(struct kube *k, struct berth_call *call, struct session *session, const char *workspace,
		   const char *task, const char *root, struct kerr *err);

#endif
