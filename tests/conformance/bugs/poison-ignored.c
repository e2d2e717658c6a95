/* SPDX-License-Identifier: Apache-2.0 */
/* reattach says NOT_STARTED and does nothing to keep that true. */
#include "bug.h"

static int32_t reattach(void *inst, struct berth_call *call, const struct berth_session *session,
			const struct berth_resume *resume)
{
	char path[8192], what[256];

	snprintf(what, sizeof(what), "run/%.*s/started", (int)resume->execution_id.len, resume->execution_id.ptr);
	bug_path(path, inst, session, what);
	if (access(path, F_OK))
		return real->fail(call, BERTH_NOT_STARTED, "not_started", 0, 0, "there is no such command");
	return mock_reattach(inst, call, session, resume);
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)host;
	ops->reattach = reattach;
}
