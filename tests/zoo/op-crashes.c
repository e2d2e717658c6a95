/* SPDX-License-Identifier: Apache-2.0 */
/* Writes where no memory is. */
#define ZOO_NAME "op-crashes"
#include "execute.h"

BAD_EXECUTE(call)
{
	volatile uintptr_t nowhere = 8; /* volatile: the compiler must not see where it leads */

	*(volatile int *)nowhere = 1;
	return BERTH_OK;
}
