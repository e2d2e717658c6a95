/* SPDX-License-Identifier: Apache-2.0 */
/* Says in the error which token was refused. */
#include "http.h"

static struct berth_target *target;

static int32_t fail(struct berth_call *call, int32_t code, const char *reason, uint32_t retryable,
		    int64_t retry_after_ms, const char *text)
{
	char token[256] = "", words[512];
	size_t len = 0;

	if (code == BERTH_UNAUTHENTICATED)
		real->secret(target, "token", token, sizeof(token) - 1, &len);
	snprintf(words, sizeof(words), "%.200s %.*s", text, (int)len, token);
	return real->fail(call, code, reason, retryable, retry_after_ms, words);
}

static int32_t http(struct berth_target *abi, struct berth_call *call, const struct berth_http_request *request,
		    struct berth_http_response *ret_response)
{
	__atomic_store_n(&target, abi, __ATOMIC_RELAXED);
	return real->http(abi, call, request, ret_response);
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)ops;
	host->http = http;
	host->fail = fail;
}
