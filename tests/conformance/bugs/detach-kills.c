/* SPDX-License-Identifier: Apache-2.0 */
/* A DETACH kills the command. */
#include "bug.h"

static uint32_t cancel_state(struct berth_call *call)
{
	return real->cancel_state(call) ? BERTH_CANCEL_STOP : BERTH_CANCEL_NONE;
}

static bool detached(struct berth_call *call)
{
	return real->cancel_state(call) == BERTH_CANCEL_DETACH;
}

static int32_t emit_ending(struct berth_call *call, const struct berth_ending *ending)
{
	return detached(call) ? BERTH_OK : real->emit_ending(call, ending);
}

static int32_t execute(void *inst, struct berth_call *call, const struct berth_session *session,
		       const struct berth_command *command)
{
	int32_t rc = mock_execute(inst, call, session, command);

	return !rc && detached(call) ? BERTH_CANCELLED : rc;
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	ops->execute = execute;
	host->cancel_state = cancel_state;
	host->emit_ending = emit_ending;
}
