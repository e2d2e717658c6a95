/* SPDX-License-Identifier: Apache-2.0 */
/* Divides by zero. */
#define ZOO_NAME "op-divides"
#include "execute.h"

BAD_EXECUTE(call)
{
	volatile int one = 1, zero = 0; /* volatile: the compiler knows better ways than to divide */

	return one / zero;
}
