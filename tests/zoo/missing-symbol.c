/* SPDX-License-Identifier: Apache-2.0 */
/* Uses a function that nobody has. */
#define ZOO_NAME "missing-symbol"
#define ZOO_FINI zoo_is_nowhere
void zoo_is_nowhere(void);
#include "zoo.h"
