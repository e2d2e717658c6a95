/* SPDX-License-Identifier: Apache-2.0 */
/* For animals whose execute is what is wrong: they define ZOO_NAME, include this, and write bad_execute. */
#ifndef ZOO_EXECUTE_H
#define ZOO_EXECUTE_H

#include <berth/provider.h>

#define ZOO_EXECUTE bad_execute
static int32_t bad_execute(void *inst, struct berth_call *call, const struct berth_session *session,
			   const struct berth_command *command);
#define BAD_EXECUTE(call)                                                                                              \
	static int32_t bad_execute(void *inst UNUSED, struct berth_call *call UNUSED,                                  \
				   const struct berth_session *session UNUSED,                                         \
				   const struct berth_command *command UNUSED)

#include "zoo.h"

UNUSED static int32_t end(struct berth_call *call, uint32_t kind)
{
	struct berth_ending ending = {.struct_size = sizeof(ending), .kind = kind};

	return host->emit_ending(call, &ending);
}

#endif
