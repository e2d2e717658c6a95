/* SPDX-License-Identifier: Apache-2.0 */
/* Takes out of an API server's answer what nobody here reads, before it becomes a tree. Pure; any thread. */
#ifndef KUBERNETES_PRUNE_H
#define KUBERNETES_PRUNE_H

#include <stddef.h>

/* The values of all keys "managedFields" become 0, in place; the new length. What is no JSON stays as it is. */
size_t prune_json(char *text, size_t len);

#endif
