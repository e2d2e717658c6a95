/* SPDX-License-Identifier: Apache-2.0 */
/* A file is as long as what came of it. */
#include "http.h"

static int32_t file_read(void *inst, struct berth_call *call, const struct berth_session *session,
			 const struct berth_str *path, uint64_t offset, uint64_t length)
{
	int32_t rc = prov_file_read(inst, call, session, path, offset, length);

	return rc == BERTH_UNAVAILABLE ? BERTH_OK : rc;
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)host;
	ops->file_read = file_read;
}
