/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers, percent-encoding, names of codes and JSON fields: what both ends of the wire need. Pure; any thread. Must
 * not trust a length or a text that came over the wire.
 */
#include "wire.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../sdk/lib/codes.h"

void wire_free(struct wire_buf *buf)
{
	free(buf->ptr);
	buf->ptr = NULL;
	buf->len = buf->cap = 0;
}

static bool reserve(struct wire_buf *buf, size_t more)
{
	size_t wanted = buf->cap ? buf->cap : 256;
	char *grown;

	if (buf->lost || more > SIZE_MAX / 4 || (buf->max && buf->len + more > buf->max)) {
		buf->lost = true;
		return false;
	}
	while (wanted < buf->len + more + 1)
		wanted *= 2;
	if (wanted == buf->cap)
		return true;
	grown = realloc(buf->ptr, wanted);
	buf->lost = !grown;
	if (!grown)
		return false;
	buf->ptr = grown;
	buf->cap = wanted;
	return true;
}

void wire_put(struct wire_buf *buf, const void *ptr, size_t len)
{
	if (!reserve(buf, len))
		return;
	if (len)
		memcpy(buf->ptr + buf->len, ptr, len);
	buf->len += len;
	buf->ptr[buf->len] = '\0';
}

void wire_word(struct wire_buf *buf, const char *text)
{
	wire_put(buf, text, strlen(text));
}

void wire_printf(struct wire_buf *buf, const char *format, ...)
{
	char text[512];
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (len < 0 || (size_t)len >= sizeof(text))
		buf->lost = true;
	else
		wire_put(buf, text, (size_t)len);
}

static bool plain(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr("-._~", c));
}

void wire_percent(struct wire_buf *buf, const char *ptr, size_t len, const char *keep)
{
	for (size_t i = 0; i < len; i++)
		if (plain(ptr[i]) || (ptr[i] && strchr(keep, ptr[i])))
			wire_put(buf, ptr + i, 1);
		else
			wire_printf(buf, "%%%02X", (unsigned char)ptr[i]);
}

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

long wire_unpercent(char *text)
{
	char *out = text;

	for (const char *in = text; *in; out++) {
		int high, low;

		if (*in != '%') {
			*out = *in++;
			continue;
		}
		high = digit(in[1]);
		low = high < 0 ? -1 : digit(in[2]);
		if (low < 0)
			return -1;
		*out = (char)(high * 16 + low);
		in += 3;
	}
	*out = '\0';
	return out - text;
}

static const char *const code_names[BERTH_CODE_MAX + 1] = {
#define ROW(name, word, status) [BERTH_##name] = #name,
	CODES(ROW)
#undef ROW
};

const char *wire_code_name(int32_t code)
{
	return code_names[code >= 0 && code <= BERTH_CODE_MAX ? code : BERTH_INTERNAL];
}

bool wire_code_by_name(const char *name, int32_t *ret)
{
	for (int32_t i = 0; i <= BERTH_CODE_MAX; i++) {
		if (strcmp(code_names[i], name) != 0)
			continue;
		*ret = i;
		return true;
	}
	return false;
}

struct json_object *wire_parse(const char *ptr, size_t len)
{
	struct json_tokener *tokener = len <= INT_MAX ? json_tokener_new() : NULL;
	struct json_object *json;

	if (!tokener)
		return NULL;
	json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	json = json_tokener_parse_ex(tokener, ptr ? ptr : "", (int)len);
	if (json_tokener_get_error(tokener) != json_tokener_success || json_tokener_get_parse_end(tokener) != len) {
		json_object_put(json);
		json = NULL;
	}
	json_tokener_free(tokener);
	return json;
}

const char *wire_text(struct json_object *json, const char *key)
{
	struct json_object *value;

	if (!json_object_object_get_ex(json, key, &value) || !json_object_is_type(value, json_type_string))
		return "";
	return json_object_get_string(value);
}

int64_t wire_number(struct json_object *json, const char *key)
{
	struct json_object *value;

	if (!json_object_object_get_ex(json, key, &value) || !json_object_is_type(value, json_type_int))
		return 0;
	return json_object_get_int64(value);
}

bool wire_has(struct json_object *json, const char *key, enum json_type type)
{
	struct json_object *value;

	return json_object_object_get_ex(json, key, &value) && json_object_is_type(value, type);
}

void wire_add_text(struct json_object *json, const char *key, struct berth_str text)
{
	json_object_object_add(json, key, json_object_new_string_len(text.ptr ? text.ptr : "", (int)text.len));
}

void wire_add_number(struct json_object *json, const char *key, int64_t number)
{
	json_object_object_add(json, key, json_object_new_int64(number));
}
