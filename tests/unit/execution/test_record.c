/* SPDX-License-Identifier: Apache-2.0 */
/* The record's codec: round trip, what is refused, what a corrupt row is called; claims; ids that sort by time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "execution/record.h"

#define ID "sexec_0123456789abcdef01234567"

static struct record full_record(void)
{
	static const char *paths[] = {"out/a.txt", "b"};
	static const char *refs[] = {"executions/" ID "/stdout"};
	static struct record_lost lost[] = {{"stdout", 5, 9}};
	static struct record_artifact artifacts[] = {{.path = "b", .error = "not found"}};

	return (struct record){
		.id = ID,
		.revision = 4,
		.session_id = "s",
		.workflow_id = "w",
		.task_id = "t1",
		.workspace_id = "ws",
		.runtime.region = "eu",
		.status = RECORD_COMPLETED,
		.command = {.cwd = ".",
			    .env_ref = "env",
			    .stdin_ref = "in",
			    .command_path = "run.sh",
			    .artifact_paths = paths,
			    .artifact_count = 2,
			    .timeout_seconds = 30,
			    .stdout_max_bytes = 100,
			    .stderr_max_bytes = 200,
			    .keep_descendants = true},
		.output_refs = refs,
		.output_ref_count = 1,
		.result = {.stdout_ref = refs[0],
			   .stderr_ref = "e",
			   .stdout_bytes = 3,
			   .stderr_bytes = 0,
			   .stdout_sha256 = "aa",
			   .stderr_sha256 = "bb",
			   .stdout_truncated = true,
			   .stdout_dropped = 8,
			   .truncated_reason = "limit",
			   .exit_code = 0,
			   .execution_time_ms = 12,
			   .artifacts = artifacts,
			   .artifact_count = 1},
		.ending = {.kind = "exit", .exit_code = 0},
		.survivors = 2,
		.output_lost = lost,
		.lost_count = 1,
		.reason = "r",
		.error = "e \"quoted\"",
		.attempt = 2,
		.incarnation = 5,
		.target = "a",
		.created_ms = 1000,
		.updated_ms = 2000,
		.queue_expires_ms = 3000,
		.started_ms = 1500,
		.execution_expires_ms = 9000,
		.completed_ms = 2000,
		.idempotency_key = "key",
	};
}

static void encode(const struct record *r, struct buf *buf)
{
	buf_init(buf, 1 << 20);
	assert_int_equal(record_encode(r, buf, NULL), 0);
}

static void a_round_trip_keeps_everything(void **state)
{
	struct arena *arena = arena_new(1 << 20);
	struct record r = full_record(), back;
	struct buf a, b;

	(void)state;
	encode(&r, &a);
	assert_int_equal(record_decode(arena, ID, a.ptr, a.len, &back, NULL), 0);
	encode(&back, &b);
	assert_string_equal(a.ptr, b.ptr);
	assert_int_equal(back.status, RECORD_COMPLETED);
	assert_int_equal(back.command.artifact_count, 2);
	assert_string_equal(back.output_lost[0].stream, "stdout");
	assert_string_equal(back.idempotency_key, "key");
	assert_non_null(strstr(a.ptr, "\"exit_code\":0"));
	buf_fini(&a);
	buf_fini(&b);
	arena_free(arena);
}

static void no_exit_code_without_an_exit(void **state)
{
	static const char *const kinds[] = {"cancelled", "oom", "session_lost", "unknown", NULL};
	struct record r = full_record();
	struct buf buf;

	(void)state;
	for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		r.status = RECORD_FAILED;
		r.ending.kind = kinds[i];
		encode(&r, &buf);
		assert_null(strstr(buf.ptr, "exit_code"));
		buf_fini(&buf);
	}
	r.ending = (struct record_ending){.kind = "signal", .signal = 9};
	r.result.exit_code = 137;
	encode(&r, &buf);
	assert_non_null(strstr(buf.ptr, "\"exit_code\":137"));
	assert_non_null(strstr(buf.ptr, "\"ending\":{\"kind\":\"signal\",\"signal\":9}"));
	buf_fini(&buf);
}

/* C7: references only. */
static void inline_output_is_refused(void **state)
{
	struct record r = full_record();
	struct err err = {0};
	struct buf buf;

	(void)state;
	buf_init(&buf, 1 << 20);
	r.result.inline_stdout = "";
	assert_int_equal(record_encode(&r, &buf, &err), ERR_INVALID_REQUEST);
	assert_non_null(strstr(err.msg, "result.stdout"));
	r.result.inline_stdout = NULL;
	r.result.inline_stderr = "x";
	assert_int_equal(record_encode(&r, &buf, &err), ERR_INVALID_REQUEST);
	assert_non_null(strstr(err.msg, "result.stderr"));
	assert_int_equal(buf.len, 0);
	buf_fini(&buf);
}

static void the_body_is_shown_but_never_stored(void **state)
{
	struct record r = full_record();
	struct buf buf;

	(void)state;
	r.command.command_body = "secret-body";
	encode(&r, &buf);
	assert_null(strstr(buf.ptr, "secret-body"));
	assert_non_null(strstr(buf.ptr, "idempotency_key"));
	buf_clear(&buf);
	assert_int_equal(record_encode_public(&r, &buf, NULL), 0);
	assert_non_null(strstr(buf.ptr, "\"command_body\":\"secret-body\""));
	assert_null(strstr(buf.ptr, "idempotency_key"));
	buf_fini(&buf);
}

static void a_corrupt_row_names_its_id(void **state)
{
	static const char *const docs[] = {
		"",
		"{",
		"[]",
		"{\"id\":\"" ID "\"}",
		"{\"id\":\"" ID "\",\"revision\":1,\"task_id\":\"t\",\"workspace_id\":\"w\",\"status\":\"walking\","
		"\"created_at\":\"2026-01-01T00:00:00.000Z\"}",
		"{\"id\":\"" ID "\",\"revision\":0,\"task_id\":\"t\",\"workspace_id\":\"w\",\"status\":\"queued\","
		"\"created_at\":\"2026-01-01T00:00:00.000Z\"}",
		"{\"id\":\"sexec_other\",\"revision\":1,\"task_id\":\"t\",\"workspace_id\":\"w\",\"status\":\"queued\","
		"\"created_at\":\"2026-01-01T00:00:00.000Z\"}",
		"{\"id\":\"" ID "\",\"revision\":1,\"task_id\":\"../t\",\"workspace_id\":\"w\",\"status\":\"queued\","
		"\"created_at\":\"2026-01-01T00:00:00.000Z\"}",
		"{\"id\":\"" ID "\",\"revision\":1,\"task_id\":\"t\",\"workspace_id\":\"w\",\"status\":\"completed\","
		"\"result\":{\"stdout\":\"hi\"},\"created_at\":\"2026-01-01T00:00:00.000Z\"}",
		"{\"id\":\"" ID "\",\"revision\":\"1\",\"task_id\":\"t\",\"workspace_id\":\"w\",\"status\":\"queued\","
		"\"created_at\":\"2026-01-01T00:00:00.000Z\"}",
	};
	(void)state;
	for (unsigned i = 0; i < sizeof(docs) / sizeof(docs[0]); i++) {
		struct arena *arena = arena_new(1 << 20);
		struct err err = {0};
		struct record r;

		assert_int_equal(record_decode(arena, ID, docs[i], strlen(docs[i]), &r, &err), ERR_CORRUPT);
		assert_non_null(strstr(err.msg, ID));
		arena_free(arena);
	}
}

static void a_cut_row_never_decodes(void **state)
{
	struct record r = full_record(), back;
	struct buf buf;

	(void)state;
	encode(&r, &buf);
	for (size_t len = 0; len < buf.len; len++) {
		struct arena *arena = arena_new(1 << 20);

		assert_int_equal(record_decode(arena, ID, buf.ptr, len, &back, NULL), ERR_CORRUPT);
		arena_free(arena);
	}
	buf_fini(&buf);
}

static void a_claim_round_trips(void **state)
{
	struct claim c = {.runner = "h-1",
			  .attempt = 2,
			  .claim_until_ms = 5000,
			  .sent_attempt = 1,
			  .handle = "pid 7",
			  .target = "a",
			  .incarnation = 3,
			  .fence = 9,
			  .cancel_requested_ms = 4000,
			  .cancel_reason = "why"},
		     back;
	struct arena *arena = arena_new(1 << 16);
	struct buf buf;

	(void)state;
	buf_init(&buf, 1 << 16);
	assert_int_equal(claim_encode(&c, &buf), 0);
	assert_int_equal(claim_decode(arena, ID, buf.ptr, buf.len, &back, NULL), 0);
	assert_string_equal(back.runner, "h-1");
	assert_string_equal(back.handle, "pid 7");
	assert_int_equal(back.sent_attempt, 1);
	assert_int_equal(back.claim_until_ms, 5000);
	assert_int_equal(back.cancel_requested_ms, 4000);
	assert_int_equal(claim_decode(arena, ID, NULL, 0, &back, NULL), 0);
	assert_null(back.runner);
	buf_fini(&buf);
	arena_free(arena);
}

static void an_old_claim_is_read(void **state)
{
	static const char old[] = "{\"attempt\":2,\"target\":\"t\",\"session_ref\":\"r\",\"fence\":3}";
	struct arena *arena = arena_new(1 << 16);
	struct claim back;

	(void)state;
	assert_int_equal(claim_decode(arena, ID, old, strlen(old), &back, NULL), 0);
	assert_string_equal(back.target, "t");
	assert_int_equal(back.fence, 3);
	arena_free(arena);
}

static void ids_sort_by_time(void **state)
{
	char a[IDENT_ID_MAX + 1], b[IDENT_ID_MAX + 1];

	(void)state;
	record_new_id(INT64_C(1764410400000), a);
	record_new_id(INT64_C(1764410400001), b);
	assert_true(strcmp(a, b) < 0);
	assert_true(record_id_valid(a));
	assert_true(ident_is_random(a, "sexec_", 24));
	record_new_id(INT64_C(1764410400000), b);
	assert_string_not_equal(a, b);
	record_first_id(INT64_C(1764410400001), b);
	assert_true(strcmp(a, b) < 0);
	record_new_id(INT64_C(1764410400001), a);
	assert_true(strcmp(b, a) < 0);
	assert_false(record_id_valid(b));
	record_first_id(-1, a);
	assert_string_equal(a, "sexec_00000000000");
	assert_false(record_id_valid("sexec_"));
	assert_false(record_id_valid(NULL));
}

static void outputs_of_two_attempts_lie_apart(void **state)
{
	char first[RECORD_OUTPUT_KEY_MAX], second[RECORD_OUTPUT_KEY_MAX], last[RECORD_OUTPUT_KEY_MAX];

	(void)state;
	record_output_key(ID, 1, 1, first);
	assert_string_equal(first, "executions/" ID "/stdout");
	record_output_key(ID, 2, 1, second);
	assert_string_equal(second, "executions/" ID "/2/stdout");
	record_output_key(ID, INT64_MAX, 2, last);
	assert_string_equal(last, "executions/" ID "/9223372036854775807/stderr");
	assert_string_not_equal(first, second);
}

/* The name decides, whichever attempt the record was at: older hosts gave every attempt the same one. */
static void a_record_leads_to_outputs_of_its_own_only(void **state)
{
	struct record r = full_record();
	char longer[RECORD_OUTPUT_KEY_MAX + 1];

	(void)state;
	r.attempt = 3;
	assert_string_equal(record_output_ref(&r, 1), "executions/" ID "/stdout");
	assert_null(record_output_ref(&r, 2)); /* "e" */
	r.result.stderr_ref = "executions/" ID "/3/stderr";
	assert_string_equal(record_output_ref(&r, 2), "executions/" ID "/3/stderr");
	r.result.stderr_ref = "executions/sexec_0123456789abcdef01234568/stderr";
	assert_null(record_output_ref(&r, 2));
	r.result.stderr_ref = "executions/" ID;
	assert_null(record_output_ref(&r, 2));
	r.result.stderr_ref = NULL;
	assert_null(record_output_ref(&r, 2));
	memset(longer, 'x', sizeof(longer));
	longer[sizeof(longer) - 1] = '\0';
	memcpy(longer, "executions/" ID "/", strlen("executions/" ID "/"));
	r.result.stderr_ref = longer;
	assert_null(record_output_ref(&r, 2));
	longer[sizeof(longer) - 2] = '\0';
	assert_ptr_equal(record_output_ref(&r, 2), longer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_round_trip_keeps_everything), cmocka_unit_test(no_exit_code_without_an_exit),
		cmocka_unit_test(inline_output_is_refused),	 cmocka_unit_test(the_body_is_shown_but_never_stored),
		cmocka_unit_test(a_corrupt_row_names_its_id),	 cmocka_unit_test(a_cut_row_never_decodes),
		cmocka_unit_test(a_claim_round_trips),		 cmocka_unit_test(ids_sort_by_time),
		cmocka_unit_test(an_old_claim_is_read),
		cmocka_unit_test(outputs_of_two_attempts_lie_apart),
		cmocka_unit_test(a_record_leads_to_outputs_of_its_own_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
