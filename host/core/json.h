/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON: the one strict parser over json-c, and the codec between structs and JSON through field tables.
 *
 * json-c objects are owned by one thread at a time (its reference counts are not atomic).
 */
#ifndef CORE_JSON_H
#define CORE_JSON_H

#include <json-c/json_object.h>
#include <json-c/linkhash.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/arena.h"
#include "core/buf.h"
#include "core/err.h"

#define JSON_DEPTH_MAX 16

/* Parses one whole document. Refuses what json-c's strict mode lets through: duplicate keys, single quotes, NaN and
 * Infinity, raw control characters, NUL (also as \u0000), lone surrogates, invalid UTF-8, trailing bytes, depth over JSON_DEPTH_MAX,
 * integers outside int64. The error names line, column and what is wrong. */
int json_parse(const char *ptr, size_t len, struct json_object **ret, struct err *err);
/* The same of a text that is for people's eyes: output of commands may hold NULs, as \u0000. */
int json_parse_shown(const char *ptr, size_t len, struct json_object **ret, struct err *err);

enum json_type_of_field {
	JSON_STR,     /* const char * in the arena; NULL = absent */
	JSON_I64,     /* int64_t */
	JSON_I32,     /* int32_t */
	JSON_BOOL,    /* bool */
	JSON_TIME,    /* int64_t Unix ms <-> RFC 3339 text; 0 = absent */
	JSON_OBJ,     /* struct of `sub` inside this struct */
	JSON_ARR,     /* pointer to array of `sub` structs in the arena; count (size_t) at `count_off` */
	JSON_STRV,    /* const char ** in the arena; count (size_t) at `count_off` */
};
#define JSON_OMIT 1u     /* leave out when zero, NULL or empty */
#define JSON_REQUIRED 2u /* decoding refuses its absence */
#define JSON_HIDDEN 4u   /* stored, never shown by the API: left out when encoding with JSON_PUBLIC */
#define JSON_NULLABLE 8u /* null when absent instead of left out */

struct json_field {
	const char *name; /* NULL ends the table */
	enum json_type_of_field type;
	unsigned flags;
	size_t off;
	size_t count_off;
	const struct json_field *sub;
	size_t sub_size;
	int64_t min, max; /* for I64 and I32, checked when max > min; for STR, max > 0 = most bytes */
};

#define JSON_PUBLIC 1u /* encode: leave HIDDEN fields out */
/* Appends the struct as JSON text. */
int json_encode(struct buf *buf, const struct json_field *fields, const void *obj, unsigned flags);
#define JSON_STRICT_KEYS 1u /* decode: unknown keys are refused */
/* Fills the struct (zeroed first, `size` bytes); strings and arrays in the arena. `where` is put before the field's name in
 * errors ("command."). */
int json_decode(struct arena *arena, const struct json_field *fields, struct json_object *json, const char *where,
		unsigned flags, void *ret_obj, size_t size, struct err *err);
/* json_parse + json_decode of stored text: errors are ERR_CORRUPT. */
int json_decode_text(struct arena *arena, const struct json_field *fields, const char *ptr, size_t len, void *ret_obj,
		     size_t size, struct err *err);

/* Appends a JSON string literal, quoted and escaped; invalid UTF-8 becomes U+FFFD. */
void json_put_string(struct buf *buf, const char *ptr, size_t len);

/* base64 (RFC 4648, padded, strict). ret is malloc'ed with a NUL after it. */
int json_base64_decode(const char *ptr, size_t len, char **ret, size_t *ret_len, struct err *err);
/* The same of base64url without padding (RFC 4648 §5). */
int json_base64url_decode(const char *ptr, size_t len, char **ret, size_t *ret_len, struct err *err);
int json_base64_encode(struct buf *buf, const void *ptr, size_t len);

#endif
