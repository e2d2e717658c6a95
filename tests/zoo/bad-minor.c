/* SPDX-License-Identifier: Apache-2.0 */
/* Needs a newer minor ABI than there is. */
#define ZOO_NAME "bad-minor"
#define ZOO_MINOR 999
#include "zoo.h"
