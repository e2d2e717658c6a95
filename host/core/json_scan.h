/* SPDX-License-Identifier: Apache-2.0 */
/* The look over a JSON text's bytes that comes before json-c: finds what json-c would let through. For json_parse only. */
#ifndef CORE_JSON_SCAN_H
#define CORE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>

struct json_scan {
	const char *ptr;
	size_t len;
	size_t pos;     /* where the fault is */
	unsigned depth; /* open arrays and objects */
	bool nul_ok;    /* \u0000 in strings */
	size_t members; /* members of all objects: colons outside strings */
};

/* NULL, or what is wrong at scan->pos. Fill ptr, len and nul_ok, zero the rest. */
const char *json_scan(struct json_scan *scan);
/* For a text that passed: the offset of the first key its object already has, or len. Slow; for the error's position. */
size_t json_scan_duplicate(const char *ptr, size_t len);

#endif
