/* SPDX-License-Identifier: Apache-2.0 */
/* host/api/create.c, body.c: refusals of rows C7, C11, C14 and the shape of a create request. */
#include "api/create.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "api/body.h"
#include "core/limits.h"

static struct arena *arena;
static struct execution_create out;

static int parse_bytes(const char *text, size_t len, struct err *err)
{
	memset(err, 0, sizeof(*err));
	return create_parse(arena, text, len, &out, err);
}

static int parse(const char *text, struct err *err)
{
	return parse_bytes(text, strlen(text), err);
}

static void test_a_whole_request(void **state)
{
	struct err err;

	(void)state;
	assert_int_equal(
		parse("{\"workspace_id\":\"w\",\"task_id\":\"t\",\"session_id\":\"s\",\"workflow_id\":null,"
		      "\"runtime\":{\"region\":\"eu\"},\"workspace_manifest_ref\":null,\"command\":{\"command_body\":"
		      "\"echo \\u00e9\\n\","
		      "\"cwd\":\"a/"
		      "b\",\"env_ref\":\"e\",\"stdin_ref\":\"i\",\"artifact_paths\":[\"x\",\"y\"],\"timeout_seconds\":"
		      "7,"
		      "\"stdout_max_bytes\":5,\"keep_descendants\":true}}",
		      &err),
		0);
	assert_string_equal(out.ident.workspace, "w");
	assert_string_equal(out.ident.task, "t");
	assert_string_equal(out.session_id, "s");
	assert_null(out.workflow_id);
	assert_string_equal(out.region, "eu");
	assert_string_equal(out.command_body, "echo \xc3\xa9\n");
	assert_int_equal(out.command_len, 8);
	assert_int_equal(out.artifact_count, 2);
	assert_int_equal(out.timeout_seconds, 7);
	assert_int_equal(out.stdout_max, 5);
	assert_int_equal(out.stderr_max, -1);
	assert_true(out.keep_descendants);
	assert_int_equal(strlen(out.body_sha256), 64);
}

static const char *const values[] = {"\"x\"", "null", "\"\"", "{}", "[]", "0", "false"};

/* `member` is put into the object that `where` names. */
static void try_key(const char *where, const char *key, int code)
{
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		char member[128];
		char text[512];
		struct err err;

		snprintf(member, sizeof(member), ",\"%s\":%s", key, values[i]);
		snprintf(text, sizeof(text),
			 "{\"workspace_id\":\"w\",\"task_id\":\"t\",\"runtime\":{\"region\":\"\"%s},\"command\":{"
			 "\"command_body\":\"true\"%s}%s}",
			 *where == 'r' ? member : "", *where == 'c' ? member : "", *where == 't' ? member : "");

		int r = parse(text, &err);

		if (r != code || !strstr(err.msg, key))
			fail_msg("%s in %s as %s: %s \"%s\"", key, where, values[i], r ? err_word(r) : "ok", err.msg);
	}
}

static void test_C7_inline_fields_are_refused_by_presence(void **state)
{
	static const char *const both[] = {"args",	     "env",	   "script", "input_files", "content_base64",
					   "script_content", "script_name"};

	(void)state;
	for (size_t i = 0; i < sizeof(both) / sizeof(both[0]); i++) {
		try_key("top", both[i], ERR_UNSUPPORTED_CONTRACT);
		try_key("command", both[i], ERR_UNSUPPORTED_CONTRACT);
	}
	try_key("top", "metadata", ERR_UNSUPPORTED_CONTRACT);
	try_key("runtime", "labels", ERR_UNSUPPORTED_CONTRACT);
}

static void test_C7_choices_and_unknown_keys_are_refused(void **state)
{
	static const char *const keys[] = {"image",  "network", "isolation", "allowed",
					   "locked", "unknown", "Command",   "status"};

	(void)state;
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		try_key("top", keys[i], ERR_INVALID_REQUEST);
		try_key("command", keys[i], ERR_INVALID_REQUEST);
		try_key("runtime", keys[i], ERR_INVALID_REQUEST);
	}
	try_key("command", "task_id", ERR_INVALID_REQUEST);
	try_key("command", "workspace_id", ERR_INVALID_REQUEST);
	try_key("command", "workspace_manifest_ref", ERR_INVALID_REQUEST);
	try_key("command", "workspace_hydration", ERR_INVALID_REQUEST);
}

static void test_manifest_is_not_ignored(void **state)
{
	struct err err;

	(void)state;
	assert_int_equal(
		parse("{\"workspace_id\":\"w\",\"task_id\":\"t\",\"workspace_manifest_ref\":{\"generation\":1},"
		      "\"command\":{\"command_body\":\"true\"}}",
		      &err),
		ERR_UNSUPPORTED);
}

static void test_C14_bad_bytes_name_their_field(void **state)
{
	static const struct {
		const char *text;
		size_t len;
		const char *field;
	} cases[] = {
#define CASE(text_, field_) {text_, sizeof(text_) - 1, field_}
		CASE("{\"workspace_id\":\"w\",\"task_id\":\"t\",\"command\":{\"command_body\":\"tr\\u0000ue\"}}",
		     "command_body"),
		CASE("{\"workspace_id\":\"w\",\"task_id\":\"t\",\"command\":{\"command_body\":\"tr\0ue\"}}",
		     "command_body"),
		CASE("{\"workspace_id\":\"w\",\"task_id\":\"t\",\"command\":{\"command_body\":\"tr\xffue\"}}",
		     "command_body"),
		CASE("{\"workspace_id\":\"w\",\"task_id\":\"t\\u0000\",\"command\":{\"command_body\":\"true\"}}",
		     "task_id"),
		CASE("{\"workspace_id\":\"w\xc3\x28\",\"task_id\":\"t\",\"command\":{\"command_body\":\"true\"}}",
		     "workspace_id"),
		CASE("{\"workspace_id\":\"w\",\"task_id\":\"t\",\"command\":{\"cwd\" : "
		     "\"a\\u0000b\",\"command_body\":\"true\"}}",
		     "cwd"),
		CASE("{\"workspace_id\":\"w\",\n\"task_id\":\"t\",\n\"command\":{\"cwd\":\"a\nb\",\"command_body\":"
		     "\"true\"}}",
		     "cwd"),
		CASE("{\"workspace_id\":\"../w\",\"task_id\":\"t\",\"command\":{\"command_body\":\"true\"}}",
		     "workspace_id"),
		CASE("{\"workspace_id\":\"w\",\"task_id\":\"\",\"command\":{\"command_body\":\"true\"}}", "task_id"),
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct err err;

		if (parse_bytes(cases[i].text, cases[i].len, &err) != ERR_INVALID_REQUEST ||
		    !strstr(err.msg, cases[i].field))
			fail_msg("case %zu: \"%s\"", i, err.msg);
	}
}

static void test_shapes_that_are_refused(void **state)
{
	static const char *const texts[] = {
		"",
		"{",
		"[]",
		"null",
		"1",
		"\"x\"",
		"{}",
		"{\"workspace_id\":\"w\",\"task_id\":\"t\"}",
		"{\"workspace_id\":\"w\",\"task_id\":\"t\",\"command\":null}",
		"{\"workspace_id\":\"w\",\"task_id\":\"t\",\"command\":[]}",
		"{\"workspace_id\":\"w\",\"task_id\":\"t\",\"command\":{}}",
		"{\"workspace_id\":\"w\",\"task_id\":\"t\",\"command\":{\"command_body\":1}}",
		"{\"workspace_id\":\"w\",\"task_id\":\"t\",\"command\":{\"command_body\":\"a\",\"timeout_seconds\":0}}",
		"{\"workspace_id\":\"w\",\"task_id\":\"t\",\"command\":{\"command_body\":\"a\",\"timeout_seconds\":-1}"
		"}",
		"{\"workspace_id\":\"w\",\"task_id\":\"t\",\"command\":{\"command_body\":\"a\",\"timeout_seconds\":"
		"\"5\"}}",
		"{\"workspace_id\":\"w\",\"task_id\":\"t\",\"command\":{\"command_body\":\"a\",\"stdout_max_bytes\":-1}"
		"}",
		"{\"workspace_id\":\"w\",\"task_id\":\"t\",\"command\":{\"command_body\":\"a\",\"keep_descendants\":1}"
		"}",
		"{\"workspace_id\":\"w\",\"task_id\":\"t\",\"command\":{\"command_body\":\"a\",\"command_body\":\"b\"}"
		"}",
		"{\"workspace_id\":\"w\",\"task_id\":\"t\",\"runtime\":\"eu\",\"command\":{\"command_body\":\"a\"}}",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct err err;

		if (parse(texts[i], &err) != ERR_INVALID_REQUEST)
			fail_msg("accepted: %s", texts[i]);
	}
}

static int parse_command_of(size_t len, struct err *err)
{
	static const char head[] = "{\"workspace_id\":\"w\",\"task_id\":\"t\",\"command\":{\"command_body\":\"";
	char *text = calloc(1, len + sizeof(head) + 8);

	memcpy(text, head, sizeof(head) - 1);
	memset(text + sizeof(head) - 1, 'a', len);
	strcat(text, "\"}}");

	int r = parse(text, err);

	free(text);
	return r;
}

static void test_C11_long_commands(void **state)
{
	struct err err;

	(void)state;
	assert_int_equal(parse_command_of(LIMIT_COMMAND_BODY, &err), 0);
	assert_int_equal(parse_command_of(LIMIT_COMMAND_BODY + 1, &err), ERR_PAYLOAD_TOO_LARGE);
	assert_non_null(strstr(err.msg, "262144"));
}

static void test_lists_are_framed(void **state)
{
	struct buf items, list;

	(void)state;
	buf_init(&items, 100);
	buf_init(&list, 1000);
	body_put_list(&list, &items, 0, NULL);
	assert_string_equal(list.ptr, "{\"items\":[],\"total\":0,\"next_cursor\":null}\n");
	buf_clear(&list);
	buf_puts(&items, "{},{}");
	body_put_list(&list, &items, 2, "w/\"t");
	assert_string_equal(list.ptr, "{\"items\":[{},{}],\"total\":2,\"next_cursor\":\"w/\\\"t\"}\n");
	buf_fini(&items);
	buf_fini(&list);
}

static int make_arena(void **state)
{
	(void)state;
	arena = arena_new(8 << 20);
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
		cmocka_unit_test(test_a_whole_request),
		cmocka_unit_test(test_C7_inline_fields_are_refused_by_presence),
		cmocka_unit_test(test_C7_choices_and_unknown_keys_are_refused),
		cmocka_unit_test(test_manifest_is_not_ignored),
		cmocka_unit_test(test_C14_bad_bytes_name_their_field),
		cmocka_unit_test(test_shapes_that_are_refused),
		cmocka_unit_test(test_C11_long_commands),
		cmocka_unit_test(test_lists_are_framed),
	};

	return cmocka_run_group_tests(tests, make_arena, free_arena);
}
