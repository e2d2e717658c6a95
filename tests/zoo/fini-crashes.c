/* SPDX-License-Identifier: Apache-2.0 */
/* Crashes in fini. */
#define ZOO_NAME "fini-crashes"
#define ZOO_FINI bad_fini
static void bad_fini(void);
#include "zoo.h"

static void bad_fini(void)
{
	__builtin_trap();
}
