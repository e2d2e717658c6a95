/* SPDX-License-Identifier: Apache-2.0 */
/* Answers a create with a ref of a length that no memory has. */
#define ZOO_NAME "op-garbage"
#define ZOO_PROVISION bad_provision
#include <berth/provider.h>
static int32_t bad_provision(void *inst, struct berth_call *call, const struct berth_spec *spec);
#include "zoo.h"

static int32_t bad_provision(void *inst, struct berth_call *call, const struct berth_spec *spec)
{
	struct berth_session_info info = zoo_session((struct berth_str){"made", SIZE_MAX});

	(void)inst;
	info.intent = spec->intent;
	return host->created(call, &info);
}
