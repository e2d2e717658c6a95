/* SPDX-License-Identifier: Apache-2.0 */
/* Events and messages: the CloudEvents fields, what never stands in one, and which messages are garbage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "execution/event.h"

#define ID "sexec_0123456789abcdef01234567"

static struct record sample(void)
{
	static const char *refs[] = {"executions/" ID "/stdout", "executions/" ID "/stderr"};

	return (struct record){.id = ID,
			       .revision = 3,
			       .workspace_id = "ws",
			       .task_id = "t",
			       .status = RECORD_COMPLETED,
			       .command.command_body = "echo body-text",
			       .output_refs = refs,
			       .output_ref_count = 2,
			       .attempt = 1,
			       .error = "text of a provider",
			       .idempotency_key = "idem-key"};
}

static const char *text(struct json_object *json, const char *key)
{
	struct json_object *value = NULL;

	assert_true(json_object_object_get_ex(json, key, &value));
	return json_object_get_string(value);
}

static void an_event_is_a_cloudevent(void **state)
{
	struct json_object *json = NULL, *data = NULL;
	struct record r = sample();
	struct buf buf;

	(void)state;
	buf_init(&buf, 1 << 16);
	assert_int_equal(event_render(&r, EVENT_COMPLETED, "evt_000000000000000000000001", 1000, &buf), 0);
	assert_int_equal(json_parse(buf.ptr, buf.len, &json, NULL), 0);
	assert_string_equal(text(json, "specversion"), "1.0");
	assert_string_equal(text(json, "type"), "com.agentarea.sandbox.execution.completed");
	assert_string_equal(text(json, "source"), "agentarea.mcp-manager.sandbox-control");
	assert_string_equal(text(json, "id"), "evt_000000000000000000000001");
	assert_string_equal(text(json, "time"), "1970-01-01T00:00:01.000Z");
	assert_string_equal(text(json, "datacontenttype"), "application/json");
	assert_string_equal(text(json, "subject"), ID);
	assert_string_equal(text(json, "correlationid"), ID);
	assert_true(json_object_object_get_ex(json, "data", &data));
	assert_string_equal(text(data, "execution_id"), ID);
	assert_string_equal(text(data, "status"), "completed");
	assert_string_equal(text(data, "workspace_id"), "ws");
	assert_string_equal(text(data, "task_id"), "t");
	assert_string_equal(text(data, "output_ref_count"), "2");
	assert_string_equal(text(data, "revision"), "3");
	assert_null(strstr(buf.ptr, "body-text"));
	assert_null(strstr(buf.ptr, "text of a provider"));
	assert_null(strstr(buf.ptr, "idem-key"));
	json_object_put(json);
	buf_fini(&buf);
}

static void reclaims_and_restarts_use_the_published_words(void **state)
{
	struct record r = sample();
	struct buf buf;

	(void)state;
	buf_init(&buf, 1 << 16);
	event_render(&r, EVENT_RECLAIMED, "evt_1", 1, &buf);
	assert_non_null(strstr(buf.ptr, "execution.claimed\""));
	buf_clear(&buf);
	event_render(&r, EVENT_RESTARTED, "evt_1", 1, &buf);
	assert_non_null(strstr(buf.ptr, "execution.started\""));
	buf_fini(&buf);
}

static void a_message_names_its_execution(void **state)
{
	char id[IDENT_ID_MAX + 1];
	struct record r = sample();
	const char *why = "?";
	struct buf buf;

	(void)state;
	buf_init(&buf, 1 << 16);
	r.status = RECORD_QUEUED;
	event_render(&r, EVENT_REQUESTED, "evt_1", 1, &buf);
	assert_true(event_parse_message(buf.ptr, buf.len, id, &why));
	assert_null(why);
	assert_string_equal(id, ID);
	buf_fini(&buf);
}

#define TYPE "\"type\":\"com.agentarea.sandbox.execution.requested\""

/* Q4 */
static void garbage_is_named(void **state)
{
	static const struct {
		const char *doc, *why;
	} cases[] = {
		{"", "bad_json"},
		{"{", "bad_json"},
		{"{\"a\":1,\"a\":2}", "bad_json"},
		{"{'specversion':'1.0'}", "bad_json"},
		{"[]", "unknown_version"},
		{"7", "unknown_version"},
		{"{}", "unknown_version"},
		{"{\"specversion\":\"2.0\"," TYPE "}", "unknown_version"},
		{"{\"specversion\":1," TYPE "}", "unknown_version"},
		{"{\"specversion\":\"1.0\"}", "wrong_type"},
		{"{\"specversion\":\"1.0\",\"type\":\"com.agentarea.sandbox.execution.completed\"}", "wrong_type"},
		{"{\"specversion\":\"1.0\",\"type\":{}}", "wrong_type"},
		{"{\"specversion\":\"1.0\"," TYPE "}", "no_id"},
		{"{\"specversion\":\"1.0\"," TYPE ",\"data\":[]}", "no_id"},
		{"{\"specversion\":\"1.0\"," TYPE ",\"data\":{}}", "no_id"},
		{"{\"specversion\":\"1.0\"," TYPE ",\"data\":{\"execution_id\":7}}", "no_id"},
		{"{\"specversion\":\"1.0\"," TYPE ",\"data\":{\"execution_id\":\"sexec_../../x\"}}", "no_id"},
	};
	char id[IDENT_ID_MAX + 1];

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *why = NULL;

		assert_false(event_parse_message(cases[i].doc, strlen(cases[i].doc), id, &why));
		assert_string_equal(why, cases[i].why);
	}
}

static void a_huge_message_is_not_even_parsed(void **state)
{
	size_t len = 10 * 1024 * 1024;
	char id[IDENT_ID_MAX + 1];
	char *doc = malloc(len + 1);
	const char *why = NULL;
	struct buf buf;

	(void)state;
	memset(doc, 'x', len);
	doc[len] = '\0';
	assert_false(event_parse_message(doc, len, id, &why));
	assert_string_equal(why, "too_large");
	buf_init(&buf, 1 << 16);
	assert_int_equal(event_render_dead(why, "subject", 7, doc, len, &buf), 0);
	assert_string_equal(buf.ptr, "{\"reason\":\"too_large\",\"subject\":\"subject\",\"seq\":7,\"size\":10485760}");
	buf_fini(&buf);
	free(doc);
}

static void a_dead_letter_keeps_a_short_text(void **state)
{
	struct buf buf;

	(void)state;
	buf_init(&buf, 1 << 16);
	assert_int_equal(event_render_dead("bad_json", "s", 1, "{\"", 2, &buf), 0);
	assert_non_null(strstr(buf.ptr, "\"event\":\"{\\\"\""));
	buf_clear(&buf);
	assert_int_equal(event_render_dead("bad_json", "s", 1, "\xff\xfe", 2, &buf), 0);
	assert_null(strstr(buf.ptr, "event"));
	buf_fini(&buf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_event_is_a_cloudevent),
		cmocka_unit_test(reclaims_and_restarts_use_the_published_words),
		cmocka_unit_test(a_message_names_its_execution),
		cmocka_unit_test(garbage_is_named),
		cmocka_unit_test(a_huge_message_is_not_even_parsed),
		cmocka_unit_test(a_dead_letter_keeps_a_short_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
