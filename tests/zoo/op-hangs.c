/* SPDX-License-Identifier: Apache-2.0 */
/* Its execute never comes back, whatever the deadline and whoever cancels. */
#define ZOO_NAME "op-hangs"
#include <unistd.h>
#include "execute.h"

BAD_EXECUTE(call)
{
	while (pause() < 0)
		;
	return BERTH_OK;
}
