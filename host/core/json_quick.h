/* SPDX-License-Identifier: Apache-2.0 */
/* The short way for texts that json_encode wrote with the same table; see json_quick.c. */
#ifndef CORE_JSON_QUICK_H
#define CORE_JSON_QUICK_H

#include "core/json.h"

/* True: the struct (zeroed first) holds what json_parse and json_decode would have put there. False says nothing about the
 * text: it may be good, bad or too much for the arena, and whoever wants to know asks those two. */
bool json_quick(struct arena *arena, const struct json_field *fields, const char *ptr, size_t len, void *ret_obj,
		size_t size);

#endif
