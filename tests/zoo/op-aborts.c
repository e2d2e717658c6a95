/* SPDX-License-Identifier: Apache-2.0 */
/* Aborts in execute, as a failed assertion does. */
#define ZOO_NAME "op-aborts"
#include <stdlib.h>
#include "execute.h"

BAD_EXECUTE(call)
{
	abort();
}
