/* SPDX-License-Identifier: Apache-2.0 */
/* inspect forgets a buffer that is so large that the C library maps it by itself. */
#include "bug.h"

static int32_t inspect(void *inst, struct berth_call *call, const struct berth_session *session)
{
	static char *volatile last;

	last = malloc(1 << 20);
	if (last)
		last[0] = 1;
	return mock_inspect(inst, call, session);
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)host;
	ops->inspect = inspect;
}
