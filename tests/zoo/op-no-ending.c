/* SPDX-License-Identifier: Apache-2.0 */
/* Says that the command ran and not how it ended. */
#define ZOO_NAME "op-no-ending"
#include "execute.h"

BAD_EXECUTE(call)
{
	return BERTH_OK;
}
