/* SPDX-License-Identifier: Apache-2.0 */
/* No mistake: the first page of list is empty and has a cursor, as where those sessions are of others. */
#include "bug.h"

static int32_t list(void *inst, struct berth_call *call, const struct berth_str *cursor)
{
	static const char lowest[] = "mock-0000000000000000";
	const struct berth_str next = {lowest, sizeof(lowest) - 1};

	return cursor->len ? mock_list(inst, call, cursor) : real->emit_cursor(call, &next);
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)host;
	ops->list = list;
}
