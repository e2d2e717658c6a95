/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the one way from bytes to a JSON tree: our scan, then json-c in its strict mode, then the count of members, which
 * shows duplicate keys (json-c keeps only the last). Any thread; the tree belongs to the caller's thread.
 * Never accepts a text that another parser could read as something else.
 */
#include "core/json.h"

#include <json-c/json_tokener.h>
#include <limits.h>
#include <string.h>

#include "core/json_scan.h"

/* json-c picks the seed of its hash when the first key is stored, in a way that two threads must not do at once. */
__attribute__((constructor)) static void seed_hash(void)
{
	struct json_object *obj = json_object_new_object();

	if (obj)
		json_object_object_add(obj, "seed", NULL);
	json_object_put(obj);
}

static int fail_at(const char *ptr, size_t pos, const char *what, struct err *err)
{
	size_t line = 1;
	size_t column = 1;

	for (size_t i = 0; i < pos; i++) {
		if (ptr[i] == '\n') {
			line++;
			column = 1;
		} else {
			column += ((unsigned char)ptr[i] & 0xc0) != 0x80;
		}
	}
	return err_set(err, ERR_INVALID_REQUEST, "invalid JSON at line %zu, column %zu: %s", line, column, what);
}

static size_t count_members(struct json_object *json)
{
	size_t count = 0;

	if (json_object_is_type(json, json_type_array)) {
		for (size_t i = 0; i < json_object_array_length(json); i++)
			count += count_members(json_object_array_get_idx(json, i));
	} else if (json_object_is_type(json, json_type_object)) {
		json_object_object_foreach(json, key, value) {
			(void)key;
			count += 1 + count_members(value);
		}
	}
	return count;
}

static size_t without_trailing_space(const char *ptr, size_t len)
{
	while (len && ptr[len - 1] && strchr(" \t\r\n", ptr[len - 1]))
		len--;
	return len;
}

static int run_tokener(struct json_tokener *tok, const char *ptr, size_t len, struct json_object **ret, struct err *err)
{
	json_tokener_set_flags(tok, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);

	struct json_object *json = json_tokener_parse_ex(tok, ptr, (int)len);
	size_t end = json_tokener_get_parse_end(tok);
	enum json_tokener_error code = json_tokener_get_error(tok);

	if (code == json_tokener_continue) { /* a bare number ends only with the text's NUL */
		end = len;
		json = json_tokener_parse_ex(tok, "", 1);
		code = json_tokener_get_error(tok);
	}
	if (code == json_tokener_success && end == len) {
		*ret = json;
		return 0;
	}
	json_object_put(json);
	return fail_at(ptr, end, code == json_tokener_success ? "trailing bytes" : json_tokener_error_desc(code), err);
}

static int parse_scanned(const char *ptr, size_t len, size_t members, struct json_object **ret, struct err *err)
{
	struct json_tokener *tok = json_tokener_new_ex(JSON_DEPTH_MAX + 2);
	struct json_object *json = NULL;

	if (!tok)
		return err_set(err, ERR_NOMEM, "out of memory");

	int r = run_tokener(tok, ptr, len, &json, err);

	json_tokener_free(tok);
	if (r == 0 && count_members(json) != members) {
		json_object_put(json);
		return fail_at(ptr, json_scan_duplicate(ptr, len), "duplicate key", err);
	}
	if (r == 0)
		*ret = json;
	return r;
}

static int parse(const char *ptr, size_t len, bool nul_ok, struct json_object **ret, struct err *err)
{
	struct json_scan scan = {.ptr = ptr, .len = len, .nul_ok = nul_ok};

	if (len >= INT_MAX)
		return err_set(err, ERR_PAYLOAD_TOO_LARGE, "the JSON text is too long");

	const char *fault = json_scan(&scan);

	if (fault)
		return fail_at(ptr, scan.pos, fault, err);
	len = without_trailing_space(ptr, len);
	if (len == 0)
		return fail_at(ptr, 0, "the text is empty", err);
	return parse_scanned(ptr, len, scan.members, ret, err);
}

int json_parse(const char *ptr, size_t len, struct json_object **ret, struct err *err)
{
	return parse(ptr, len, false, ret, err);
}

int json_parse_shown(const char *ptr, size_t len, struct json_object **ret, struct err *err)
{
	return parse(ptr, len, true, ret, err);
}
