/* SPDX-License-Identifier: Apache-2.0 */
/* Without a connection the configuration is called wrong, for good. */
#include "http.h"

static int32_t http(struct berth_target *target, struct berth_call *call, const struct berth_http_request *theirs,
		    struct berth_http_response *ret_response)
{
	int32_t rc = real->http(target, call, theirs, ret_response);

	if (rc != BERTH_UNAVAILABLE || ret_response->sent)
		return rc;
	return real->fail(call, BERTH_INVALID, "base_url", 0, 0, "the server cannot be reached");
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)ops;
	host->http = http;
}
