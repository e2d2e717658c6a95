/* SPDX-License-Identifier: Apache-2.0 */
/* Every refusal is one and the same. */
#include "http.h"

static int32_t fail(struct berth_call *call, int32_t code, const char *reason, uint32_t retryable,
		    int64_t retry_after_ms, const char *text)
{
	if (code == BERTH_UNAUTHENTICATED || code == BERTH_FORBIDDEN)
		return real->fail(call, BERTH_UNAVAILABLE, reason, 1, 0, text);
	return real->fail(call, code, reason, retryable, retry_after_ms, text);
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)ops;
	host->fail = fail;
}
