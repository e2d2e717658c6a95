/* SPDX-License-Identifier: Apache-2.0 */
/* Calls a function that is not there. */
#define ZOO_NAME "op-calls-null"
#include "execute.h"

BAD_EXECUTE(call)
{
	int32_t (*volatile nothing)(void) = NULL;

	return nothing();
}
