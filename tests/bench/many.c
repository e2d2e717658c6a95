/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A provider that holds 100,000 sessions in a loop instead of in files, so that what a sweep costs is the host's. The
 * i-th is "s-<i>" of the task w/t<i>, six digits each; bindings.py writes the same into the store.
 */
#define ZOO_NAME "many"
#define ZOO_LIST many_list
#include <berth/provider.h>
static int32_t many_list(void *inst, struct berth_call *call, const struct berth_str *cursor);
#include "zoo.h"

#include <stdio.h>
#include <stdlib.h>

#define SESSIONS 100000L
#define PAGE 1000L

static int32_t emit_one(struct berth_call *call, long number)
{
	char ref[24], task[24], intent[40];
	struct berth_session_info info;

	snprintf(ref, sizeof(ref), "s-%06ld", number);
	snprintf(task, sizeof(task), "t%06ld", number);
	snprintf(intent, sizeof(intent), "%032lx", number);
	info = zoo_session(zoo_str(ref));
	info.workspace_id = zoo_str("w");
	info.task_id = zoo_str(task);
	info.intent = zoo_str(intent);
	info.created_ms = 1;
	return host->emit_session(call, &info);
}

static int32_t many_list(void *inst, struct berth_call *call, const struct berth_str *cursor)
{
	long at = cursor->len ? strtol(cursor->ptr, NULL, 10) : 0;
	char next[24];
	int32_t rc = BERTH_OK;

	(void)inst;
	for (long i = at; rc == BERTH_OK && i < at + PAGE; i++)
		rc = emit_one(call, i);
	if (rc != BERTH_OK || at + PAGE >= SESSIONS)
		return rc;
	snprintf(next, sizeof(next), "%ld", at + PAGE);

	struct berth_str str = zoo_str(next);

	return host->emit_cursor(call, &str);
}
