/* SPDX-License-Identifier: Apache-2.0 */
/* What all hosts of one store must have in common. */
#ifndef EXECUTION_SHARED_H
#define EXECUTION_SHARED_H

#include "blob/blob.h"
#include "core/secret.h"
#include "store/store.h"

/* At start, before anything is served: the key that seals what the rows hold, and the place of the objects, are those
 * of the hosts that were here before. ERR_CONFIG says what to copy or mount. Nothing is looked at where the store is
 * exclusive. */
int shared_check(struct store *store, const struct seal *seal, struct blob_store *blobs, struct err *err);

#endif
