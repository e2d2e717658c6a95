/* SPDX-License-Identifier: Apache-2.0 */
/* Its init refuses. */

#define ZOO_NAME "init-fails"
#define ZOO_INIT bad_init
#include <berth/host.h>
static int32_t bad_init(const struct berth_host *given);
#include "zoo.h"

static int32_t bad_init(const struct berth_host *given)
{
	zoo_init(given);
	return BERTH_UNAVAILABLE;
}
