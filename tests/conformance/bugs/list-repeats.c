/* SPDX-License-Identifier: Apache-2.0 */
/* Where there are sessions, list gives the last page's cursor again. */
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
	static const char highest[] = "mock-ffffffffffffffff";
	const struct berth_str last = {highest, sizeof(highest) - 1};
	int32_t rc;

	some = cursor->len != 0;
	more = false;
	rc = mock_list(inst, call, cursor);
	return rc || more || !some ? rc : real->emit_cursor(call, &last);
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	host->emit_session = emit_session;
	host->emit_cursor = emit_cursor;
	ops->list = list;
}
