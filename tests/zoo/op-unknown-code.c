/* SPDX-License-Identifier: Apache-2.0 */
/* Returns a code that no version of the contract has. */
#define ZOO_NAME "op-unknown-code"
#include "execute.h"

BAD_EXECUTE(call)
{
	return 4711;
}
