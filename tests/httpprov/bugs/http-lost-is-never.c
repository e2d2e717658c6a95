/* SPDX-License-Identifier: Apache-2.0 */
/* A command that the server does not speak of has never started. */
#include "http.h"

static int32_t reattach(void *inst, struct berth_call *call, const struct berth_session *session,
			const struct berth_resume *resume)
{
	int32_t rc = prov_reattach(inst, call, session, resume);

	return rc == BERTH_UNAVAILABLE || rc == BERTH_UNKNOWN ? BERTH_NOT_STARTED : rc;
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)host;
	ops->reattach = reattach;
}
