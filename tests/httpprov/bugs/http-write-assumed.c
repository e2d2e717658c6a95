/* SPDX-License-Identifier: Apache-2.0 */
/* A write whose answer was lost is called done. */
#include "http.h"

static int32_t file_write(void *inst, struct berth_call *call, const struct berth_session *session,
			  const struct berth_file_write *write)
{
	int32_t rc = prov_file_write(inst, call, session, write);

	return rc == BERTH_UNKNOWN ? BERTH_OK : rc;
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)host;
	ops->file_write = file_write;
}
