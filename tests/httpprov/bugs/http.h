/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy of the HTTP provider with one mistake. A bug is a file that defines bend(): it replaces an operation in a copy
 * of the provider's table, or a service in a copy of the host's. The provider's own sources stay as they are.
 */
#ifndef HTTP_BUG_H
#define HTTP_BUG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/httpprov.h"

#define UNUSED __attribute__((unused))

const struct berth_provider *httpprov_entry(void); /* the provider's own entry, by another name */

static const struct berth_host *real;

/* Called once with each table that matters and a scratch one for the other. */
static void bend(struct berth_ops *ops, struct berth_host *host);

UNUSED static bool holds(struct berth_str text, const char *word)
{
	return text.len && memmem(text.ptr, text.len, word, strlen(word));
}

UNUSED static bool is_method(const struct berth_http_request *request, const char *word)
{
	return request->method.len == strlen(word) && !memcmp(request->method.ptr, word, request->method.len);
}

/* An exchange whose head and body come through here. */
struct through {
	const struct berth_http_request *theirs;
	uint32_t status;
	char location[256];
};

UNUSED static int32_t through_read(void *ctx, void *buf, size_t cap, size_t *ret_len)
{
	struct through *through = ctx;

	return through->theirs->read(through->theirs->ctx, buf, cap, ret_len);
}

UNUSED static int32_t through_head(void *ctx, uint32_t status, const struct berth_pair *headers, size_t count)
{
	struct through *through = ctx;

	through->status = status;
	for (size_t i = 0; i < count; i++)
		if (headers[i].name.len == 8 && !strncasecmp(headers[i].name.ptr, "location", 8))
			snprintf(through->location, sizeof(through->location), "%.*s", (int)headers[i].value.len,
				 headers[i].value.ptr);
	return through->theirs->head ? through->theirs->head(through->theirs->ctx, status, headers, count) : BERTH_OK;
}

UNUSED static int32_t through_write(void *ctx, const void *ptr, size_t len)
{
	struct through *through = ctx;

	return through->theirs->write(through->theirs->ctx, ptr, len);
}

UNUSED static struct berth_http_request go_through(struct through *through, const struct berth_http_request *theirs)
{
	struct berth_http_request request = *theirs;

	*through = (struct through){.theirs = theirs};
	request.ctx = through;
	request.read = theirs->read ? through_read : NULL;
	request.head = through_head;
	request.write = through_write;
	return request;
}

#define BUG_OF httpprov_entry
#include "../../conformance/bugs/bend.h"

#endif
