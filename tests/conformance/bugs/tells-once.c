/* SPDX-License-Identifier: Apache-2.0 */
/* No mistake: state and isolation are told when the session is created, and in look-ups that may be the first to tell of it,
 * and left out in the answers about a session that the host knows. Without its state a session is lost. */
#include "bug.h"

static const struct berth_str state = {"told\0once", 9};
static _Thread_local bool known;

static int32_t mock_open_contained(const struct berth_open_args *args, struct berth_call *call, void **ret_inst,
				   struct berth_instance_info *ret_info)
{
	int32_t rc = mock_open(args, call, ret_inst, ret_info);

	if (!rc)
		((struct mock *)*ret_inst)->isolation = ret_info->isolation = BERTH_ISOLATION_CONTAINER;
	return rc;
}

static struct berth_session_info told(const struct berth_session_info *info)
{
	struct berth_session_info copy = *info;

	copy.isolation = known ? BERTH_ISOLATION_UNSET : BERTH_ISOLATION_CONTAINER;
	copy.state = known ? (struct berth_str){0} : state;
	return copy;
}

static int32_t created(struct berth_call *call, const struct berth_session_info *info)
{
	struct berth_session_info copy = told(info);

	return real->created(call, &copy);
}

static int32_t emit_session(struct berth_call *call, const struct berth_session_info *info)
{
	struct berth_session_info copy = told(info);

	return real->emit_session(call, &copy);
}

/* False: the session came without what it was told with. */
static bool has_state(const struct berth_session *session)
{
	return session->state.len == state.len && !memcmp(session->state.ptr, state.ptr, state.len);
}

static int32_t await_ready(void *inst, struct berth_call *call, const struct berth_session *session)
{
	int32_t rc;

	if (!has_state(session))
		return real->fail(call, BERTH_SESSION_LOST, "no_state", 0, 0, "the session came without its state");
	known = true;
	rc = mock_await_ready(inst, call, session);
	known = false;
	return rc;
}

static int32_t assign(void *inst, struct berth_call *call, const struct berth_session *session,
		      const struct berth_identity *identity)
{
	int32_t rc;

	if (!has_state(session))
		return real->fail(call, BERTH_SESSION_LOST, "no_state", 0, 0, "the session came without its state");
	known = true;
	rc = mock_assign(inst, call, session, identity);
	known = false;
	return rc;
}

static int32_t inspect(void *inst, struct berth_call *call, const struct berth_session *session)
{
	int32_t rc;

	known = true;
	rc = mock_inspect(inst, call, session);
	known = false;
	return rc;
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	host->created = created;
	host->emit_session = emit_session;
	ops->open = mock_open_contained;
	ops->await_ready = await_ready;
	ops->assign = assign;
	ops->inspect = inspect;
}
