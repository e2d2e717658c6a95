/* SPDX-License-Identifier: Apache-2.0 */
/* A helper that stays and forks supervisors, since to execute one for each command costs as much as half a shell. */
#ifndef EXECUTOR_LAUNCHER_H
#define EXECUTOR_LAUNCHER_H

#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>

struct launcher {
	pthread_mutex_t lock;
	const char *helper;
	int socket; /* -1 = none runs: helpers are executed one by one */
	pid_t pid;
	int64_t started_ns;
};

/* Main thread: starts one if none runs, not more than once a second. */
void launcher_keep(struct launcher *launcher);
/* Main thread: a child has ended. */
void launcher_reaped(struct launcher *launcher, pid_t pid);

/* For struct berth_sup; any worker. */
int32_t launcher_launch(void *launcher, const char *dir, uint32_t attempt);

#endif
