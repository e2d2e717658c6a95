/* SPDX-License-Identifier: Apache-2.0 */
/* reattach runs the command once more. */
#include "bug.h"

#include <pthread.h>

#define KEPT 512u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	char id[64], script[512];
} kept[KEPT];
static unsigned count;
static _Thread_local bool silent;

static int32_t execute(void *inst, struct berth_call *call, const struct berth_session *session,
		       const struct berth_command *command)
{
	/* Of one line with a mark of its own run: the others would not end. */
	if (command->script.len < sizeof(kept[0].script) && command->script.len > 10 &&
	    !memcmp(command->script.ptr, "echo x >>", 9) && memchr(command->script.ptr, ';', command->script.len) &&
	    !memmem(command->script.ptr, command->script.len, "until", 5)) {
		pthread_mutex_lock(&lock);
		snprintf(kept[count % KEPT].id, 64, "%.*s", (int)command->execution_id.len, command->execution_id.ptr);
		snprintf(kept[count % KEPT].script, 512, "%.*s", (int)command->script.len, command->script.ptr);
		count++;
		pthread_mutex_unlock(&lock);
	}
	return mock_execute(inst, call, session, command);
}

static int32_t sink_write(struct berth_call *call, uint32_t stream, const void *ptr, size_t len)
{
	return silent ? BERTH_OK : real->sink_write(call, stream, ptr, len);
}

static int32_t emit_ending(struct berth_call *call, const struct berth_ending *ending)
{
	return silent ? BERTH_OK : real->emit_ending(call, ending);
}

static int32_t started(struct berth_call *call, const struct berth_str *handle)
{
	return silent ? BERTH_OK : real->started(call, handle);
}

static bool find_script(const struct berth_str *id, char ret[512])
{
	bool found = false;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < KEPT && !found; i++)
		if (strlen(kept[i].id) == id->len && !memcmp(kept[i].id, id->ptr, id->len)) {
			memcpy(ret, kept[i].script, 512);
			found = true;
		}
	pthread_mutex_unlock(&lock);
	return found;
}

static int32_t reattach(void *inst, struct berth_call *call, const struct berth_session *session,
			const struct berth_resume *resume)
{
	char script[512], id[128];
	struct berth_command again = {.struct_size = sizeof(again),
				      .attempt = 1,
				      .cwd = {".", 1},
				      .timeout_ms = 5000,
				      .stdout_max = 1000,
				      .stderr_max = 1000};
	static _Atomic unsigned serial;

	if (find_script(&resume->execution_id, script)) {
		snprintf(id, sizeof(id), "again-%u-%.*s", serial++, (int)resume->execution_id.len,
			 resume->execution_id.ptr);
		again.execution_id = (struct berth_str){id, strlen(id)};
		again.script = (struct berth_str){script, strlen(script)};
		silent = true;
		mock_execute(inst, call, session, &again);
		silent = false;
	}
	return mock_reattach(inst, call, session, resume);
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	ops->execute = execute;
	ops->reattach = reattach;
	host->sink_write = sink_write;
	host->emit_ending = emit_ending;
	host->started = started;
}
