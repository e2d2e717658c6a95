/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the plugin and the test server agree on; README.md describes the routes. Pure helpers, any thread; a buffer
 * belongs to one thread at a time.
 */
#ifndef HTTPPROV_WIRE_H
#define HTTPPROV_WIRE_H

#include <berth/types.h>
#include <json-c/json.h>
#include <stdbool.h>

/* A command's stream: frames of one byte of type, four of length (big-endian), and the payload. */
#define WIRE_FRAME_HEAD 5u
#define WIRE_FRAME_MAX 65536u
enum wire_frame {
	WIRE_STDOUT = 1,
	WIRE_STDERR = 2,
	WIRE_STARTED = 3,
	WIRE_GAP = 4,	  /* JSON: stream, from, to */
	WIRE_ENDING = 5,  /* JSON; the last frame */
	WIRE_FAILURE = 6, /* JSON as of an error's body; the last frame */
	WIRE_ALIVE = 7,
};

/* Bytes that grow; `lost` when memory was out or the maximum reached, and then nothing more is added. */
struct wire_buf {
	char *ptr;
	size_t len, cap, max;
	bool lost;
};
void wire_free(struct wire_buf *buf);
void wire_put(struct wire_buf *buf, const void *ptr, size_t len);
void wire_word(struct wire_buf *buf, const char *text);
void wire_printf(struct wire_buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Everything but unreserved characters as %XX; `keep` lists more that may stay. */
void wire_percent(struct wire_buf *buf, const char *ptr, size_t len, const char *keep);
/* In place; the new length, or -1 when it is no percent-encoding. */
long wire_unpercent(char *text);

/* "UNAVAILABLE" and so on; "INTERNAL" for a number that is none. */
const char *wire_code_name(int32_t code);
bool wire_code_by_name(const char *name, int32_t *ret);

/* The whole text as one JSON document; NULL when it is none. */
struct json_object *wire_parse(const char *ptr, size_t len);
const char *wire_text(struct json_object *json, const char *key); /* "" when absent or no string */
int64_t wire_number(struct json_object *json, const char *key);	  /* 0 when absent or no integer */
bool wire_has(struct json_object *json, const char *key, enum json_type type);
void wire_add_text(struct json_object *json, const char *key, struct berth_str text);
void wire_add_number(struct json_object *json, const char *key, int64_t number);

static inline struct berth_str wire_str(const char *text)
{
	return (struct berth_str){.ptr = text, .len = __builtin_strlen(text)};
}

#endif
