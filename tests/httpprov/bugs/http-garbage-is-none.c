/* SPDX-License-Identifier: Apache-2.0 */
/* An answer that cannot be read holds no session. */
#include "http.h"

static int32_t find(void *inst, struct berth_call *call, const struct berth_identity *identity)
{
	int32_t rc = prov_find(inst, call, identity);

	return rc == BERTH_UNAVAILABLE ? BERTH_OK : rc;
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)host;
	ops->find = find;
}
