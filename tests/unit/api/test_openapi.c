/* SPDX-License-Identifier: Apache-2.0 */
/* docs/openapi.yaml and the route table name the same methods, paths and scopes. */
#include "api/resources.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static char *text;

static int load(void **state)
{
	FILE *file = fopen(BERTH_TEST_SOURCE_DIR "/docs/openapi.yaml", "r");
	size_t len;

	(void)state;
	text = calloc(1, 1 << 20);
	if (!file || !text)
		return -1;
	len = fread(text, 1, (1 << 20) - 1, file);
	fclose(file);
	return len > 0 ? 0 : -1;
}

static int unload(void **state)
{
	(void)state;
	free(text);
	return 0;
}

/* "  /a/{id}:" for "/a/:id". */
static void path_line(const char *pattern, char *out, size_t cap)
{
	size_t used = (size_t)snprintf(out, cap, "\n  ");

	while (*pattern && used + 64 < cap) {
		if (*pattern != ':') {
			out[used++] = *pattern++;
			continue;
		}

		int len = (int)strcspn(++pattern, "/");

		used += (size_t)snprintf(out + used, cap - used, "{%.*s}", len, pattern);
		pattern += len;
	}
	snprintf(out + used, cap - used, ":\n");
}

/* A copy of what follows `start` up to a line that is indented by at most `indent`. */
static char *block(const char *start, size_t indent)
{
	const char *line = start;

	while (*line && (*line == '\n' || strspn(line, " ") > indent)) {
		line += strcspn(line, "\n");
		line += *line == '\n';
	}
	return strndup(start, (size_t)(line - start));
}

static char *path_block(const char *pattern)
{
	char line[256];

	path_line(pattern, line, sizeof(line));

	const char *at = strstr(text, line);

	return at ? block(at + strlen(line), 2) : NULL;
}

static char *method_block(const char *in_path, const char *method)
{
	char line[32];

	snprintf(line, sizeof(line), "    %s:\n", method);
	for (char *c = line; *c; c++)
		*c = *c >= 'A' && *c <= 'Z' ? (char)(*c - 'A' + 'a') : *c;

	const char *at = strstr(in_path, line);

	return at ? block(at + strlen(line), 4) : NULL;
}

static void test_every_route_is_written_down(void **state)
{
	(void)state;
	for (const struct route *route = api_routes; route->method; route++) {
		char *path = path_block(route->pattern);
		char *method = path ? method_block(path, route->method) : NULL;

		if (!method)
			fail_msg("%s %s is not in docs/openapi.yaml", route->method, route->pattern);
		for (unsigned i = 0; i < SCOPE_COUNT; i++) {
			char words[64];

			snprintf(words, sizeof(words), "Scope %s.", conf_scope_word(i));
			if (route->scope == 1u << i && !strstr(method, words))
				fail_msg("%s %s: \"%s\" is not said", route->method, route->pattern, words);
		}
		free(method);
		free(path);
	}
}

/* HEAD is said once for all in the description, and at the routes where it is worth a word. */
static void test_nothing_else_is_written_down(void **state)
{
	static const char *const methods[] = {"get", "put", "post", "delete", "patch", "options"};
	size_t written = 0;
	size_t served = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
		char line[32];

		snprintf(line, sizeof(line), "\n    %s:\n", methods[i]);
		for (const char *at = text; (at = strstr(at, line)); at++)
			written++;
	}
	for (const struct route *route = api_routes; route->method; route++) {
		bool is_get = strcmp(route->method, "GET") == 0;

		served++;
		assert_int_equal(is_get && !strstr(route->pattern, "/events"), (route->flags & ROUTE_HEAD) != 0);
	}
	assert_int_equal(written, served);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_route_is_written_down),
		cmocka_unit_test(test_nothing_else_is_written_down),
	};

	return cmocka_run_group_tests(tests, load, unload);
}
