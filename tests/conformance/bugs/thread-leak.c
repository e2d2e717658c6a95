/* SPDX-License-Identifier: Apache-2.0 */
/* await_ready leaves a thread behind. */
#include "bug.h"

#include <pthread.h>

static void *sleep_for_ever(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static int32_t await_ready(void *inst, struct berth_call *call, const struct berth_session *session)
{
	pthread_attr_t small;
	pthread_t thread;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 65536);
	pthread_create(&thread, &small, sleep_for_ever, NULL);
	pthread_attr_destroy(&small);
	return mock_await_ready(inst, call, session);
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)host;
	ops->await_ready = await_ready;
}
