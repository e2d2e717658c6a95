/* SPDX-License-Identifier: Apache-2.0 */
/* host/api/signed.c: a token as the reference's clients make it, and what must not pass. */
#include "api/signed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "api/head.h"
#include "core/secret.h"

/* Made with Python's hmac and base64: execution.read of ID by task t of workspace w. */
#define KEY "control-secret-0123456789abcdef0123456789"
#define PAYLOAD \
	"eyJ2IjoxLCJzY29wZSI6ImV4ZWN1dGlvbi5yZWFkIiwid29ya3NwYWNlX2lkIjoidyIsInRhc2tfaWQiOiJ0IiwiZXhlY3V0" \
	"aW9uX2lkIjoic2V4ZWNfMDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3IiwiYm9keV9zaGEyNTYiOiJlM2IwYzQ0Mjk4ZmMxYzE0" \
	"OWFmYmY0Yzg5OTZmYjkyNDI3YWU0MWU0NjQ5YjkzNGNhNDk1OTkxYjc4NTJiODU1IiwiZXhwaXJlc19hdCI6MTcwMDAwMDMw" \
	"MCwibm9uY2UiOiIwMTIzNDU2Nzg5YWJjZGVmIn0"
#define MAC "j81fYAWxr_0zGrt01ao-S9Wk_8yHiLeeEnznzJt5kcc"
#define NOW INT64_C(1700000000000) /* five minutes before its end */
#define ID "sexec_0123456789abcdef01234567"

static struct secret *key;
static struct arena *arena;

static int setup(void **state)
{
	(void)state;
	key = secret_new(KEY, strlen(KEY));
	arena = arena_new(1 << 20);
	return key && arena ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	secret_free(key);
	arena_free(arena);
	return 0;
}

static int ask(const char *header, unsigned scope, int64_t now, struct signed_token **ret)
{
	struct err err = {0};

	return signed_check(key, header, scope, now, arena, ret, &err);
}

static void test_a_good_one(void **state)
{
	struct signed_token *token = NULL;
	struct head head = {.workspace = "w", .task = "t"};

	(void)state;
	assert_int_equal(ask("Bearer " PAYLOAD "." MAC, SCOPE_EXECUTION_READ, NOW, &token), 0);
	assert_string_equal(token->ident.workspace, "w");
	assert_string_equal(token->ident.task, "t");
	assert_string_equal(token->execution_id, ID);
	assert_int_equal(token->token.scopes, SCOPE_EXECUTION_READ);
	assert_int_equal(token->token.workspace_count, 1);
	assert_int_equal(token->expires_ms, NOW + 300000);
	assert_int_equal(signed_fits(token, &head, ID, NULL), 0);
	assert_int_equal(signed_fits(token, &head, "sexec_0123456789abcdef01234568", NULL), ERR_UNAUTHORIZED);
	assert_int_equal(signed_fits(token, &head, NULL, NULL), ERR_FORBIDDEN);
	head.task = "u";
	assert_int_equal(signed_fits(token, &head, ID, NULL), ERR_UNAUTHORIZED);
	head.task = NULL;
	assert_int_equal(signed_fits(token, &head, ID, NULL), ERR_UNAUTHORIZED);
}

static void test_what_does_not_verify(void **state)
{
	static const char *const headers[] = {
		NULL, "", "Bearer ", "Bearer .", "Bearer " PAYLOAD, "Bearer " PAYLOAD ".", "Bearer ." MAC,
		"Bearer " PAYLOAD "." MAC "A", "Bearer x" PAYLOAD "." MAC, "Bearer " PAYLOAD "=." MAC,
		"Bearer " PAYLOAD "." MAC " ", "Basic " PAYLOAD "." MAC, "Bearer " MAC "." MAC,
	};
	struct signed_token *token = NULL;
	char header[1024];

	(void)state;
	for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++)
		assert_int_equal(ask(headers[i], SCOPE_EXECUTION_READ, NOW, &token), ERR_UNAUTHORIZED);
	/* Every character of the signature counts. */
	for (size_t i = 0; i < strlen(MAC); i++) {
		snprintf(header, sizeof(header), "Bearer " PAYLOAD "." MAC);
		header[strlen("Bearer " PAYLOAD ".") + i] ^= 1;
		assert_int_equal(ask(header, SCOPE_EXECUTION_READ, NOW, &token), ERR_UNAUTHORIZED);
	}
	assert_int_equal(signed_check(NULL, "Bearer " PAYLOAD "." MAC, SCOPE_EXECUTION_READ, NOW, arena, &token, NULL),
			 ERR_UNAUTHORIZED);
	assert_null(token);
}

static void test_time_and_scope(void **state)
{
	static const char header[] = "Bearer " PAYLOAD "." MAC;
	struct signed_token *token = NULL;

	(void)state;
	assert_int_equal(ask(header, SCOPE_EXECUTION_READ, NOW + 299999, &token), 0);
	assert_int_equal(ask(header, SCOPE_EXECUTION_READ, NOW + 300000, &token), ERR_UNAUTHORIZED);
	assert_int_equal(ask(header, SCOPE_EXECUTION_READ, NOW - SIGNED_LIFE_MAX_MS, &token), ERR_UNAUTHORIZED);
	assert_int_equal(ask(header, SCOPE_EXECUTION_CANCEL, NOW, &token), ERR_FORBIDDEN);
	assert_int_equal(ask(header, SCOPE_EXECUTION_CREATE, NOW, &token), ERR_FORBIDDEN);
	assert_int_equal(ask(header, SCOPE_SESSION_DELETE, NOW, &token), ERR_UNAUTHORIZED);
	assert_int_equal(ask(header, SCOPE_ADMIN, NOW, &token), ERR_UNAUTHORIZED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_good_one),
		cmocka_unit_test(test_what_does_not_verify),
		cmocka_unit_test(test_time_and_scope),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
