/* SPDX-License-Identifier: Apache-2.0 */
/* A session as an operation knows it, from the host's words alone; no network. Any thread. */
#ifndef KUBERNETES_SESSION_H
#define KUBERNETES_SESSION_H

#include <berth/host.h>

#include "names.h"

#define INSTANCE_LEN 32

struct session {
	struct ref ref; /* of the pod, or of the claim */
	char pod[64];	/* the pod's name and uid; in mode pods those of ref */
	char uid[64];
	char ip[64];
	char instance[INSTANCE_LEN + 1]; /* of the executor's process; empty: not known yet */
	char workspace[129], task[129];
	char version[64]; /* of the pod, when it was seen ready and free; empty: it was not */
	/* Of a claim, once it was read; not kept by the host. */
	char intent[64];
	int64_t created_ms, expires_ms;
};

/* From what the host kept. False: none of ours. */
bool session_of(const struct berth_session *session, struct session *ret);
/* The state that session_of understands: at most BERTH_STATE_MAX bytes. */
void session_state(const struct session *session, char ret[1024]);

#endif
