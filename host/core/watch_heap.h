/* SPDX-License-Identifier: Apache-2.0 */
/* A pairing heap of waiters by deadline, linked in place. For watch.c only; its lock is held. Both return the new root. */
#ifndef CORE_WATCH_HEAP_H
#define CORE_WATCH_HEAP_H

#include "core/watch.h"

struct watch_waiter *watch_heap_add(struct watch_waiter *root, struct watch_waiter *waiter);
struct watch_waiter *watch_heap_remove(struct watch_waiter *root, struct watch_waiter *waiter);

#endif
