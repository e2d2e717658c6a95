/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of POST /sandbox/executions: shape and refusals. Pure.
 */
#ifndef API_CREATE_H
#define API_CREATE_H

#include "core/arena.h"
#include "execution/execution.h"

/* Strings in ret live in the arena. ERR_UNSUPPORTED_CONTRACT for the inline fields of older contracts, refused by
 * presence of their key; ERR_INVALID_REQUEST naming the field; ERR_PAYLOAD_TOO_LARGE for the command. */
int create_parse(struct arena *arena, const char *body, size_t len, struct execution_create *ret, struct err *err);

#endif
