/* SPDX-License-Identifier: Apache-2.0 */
/* A command whose start was not answered is started again, under a name that the server does not know. */
#include "http.h"

static int32_t http(struct berth_target *target, struct berth_call *call, const struct berth_http_request *theirs,
		    struct berth_http_response *ret_response)
{
	struct berth_http_request request = *theirs;
	char url[2048];
	int32_t rc = real->http(target, call, theirs, ret_response);
	const char *mark =
		theirs->url.len < sizeof(url) - 8 ? memmem(theirs->url.ptr, theirs->url.len, "?head=", 6) : NULL;

	if (rc != BERTH_UNKNOWN || !mark || theirs->read || ret_response->status)
		return rc;
	request.url.len = (size_t)snprintf(url, sizeof(url), "%.*s-again%.*s", (int)(mark - theirs->url.ptr),
					   theirs->url.ptr, (int)(theirs->url.ptr + theirs->url.len - mark), mark);
	request.url.ptr = url;
	return real->http(target, call, &request, ret_response);
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)ops;
	host->http = http;
}
