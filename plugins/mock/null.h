/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runtime "null": sessions are only their files, and commands end at once with an output that the script may shape.
 * It measures the host, so its hot path does no input or output. Any thread.
 */
#ifndef MOCK_NULL_H
#define MOCK_NULL_H

#include "opcall.h"

struct null_cache *null_cache_new(void); /* NULL: no memory */
void null_cache_free(struct null_cache *cache);

/* store_load through the cache: what another process changed is seen within NULL_CACHE_MS. */
#define NULL_CACHE_MS 100
int null_load(struct mock *m, const char *ref, struct session *ret);
/* After this process changed or removed the session. */
void null_forget(struct mock *m, const char *ref);

/* "#null out=<bytes> err=<bytes> exit=<code> ms=<milliseconds>" in the script's first line; defaults 100, 0, 0, 0. */
int32_t null_execute(struct opcall *oc, const struct berth_command *command);

#endif
