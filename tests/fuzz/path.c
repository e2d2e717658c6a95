/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: names from outside. The path rule of the host against the library's, percent-decoding, task identities.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../sdk/lib/localfs_path.h"
#include "api/uri.h"
#include "core/ident.h"
#include "fuzz.h"
#include "session/session_private.h"

/* The path rule once more, said another way. */
static bool looks_good(const char *path, size_t len)
{
	if (!len || len > IDENT_PATH_MAX || path[0] == '/' || path[len - 1] == '/')
		return false;
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)path[i] < 0x20 || path[i] == 0x7f || path[i] == '\\')
			return false;
	return !strstr(path, "//") && strncmp(path, "../", 3) != 0 && !strstr(path, "/../") &&
	       strncmp(path, "./", 2) != 0 && !strstr(path, "/./") && strcmp(path, "..") != 0 &&
	       (len < 3 || strcmp(path + len - 3, "/..") != 0) && (len < 2 || strcmp(path + len - 2, "/.") != 0);
}

static void check_path(const char *path, size_t len, bool dot_ok)
{
	struct berth_str str = {path, len};
	struct err err = {0};
	bool good = ident_path_check("path", path, len, dot_ok, &err) == 0;

	if (!good) {
		FUZZ_CHECK(err.code < 0 && strncmp(err.msg, "path", 4) == 0);
		return;
	}
	FUZZ_PLANTED(path, len);
	FUZZ_CHECK(dot_ok || strcmp(path, ".") != 0);
	FUZZ_CHECK(strlen(path) == len && looks_good(path, len) && ident_utf8_valid(path, len));
	/* What the host lets through, the plugin's library must not refuse, and never the other way out of the root. */
	FUZZ_CHECK(localfs_path_check(&str) == 0);
}

/* Every byte written as an escape is the same value. */
static void check_escaped(struct arena *arena, const char *value, enum uri_part part)
{
	size_t len = strlen(value);
	char *escaped = malloc(3 * len + 1);
	const char *again = NULL;

	FUZZ_CHECK(escaped != NULL);
	for (size_t i = 0; i < len; i++)
		snprintf(escaped + 3 * i, 4, "%%%02X", (unsigned)(unsigned char)value[i]);
	if (part == URI_QUERY || !strchr(value, '/')) {
		FUZZ_CHECK(uri_decode(arena, "x", part, escaped, 3 * len, &again, NULL) == 0);
		FUZZ_CHECK(strcmp(again, value) == 0);
	}
	free(escaped);
}

static void check_decoded(const char *text, size_t len, enum uri_part part)
{
	struct arena *arena = arena_new(1 << 20);
	const char *value = NULL;

	if (uri_decode(arena, "x", part, text, len, &value, NULL) == 0) {
		size_t used = strlen(value);

		FUZZ_CHECK(used <= len && used >= len / 3 && ident_utf8_valid(value, used));
		for (size_t i = 0; i < used; i++)
			FUZZ_CHECK((unsigned char)value[i] >= 0x20 && value[i] != 0x7f);
		check_escaped(arena, value, part);
	}
	arena_free(arena);
}

static void check_ident(const char *text)
{
	char key[IDENT_KEY_MAX + 1];
	struct ident ident, again;

	if (!split_key(text, &ident))
		return;
	ident_key(&ident, key);
	FUZZ_CHECK(strcmp(key, text) == 0);
	FUZZ_CHECK(split_key(key, &again) && ident_equal(&ident, &again));
	FUZZ_CHECK(ident_path_check("key", ident.task, strlen(ident.task), false, NULL) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	bool dot_ok = fuzz_byte(&in) & 1;
	char *text = fuzz_copy(in.ptr, in.len);

	check_path(text, in.len, dot_ok);
	check_decoded(text, in.len, URI_PATH);
	check_decoded(text, in.len, URI_QUERY);
	check_ident(text);
	ident_is_random(text, "sexec_", 24);
	free(text);
	return 0;
}
