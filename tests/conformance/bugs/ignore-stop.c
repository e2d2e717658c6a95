/* SPDX-License-Identifier: Apache-2.0 */
/* A STOP is not heard by commands. What is deaf with files is another mistake: files-deaf. */
#include "bug.h"

static _Thread_local bool deaf;

static int32_t execute(void *inst, struct berth_call *call, const struct berth_session *session,
		       const struct berth_command *command)
{
	int32_t rc;

	deaf = true;
	rc = mock_execute(inst, call, session, command);
	deaf = false;
	return rc;
}

static int32_t reattach(void *inst, struct berth_call *call, const struct berth_session *session,
			const struct berth_resume *resume)
{
	int32_t rc;

	deaf = true;
	rc = mock_reattach(inst, call, session, resume);
	deaf = false;
	return rc;
}

static uint32_t cancel_state(struct berth_call *call)
{
	uint32_t state = real->cancel_state(call);

	return deaf && state == BERTH_CANCEL_STOP ? BERTH_CANCEL_NONE : state;
}

static int32_t cancel_fd(struct berth_call *call)
{
	return deaf ? -1 : real->cancel_fd(call);
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	ops->execute = execute;
	ops->reattach = reattach;
	host->cancel_state = cancel_state;
	host->cancel_fd = cancel_fd;
}
