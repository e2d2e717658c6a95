/* SPDX-License-Identifier: Apache-2.0 */
/* Every file is written with mode 644. */
#include "bug.h"

static int32_t file_write(void *inst, struct berth_call *call, const struct berth_session *session,
			  const struct berth_file_write *write)
{
	struct berth_file_write bent = *write;

	bent.mode = 0644;
	return mock_file_write(inst, call, session, &bent);
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)host;
	ops->file_write = file_write;
}
