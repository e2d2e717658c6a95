/* SPDX-License-Identifier: Apache-2.0 */
/* Its open refuses, and says why. */
#define ZOO_NAME "open-fails"
#define ZOO_OPEN bad_open
#include <berth/provider.h>
static int32_t bad_open(const struct berth_open_args *args, struct berth_call *call, void **ret_inst,
			struct berth_instance_info *ret_info);
#include "zoo.h"

static int32_t bad_open(const struct berth_open_args *args, struct berth_call *call, void **ret_inst,
			struct berth_instance_info *ret_info)
{
	(void)args;
	(void)ret_inst;
	(void)ret_info;
	return host->fail(call, BERTH_INVALID, "no_cluster", 0, 0, "there is no cluster of this name");
}
