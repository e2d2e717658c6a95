/* SPDX-License-Identifier: Apache-2.0 */
/* Its close never comes back. */
#define ZOO_NAME "close-hangs"
#define ZOO_CLOSE bad_close
#include <unistd.h>
static void bad_close(void *inst);
#include "zoo.h"

static void bad_close(void *inst)
{
	(void)inst;
	for (;;)
		pause();
}
