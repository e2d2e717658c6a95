/* SPDX-License-Identifier: Apache-2.0 */
/* A variable of a command ends at its first newline. */
#include "bug.h"

static int32_t execute(void *inst, struct berth_call *call, const struct berth_session *session,
		       const struct berth_command *command)
{
	struct berth_command bent = *command;
	struct berth_pair pair;

	if (command->env_count == 1) {
		const char *newline = memchr(command->env[0].value.ptr, '\n', command->env[0].value.len);

		pair = command->env[0];
		if (newline)
			pair.value.len = (size_t)(newline - pair.value.ptr);
		bent.env = &pair;
	}
	return mock_execute(inst, call, session, &bent);
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)host;
	ops->execute = execute;
}
