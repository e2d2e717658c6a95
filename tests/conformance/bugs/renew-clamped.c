/* SPDX-License-Identifier: Apache-2.0 */
/* No mistake: at most half an hour from now is granted, in whole seconds, so that a renewal at once moves nothing. */
#include "bug.h"

#include <time.h>

static int64_t grant(int64_t asked_ms)
{
	int64_t most_ms = ((int64_t)time(NULL) + 1800) * 1000;

	return asked_ms < most_ms ? asked_ms : most_ms;
}

static int32_t provision(void *inst, struct berth_call *call, const struct berth_spec *spec)
{
	struct berth_spec bent = *spec;

	if (bent.expires_ms)
		bent.expires_ms = grant(bent.expires_ms);
	return mock_provision(inst, call, &bent);
}

static int32_t renew(void *inst, struct berth_call *call, const struct berth_session *session, int64_t until_ms)
{
	return mock_renew(inst, call, session, grant(until_ms));
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)host;
	ops->provision = provision;
	ops->renew = renew;
}
