/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a command with a line put before its script. */
#ifndef SCRIPT_H
#define SCRIPT_H

static int32_t execute_behind(void *inst, struct berth_call *call, const struct berth_session *session,
			      const struct berth_command *command, const char *line)
{
	struct berth_command bent = *command;
	size_t len = strlen(line);
	char *script = malloc(len + command->script.len + 1);
	int32_t rc;

	if (!script)
		return BERTH_UNAVAILABLE;
	memcpy(script, line, len);
	memcpy(script + len, command->script.ptr, command->script.len);
	bent.script = (struct berth_str){script, len + command->script.len};
	rc = mock_execute(inst, call, session, &bent);
	free(script);
	return rc;
}

#endif
