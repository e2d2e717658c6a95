/* SPDX-License-Identifier: Apache-2.0 */
/* Standard input of a command without one is left open. */
#include "bug.h"

#include "script.h"

static int32_t execute(void *inst, struct berth_call *call, const struct berth_session *session,
		       const struct berth_command *command)
{
	if (command->has_stdin)
		return mock_execute(inst, call, session, command);
	return execute_behind(inst, call, session, command,
			      "[ -p \"$TMPDIR/in\" ] || mkfifo \"$TMPDIR/in\" 2>/dev/null; exec 0<>\"$TMPDIR/in\"\n");
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)host;
	ops->execute = execute;
}
