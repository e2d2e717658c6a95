/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever isolation is wanted, a session is made. */
#include "bug.h"

static int32_t provision(void *inst, struct berth_call *call, const struct berth_spec *spec)
{
	struct berth_spec any = *spec;

	any.isolation = BERTH_ISOLATION_UNSET;
	return mock_provision(inst, call, &any);
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)host;
	ops->provision = provision;
}
