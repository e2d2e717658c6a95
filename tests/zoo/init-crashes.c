/* SPDX-License-Identifier: Apache-2.0 */
/* Crashes in init. */

#define ZOO_NAME "init-crashes"
#define ZOO_INIT bad_init
#include <berth/host.h>
static int32_t bad_init(const struct berth_host *given);
#include "zoo.h"

static int32_t bad_init(const struct berth_host *given)
{
	zoo_init(given);
	volatile uintptr_t nowhere = 8; /* volatile: the compiler must not see where it leads */

	*(volatile int *)nowhere = 1;
	return BERTH_OK;
}
