/* SPDX-License-Identifier: Apache-2.0 */
/* Commands from create to record: endings, outputs, inputs, lists, idempotency. Real store, sessions, provider and
 * processes. */
#include "setup.h"

#include <stdio.h>

#include "core/secret.h"

static struct host host;

static void a_command_runs_and_is_recorded(void **state)
{
	char id[IDENT_ID_MAX + 1], kinds[256];
	(void)state;
	host_run(&host, "t", "echo hi; echo err >&2; exit 3", id);
	host_expect(&host, id, "status", "completed");
	host_expect(&host, id, "result.exit_code", "3");
	host_expect(&host, id, "ending.kind", "exit");
	host_expect(&host, id, "attempt", "1");
	host_expect(&host, id, "target", "one");
	host_expect(&host, id, "command.command_body", "echo hi; echo err >&2; exit 3");
	host_expect(&host, id, "result.stdout_bytes", "3");
	host_expect_output(&host, id, 1, "hi\n");
	host_expect_output(&host, id, 2, "err\n");
	/* The second one finds a session: everything up to started is one step. */
	host_run(&host, "t", "true", id);
	host_kinds(&host, id, kinds, sizeof(kinds));
	assert_string_equal(kinds, "requested claimed started completed");
	host_expect(&host, id, "revision", "4");
	host_expect_output(&host, id, 1, "");
	assert_int_equal(host_stream(&host, STREAM_REQUESTS), 0);
	assert_int_equal(host_sessions(&host), 1);
}

/* C5 */
static void endings_are_told_apart(void **state)
{
	static const struct {
		const char *body, *kind, *code;
	} cases[] = {{"exit 124", "exit", "124"},
		     {"exit 137", "exit", "137"},
		     {"kill -9 $$", "signal", "137"},
		     {"kill -15 $$", "signal", "143"}};
	struct execution_create in = host_request("t", "sleep 300 & wait");
	char id[IDENT_ID_MAX + 1];

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		host_run(&host, "t", cases[i].body, id);
		host_expect(&host, id, "status", "completed");
		host_expect(&host, id, "ending.kind", cases[i].kind);
		host_expect(&host, id, "result.exit_code", cases[i].code);
	}
	in.timeout_seconds = 1;
	assert_int_equal(host_create(&host, &in, id), 0);
	host_finish(&host, id);
	host_expect(&host, id, "status", "completed");
	host_expect(&host, id, "ending.kind", "timeout");
	host_expect(&host, id, "result.exit_code", "124");
}

/* U2: more than memory holds, in one line and in many. */
static void large_outputs_are_stored_whole(void **state)
{
	char id[IDENT_ID_MAX + 1], digest[65], *out;
	size_t len;

	(void)state;
	host_run(&host, "t", "head -c 3000000 /dev/zero | tr '\\0' a; yes '' | head -n 100000 >&2", id);
	out = host_output(&host, id, 1, &len);
	assert_int_equal(len, 3000000);
	secret_sha256_hex(out, len, digest);
	host_expect(&host, id, "result.stdout_sha256", digest);
	host_expect(&host, id, "result.stdout_truncated", "false");
	free(out);
	out = host_output(&host, id, 2, &len);
	assert_int_equal(len, 100000);
	free(out);
	host_down(&host, 0);
	host_up(&host);
	out = host_output(&host, id, 1, &len);
	assert_int_equal(len, 3000000);
	secret_sha256_hex(out, len, digest);
	host_expect(&host, id, "result.stdout_sha256", digest);
	free(out);
}

static void limits_truncate_and_say_so(void **state)
{
	struct execution_create in = host_request("t", "head -c 100000 /dev/zero; echo end >&2");
	char id[IDENT_ID_MAX + 1], *out;
	size_t len;

	(void)state;
	in.stdout_max = 1000;
	assert_int_equal(host_create(&host, &in, id), 0);
	host_finish(&host, id);
	host_expect(&host, id, "result.exit_code", "0");
	host_expect(&host, id, "result.stdout_truncated", "true");
	host_expect(&host, id, "result.stdout_bytes", "1000");
	host_expect(&host, id, "result.stdout_dropped", "99000");
	host_expect(&host, id, "result.truncated_reason", "limit");
	host_expect(&host, id, "result.stderr_truncated", "false");
	out = host_output(&host, id, 1, &len);
	assert_int_equal(len, 1000);
	free(out);
}

/* C9 */
static void environments_come_from_a_file(void **state)
{
	struct execution_create in = host_request("t", "printf '%s|%s' \"$A\" \"$B\"");
	static const char *const bad[] = {"A;touch x=1\\0", "1A=1\\0", "=1\\0", "NOEQUALS\\0"};
	char id[IDENT_ID_MAX + 1], body[128];

	(void)state;
	host_run(&host, "t", "printf 'A=a  $(id)\\nb\\0B=\\377\\0' > env", id);
	in.env_ref = "env";
	assert_int_equal(host_create(&host, &in, id), 0);
	host_finish(&host, id);
	host_expect(&host, id, "result.exit_code", "0");
	host_expect_output(&host, id, 1, "a  $(id)\nb|\377");
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(body, sizeof(body), "printf '%s' > env", bad[i]);
		host_run(&host, "t", body, id);
		assert_int_equal(host_create(&host, &in, id), 0);
		host_finish(&host, id);
		host_expect(&host, id, "status", "failed");
		host_expect(&host, id, "reason", "env_ref");
	}
	in.env_ref = "missing";
	assert_int_equal(host_create(&host, &in, id), 0);
	host_finish(&host, id);
	host_expect(&host, id, "reason", "env_ref");
	host_run(&host, "t", "ls x 2>/dev/null | wc -l", id);
	host_expect_output(&host, id, 1, "0\n");
}

static void standard_input_comes_from_a_file(void **state)
{
	struct execution_create in = host_request("t", "sha256sum | cut -d' ' -f1");
	char id[IDENT_ID_MAX + 1], *out;
	size_t len;

	(void)state;
	host_run(&host, "t", "head -c 2000000 /dev/urandom > in; sha256sum < in | cut -d' ' -f1", id);
	out = host_output(&host, id, 1, &len);
	in.stdin_ref = "in";
	assert_int_equal(host_create(&host, &in, id), 0);
	host_finish(&host, id);
	host_expect_output(&host, id, 1, out);
	free(out);
	in.stdin_ref = "missing";
	assert_int_equal(host_create(&host, &in, id), 0);
	host_finish(&host, id);
	host_expect(&host, id, "status", "failed");
	host_expect(&host, id, "reason", "stdin_ref");
	host_run(&host, "t", "cat; read x; echo \"[$x]\"", id); /* C3 */
	host_expect_output(&host, id, 1, "[]\n");
}

/* C6: refused by the provider before anything ran; the next command is fine. */
static void a_bad_cwd_is_named(void **state)
{
	struct execution_create in = host_request("t", "pwd");
	char id[IDENT_ID_MAX + 1];

	(void)state;
	in.cwd = "missing";
	assert_int_equal(host_create(&host, &in, id), 0);
	host_finish(&host, id);
	host_expect(&host, id, "status", "failed");
	host_expect(&host, id, "reason", "cwd");
	host_expect(&host, id, "result", "");
	host_run(&host, "t", "true", id);
	host_expect(&host, id, "result.exit_code", "0");
	assert_int_equal(host_sessions(&host), 1);
}

static void descendants_may_stay_when_asked(void **state)
{
	struct execution_create in = host_request("t", "sleep 300 & echo $! > pid; echo hi");
	char id[IDENT_ID_MAX + 1];

	(void)state;
	in.keep_descendants = true;
	assert_int_equal(host_create(&host, &in, id), 0);
	host_finish(&host, id);
	host_expect(&host, id, "result.exit_code", "0");
	host_expect(&host, id, "survivors", "1");
	host_run(&host, "t", "kill -0 $(cat pid) && echo alive", id);
	host_expect_output(&host, id, 1, "alive\n");
	assert_int_equal(host_sessions(&host), 1);
}

static void a_key_gives_the_same_record(void **state)
{
	struct execution_create in = host_request("t", "echo once >> ran");
	char a[IDENT_ID_MAX + 1], b[IDENT_ID_MAX + 1];
	bool replayed = false;

	(void)state;
	in.idempotency_key = "key/with odd \"bytes\"";
	assert_int_equal(host_create(&host, &in, a), 0);
	assert_int_equal(execution_create(host.e, &in, b, &replayed, NULL), 0);
	assert_true(replayed);
	assert_string_equal(a, b);
	host_finish(&host, a);
	assert_int_equal(execution_create(host.e, &in, b, &replayed, NULL), 0);
	assert_string_equal(a, b);
	in.body_sha256[0] = 'f';
	assert_int_equal(host_create(&host, &in, b), ERR_CONFLICT);
	in.ident.task[0] = 'u';
	assert_int_equal(execution_create(host.e, &in, b, &replayed, NULL), 0);
	assert_false(replayed); /* another task, another scope */
	host_finish(&host, b);
	host_run(&host, "t", "cat ran", b);
	host_expect_output(&host, b, 1, "once\n");
}

/* A client signs anew and asks again under its key: the token that it used then makes no other record later. */
static void a_token_is_used_up_by_a_record_of_its_key(void **state)
{
	struct execution_create in = host_request("t", "true");
	char a[IDENT_ID_MAX + 1], b[IDENT_ID_MAX + 1];

	(void)state;
	in.idempotency_key = "k";
	in.nonce_expires_ms = INT64_MAX / 2;
	in.nonce_key = "0011";
	assert_int_equal(host_create(&host, &in, a), 0);
	in.nonce_key = "0022";
	assert_int_equal(host_create(&host, &in, b), 0);
	assert_string_equal(a, b);
	in.idempotency_key = NULL;
	assert_int_equal(host_create(&host, &in, b), 0);
	assert_string_equal(a, b);
	in.body_sha256[0] = 'f';
	assert_int_equal(host_create(&host, &in, b), ERR_UNAUTHORIZED);
	assert_int_equal(execution_use_nonce(host.e, "0022", a, 1, NULL), ERR_UNAUTHORIZED);
	assert_int_equal(execution_use_nonce(host.e, "0033", a, INT64_MAX / 2, NULL), 0);
	assert_int_equal(execution_use_nonce(host.e, "0033", a, INT64_MAX / 2, NULL), 0);
	assert_int_equal(execution_use_nonce(host.e, "0033", "sexec_0123456789abcdef01234567", 1, NULL), ERR_UNAUTHORIZED);
	in.nonce_key = "0033";
	assert_int_equal(host_create(&host, &in, b), ERR_UNAUTHORIZED);
	host_finish(&host, a);
}

static size_t list(const char *task, const char *status, const char *after, size_t limit, char *first, char **next)
{
	struct json_object *json = NULL, *value;
	size_t count = 0;
	struct buf buf;

	buf_init(&buf, 8 << 20);
	buf_puts(&buf, "[");
	assert_int_equal(execution_list(host.e, "ws", task, status, after, limit, &buf, &count, next, NULL), 0);
	buf_puts(&buf, "]");
	assert_int_equal(json_parse(buf.ptr, buf.len, &json, NULL), 0);
	assert_int_equal(json_object_array_length(json), count);
	assert_null(strstr(buf.ptr, "command_body"));
	if (count > 0 && first) {
		json_object_object_get_ex(json_object_array_get_idx(json, 0), "id", &value);
		snprintf(first, IDENT_ID_MAX + 1, "%s", json_object_get_string(value));
	}
	json_object_put(json);
	buf_fini(&buf);
	return count;
}

static void lists_are_newest_first(void **state)
{
	char ids[5][IDENT_ID_MAX + 1], first[IDENT_ID_MAX + 1], *next = NULL, *after;

	(void)state;
	for (unsigned i = 0; i < 5; i++)
		host_run(&host, i % 2 ? "odd" : "even", i == 4 ? "kill -9 $$" : "true", ids[i]);
	assert_int_equal(list(NULL, NULL, NULL, 0, first, &next), 5);
	assert_string_equal(first, ids[4]);
	assert_null(next);
	assert_int_equal(list("odd", NULL, NULL, 0, first, &next), 2);
	assert_string_equal(first, ids[3]);
	assert_int_equal(list(NULL, NULL, NULL, 2, first, &next), 2);
	assert_string_equal(next, ids[3]);
	after = next;
	assert_int_equal(list(NULL, NULL, after, 2, first, &next), 2);
	assert_string_equal(first, ids[2]);
	free(after);
	after = next;
	assert_int_equal(list(NULL, NULL, after, 2, first, &next), 1);
	assert_string_equal(first, ids[0]);
	assert_null(next);
	free(after);
	assert_int_equal(list(NULL, "failed", NULL, 0, NULL, &next), 0);
	assert_int_equal(list(NULL, "completed", NULL, 0, NULL, &next), 5);
	assert_int_equal(
		execution_list(host.e, "ws", NULL, "walking", NULL, 0, &(struct buf){0}, &(size_t){0}, &next, NULL),
		ERR_INVALID_REQUEST);
}

static void previews_say_what_they_leave_out(void **state)
{
	char id[IDENT_ID_MAX + 1];
	struct json_object *json = NULL, *preview, *out, *value;
	struct buf buf;

	(void)state;
	host_run(&host, "t", "printf 0123456789; printf '\\377\\000x' >&2", id);
	buf_init(&buf, 1 << 20);
	assert_int_equal(execution_render(host.e, id, 4, &buf, NULL, NULL), 0);
	assert_int_equal(json_parse(buf.ptr, buf.len, &json, NULL),
			 ERR_INVALID_REQUEST); /* the NUL is told as \u0000 */
	buf_clear(&buf);
	host_run(&host, "t", "printf 0123456789; printf '\\377x' >&2", id);
	assert_int_equal(execution_render(host.e, id, 4, &buf, NULL, NULL), 0);
	assert_int_equal(json_parse(buf.ptr, buf.len, &json, NULL), 0);
	assert_true(json_object_object_get_ex(json, "preview", &preview));
	assert_true(json_object_object_get_ex(preview, "stdout", &out));
	json_object_object_get_ex(out, "head", &value);
	assert_string_equal(json_object_get_string(value), "01");
	json_object_object_get_ex(out, "tail", &value);
	assert_string_equal(json_object_get_string(value), "89");
	json_object_object_get_ex(out, "omitted_bytes", &value);
	assert_int_equal(json_object_get_int(value), 6);
	assert_true(json_object_object_get_ex(preview, "stderr", &out));
	json_object_object_get_ex(out, "lossy", &value);
	assert_true(json_object_get_boolean(value));
	json_object_put(json);
	buf_fini(&buf);
}

static void previews_cut_no_character(void **state)
{
	static const struct {
		const char *text, *stdout_text;
		size_t preview;
	} rows[] = {
		{"éééé", "{\"head\":\"é\",\"tail\":\"\",\"bytes\":8,\"omitted_bytes\":6,\"lossy\":false}", 3},
		{"éééé", "{\"head\":\"\",\"tail\":\"\",\"bytes\":8,\"omitted_bytes\":8,\"lossy\":false}", 2},
		{"a😀b😀c", "{\"head\":\"a\",\"tail\":\"c\",\"bytes\":11,\"omitted_bytes\":9,\"lossy\":false}", 8},
		{"\\303\\251\\200x\\377", "{\"head\":\"é�x�\",\"bytes\":5,\"omitted_bytes\":0,\"lossy\":true}", 5},
	};
	char id[IDENT_ID_MAX + 1], script[80];
	struct buf buf;

	(void)state;
	buf_init(&buf, 1 << 20);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		snprintf(script, sizeof(script), "printf '%s'", rows[i].text);
		host_run(&host, "t", script, id);
		buf_clear(&buf);
		assert_int_equal(execution_render(host.e, id, rows[i].preview, &buf, NULL, NULL), 0);
		assert_non_null(strstr(buf.ptr, rows[i].stdout_text));
	}
	buf_fini(&buf);
}

static void a_reader_follows_a_running_command(void **state)
{
	struct output_reader *reader;
	char id[IDENT_ID_MAX + 1];
	uint64_t size;

	(void)state;
	host_start(&host, "t", "i=0; while [ $i -lt 40 ]; do echo line $i; i=$((i+1)); sleep 0.01; done; exit 3", id);
	assert_int_equal(output_open(host.e, id, 1, &reader, NULL), 0);
	char *out, expected[512] = "";
	size_t len;

	for (unsigned i = 0; i < 40; i++)
		snprintf(expected + strlen(expected), sizeof(expected) - strlen(expected), "line %u\n", i);
	out = host_output(&host, id, 1, &len);
	assert_int_equal(len, strlen(expected));
	assert_memory_equal(out, expected, len);
	free(out);
	host_finish(&host, id);
	assert_int_equal(output_size(reader, &size, NULL), 0);
	assert_int_equal(size, len);
	output_close(reader);
	host_expect_output(&host, id, 1, expected);
}

static void unknown_ids_are_not_found(void **state)
{
	static const char *const ids[] = {"sexec_000000000000000000000000", "x", "", "sexec_../../../etc/passwd"};
	struct execution_head head;
	struct output_reader *reader;
	bool done;

	(void)state;
	for (unsigned i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		assert_int_equal(execution_head(host.e, ids[i], &head, NULL), ERR_NOT_FOUND);
		assert_int_equal(execution_cancel(host.e, ids[i], "x", &done, NULL), ERR_NOT_FOUND);
		assert_int_equal(output_open(host.e, ids[i], 1, &reader, NULL), ERR_NOT_FOUND);
	}
}

#define TEST(name) cmocka_unit_test_prestate_setup_teardown(name, host_setup, host_teardown, &host)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_command_runs_and_is_recorded),
		TEST(endings_are_told_apart),
		TEST(large_outputs_are_stored_whole),
		TEST(limits_truncate_and_say_so),
		TEST(environments_come_from_a_file),
		TEST(standard_input_comes_from_a_file),
		TEST(a_bad_cwd_is_named),
		TEST(descendants_may_stay_when_asked),
		TEST(a_key_gives_the_same_record),
		TEST(a_token_is_used_up_by_a_record_of_its_key),
		TEST(lists_are_newest_first),
		TEST(previews_say_what_they_leave_out),
		TEST(previews_cut_no_character),
		TEST(a_reader_follows_a_running_command),
		TEST(unknown_ids_are_not_found),
	};

	cmocka_set_test_filter(getenv("TEST_FILTER"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
