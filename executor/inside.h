/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a peer is in this sandbox. */
#ifndef EXECUTOR_INSIDE_H
#define EXECUTOR_INSIDE_H

#include <stdbool.h>
#include <sys/socket.h>

/* Whether the address is one of this network namespace: of its commands, of a sidecar, or of a forwarded port. */
bool inside_has(const struct sockaddr_storage *address);

#endif
