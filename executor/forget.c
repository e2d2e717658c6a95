/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forgets commands that a request names beside its own: a request of its own for each would cost another signature and
 * another exchange. Worker of the request. Must never forget by the word of an attempt that was overtaken, nor let what
 * it meets there become the result of the request, nor hold up its command for what another one locks.
 */
#include "forget.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "../sdk/lib/supervised_files.h"

/* Nothing that is met takes longer, but what reaches for locks just then. */
#define OTHERS_NS INT64_C(5000000000)

static const struct args_key keys[] = {
	{"execution_id", ARGS_STRING, true, offsetof(struct args, execution_id)},
	{"attempt", ARGS_INTEGER, false, offsetof(struct args, attempt), 0, UINT32_MAX, 0},
	{NULL},
};

static size_t count(const struct berth_call *call)
{
	return call->args.forget ? json_object_array_length(call->args.forget) : 0;
}

int32_t forget_check(struct berth_call *call)
{
	char why[128];

	for (size_t i = 0; i < count(call); i++) {
		struct args one;

		if (args_take(json_object_array_get_idx(call->args.forget, i), keys, &one, why, sizeof(why)) < 0)
			return call_fail(call, BERTH_INVALID, "arguments", false, why);
		if (!token_id_ok(one.execution_id.ptr, one.execution_id.len))
			return call_fail(call, BERTH_INVALID, "arguments", false, "forget names no execution id");
	}
	call->reply.tells_forgotten = true;
	return BERTH_OK;
}

static bool locked(const struct executor *executor, const char *execution_id)
{
	int fd = openat(executor->state.run_fd, execution_id, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	bool held;

	if (fd < 0)
		return false;
	held = flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
	close(fd);
	return held;
}

static bool forget_one(struct berth_call *call, struct json_object *member)
{
	struct executor *executor = call->executor;
	char why[128];
	struct args one;

	if (args_take(member, keys, &one, why, sizeof(why)) < 0)
		return false;
	/* It may have ended already, and is still to be read. */
	if (strcmp(one.execution_id.ptr, call->token.execution_id) == 0)
		return false;
	/* Looked at first, since what follows would wait for it. */
	if (locked(executor, one.execution_id.ptr))
		return false;
	if (one.attempt && state_attempt(&executor->state, one.execution_id.ptr, (uint32_t)one.attempt) < 0)
		return false;
	return berth_sup_forget(&call_host, call, &executor->sup, &one.execution_id) == BERTH_OK;
}

void forget_others(struct berth_call *call)
{
	struct result kept = call->result;
	int64_t until_ns = sup_now_ns() + OTHERS_NS;

	if (call->forgot || !call->reply.tells_forgotten)
		return;
	call->forgot = true;
	for (size_t i = 0; i < count(call) && sup_now_ns() < until_ns; i++)
		call->reply.forgotten += forget_one(call, json_object_array_get_idx(call->args.forget, i));
	call->result = kept;
}
