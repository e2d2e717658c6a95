/* SPDX-License-Identifier: Apache-2.0 */
/* Running a program of the operator's for what it prints, for plugins: credential helpers and the like. */
#ifndef BERTH_SPAWN_H
#define BERTH_SPAWN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Runs argv[0] (looked up in PATH when it has no slash) in a process group of its own with exactly `env`, standard
 * input empty and standard error dropped, and takes at most cap bytes of what it prints. At deadline_ns
 * (CLOCK_BOOTTIME) the group is killed. Any thread; changes nothing of the process.
 *
 * BERTH_OK: it ended, with *ret_status as of waitpid. BERTH_NOT_FOUND: it could not be run. BERTH_TIMEOUT: deadline_ns
 * has passed.
 * BERTH_INVALID: it printed more than cap bytes. BERTH_UNAVAILABLE: no descriptor or process left. */
int32_t berth_spawn_read(char *const argv[], char *const env[], int64_t deadline_ns, void *buf, size_t cap,
			 size_t *ret_len, int32_t *ret_status);

#ifdef __cplusplus
}
#endif

#endif
