/* SPDX-License-Identifier: Apache-2.0 */
/* Breaks no rule. */
#define ZOO_NAME "good"
#include "zoo.h"
