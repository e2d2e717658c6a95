/* SPDX-License-Identifier: Apache-2.0 */
/* Needs a library that is not installed; see CMakeLists.txt. */
#define ZOO_NAME "missing-library"
#define ZOO_FINI zoo_from_library
void zoo_from_library(void);
#include "zoo.h"
