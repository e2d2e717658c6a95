/* SPDX-License-Identifier: Apache-2.0 */
/* A stream that breaks off is taken for the end of a command that went well. */
#include "http.h"

static _Thread_local bool cut;

static int32_t http(struct berth_target *target, struct berth_call *call, const struct berth_http_request *theirs,
		    struct berth_http_response *ret_response)
{
	int32_t rc = real->http(target, call, theirs, ret_response);

	if ((rc != BERTH_UNKNOWN && rc != BERTH_UNAVAILABLE) || ret_response->status != 200 ||
	    !holds(theirs->url, "?head="))
		return rc;
	cut = true;
	return BERTH_INVALID;
}

static int32_t execute(void *inst, struct berth_call *call, const struct berth_session *session,
		       const struct berth_command *command)
{
	const struct berth_ending ending = {
		.struct_size = sizeof(ending), .kind = BERTH_ENDING_EXIT, .quiescent = BERTH_QUIESCENT_YES};
	int32_t rc;

	cut = false;
	rc = prov_execute(inst, call, session, command);
	return cut ? real->emit_ending(call, &ending) : rc;
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	ops->execute = execute;
	host->http = http;
}
