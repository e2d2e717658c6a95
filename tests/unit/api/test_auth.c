/* SPDX-License-Identifier: Apache-2.0 */
/* host/api/auth.c: the matrix of row Q8. */
#include "api/auth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define FILES "files-0123456789abcdef0123456789abcdef"
#define ADMIN "admin-0123456789abcdef0123456789abcdef"
#define NARROW "narrow-0123456789abcdef0123456789abcde"
#define ENDED "ended-0123456789abcdef0123456789abcdef"
#define NOW 1000000

static struct conf_token tokens[5];
static struct auth auth = {.tokens = tokens, .token_count = 5};
static char *one[] = {(char[]){"w1"}};

static void set(size_t i, const char *name, const char *secret, unsigned scopes)
{
	static char names[5][16];

	snprintf(names[i], sizeof(names[i]), "%s", name);
	tokens[i] = (struct conf_token){
		.name = names[i], .secret = secret ? secret_new(secret, strlen(secret)) : NULL, .scopes = scopes};
}

static int setup(void **state)
{
	(void)state;
	set(0, "files", FILES, SCOPE_FILE_READ | SCOPE_FILE_WRITE);
	set(1, "admin", ADMIN, SCOPE_ADMIN | SCOPE_SESSION_READ);
	set(2, "narrow", NARROW, SCOPE_FILE_READ);
	set(3, "ended", ENDED, SCOPE_METRICS);
	set(4, "unset", NULL, SCOPE_SESSION_DELETE);
	tokens[2].workspaces = one;
	tokens[2].workspace_count = 1;
	tokens[3].not_after_ms = NOW;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (size_t i = 0; i < 5; i++)
		secret_free(tokens[i].secret);
	return 0;
}

static int ask(const char *header, unsigned scope, const char **ret_name)
{
	const struct conf_token *token = NULL;
	struct err err = {0};
	int r = auth_check(&auth, header, scope, NOW, &token, &err);

	*ret_name = token ? token->name : NULL;
	if (r != 0)
		assert_null(token);
	return r;
}

/* An operator has to know which word to add. */
static void test_names_what_is_missing(void **state)
{
	const struct conf_token *token = NULL;
	struct err err = {0};

	(void)state;
	assert_int_equal(auth_check(&auth, "Bearer " NARROW, SCOPE_FILE_WRITE, NOW, &token, &err), ERR_FORBIDDEN);
	assert_string_equal(err.msg, "the token lacks the scope file.write");
	assert_int_equal(auth_check(&auth, "Bearer " ADMIN, SCOPE_FILE_READ, NOW, &token, &err), ERR_FORBIDDEN);
	assert_string_equal(err.msg, "the token lacks the scope file.read");
}

static void test_matrix(void **state)
{
	static const struct {
		const char *header;
		unsigned scope;
		int code;
		const char *name;
	} cases[] = {
		{"Bearer " FILES, SCOPE_FILE_READ, 0, "files"},
		{"bearer  " FILES, SCOPE_FILE_WRITE, 0, "files"},
		{"Bearer " NARROW, SCOPE_FILE_READ, 0, "narrow"},
		/* Absent, malformed, short, wrong, a prefix, longer. */
		{NULL, SCOPE_FILE_READ, ERR_UNAUTHORIZED},
		{"", SCOPE_FILE_READ, ERR_UNAUTHORIZED},
		{"Bearer", SCOPE_FILE_READ, ERR_UNAUTHORIZED},
		{"Bearer ", SCOPE_FILE_READ, ERR_UNAUTHORIZED},
		{FILES, SCOPE_FILE_READ, ERR_UNAUTHORIZED},
		{"Basic " FILES, SCOPE_FILE_READ, ERR_UNAUTHORIZED},
		{"Bearer\t" FILES, SCOPE_FILE_READ, ERR_UNAUTHORIZED},
		{"Bearer " FILES " x", SCOPE_FILE_READ, ERR_UNAUTHORIZED},
		{"Bearer " FILES ",", SCOPE_FILE_READ, ERR_UNAUTHORIZED},
		{"Bearer files-0123456789abcdef0123456789abcde", SCOPE_FILE_READ, ERR_UNAUTHORIZED},
		{"Bearer " FILES "0", SCOPE_FILE_READ, ERR_UNAUTHORIZED},
		{"Bearer files-0123456789abcdef0123456789abcdee", SCOPE_FILE_READ, ERR_UNAUTHORIZED},
		{"Bearer x", SCOPE_FILE_READ, ERR_UNAUTHORIZED},
		/* Another scope's. */
		{"Bearer " ADMIN, SCOPE_FILE_READ, ERR_FORBIDDEN},
		{"Bearer " NARROW, SCOPE_FILE_WRITE, ERR_FORBIDDEN},
		/* No secret for the scope: even a good token of another one is 401. */
		{"Bearer " ADMIN, SCOPE_SESSION_DELETE, ERR_UNAUTHORIZED},
		{"Bearer " FILES, SCOPE_EXECUTION_CREATE, ERR_UNAUTHORIZED},
		{NULL, SCOPE_SESSION_DELETE, ERR_UNAUTHORIZED},
		/* Past its end; then its scope has no token either. */
		{"Bearer " ENDED, SCOPE_METRICS, ERR_UNAUTHORIZED},
		{"Bearer " ADMIN, SCOPE_METRICS, ERR_UNAUTHORIZED},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *name = NULL;
		int r = ask(cases[i].header, cases[i].scope, &name);

		if (r != cases[i].code || (name == NULL) != (cases[i].name == NULL) ||
		    (name && strcmp(name, cases[i].name)))
			fail_msg("case %zu: %s, %s", i, r ? err_word(r) : "ok", name ? name : "-");
	}
}

static void test_one_secret_under_two_names(void **state)
{
	struct conf_token twins[2] = {tokens[1], tokens[0]};
	struct auth both = {.tokens = twins, .token_count = 2};
	const struct conf_token *token = NULL;
	struct err err;

	(void)state;
	twins[1].secret = twins[0].secret;
	assert_int_equal(auth_check(&both, "Bearer " ADMIN, SCOPE_ADMIN, NOW, &token, &err), 0);
	assert_int_equal(auth_check(&both, "Bearer " ADMIN, SCOPE_FILE_READ, NOW, &token, &err), 0);
}

static void test_workspaces(void **state)
{
	struct err err;

	(void)state;
	assert_true(auth_allows(&tokens[0], "anything"));
	assert_true(auth_allows(&tokens[2], "w1"));
	assert_false(auth_allows(&tokens[2], "w"));
	assert_false(auth_allows(&tokens[2], "w11"));
	assert_false(auth_allows(NULL, "w1"));
	assert_int_equal(auth_workspace(&tokens[2], "w2", &err), ERR_SCOPE_MISMATCH);
	assert_int_equal(auth_workspace(&tokens[2], "w1", &err), 0);
	assert_string_equal(auth_only_workspace(&tokens[2]), "w1");
	assert_null(auth_only_workspace(&tokens[0]));
}

static void test_no_tokens_at_all(void **state)
{
	struct auth none = {0};
	const struct conf_token *token = NULL;
	struct err err;

	(void)state;
	assert_int_equal(auth_check(&none, "Bearer " ADMIN, SCOPE_ADMIN, NOW, &token, &err), ERR_UNAUTHORIZED);
	assert_int_equal(auth_check(&none, NULL, SCOPE_ADMIN, NOW, &token, &err), ERR_UNAUTHORIZED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_matrix),
		cmocka_unit_test(test_names_what_is_missing),
		cmocka_unit_test(test_one_secret_under_two_names),
		cmocka_unit_test(test_workspaces),
		cmocka_unit_test(test_no_tokens_at_all),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
