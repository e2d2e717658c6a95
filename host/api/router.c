/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the matching of request targets against a route table: segment by segment, literals byte by byte as they came,
 * so that one resource has one spelling. Pure; entered from the loop threads. Never decodes and never looks at a body.
 */
#include "api/router.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static size_t segment(const char *ptr, size_t len)
{
	const char *slash = memchr(ptr, '/', len);

	return slash ? (size_t)(slash - ptr) : len;
}

static bool take_param(struct route_match *match, const char *name, size_t name_len, const char *ptr, size_t len)
{
	if (len == 0 || match->param_count == ROUTE_PARAMS)
		return false;
	match->params[match->param_count].name = name + 1;
	match->params[match->param_count].name_len = name_len - 1;
	match->params[match->param_count].ptr = ptr;
	match->params[match->param_count++].len = len;
	return true;
}

static bool path_matches(const char *pattern, const char *path, size_t len, struct route_match *match)
{
	size_t pattern_len = strlen(pattern);

	match->param_count = 0;
	while (pattern_len && len && *pattern == '/' && *path == '/') {
		size_t want = segment(pattern + 1, pattern_len - 1);
		size_t have = segment(path + 1, len - 1);

		if (pattern[1] == ':') {
			if (!take_param(match, pattern + 1, want, path + 1, have))
				return false;
		} else if (want != have || memcmp(pattern + 1, path + 1, want) != 0) {
			return false;
		}
		pattern += want + 1;
		pattern_len -= want + 1;
		path += have + 1;
		len -= have + 1;
	}
	return pattern_len == 0 && len == 0;
}

static bool method_matches(const struct route *route, const char *method)
{
	return strcmp(route->method, method) == 0 || (route->flags & ROUTE_HEAD && strcmp(method, "HEAD") == 0);
}

static void add_allowed(char *allow, size_t cap, const struct route *route)
{
	size_t len = strlen(allow);

	snprintf(allow + len, cap - len, "%s%s%s", len ? ", " : "", route->method,
		 route->flags & ROUTE_HEAD ? ", HEAD" : "");
}

int router_find(const struct route *table, const char *method, const char *path, size_t len, struct route_match *ret,
		struct err *err)
{
	struct route_match match = {0};

	for (const struct route *route = table; route->method; route++) {
		if (!path_matches(route->pattern, path, len, &match))
			continue;
		if (method_matches(route, method)) {
			match.route = route;
			*ret = match;
			return 0;
		}
		add_allowed(match.allow, sizeof(match.allow), route);
	}
	if (match.allow[0] == '\0')
		return err_set(err, ERR_NOT_FOUND, "no such route");
	snprintf(match.allow + strlen(match.allow), sizeof(match.allow) - strlen(match.allow), ", OPTIONS");
	memcpy(ret->allow, match.allow, sizeof(ret->allow));
	return err_set(err, ERR_METHOD_NOT_ALLOWED, "this route answers %s", match.allow);
}
