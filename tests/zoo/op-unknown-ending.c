/* SPDX-License-Identifier: Apache-2.0 */
/* Reports an ending of a kind that does not exist. */
#define ZOO_NAME "op-unknown-ending"
#include "execute.h"

BAD_EXECUTE(call)
{
	return end(call, 99);
}
