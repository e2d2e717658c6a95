/* SPDX-License-Identifier: Apache-2.0 */
/* A command that ended and was forgotten is NOT_FOUND like a session that is gone. */
#include "bug.h"

static int32_t fail(struct berth_call *call, int32_t code, const char *reason, uint32_t retryable, int64_t retry_after_ms,
		    const char *text)
{
	return real->fail(call, code, reason && !strcmp(reason, "forgotten") ? NULL : reason, retryable, retry_after_ms,
			  text);
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)ops;
	host->fail = fail;
}
