/* SPDX-License-Identifier: Apache-2.0 */
/* release says OK and deletes nothing. */
#include "bug.h"

static int32_t release(void *inst, struct berth_call *call, const struct berth_session *session)
{
	(void)inst;
	(void)call;
	(void)session;
	return BERTH_OK;
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)host;
	ops->release = release;
}
