/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the reading of X-Forwarded-For, from its end: each proxy appends whom it heard from, so only entries that stand
 * behind those of proxies we were told to trust can be believed. Pure; entered from the loop threads.
 */
#include "api/forwarded.h"

#include <string.h>

/* The last entry of the first *len bytes, which is cut off; NULL when there is none or it is no address. */
static const char *take_last(struct arena *arena, const char *header, size_t *len, struct address *ret)
{
	size_t end = *len, begin;
	const char *entry;

	while (end > 0 && strchr(" \t", header[end - 1]))
		end--;
	for (begin = end; begin > 0 && header[begin - 1] != ','; begin--)
		;
	*len = begin ? begin - 1 : 0;
	while (begin < end && strchr(" \t", header[begin]))
		begin++;
	entry = begin < end ? arena_strndup(arena, header + begin, end - begin) : NULL;
	return entry && !strchr(entry, '/') && address_parse(entry, ret) == 0 ? entry : NULL;
}

const char *forwarded_client(struct arena *arena, const struct address_list *proxies, const char *peer,
			     const char *header)
{
	size_t len = header ? strlen(header) : 0;
	const char *client = peer;
	struct address address;

	if (address_parse(peer, &address) != 0)
		return peer;
	while (len > 0 && address_listed(proxies, &address)) {
		const char *entry = take_last(arena, header, &len, &address);

		if (!entry)
			break;
		client = entry;
	}
	return client;
}
