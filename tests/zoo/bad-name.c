/* SPDX-License-Identifier: Apache-2.0 */
/* Calls itself otherwise than its file. */
#define ZOO_NAME "bad-name"
#define ZOO_DESC_NAME "good"
#include "zoo.h"
