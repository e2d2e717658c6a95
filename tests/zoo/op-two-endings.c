/* SPDX-License-Identifier: Apache-2.0 */
/* Reports two endings of one command. */
#define ZOO_NAME "op-two-endings"
#include "execute.h"

BAD_EXECUTE(call)
{
	end(call, BERTH_ENDING_EXIT);
	end(call, BERTH_ENDING_EXIT);
	return BERTH_OK;
}
