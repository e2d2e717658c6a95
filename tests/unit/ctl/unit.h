/* SPDX-License-Identifier: Apache-2.0 */
/* What every unit test of berthctl needs: cmocka with the headers it forgets to include. */
#ifndef UNIT_CTL_UNIT_H
#define UNIT_CTL_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ctl/commands.h"

#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

#endif
