/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named places where a test can make the process die, wait or fail. Off unless the environment variable
 * BERTH_FAILPOINTS names a file at start; then each line "<name> <action> [nth]" arms one: kill (SIGKILL to itself), sleep:<ms>,
 * error, pause (until the file "<file>.go" exists). The file is read again at each hit. Every hit of an armed
 * point is first appended, with its number, to "<file>.hit". Names are listed in failpoint.c; an unknown name in the file
 * refuses the start.
 */
#ifndef CORE_FAILPOINT_H
#define CORE_FAILPOINT_H

#include <stdbool.h>

#include "core/err.h"

extern bool failpoint_active;
int failpoint_init(struct err *err);
bool failpoint_hit(const char *name); /* true: the caller should fail */

static inline bool failpoint_check(const char *name)
{
	return __builtin_expect(failpoint_active, 0) && failpoint_hit(name);
}
/* `if (FAILPOINT("x.y")) return …;` where failing makes sense, else a plain statement. */
#define FAILPOINT(name) failpoint_check(name)

#endif
