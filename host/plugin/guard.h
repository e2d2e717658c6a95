/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the process that no plugin may change: remembered, compared, put back. */
#ifndef PLUGIN_GUARD_H
#define PLUGIN_GUARD_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define GUARD_SIGNALS 14

struct guard {
	int cwd; /* O_PATH; -1 = none */
	dev_t cwd_dev;
	ino_t cwd_ino;
	mode_t umask;
	char locale[256];
	struct sigaction actions[GUARD_SIGNALS];
	sigset_t mask;
};

void guard_take(struct guard *guard);
/* Puts back what differs from guard and names it in ret ("cwd, umask"); false when nothing did. */
bool guard_restore(const struct guard *guard, char *ret, size_t size);
void guard_drop(struct guard *guard);

#endif
