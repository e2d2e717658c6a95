/* SPDX-License-Identifier: Apache-2.0 */
/* changes leaves out what has an old modification time. */
#include "bug.h"

static _Thread_local const char *root;

static int32_t emit_change(struct berth_call *call, const struct berth_change *change)
{
	char path[8192];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%.*s", root, (int)change->path.len, change->path.ptr);
	if (root && change->kind == BERTH_FILE_REGULAR && !stat(path, &st) && st.st_mtime < 1600000000)
		return BERTH_OK;
	return real->emit_change(call, change);
}

static int32_t changes(void *inst, struct berth_call *call, const struct berth_session *session,
		       const struct berth_str *token)
{
	char path[8192];
	int32_t rc;

	bug_path(path, inst, session, "work");
	root = path;
	rc = mock_changes(inst, call, session, token);
	root = NULL;
	return rc;
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	ops->changes = changes;
	host->emit_change = emit_change;
}
