/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on many files take a second and hear neither their deadline nor a STOP. */
#include "bug.h"

#include <time.h>

static _Thread_local bool deaf;

static void info(struct berth_call *call, struct berth_call_info *ret_info)
{
	real->info(call, ret_info);
	if (deaf)
		ret_info->deadline_ns = INT64_MAX;
}

static uint32_t cancel_state(struct berth_call *call)
{
	return deaf ? BERTH_CANCEL_NONE : real->cancel_state(call);
}

/* True, a second later, for what deadlines.files makes. */
static bool is_many(const struct berth_str *path)
{
	const struct timespec second = {.tv_sec = 1};

	if (path->len < 5 || memcmp(path->ptr, "many-", 5))
		return false;
	nanosleep(&second, NULL);
	return true;
}

static int32_t file_list(void *inst, struct berth_call *call, const struct berth_session *session,
			 const struct berth_str *path, uint32_t flags)
{
	int32_t rc;

	deaf = is_many(path);
	rc = mock_file_list(inst, call, session, path, flags);
	deaf = false;
	return rc;
}

static int32_t file_remove(void *inst, struct berth_call *call, const struct berth_session *session,
			   const struct berth_str *path, uint32_t flags)
{
	int32_t rc;

	deaf = is_many(path);
	rc = mock_file_remove(inst, call, session, path, flags);
	deaf = false;
	return rc;
}

static int32_t import_tar(void *inst, struct berth_call *call, const struct berth_session *session,
			  const struct berth_str *path)
{
	int32_t rc;

	deaf = is_many(path);
	rc = mock_import_tar(inst, call, session, path);
	deaf = false;
	return rc;
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	ops->file_list = file_list;
	ops->file_remove = file_remove;
	ops->import_tar = import_tar;
	host->info = info;
	host->cancel_state = cancel_state;
}
