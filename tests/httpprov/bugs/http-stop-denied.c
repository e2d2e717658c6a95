/* SPDX-License-Identifier: Apache-2.0 */
/* When a stop fails, execute returns what the stop was answered with, as if it were about the command. */
#include "http.h"

static int32_t (*execute)(void *inst, struct berth_call *call, const struct berth_session *session,
			  const struct berth_command *command);

static int32_t deny(void *inst, struct berth_call *call, const struct berth_session *session,
		    const struct berth_command *command)
{
	int32_t rc = execute(inst, call, session, command);

	if (rc != BERTH_UNKNOWN || real->cancel_state(call) != BERTH_CANCEL_STOP)
		return rc;
	return real->fail(call, BERTH_UNAVAILABLE, "stop", 1, 0, "the stop was refused");
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)host;
	execute = ops->execute;
	ops->execute = deny;
}
