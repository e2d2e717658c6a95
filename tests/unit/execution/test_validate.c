/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of a create request (C6, C7, C11, C14) and of environment files (C9). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "execution/env.h"
#include "execution/validate.h"

static const struct conf conf = {
	.exec_timeout_ms = 60000,
	.exec_timeout_max_ms = 3600000,
	.output_max_bytes = 1000,
};

static struct execution_create good(void)
{
	return (struct execution_create){
		.ident = {.workspace = "ws", .task = "t"},
		.command_body = "true",
		.command_len = 4,
		.stdout_max = -1,
		.stderr_max = -1,
	};
}

static void refused(const struct execution_create *in, int code, const char *field)
{
	struct err err = {0};

	assert_int_equal(validate_create(&conf, in, &err), code);
	assert_non_null(strstr(err.msg, field));
}

static void a_good_request_passes_with_defaults(void **state)
{
	struct execution_create in = good();
	struct record r;

	(void)state;
	assert_int_equal(validate_create(&conf, &in, NULL), 0);
	validate_record(&conf, &in, "id", &r);
	assert_int_equal(r.command.timeout_seconds, 60);
	assert_int_equal(r.command.stdout_max_bytes, 1000);
	assert_int_equal(r.status, RECORD_NONE);
	in.cwd = ".";
	in.timeout_seconds = 3600;
	in.stdout_max = 7;
	in.stderr_max = 5000;
	assert_int_equal(validate_create(&conf, &in, NULL), 0);
	validate_record(&conf, &in, "id", &r);
	assert_int_equal(r.command.timeout_seconds, 3600);
	assert_int_equal(r.command.stdout_max_bytes, 7);
	assert_int_equal(r.command.stderr_max_bytes, 1000);
}

static void bodies_are_held_to_the_limit(void **state)
{
	struct execution_create in = good();
	char *body = malloc(LIMIT_COMMAND_BODY + 1);

	(void)state;
	memset(body, ' ', LIMIT_COMMAND_BODY + 1);
	in.command_body = body;
	in.command_len = LIMIT_COMMAND_BODY;
	assert_int_equal(validate_create(&conf, &in, NULL), 0);
	in.command_len++;
	refused(&in, ERR_PAYLOAD_TOO_LARGE, "262144");
	in.command_len = 0;
	refused(&in, ERR_INVALID_REQUEST, "command_body");
	in.command_len = 3;
	memcpy(body, "a\0b", 3);
	refused(&in, ERR_INVALID_REQUEST, "command_body: holds a NUL");
	memcpy(body, "\xc3\x28z", 3);
	refused(&in, ERR_INVALID_REQUEST, "command_body: is not valid UTF-8");
	free(body);
}

static void paths_follow_the_one_rule(void **state)
{
	static const char *const bad[] = {"", "/nope", "a/../b", "..", "a//b", "a/", "a\\b", "a\nb", "\xff"};
	char longest[5001];

	(void)state;
	memset(longest, 'a', 5000);
	longest[5000] = '\0';
	for (unsigned i = 0; i <= sizeof(bad) / sizeof(bad[0]); i++) {
		const char *path = i < sizeof(bad) / sizeof(bad[0]) ? bad[i] : longest;
		struct execution_create in = good();

		in.cwd = path;
		refused(&in, ERR_INVALID_REQUEST, "cwd");
		in = good();
		in.env_ref = path;
		refused(&in, ERR_INVALID_REQUEST, "env_ref");
		in = good();
		in.stdin_ref = path;
		refused(&in, ERR_INVALID_REQUEST, "stdin_ref");
		in = good();
		in.command_path = path;
		refused(&in, ERR_INVALID_REQUEST, "command_path");
		in = good();
		in.artifact_paths = &path;
		in.artifact_count = 1;
		refused(&in, ERR_INVALID_REQUEST, "artifact_paths");
	}
}

static void numbers_and_labels_are_bounded(void **state)
{
	char label[300];
	static const char *twice[] = {"a", "a"};
	struct execution_create in = good();

	(void)state;
	in.timeout_seconds = -1;
	refused(&in, ERR_INVALID_REQUEST, "timeout_seconds");
	in.timeout_seconds = 3601;
	refused(&in, ERR_INVALID_REQUEST, "timeout_seconds");
	in = good();
	in.stdout_max = -2;
	refused(&in, ERR_INVALID_REQUEST, "stdout_max_bytes");
	in = good();
	memset(label, 'l', sizeof(label));
	label[256] = '\0';
	in.session_id = label;
	refused(&in, ERR_INVALID_REQUEST, "session_id");
	in = good();
	in.workflow_id = "a\tb";
	refused(&in, ERR_INVALID_REQUEST, "workflow_id");
	in = good();
	in.idempotency_key = "";
	refused(&in, ERR_INVALID_REQUEST, "Idempotency-Key");
	in = good();
	in.artifact_paths = twice;
	in.artifact_count = 2;
	refused(&in, ERR_INVALID_REQUEST, "artifact_paths");
	in = good();
	snprintf(in.ident.task, sizeof(in.ident.task), "-t");
	refused(&in, ERR_INVALID_REQUEST, "task_id");
}

struct env {
	struct arena *arena;
	struct berth_pair *pairs;
	size_t count;
	struct err err;
};

static int parse(struct env *env, const char *text, size_t len)
{
	arena_reset(env->arena);
	env->count = 0;
	return env_parse(env->arena, text, len, &env->pairs, &env->count, &env->err);
}

static void environment_values_are_bytes(void **state)
{
	static const char text[] = "A=x y\0B='\"$(id)\n\t`\0C=\xff\xfe=\0_d9=\0E=";
	struct env env = {.arena = arena_new(1 << 20)};
	char *big = malloc(100 * 1024 + 2);

	(void)state;
	assert_int_equal(parse(&env, text, sizeof(text) - 1), 0);
	assert_int_equal(env.count, 5);
	assert_memory_equal(env.pairs[1].value.ptr, "'\"$(id)\n\t`", env.pairs[1].value.len);
	assert_int_equal(env.pairs[2].value.len, 3);
	assert_int_equal(env.pairs[3].value.len, 0);
	assert_int_equal(env.pairs[4].value.len, 0);
	assert_int_equal(parse(&env, text, sizeof(text)), 0); /* a NUL at the end is no further pair */
	assert_int_equal(env.count, 5);
	assert_int_equal(parse(&env, "", 0), 0);
	assert_int_equal(env.count, 0);
	memset(big, 'v', 100 * 1024 + 2);
	memcpy(big, "A=", 2);
	assert_int_equal(parse(&env, big, 100 * 1024 + 2), 0);
	assert_int_equal(env.pairs[0].value.len, 100 * 1024);
	free(big);
	arena_free(env.arena);
}

static void bad_names_are_refused_by_number(void **state)
{
	static const struct {
		const char *text;
		size_t len;
	} bad[] = {{"OK=1\0A;touch x=1", 16},
		   {"OK=1\0=B", 7},
		   {"OK=1\0"
		    "1A=2",
		    9},
		   {"OK=1\0\0X=1", 9},
		   {"OK=1\0secret-value", 17},
		   {"OK=1\0A B=", 9},
		   {"OK=1\0\xc3\xa9=1", 9}};
	struct env env = {.arena = arena_new(1 << 20)};

	(void)state;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(parse(&env, bad[i].text, bad[i].len), ERR_INVALID_REQUEST);
		assert_non_null(strstr(env.err.msg, "pair 2"));
		assert_null(strstr(env.err.msg, "secret-value"));
		assert_string_equal(env.err.reason, "env_ref");
	}
	arena_free(env.arena);
}

static void environments_are_bounded(void **state)
{
	struct env env = {.arena = arena_new(8 << 20)};
	size_t len = LIMIT_ENV_BYTES + 1;
	char *text = malloc(len);

	(void)state;
	memset(text, 'A', len);
	text[1] = '=';
	assert_int_equal(parse(&env, text, len - 1), 0);
	assert_int_equal(parse(&env, text, len), ERR_INVALID_REQUEST);
	for (size_t i = 0; i < (LIMIT_ENV_PAIRS + 1) * 3; i += 3)
		memcpy(text + i, "A=\0", 3);
	assert_int_equal(parse(&env, text, LIMIT_ENV_PAIRS * 3), 0);
	assert_int_equal(parse(&env, text, (LIMIT_ENV_PAIRS + 1) * 3), ERR_INVALID_REQUEST);
	free(text);
	arena_free(env.arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_good_request_passes_with_defaults),
		cmocka_unit_test(bodies_are_held_to_the_limit),
		cmocka_unit_test(paths_follow_the_one_rule),
		cmocka_unit_test(numbers_and_labels_are_bounded),
		cmocka_unit_test(environment_values_are_bytes),
		cmocka_unit_test(bad_names_are_refused_by_number),
		cmocka_unit_test(environments_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
