/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever is not KILL is sent as TERM. */
#include "bug.h"

static int32_t send_signal(void *inst, struct berth_call *call, const struct berth_session *session,
			   const struct berth_execution *execution, uint32_t signal)
{
	return mock_send_signal(inst, call, session, execution,
				signal == BERTH_SIGNAL_KILL ? BERTH_SIGNAL_KILL : BERTH_SIGNAL_TERM);
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)host;
	ops->send_signal = send_signal;
}
