/* SPDX-License-Identifier: Apache-2.0 */
/* renew sets the expiry that is asked for, also an earlier one. */
#include "bug.h"

static int32_t renew(void *inst, struct berth_call *call, const struct berth_session *session, int64_t until_ms)
{
	struct mock *m = inst;
	struct session s;
	char ref[STORE_REF_MAX + 1];
	int fd;

	snprintf(ref, sizeof(ref), "%.*s", (int)session->ref.len, session->ref.ptr);
	fd = store_hold(&m->store, ref, &s);
	if (fd < 0)
		return BERTH_UNAVAILABLE;
	s.expires_ms = until_ms;
	store_save(&m->store, fd, &s);
	close(fd);
	return real->emit_expiry(call, until_ms);
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)host;
	ops->renew = renew;
}
