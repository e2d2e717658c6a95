/* SPDX-License-Identifier: Apache-2.0 */
/* host/api/router.c, uri.c, range.c: from a request target to a row, parameters and a part of a body. */
#include "api/router.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "api/range.h"
#include "api/resources.h"
#include "api/uri.h"

static struct arena *arena;

/* ---- every row of the product's table ---- */

static void fill_pattern(const char *pattern, char *out, size_t cap)
{
	size_t used = 0;

	for (const char *c = pattern; *c && used + 16 < cap;) {
		if (*c == ':') {
			used += (size_t)snprintf(out + used, cap - used, "v-%zu", used);
			c += strcspn(c, "/");
		} else {
			out[used++] = *c++;
		}
	}
	out[used] = '\0';
}

static void test_every_route_is_found_and_nothing_near_it(void **state)
{
	(void)state;
	for (const struct route *route = api_routes; route->method; route++) {
		struct route_match match = {0};
		struct err err = {0};
		char path[256];

		fill_pattern(route->pattern, path, sizeof(path));
		assert_int_equal(router_find(api_routes, route->method, path, strlen(path), &match, &err), 0);
		assert_ptr_equal(match.route, route);
		/* Not one byte more or less. */
		strncat(path, "/", sizeof(path) - strlen(path) - 1);
		assert_int_equal(router_find(api_routes, route->method, path, strlen(path), &match, &err),
				 ERR_NOT_FOUND);
		path[0] = 'x';
		assert_int_equal(router_find(api_routes, route->method, path, strlen(path), &match, &err),
				 ERR_NOT_FOUND);
		fill_pattern(route->pattern, path, sizeof(path));
		assert_int_equal(router_find(api_routes, "PATCH", path, strlen(path), &match, &err),
				 ERR_METHOD_NOT_ALLOWED);
		assert_non_null(strstr(match.allow, route->method));
		assert_int_equal(router_find(api_routes, "HEAD", path, strlen(path), &match, &err),
				 strstr(match.allow, "HEAD") ? 0 : ERR_METHOD_NOT_ALLOWED);
	}
}

static void test_every_route_but_two_needs_a_scope(void **state)
{
	(void)state;
	for (const struct route *route = api_routes; route->method; route++) {
		if (strcmp(route->pattern, "/health") == 0 || strcmp(route->pattern, "/runtime/manifest") == 0)
			continue;
		assert_true(route->scope != 0 && (route->scope & (route->scope - 1)) == 0);
		assert_non_null(route->handler);
	}
}

/* Whatever changes something, touches files or is an operator's leaves a line. */
static void test_what_matters_is_audited(void **state)
{
	(void)state;
	for (const struct route *route = api_routes; route->method; route++) {
		bool reads = strcmp(route->method, "GET") == 0;
		bool served = route->handler != unsupported_any;

		if (!reads || route->scope == SCOPE_ADMIN || (served && route->scope == SCOPE_FILE_READ))
			assert_non_null(route->audit);
	}
}

static void test_unknown_paths(void **state)
{
	static const char *const paths[] = {"",
					    "/",
					    "//",
					    "/sandbox",
					    "/sandbox/",
					    "/sandbox/executions/",
					    "/sandbox//executions",
					    "*",
					    "/sandbox/executions/a/b",
					    "/sandbox/executions/a/stdout/",
					    "/HEALTH",
					    "/health/",
					    "/%68ealth",
					    "http://x/health",
					    "/metrics/",
					    "/sandbox/artifacts/a/b",
					    "/sandbox/workspace",
					    "/admin/providers/mock",
					    "/admin"};
	struct route_match match;
	struct err err;

	(void)state;
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		assert_int_equal(router_find(api_routes, "GET", paths[i], strlen(paths[i]), &match, &err),
				 ERR_NOT_FOUND);
}

static void test_methods_are_listed(void **state)
{
	struct route_match match = {0};
	struct err err;

	(void)state;
	assert_int_equal(router_find(api_routes, "POST", "/sandbox/files", 14, &match, &err), ERR_METHOD_NOT_ALLOWED);
	assert_string_equal(match.allow, "PUT, GET, HEAD, DELETE, OPTIONS");
	assert_int_equal(router_find(api_routes, "POST", "/sandbox/executions/x/stdout", 28, &match, &err),
			 ERR_METHOD_NOT_ALLOWED);
	assert_string_equal(match.allow, "GET, HEAD, OPTIONS");
}

/* ---- decoding (C14, F3) ---- */

static int decode(enum uri_part part, const char *text, const char **ret, struct err *err)
{
	return uri_decode(arena, "id", part, text, strlen(text), ret, err);
}

static void test_decoding(void **state)
{
	const char *out = NULL;
	struct err err;

	(void)state;
	assert_int_equal(decode(URI_PATH, "a%2Db%C3%a9+c", &out, &err), 0);
	assert_string_equal(out, "a-b\xc3\xa9+c");
	assert_int_equal(decode(URI_QUERY, "a%2Fb+c%2B", &out, &err), 0);
	assert_string_equal(out, "a/b c+");
	assert_int_equal(decode(URI_QUERY, "%252e", &out, &err), 0);
	assert_string_equal(out, "%2e");
}

static void test_odd_ids_are_refused_by_name(void **state)
{
	static const char *const bad[] = {"a%00b", "a%ff", "a%C3%28", "a%2fb",	   "a%2",   "a%",
					  "a%zz",  "a%0a", "a%7f",    "%ed%a0%80", "a\x01", "\xff"};
	const char *out = NULL;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct err err = {0};

		assert_int_equal(decode(URI_PATH, bad[i], &out, &err), ERR_INVALID_REQUEST);
		assert_non_null(strstr(err.msg, "id "));
	}
	assert_null(out);
}

static void test_queries(void **state)
{
	struct uri_query query;
	struct err err = {0};

	(void)state;
	assert_int_equal(uri_query_parse(arena, "path=a%2Fb&list=&follow", "list path follow", &query, &err), 0);
	assert_string_equal(uri_query_get(&query, "path"), "a/b");
	assert_string_equal(uri_query_get(&query, "list"), "");
	assert_string_equal(uri_query_get(&query, "follow"), "");
	assert_null(uri_query_get(&query, "pat"));
	assert_int_equal(uri_query_parse(arena, NULL, NULL, &query, &err), 0);
	assert_int_equal(query.count, 0);
	assert_int_equal(uri_query_parse(arena, "", NULL, &query, &err), 0);
}

static void test_bad_queries_are_named(void **state)
{
	static const struct {
		const char *text;
		const char *word;
	} bad[] = {
		{"path=a&path=b", "\"path\" is given twice"},
		{"pat=a", "\"pat\""},
		{"path=a&", "&"},
		{"=a", "unknown"},
		{"&path=a", "unknown"},
		{"path=%00", "path"},
		{"path=%ff", "path"},
		{"p%61th=a&path=b", "twice"},
		{"path%20=a", "unknown"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct uri_query query;
		struct err err = {0};

		assert_int_equal(uri_query_parse(arena, bad[i].text, "path list", &query, &err), ERR_INVALID_REQUEST);
		if (!strstr(err.msg, bad[i].word))
			fail_msg("%s: \"%s\"", bad[i].text, err.msg);
	}
}

/* ---- ranges ---- */

static void test_ranges(void **state)
{
	static const struct {
		const char *header;
		uint64_t size;
		enum range_kind kind;
		uint64_t from, until;
	} cases[] = {
		{NULL, 10, RANGE_NONE, 0, 0},
		{"bytes=0-0", 10, RANGE_PART, 0, 1},
		{"bytes=2-5", 10, RANGE_PART, 2, 6},
		{"bytes=2-", 10, RANGE_PART, 2, 10},
		{"bytes=2-99", 10, RANGE_PART, 2, 10},
		{"bytes=-3", 10, RANGE_PART, 7, 10},
		{"bytes=-99", 10, RANGE_PART, 0, 10},
		{"Bytes=9-", 10, RANGE_PART, 9, 10},
		{"bytes=10-", 10, RANGE_UNSATISFIABLE},
		{"bytes=-0", 10, RANGE_UNSATISFIABLE},
		{"bytes=0-", 0, RANGE_UNSATISFIABLE},
		{"bytes=-1", 0, RANGE_UNSATISFIABLE},
		{"bytes=5-2", 10, RANGE_NONE},
		{"bytes=0-1,3-4", 10, RANGE_NONE},
		{"lines=0-1", 10, RANGE_NONE},
		{"bytes=a-b", 10, RANGE_NONE},
		{"bytes=", 10, RANGE_NONE},
		{"bytes=1", 10, RANGE_NONE},
		{"bytes=99999999999999999999-", 10, RANGE_NONE},
		{"bytes=0-18446744073709551615", 10, RANGE_PART, 0, 10},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct range range = {0};

		assert_int_equal(range_parse(cases[i].header, cases[i].size, &range), cases[i].kind);
		assert_int_equal(range.from, cases[i].from);
		assert_int_equal(range.until, cases[i].until);
	}
}

static int make_arena(void **state)
{
	(void)state;
	arena = arena_new(1 << 20);
	return arena ? 0 : -1;
}

static int free_arena(void **state)
{
	(void)state;
	arena_free(arena);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_route_is_found_and_nothing_near_it),
		cmocka_unit_test(test_every_route_but_two_needs_a_scope),
		cmocka_unit_test(test_what_matters_is_audited),
		cmocka_unit_test(test_unknown_paths),
		cmocka_unit_test(test_methods_are_listed),
		cmocka_unit_test(test_decoding),
		cmocka_unit_test(test_odd_ids_are_refused_by_name),
		cmocka_unit_test(test_queries),
		cmocka_unit_test(test_bad_queries_are_named),
		cmocka_unit_test(test_ranges),
	};

	return cmocka_run_group_tests(tests, make_arena, free_arena);
}
