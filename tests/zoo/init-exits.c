/* SPDX-License-Identifier: Apache-2.0 */
/* Ends the process in init. */
#include <unistd.h>

#define ZOO_NAME "init-exits"
#define ZOO_INIT bad_init
#include <berth/host.h>
static int32_t bad_init(const struct berth_host *given);
#include "zoo.h"

static int32_t bad_init(const struct berth_host *given)
{
	zoo_init(given);
	_exit(3);
	return BERTH_OK;
}
