/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON bodies and the JSON of lists. Pure but for the request's own memory.
 */
#ifndef API_BODY_H
#define API_BODY_H

#include "core/arena.h"
#include "core/buf.h"
#include "core/err.h"
#include "core/json.h"

/* json_parse, whose error also names the field at the place. */
int body_parse(const char *ptr, size_t len, struct json_object **ret, struct err *err);
/* Parses and decodes a whole body, unknown keys refused; the struct's strings are in the arena. */
int body_decode(struct arena *arena, const struct json_field *fields, const char *ptr, size_t len, void *ret_obj,
		size_t size, struct err *err);
/* {"items":[…],"total":n,"next_cursor":…}; `items` as the lower layers write them, with or without their brackets. */
void body_put_list(struct buf *out, const struct buf *items, size_t count, const char *next);

#endif
