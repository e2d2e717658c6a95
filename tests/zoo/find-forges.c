/* SPDX-License-Identifier: Apache-2.0 */
/* Answers a find with the session of another task. */
#define ZOO_NAME "find-forges"
#define ZOO_FIND bad_find
#include <berth/provider.h>
static int32_t bad_find(void *inst, struct berth_call *call, const struct berth_identity *identity);
#include "zoo.h"

static int32_t bad_find(void *inst, struct berth_call *call, const struct berth_identity *identity)
{
	struct berth_session_info info = zoo_session(zoo_str("of-another"));

	(void)inst;
	info.workspace_id = identity->workspace_id;
	info.task_id = zoo_str("another-task");
	return host->emit_session(call, &info);
}
