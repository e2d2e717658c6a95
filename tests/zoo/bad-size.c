/* SPDX-License-Identifier: Apache-2.0 */
/* Its descriptor is too short. */
#define ZOO_NAME "bad-size"
#define ZOO_SIZE 40
#include "zoo.h"
