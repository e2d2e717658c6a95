/* SPDX-License-Identifier: Apache-2.0 */
/* Exports no entry. */
#define ZOO_NAME "no-entry"
#define ZOO_NO_ENTRY
#include "zoo.h"
