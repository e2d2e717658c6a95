/* SPDX-License-Identifier: Apache-2.0 */
/* The end of all commands, when the sandbox ends. */
#ifndef EXECUTOR_DRAIN_H
#define EXECUTOR_DRAIN_H

#include <stdbool.h>
#include <stddef.h>

/* Tells every supervisor of the run directory to end its command: TERM and its grace, or at once. Returns how many
 * live. */
size_t drain_commands(int run_fd, bool at_once);

#endif
