/* SPDX-License-Identifier: Apache-2.0 */
/* forget also drops the mark that the command started. */
#include "bug.h"

static int32_t forget(void *inst, struct berth_call *call, const struct berth_session *session,
		      const struct berth_execution *execution)
{
	int32_t rc = mock_forget(inst, call, session, execution);
	char path[8192], what[256];

	snprintf(what, sizeof(what), "run/%.*s/started", (int)execution->id.len, execution->id.ptr);
	bug_path(path, inst, session, what);
	if (!rc)
		unlink(path);
	return rc;
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)host;
	ops->forget = forget;
}
