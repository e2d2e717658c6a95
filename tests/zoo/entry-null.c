/* SPDX-License-Identifier: Apache-2.0 */
/* Its entry returns nothing. */
#define ZOO_NAME "entry-null"
#define ZOO_ENTRY_NULL
#include "zoo.h"
