/* SPDX-License-Identifier: Apache-2.0 */
/* Uses a reserved field. */
#define ZOO_NAME "bad-reserved"
#define ZOO_RESERVED "used"
#include "zoo.h"
