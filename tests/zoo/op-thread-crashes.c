/* SPDX-License-Identifier: Apache-2.0 */
/* A thread of its own crashes while the call waits for it. */
#define ZOO_NAME "op-thread-crashes"
#include <pthread.h>
#include "execute.h"

static void *crash(void *nothing)
{
	volatile uintptr_t nowhere = 24;

	*(volatile int *)nowhere = 1;
	return nothing;
}

BAD_EXECUTE(call)
{
	pthread_t thread;

	if (!pthread_create(&thread, NULL, crash, NULL))
		pthread_join(thread, NULL);
	return BERTH_INTERNAL;
}
