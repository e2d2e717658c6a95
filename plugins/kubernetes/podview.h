/* SPDX-License-Identifier: Apache-2.0 */
/* What a Pod object says: who it is, whose it is, how it stands. Pure; any thread. */
#ifndef KUBERNETES_PODVIEW_H
#define KUBERNETES_PODVIEW_H

#include <json-c/json.h>

#include "names.h"

/* Where a pod stands, by the first row of the table that fits. */
struct verdict {
	int32_t code;	    /* OK: it is ready, or on its way */
	const char *reason; /* of the code; also the dead reason */
	uint32_t phase;	    /* BERTH_PHASE_* */
	uint32_t flags;
	char text[300]; /* what Kubernetes said */
};
#define VERDICT_GRACE 1u /* may heal by itself: a failure only when it lasts */
#define VERDICT_HOLD 2u	 /* waits for somebody; no failure at all */

/* Borrowed from the object. */
struct podview {
	const char *ns, *name, *uid, *version, *ip;
	const char *deployment, *workspace, *task, *intent;
	const char *runtime_class;
	bool deleting, managed;
	int64_t created_ms, expires_ms;
	int64_t restarts; /* of the executor's container */
	uint64_t cpu_millis, memory_bytes, disk_bytes;
	struct verdict verdict;
};

/* `container` names the executor's. */
void podview_of(struct json_object *pod, const char *container, struct podview *ret);

#endif
