/* SPDX-License-Identifier: Apache-2.0 */
/* Where there are sessions, two more pages follow the last, and then the first of the two again. */
#include "bug.h"

static _Thread_local bool some, more;

static int32_t emit_session(struct berth_call *call, const struct berth_session_info *info)
{
	some = true;
	return real->emit_session(call, info);
}

static int32_t emit_cursor(struct berth_call *call, const struct berth_str *cursor)
{
	more = true;
	return real->emit_cursor(call, cursor);
}

static int32_t list(void *inst, struct berth_call *call, const struct berth_str *cursor)
{
	static const char ends[2][sizeof("mock-ffffffffffffffff")] = {"mock-fffffffffffffffe", "mock-ffffffffffffffff"};
	bool at_first = cursor->len == sizeof(ends[0]) - 1 && memcmp(cursor->ptr, ends[0], cursor->len) == 0;
	const struct berth_str next = {ends[at_first], sizeof(ends[0]) - 1};
	int32_t rc;

	some = cursor->len != 0;
	more = false;
	rc = mock_list(inst, call, cursor);
	return rc || more || !some ? rc : real->emit_cursor(call, &next);
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	host->emit_session = emit_session;
	host->emit_cursor = emit_cursor;
	ops->list = list;
}
