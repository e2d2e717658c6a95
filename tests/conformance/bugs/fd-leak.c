/* SPDX-License-Identifier: Apache-2.0 */
/* find leaves a descriptor open. */
#include "bug.h"

static int32_t find(void *inst, struct berth_call *call, const struct berth_identity *identity)
{
	(void)!open("/dev/null", O_RDONLY | O_CLOEXEC);
	return mock_find(inst, call, identity);
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)host;
	ops->find = find;
}
