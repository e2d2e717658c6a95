/* SPDX-License-Identifier: Apache-2.0 */
/* reattach follows a later attempt than the one that is asked for. */
#include "bug.h"

static int32_t reattach(void *inst, struct berth_call *call, const struct berth_session *session,
			const struct berth_resume *resume)
{
	struct berth_resume later = *resume;
	char path[8192], what[256];

	snprintf(what, sizeof(what), "run/%.*s/started", (int)resume->execution_id.len, resume->execution_id.ptr);
	bug_path(path, inst, session, what);
	if (!access(path, F_OK))
		later.attempt = UINT32_MAX;
	return mock_reattach(inst, call, session, &later);
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)host;
	ops->reattach = reattach;
}
