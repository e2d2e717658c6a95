/* SPDX-License-Identifier: Apache-2.0 */
/* Its provision never comes back, whatever the deadline. */
#define ZOO_NAME "provision-hangs"
#define ZOO_PROVISION bad_provision
#include <berth/provider.h>
#include <unistd.h>
static int32_t bad_provision(void *inst, struct berth_call *call, const struct berth_spec *spec);
#include "zoo.h"

static int32_t bad_provision(void *inst, struct berth_call *call, const struct berth_spec *spec)
{
	(void)inst;
	(void)call;
	(void)spec;
	while (pause() < 0)
		;
	return BERTH_OK;
}
