/* SPDX-License-Identifier: Apache-2.0 */
/* Reports an ending and a failure at once. */
#define ZOO_NAME "op-ending-and-code"
#include "execute.h"

BAD_EXECUTE(call)
{
	end(call, BERTH_ENDING_EXIT);
	return BERTH_UNAVAILABLE;
}
