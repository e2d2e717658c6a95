/* SPDX-License-Identifier: Apache-2.0 */
/* Its magic word is another. */
#define ZOO_NAME "bad-magic"
#define ZOO_MAGIC 0x42525449u
#include "zoo.h"
