/* SPDX-License-Identifier: Apache-2.0 */
/* file_move goes where links lead. */
#include "bug.h"

static int32_t file_move(void *inst, struct berth_call *call, const struct berth_session *session,
			 const struct berth_str *from, const struct berth_str *to)
{
	char source[8192], target[8192], what[2048];

	(void)call;
	snprintf(what, sizeof(what), "work/%.*s", (int)from->len, from->ptr);
	bug_path(source, inst, session, what);
	snprintf(what, sizeof(what), "work/%.*s", (int)to->len, to->ptr);
	bug_path(target, inst, session, what);
	if (!rename(source, target))
		return BERTH_OK;
	return errno == ENOENT ? BERTH_NOT_FOUND : BERTH_INVALID;
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)host;
	ops->file_move = file_move;
}
