/* SPDX-License-Identifier: Apache-2.0 */
/* list loses its first warm session. */
#include "bug.h"

static _Thread_local bool lose;

static int32_t emit_session(struct berth_call *call, const struct berth_session_info *info)
{
	bool lost = lose && !info->task_id.len;

	lose = lose && !lost;
	return lost ? BERTH_OK : real->emit_session(call, info);
}

static int32_t list(void *inst, struct berth_call *call, const struct berth_str *cursor)
{
	int32_t rc;

	lose = true;
	rc = mock_list(inst, call, cursor);
	lose = false;
	return rc;
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	ops->list = list;
	host->emit_session = emit_session;
}
