/* SPDX-License-Identifier: Apache-2.0 */
/* A create whose answer was lost is sent again, under a new name. */
#include "http.h"

static int32_t provision(void *inst, struct berth_call *call, const struct berth_spec *spec)
{
	struct berth_spec again = *spec;
	char intent[32];
	int32_t rc = prov_provision(inst, call, spec);

	if (rc != BERTH_UNKNOWN || spec->intent.len != sizeof(intent))
		return rc;
	memcpy(intent, spec->intent.ptr, sizeof(intent));
	intent[31] = intent[31] == '0' ? '1' : '0';
	again.intent = (struct berth_str){intent, sizeof(intent)};
	return prov_provision(inst, call, &again);
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)host;
	ops->provision = provision;
}
