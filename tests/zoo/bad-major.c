/* SPDX-License-Identifier: Apache-2.0 */
/* Built for another major ABI. */
#define ZOO_NAME "bad-major"
#define ZOO_MAJOR 2
#include "zoo.h"
