/* SPDX-License-Identifier: Apache-2.0 */
/* An assign whose answer is lost is said not to have happened. */
#include "http.h"

static int32_t http(struct berth_target *target, struct berth_call *call, const struct berth_http_request *theirs,
		    struct berth_http_response *ret_response)
{
	int32_t rc = real->http(target, call, theirs, ret_response);

	if (rc != BERTH_UNKNOWN || !is_method(theirs, "PUT") || !holds(theirs->url, "/task"))
		return rc;
	ret_response->sent = 0;
	return BERTH_UNAVAILABLE;
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)ops;
	host->http = http;
}
