/* SPDX-License-Identifier: Apache-2.0 */
/* Recurses until its stack is used up. */
#define ZOO_NAME "op-overflows"
#include "execute.h"

static volatile unsigned bottom; /* never reached */

static unsigned sink(unsigned depth)
{
	volatile char block[1024];

	block[depth % sizeof(block)] = (char)depth;
	return depth == bottom ? 0 : sink(depth + 1) + (unsigned char)block[depth % sizeof(block)] + 1;
}

BAD_EXECUTE(call)
{
	return sink(4096) ? BERTH_OK : BERTH_INTERNAL;
}
