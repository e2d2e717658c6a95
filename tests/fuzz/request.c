/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: a request's head as the intake sees it: headers, route, bearer token, parameters, query, range. The
 * input is "METHOD target version", then a header a line; then the order and the calls are those of intake.c.
 */
#include <stdlib.h>
#include <string.h>

#include "api/auth.h"
#include "api/forwarded.h"
#include "api/head.h"
#include "api/range.h"
#include "api/resources.h"
#include "api/router.h"
#include "api/uri.h"
#include "core/ident.h"
#include "core/limits.h"
#include "fuzz.h"

#define NOW INT64_C(1700000000000)

static struct conf_token tokens[] = {
	{.scopes = (1u << SCOPE_COUNT) - 1},
	{.scopes = SCOPE_FILE_READ | SCOPE_FILE_WRITE},
	{.scopes = (1u << SCOPE_COUNT) - 1, .not_after_ms = NOW},
};
static const char *const secrets[] = {"all-abcdefgh", "files-abcdefgh", "old-abcdefgh"};

static void make_tokens(void)
{
	for (size_t i = 0; i < sizeof(tokens) / sizeof(tokens[0]) && !tokens[i].secret; i++)
		tokens[i].secret = secret_new(secrets[i], strlen(secrets[i]));
}

/* Whatever the parser makes of the header: a token is granted only to one that ends in its secret, and never too late.
 */
static void check_auth(const struct head *head, unsigned scope)
{
	const struct auth auth = {tokens, sizeof(tokens) / sizeof(tokens[0])};
	const char *header = head->authorizations == 1 ? head->authorization : NULL;
	const struct conf_token *token = NULL;
	struct err err = {0};

	if (auth_check(&auth, header, scope, NOW, &token, &err) != 0) {
		FUZZ_CHECK(err.code == ERR_UNAUTHORIZED || err.code == ERR_FORBIDDEN);
		FUZZ_CHECK(!strstr(err.msg, "abcdefgh"));
		return;
	}
	FUZZ_CHECK(header && token && token != &tokens[2] && (token->scopes & scope) == scope);

	const char *secret = secrets[token - tokens];
	size_t len = strlen(header), want = strlen(secret);

	FUZZ_CHECK(len > want && strcmp(header + len - want, secret) == 0 && header[len - want - 1] == ' ');
}

static void check_value(const char *value, size_t at_most)
{
	size_t len = strlen(value);

	FUZZ_CHECK(len <= at_most && ident_utf8_valid(value, len));
	for (size_t i = 0; i < len; i++)
		FUZZ_CHECK((unsigned char)value[i] >= 0x20 && value[i] != 0x7f);
}

static void check_query(struct arena *arena, const struct route *route, const char *text)
{
	struct uri_query query;

	if (uri_query_parse(arena, text, route->query, &query, NULL) != 0)
		return;
	for (size_t i = 0; i < query.count; i++) {
		FUZZ_CHECK(uri_word_in(route->query, query.items[i].name, strlen(query.items[i].name)));
		FUZZ_CHECK(uri_query_get(&query, query.items[i].name) == query.items[i].value);
		check_value(query.items[i].value, strlen(text));
		FUZZ_PLANTED(query.items[i].value, strlen(query.items[i].value));
	}
}

static void check_target(struct arena *arena, const struct head *head, const char *method, const char *target)
{
	size_t path_len = strcspn(target, "?");
	struct route_match match = {0};

	if (router_find(api_routes, method, target, path_len, &match, NULL) != 0) {
		FUZZ_CHECK(strlen(match.allow) < sizeof(match.allow) && !match.route);
		return;
	}
	if (match.route->scope != SCOPE_OPEN)
		check_auth(head, match.route->scope);
	for (size_t i = 0; i < match.param_count; i++) {
		const char *value = NULL;

		FUZZ_CHECK(match.params[i].ptr >= target &&
			   match.params[i].ptr + match.params[i].len <= target + path_len);
		if (uri_decode(arena, "x", URI_PATH, match.params[i].ptr, match.params[i].len, &value, NULL) == 0)
			check_value(value, path_len);
	}
	check_query(arena, match.route, target[path_len] ? target + path_len + 1 : NULL);
}

static void check_range(const char *header, uint64_t size)
{
	struct range range = {1, 0};

	if (range_parse(header, size, &range) == RANGE_PART)
		FUZZ_CHECK(range.from < range.until && range.until <= size);
	else
		FUZZ_CHECK(range.from == 1 && range.until == 0);
}

static void check_finished(const struct head *head, const char *version)
{
	struct head copy = *head;

	if (head_finish(&copy, version, NULL) != 0)
		return;
	FUZZ_CHECK(!copy.fault && !(copy.chunked && copy.length >= 0) && copy.bytes <= LIMIT_HEADERS);
	FUZZ_CHECK(copy.host || strcmp(version, "HTTP/1.0") == 0);
}

/* What is believed about the client is always an address, and never one that a proxy of ours did not write behind. */
static void check_client(struct arena *arena, const struct head *head)
{
	struct address_list proxies;
	struct address address;
	const char *client;

	FUZZ_CHECK(address_list_parse("10.0.0.0/8 ::1", &proxies, NULL) == 0);
	client = forwarded_client(arena, &proxies, "10.1.1.1", head->forwarded_for);
	FUZZ_CHECK(address_parse(client, &address) == 0 && address.bits == 128);
	FUZZ_CHECK(strcmp(forwarded_client(arena, &proxies, "9.9.9.9", head->forwarded_for), "9.9.9.9") == 0);
}

static void check_asked(const struct head *head, const char *method, const char *version)
{
	struct err err = {0};
	int any = head_check(head, method, version, false, &err);
	int json = head_check(head, method, version, true, &err);

	FUZZ_CHECK(any == 0 || json != 0); /* a JSON body only adds reasons */
	FUZZ_CHECK(json == 0 || err.msg[0]);
}

static void read_headers(struct fuzz_input *in, struct head *head, struct arena *arena)
{
	head_init(head);
	while (in->len) {
		size_t len = 0;
		char *line = fuzz_text(in, "\n", &len);
		char *colon = memmem(line, len, ": ", 2);
		size_t name_len = colon ? (size_t)(colon - line) : len;
		char *name = fuzz_copy(line, name_len);
		char *value = colon ? fuzz_copy(colon + 2, len - name_len - 2) : NULL;

		head_add(head, arena, name, name_len, value, value ? len - name_len - 2 : 0);
		free(name);
		free(value);
		free(line);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	struct arena *arena = arena_new(1 << 22);
	char *line = fuzz_text(&in, "\n", NULL);
	struct fuzz_input first = {(const uint8_t *)line, strlen(line)};
	char *method = fuzz_text(&first, " ", NULL), *target = fuzz_text(&first, " ", NULL);
	char *version = fuzz_text(&first, " ", NULL);
	struct head head;

	make_tokens();
	read_headers(&in, &head, arena);
	check_finished(&head, version);
	check_asked(&head, method, version);
	check_client(arena, &head);
	FUZZ_CHECK(strlen(uri_origin(target)) <= strlen(target) + 1);
	check_target(arena, &head, method, uri_origin(target));
	check_range(head.range, 0);
	check_range(head.range, 1000);
	check_range(head.range, UINT64_MAX);
	free(line);
	free(method);
	free(target);
	free(version);
	arena_free(arena);
	return 0;
}
