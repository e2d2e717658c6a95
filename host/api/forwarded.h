/* SPDX-License-Identifier: Apache-2.0 */
/* Who is at the other end, when proxies are between. Pure. */
#ifndef API_FORWARDED_H
#define API_FORWARDED_H

#include "conf/address.h"
#include "core/arena.h"

/* The address of the client: the peer's own, unless it is one of `proxies`; then the last of X-Forwarded-For (NULL =
 * none) that is none of them. An entry that is no address ends the walk: what is before it was not written by a proxy
 * of ours. In the arena, or one of the arguments. */
const char *forwarded_client(struct arena *arena, const struct address_list *proxies, const char *peer,
			     const char *header);

#endif
