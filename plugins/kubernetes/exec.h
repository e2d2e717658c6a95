/* SPDX-License-Identifier: Apache-2.0 */
/* Commands through a session's executor. `id` is the execution's. Semantics are those of the operations in provider.h.
 */
#ifndef KUBERNETES_EXEC_H
#define KUBERNETES_EXEC_H

#include "kube.h"
#include "owed.h"
#include "session.h"

int32_t exec_run(struct kube *k, struct berth_call *call, struct session *session, const char *id,
		 const struct berth_command *command, struct kerr *err);
int32_t exec_follow(struct kube *k, struct berth_call *call, struct session *session, const char *id,
		    const struct berth_resume *resume, struct kerr *err);
int32_t exec_signal(struct kube *k, struct berth_call *call, struct session *session, const char *id, uint32_t attempt,
		    const char *word, struct kerr *err);
int32_t exec_forget(struct kube *k, struct berth_call *call, struct session *session, const char *id, uint32_t attempt,
		    struct kerr *err);

/* By one request; call may be NULL. They may be gone before. OK: the list is taken, and owed again when the executor
 * passed some over. */
int32_t exec_forget_all(struct kube *k, struct berth_call *call, struct session *session, struct owed_command *list,
			struct kerr *err);

#endif
