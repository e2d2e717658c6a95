/* SPDX-License-Identifier: Apache-2.0 */
/* Sends the token in the address too, where every proxy on the way writes it down. */
#include "http.h"

static int32_t http(struct berth_target *target, struct berth_call *call, const struct berth_http_request *theirs,
		    struct berth_http_response *ret_response)
{
	struct berth_http_request request = *theirs;
	char url[8192], token[256];
	size_t len = 0;

	if (theirs->url.len > 7000 || real->secret(target, "token", token, sizeof(token), &len))
		return real->http(target, call, theirs, ret_response);
	request.url.len = (size_t)snprintf(url, sizeof(url), "%.*s%ctoken=%.*s", (int)theirs->url.len, theirs->url.ptr,
					   memchr(theirs->url.ptr, '?', theirs->url.len) ? '&' : '?', (int)len, token);
	request.url.ptr = url;
	return real->http(target, call, &request, ret_response);
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)ops;
	host->http = http;
}
