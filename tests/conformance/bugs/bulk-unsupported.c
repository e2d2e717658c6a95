/* SPDX-License-Identifier: Apache-2.0 */
/* The capability BULK is declared, and export_tar does not work. */
#include "bug.h"

static int32_t export_tar(void *inst, struct berth_call *call, const struct berth_session *session,
			  const struct berth_str *paths, size_t path_count)
{
	(void)inst;
	(void)session;
	(void)paths;
	(void)path_count;
	return real->fail(call, BERTH_UNSUPPORTED, "later", 0, 0, "comes later");
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)host;
	ops->export_tar = export_tar;
}
