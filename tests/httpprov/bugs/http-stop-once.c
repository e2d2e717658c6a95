/* SPDX-License-Identifier: Apache-2.0 */
/* A stop is sent, and whatever comes back is taken for a yes. */
#include "http.h"

static int32_t http(struct berth_target *target, struct berth_call *call, const struct berth_http_request *theirs,
		    struct berth_http_response *ret_response)
{
	struct through through;
	struct berth_http_request request = go_through(&through, theirs);
	int32_t rc;

	if (!holds(theirs->url, "/signal?"))
		return real->http(target, call, theirs, ret_response);
	rc = real->http(target, call, &request, ret_response);
	/* The server's own 404 stays: the command does not run. */
	if (rc && rc != BERTH_CANCELLED) {
		ret_response->status = 200;
		return BERTH_OK;
	}
	if (through.status >= 500)
		ret_response->status = 200;
	return rc;
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)ops;
	host->http = http;
}
