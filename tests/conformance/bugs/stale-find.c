/* SPDX-License-Identifier: Apache-2.0 */
/* find remembers which tasks had no session. */
#include "bug.h"

#include <pthread.h>

#define KEPT 4096u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char none[KEPT][132];
static unsigned count;
static _Thread_local unsigned found;

static int32_t emit_session(struct berth_call *call, const struct berth_session_info *info)
{
	found++;
	return real->emit_session(call, info);
}

static bool known(const char *task)
{
	bool hit = false;

	for (unsigned i = 0; i < count && i < KEPT; i++)
		hit = hit || !strcmp(none[i], task);
	return hit;
}

static int32_t find(void *inst, struct berth_call *call, const struct berth_identity *identity)
{
	char task[132];
	int32_t rc = BERTH_OK;
	bool hit;

	snprintf(task, sizeof(task), "%.*s", (int)identity->task_id.len, identity->task_id.ptr);
	pthread_mutex_lock(&lock);
	hit = known(task);
	pthread_mutex_unlock(&lock);
	found = 0;
	if (!hit)
		rc = mock_find(inst, call, identity);
	pthread_mutex_lock(&lock);
	if (!hit && !rc && !found)
		memcpy(none[count++ % KEPT], task, sizeof(task));
	pthread_mutex_unlock(&lock);
	return rc;
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	ops->find = find;
	host->emit_session = emit_session;
}
