/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A helper process that stays and forks supervisors, for plugins whose commands are many and short: to execute
 * berth-supervise for each one costs as much as half a shell. Commands do not depend on it: it may be killed at any moment,
 * and ends with this process or with berth_launcher_free; what it has started goes on.
 */
#ifndef BERTH_LAUNCHER_H
#define BERTH_LAUNCHER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct berth_launcher;

/* Starts nothing yet. NULL: no memory. helper: path of berth-supervise, copied. */
struct berth_launcher *berth_launcher_new(const char *helper);
/* No launch is under way. */
void berth_launcher_free(struct berth_launcher *launcher);

/* For struct berth_sup: launch, with the launcher as launch_ctx. Any thread. Starts the helper when none runs, not more than
 * once a second; meanwhile helpers are executed one by one. */
int32_t berth_launcher_launch(void *launcher, const char *dir, uint32_t attempt);

#ifdef __cplusplus
}
#endif

#endif
