/* SPDX-License-Identifier: Apache-2.0 */
/* A STOP is not heard. */
#include "bug.h"

static uint32_t cancel_state(struct berth_call *call)
{
	uint32_t state = real->cancel_state(call);

	return state == BERTH_CANCEL_STOP ? BERTH_CANCEL_NONE : state;
}

static int32_t cancel_fd(struct berth_call *call)
{
	(void)call;
	return -1;
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)ops;
	host->cancel_state = cancel_state;
	host->cancel_fd = cancel_fd;
}
