/* SPDX-License-Identifier: Apache-2.0 */
/* Reports the ending from a thread that does not own the call. */
#define ZOO_NAME "op-foreign-thread"
#include <pthread.h>
#include "execute.h"

static void *from_thread(void *call)
{
	end(call, BERTH_ENDING_EXIT);
	return NULL;
}

BAD_EXECUTE(call)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, from_thread, call))
		return BERTH_INTERNAL;
	pthread_join(thread, NULL);
	return BERTH_OK;
}
