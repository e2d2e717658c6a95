/* SPDX-License-Identifier: Apache-2.0 */
/* Sets a flag that means nothing. */
#define ZOO_NAME "bad-flags"
#define ZOO_FLAGS 4
#include "zoo.h"
