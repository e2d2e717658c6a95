/* SPDX-License-Identifier: Apache-2.0 */
/* Never comes back from init. */
#include <unistd.h>

#define ZOO_NAME "init-hangs"
#define ZOO_INIT bad_init
#include <berth/host.h>
static int32_t bad_init(const struct berth_host *given);
#include "zoo.h"

static int32_t bad_init(const struct berth_host *given)
{
	zoo_init(given);
	while (pause() < 0)
		;
	return BERTH_OK;
}
