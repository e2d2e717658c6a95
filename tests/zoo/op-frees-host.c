/* SPDX-License-Identifier: Apache-2.0 */
/* Gives memory of the host to its own free. */
#define ZOO_NAME "op-frees-host"
#include <stdlib.h>
#include "execute.h"

BAD_EXECUTE(call)
{
	char *volatile memory = host->alloc(100); /* volatile: the compiler would object */

	memory += 8; /* not even the start of a block */
	free(memory);
	return end(call, BERTH_ENDING_EXIT);
}
