/* SPDX-License-Identifier: Apache-2.0 */
/* Crashes in open, which no probe runs: it needs the target's configuration. */
#define ZOO_NAME "open-crashes"
#define ZOO_OPEN bad_open
#include <berth/provider.h>
static int32_t bad_open(const struct berth_open_args *args, struct berth_call *call, void **ret_inst,
			struct berth_instance_info *ret_info);
#include "zoo.h"

static int32_t bad_open(const struct berth_open_args *args, struct berth_call *call, void **ret_inst,
			struct berth_instance_info *ret_info)
{
	volatile uintptr_t nowhere = 16;

	(void)args;
	(void)call;
	(void)ret_inst;
	(void)ret_info;
	*(volatile int *)nowhere = 1;
	return BERTH_OK;
}
