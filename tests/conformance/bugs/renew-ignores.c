/* SPDX-License-Identifier: Apache-2.0 */
/* renew does nothing and answers the expiry that is there. */
#include "bug.h"

static int32_t renew(void *inst, struct berth_call *call, const struct berth_session *session, int64_t until_ms)
{
	(void)until_ms;
	return mock_renew(inst, call, session, 1);
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)host;
	ops->renew = renew;
}
