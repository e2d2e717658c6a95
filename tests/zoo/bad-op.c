/* SPDX-License-Identifier: Apache-2.0 */
/* Lacks an operation that every provider has. */
#define ZOO_NAME "bad-op"
#define ZOO_EXECUTE NULL
#include "zoo.h"
