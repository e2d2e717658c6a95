/* SPDX-License-Identifier: Apache-2.0 */
/* Goes where a redirect leads, and takes the token along. */
#include "http.h"

static int32_t http(struct berth_target *target, struct berth_call *call, const struct berth_http_request *theirs,
		    struct berth_http_response *ret_response)
{
	struct through through;
	struct berth_http_request request = go_through(&through, theirs);
	int32_t rc = real->http(target, call, &request, ret_response);

	if (rc || through.status < 300 || through.status > 399 || !*through.location)
		return rc;
	request.url = wire_str(through.location);
	return real->http(target, call, &request, ret_response);
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)ops;
	host->http = http;
}
