/* SPDX-License-Identifier: Apache-2.0 */
/* No mistake: a release is confirmed at once, and its session is seen as ready for a second more. */
#include "bug.h"

#include <stdatomic.h>
#include <time.h>

static atomic_int running;

static int32_t execute(void *inst, struct berth_call *call, const struct berth_session *session,
		       const struct berth_command *command)
{
	int32_t rc;

	running++;
	rc = mock_execute(inst, call, session, command);
	running--;
	return rc;
}

/* By way of the expiry, which ends no command: a session with one goes at once. */
static int32_t release(void *inst, struct berth_call *call, const struct berth_session *session)
{
	struct timespec now;
	struct mock *m = inst;
	struct session s;
	char ref[STORE_REF_MAX + 1];
	int64_t over_ms;
	int fd;

	snprintf(ref, sizeof(ref), "%.*s", (int)session->ref.len, session->ref.ptr);
	fd = running ? -1 : store_hold(&m->store, ref, &s);
	if (fd < 0)
		return mock_release(inst, call, session);
	clock_gettime(CLOCK_REALTIME, &now);
	over_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 + 1000;
	if (!s.expires_ms || s.expires_ms > over_ms) {
		s.expires_ms = over_ms;
		store_save(&m->store, fd, &s);
	}
	close(fd);
	return BERTH_OK;
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)host;
	ops->execute = execute;
	ops->release = release;
}
