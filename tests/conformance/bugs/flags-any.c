/* SPDX-License-Identifier: Apache-2.0 */
/* Flags that it does not know are left out. */
#include "bug.h"

static int32_t file_list(void *inst, struct berth_call *call, const struct berth_session *session,
			 const struct berth_str *path, uint32_t flags)
{
	return mock_file_list(inst, call, session, path, flags & BERTH_LIST_RECURSIVE);
}

static int32_t file_remove(void *inst, struct berth_call *call, const struct berth_session *session,
			   const struct berth_str *path, uint32_t flags)
{
	return mock_file_remove(inst, call, session, path, flags & BERTH_REMOVE_RECURSIVE);
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)host;
	ops->file_list = file_list;
	ops->file_remove = file_remove;
}
