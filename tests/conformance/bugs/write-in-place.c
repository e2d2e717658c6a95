/* SPDX-License-Identifier: Apache-2.0 */
/* file_write empties the old file before the new one is there. */
#include "bug.h"

static int32_t file_write(void *inst, struct berth_call *call, const struct berth_session *session,
			  const struct berth_file_write *write)
{
	char path[8192], what[2048];

	snprintf(what, sizeof(what), "work/%.*s", (int)write->path.len, write->path.ptr);
	bug_path(path, inst, session, what);
	/* Not through the links that the rules of escapes make: that would be another mistake. */
	if (access(path, F_OK) == 0 && !strstr(path, "/link") && !strstr(path, "/file") && !strstr(path, "/victim"))
		(void)!truncate(path, 0);
	return mock_file_write(inst, call, session, write);
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)host;
	ops->file_write = file_write;
}
