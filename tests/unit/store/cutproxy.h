/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands between a store and its server on a socket of its own, and cuts connections at the worst moment: the request
 * has been run, its answer is on the way.
 */
#ifndef TESTS_STORE_CUTPROXY_H
#define TESTS_STORE_CUTPROXY_H

#include "redis_server.h"

struct cutproxy;
struct cutproxy *cutproxy_start(struct redis_server *server);
/* Of `of` answers one is cut (0: none), half of them in the middle, the others before the first byte. */
void cutproxy_cut(struct cutproxy *proxy, unsigned of);
/* The answer to the next request that holds `word` is so late, once; all others wait behind it. Counts as a cut. */
void cutproxy_late(struct cutproxy *proxy, const char *word, unsigned ms);
unsigned cutproxy_cuts(const struct cutproxy *proxy);
const char *cutproxy_url(const struct cutproxy *proxy);
void cutproxy_stop(struct cutproxy *proxy);

#endif
