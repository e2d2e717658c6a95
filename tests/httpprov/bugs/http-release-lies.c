/* SPDX-License-Identifier: Apache-2.0 */
/* A release that failed is called done. */
#include "http.h"

static int32_t release(void *inst, struct berth_call *call, const struct berth_session *session)
{
	int32_t rc = prov_release(inst, call, session);

	return rc == BERTH_CANCELLED || rc == BERTH_NOT_FOUND ? rc : BERTH_OK;
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)host;
	ops->release = release;
}
