/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the rules for names: task identities, ids made here, and workspace paths. Pure functions, any thread. Never repairs
 * a name: whatever is odd is refused, so that every layer sees the same bytes.
 */
#include "core/ident.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/secret.h"
#include "core/utf8.h"

static bool is_alnum(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

bool ident_part_valid(const char *ptr, size_t len)
{
	if (!ptr || len < 1 || len > IDENT_PART_MAX || !is_alnum(ptr[0]))
		return false;
	for (size_t i = 1; i < len; i++) {
		if (!is_alnum(ptr[i]) && ptr[i] != '.' && ptr[i] != '_' && ptr[i] != '-')
			return false;
	}
	return true;
}

static int part_copy(const char *field, const char *value, char ret[IDENT_PART_MAX + 1], struct err *err)
{
	size_t len = value ? strnlen(value, IDENT_PART_MAX + 1) : 0;

	if (len == 0)
		return err_set(err, ERR_INVALID_REQUEST, "%s: is missing", field);
	if (!ident_part_valid(value, len))
		return err_set(err, ERR_INVALID_REQUEST,
			       "%s: must be 1 to %d characters of A-Z a-z 0-9 . _ - and start with a letter or digit",
			       field, IDENT_PART_MAX);
	memcpy(ret, value, len + 1);
	return 0;
}

int ident_make(struct ident *ret, const char *workspace, const char *task, struct err *err)
{
	struct ident ident = {0};
	int r = part_copy("workspace_id", workspace, ident.workspace, err);

	if (r == 0)
		r = part_copy("task_id", task, ident.task, err);
	if (r == 0)
		*ret = ident;
	return r;
}

void ident_key(const struct ident *ident, char ret_key[IDENT_KEY_MAX + 1])
{
	snprintf(ret_key, IDENT_KEY_MAX + 1, "%s/%s", ident->workspace, ident->task);
}

bool ident_equal(const struct ident *a, const struct ident *b)
{
	return strcmp(a->workspace, b->workspace) == 0 && strcmp(a->task, b->task) == 0;
}

void ident_random(char ret_id[IDENT_ID_MAX + 1], const char *prefix, size_t count)
{
	static const char digits[] = "0123456789abcdef";
	size_t at = strlen(prefix);
	uint8_t bytes[IDENT_ID_MAX];

	assert(at + count <= IDENT_ID_MAX);
	secret_random(bytes, count);
	memcpy(ret_id, prefix, at);
	for (size_t i = 0; i < count; i++)
		ret_id[at + i] = digits[bytes[i] & 15];
	ret_id[at + count] = '\0';
}

bool ident_is_random(const char *text, const char *prefix, size_t count)
{
	size_t at = strlen(prefix);

	if (!text || strncmp(text, prefix, at) != 0)
		return false;
	return strnlen(text + at, count + 1) == count && strspn(text + at, "0123456789abcdef") == count;
}

bool ident_utf8_valid(const char *ptr, size_t len)
{
	return utf8_valid_prefix(ptr, len) == len;
}

/* NULL, or what is wrong with the bytes whatever the components are. */
static const char *path_bytes_fault(const char *ptr, size_t len)
{
	if (!ptr || len == 0)
		return "is empty";
	if (len > IDENT_PATH_MAX)
		return "is longer than 1024 bytes";
	if (ptr[0] == '/')
		return "must be relative";
	if (ptr[len - 1] == '/')
		return "ends in a slash";
	for (size_t i = 0; i < len; i++) {
		if ((unsigned char)ptr[i] < 0x20 || ptr[i] == 0x7f)
			return "holds a control character";
		if (ptr[i] == '\\')
			return "holds a backslash";
	}
	return ident_utf8_valid(ptr, len) ? NULL : "is not valid UTF-8";
}

static const char *path_part_fault(const char *ptr, size_t len)
{
	if (len == 0)
		return "holds an empty component";
	if (len > IDENT_PATH_PART_MAX)
		return "holds a component longer than 255 bytes";
	if (len == 1 && ptr[0] == '.')
		return "holds a \".\" component";
	if (len == 2 && ptr[0] == '.' && ptr[1] == '.')
		return "holds a \"..\" component";
	return NULL;
}

static const char *path_fault(const char *ptr, size_t len)
{
	const char *fault = path_bytes_fault(ptr, len);
	size_t start = 0;

	for (size_t i = 0; !fault && i <= len; i++) {
		if (i == len || ptr[i] == '/') {
			fault = path_part_fault(ptr + start, i - start);
			start = i + 1;
		}
	}
	return fault;
}

int ident_path_check(const char *field, const char *ptr, size_t len, bool dot_ok, struct err *err)
{
	if (dot_ok && ptr && len == 1 && ptr[0] == '.')
		return 0;

	const char *fault = path_fault(ptr, len);

	return fault ? err_set(err, ERR_INVALID_REQUEST, "%s: %s", field, fault) : 0;
}
