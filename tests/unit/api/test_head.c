/* SPDX-License-Identifier: Apache-2.0 */
/* host/api/head.c: what two parsers could read differently is refused. */
#include "api/head.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

struct line {
	const char *name;
	const char *value;
};

static struct arena *arena;

static int judge(const struct line *lines, const char *version, struct head *head, struct err *err)
{
	head_init(head);
	for (; lines->name; lines++)
		head_add(head, arena, lines->name, strlen(lines->name), lines->value, strlen(lines->value));
	return head_finish(head, version, err);
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

static void test_good_heads_are_read(void **state)
{
	struct head head;
	struct err err = {0};

	(void)state;
	assert_int_equal(judge((struct line[]){{"Host", "x"}, {"content-length", "12"}, {"RANGE", "bytes=0-1"}, {0}},
			       "HTTP/1.1", &head, &err),
			 0);
	assert_int_equal(head.length, 12);
	assert_false(head.chunked);
	assert_string_equal(head.range, "bytes=0-1");
	assert_true(head_has_body(&head));
	assert_int_equal(
		judge((struct line[]){{"Host", "x"}, {"Transfer-Encoding", "Chunked"}, {0}}, "HTTP/1.1", &head, &err),
		0);
	assert_true(head.chunked);
	assert_int_equal(head.length, -1);
	assert_int_equal(judge((struct line[]){{0}}, "HTTP/1.0", &head, &err), 0);
}

static void test_faults_are_refused(void **state)
{
	static const struct {
		struct line lines[4];
		const char *version;
		const char *word;
	} cases[] = {
		{{{"Host", "x"}, {"Content-Length", "1"}, {"Content-Length", "1"}}, "HTTP/1.1", "twice"},
		{{{"Host", "x"}, {"Content-Length", "1"}, {"Content-Length", "2"}}, "HTTP/1.1", "twice"},
		{{{"Host", "x"}, {"Content-Length", "1"}, {"Transfer-Encoding", "chunked"}}, "HTTP/1.1", "exclude"},
		{{{"Host", "x"}, {"Transfer-Encoding", "chunked"}, {"Transfer-Encoding", "chunked"}},
		 "HTTP/1.1",
		 "twice"},
		{{{"Host", "x"}, {"Transfer-Encoding", "gzip, chunked"}}, "HTTP/1.1", "chunked"},
		{{{"Host", "x"}, {"Transfer-Encoding", ""}}, "HTTP/1.1", "chunked"},
		{{{"Host", "x"}, {"Content-Length", "+1"}}, "HTTP/1.1", "number"},
		{{{"Host", "x"}, {"Content-Length", "1,1"}}, "HTTP/1.1", "number"},
		{{{"Host", "x"}, {"Content-Length", ""}}, "HTTP/1.1", "number"},
		{{{"Host", "x"}, {"Content-Length", "0x10"}}, "HTTP/1.1", "number"},
		{{{"Host", "x"}, {"Content-Length", "99999999999999999999"}}, "HTTP/1.1", "large"},
		{{{"Host", "x"}, {"Host", "y"}}, "HTTP/1.1", "Host"},
		{{{"Accept", "x"}}, "HTTP/1.1", "Host is missing"},
		{{{"Host", "x"}}, "HTTP/2.0", "version"},
		{{{"Host", "x"}}, "", "version"},
		{{{"Host", "x"}, {"Content-Length ", "1"}}, "HTTP/1.1", "name"},
		{{{"Host", "x"}, {"", "1"}}, "HTTP/1.1", "name"},
		{{{"Host", "x"}, {"X", "a\001b"}}, "HTTP/1.1", "control"},
		{{{"Host", "x"}, {"X", "a\nb"}}, "HTTP/1.1", "control"},
		{{{"Host", "x"}, {"X", "a\177b"}}, "HTTP/1.1", "control"},
		{{{"Host", "x"}, {"Idempotency-Key", "a"}, {"idempotency-key", "b"}}, "HTTP/1.1", "twice"},
		{{{"Host", "x"}, {"Range", "a"}, {"Range", "b"}}, "HTTP/1.1", "twice"},
		{{{"Host", "x"}, {"Transfer-Encoding", "chunked"}}, "HTTP/1.0", "1.1"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct head head;
		struct err err = {0};

		assert_int_equal(judge(cases[i].lines, cases[i].version, &head, &err), ERR_INVALID_REQUEST);
		if (!strstr(err.msg, cases[i].word))
			fail_msg("case %zu: \"%s\" does not say \"%s\"", i, err.msg, cases[i].word);
	}
}

static void test_nul_in_a_value(void **state)
{
	struct head head;
	struct err err = {0};

	(void)state;
	head_init(&head);
	head_add(&head, arena, "Host", 4, "x", 1);
	head_add(&head, arena, "X", 1, "a\0b", 3);
	assert_int_equal(head_finish(&head, "HTTP/1.1", &err), ERR_INVALID_REQUEST);
}

static void test_only_one_authorization_counts(void **state)
{
	struct head head;
	struct err err = {0};

	(void)state;
	assert_int_equal(judge((struct line[]){{"Host", "x"}, {"Authorization", "a"}, {"authorization", "b"}, {0}},
			       "HTTP/1.1", &head, &err),
			 0);
	assert_int_equal(head.authorizations, 2);
}

static void test_what_no_route_can_do(void **state)
{
	static const struct {
		const char *name, *value, *method;
		int json, other; /* what a JSON body gets, and any other */
	} cases[] = {
		{"Expect", "100-continue", "POST", 0, 0},
		{"Expect", "100-Continue", "POST", 0, 0},
		{"Expect", "200-ok", "POST", ERR_EXPECTATION, ERR_EXPECTATION},
		{"Expect", "", "GET", ERR_EXPECTATION, ERR_EXPECTATION},
		{"Content-Type", "application/json", "POST", 0, 0},
		{"Content-Type", "Application/JSON; charset=UTF-8", "POST", 0, 0},
		{"Content-Type", "application/json;charset=\"utf-8\"", "POST", 0, 0},
		{"Content-Type", "application/merge-patch+json", "POST", 0, 0},
		{"Content-Type", "application/x-www-form-urlencoded", "POST", 0, 0},
		{"Content-Type", "application/json; charset=latin1", "POST", ERR_MEDIA_TYPE, 0},
		{"Content-Type", "application/jsonx", "POST", ERR_MEDIA_TYPE, 0},
		{"Content-Type", "text/xml", "PUT", ERR_MEDIA_TYPE, 0},
		{"Content-Type", "multipart/form-data; boundary=x", "POST", ERR_MEDIA_TYPE, 0},
		{"Content-Type", "", "POST", ERR_MEDIA_TYPE, 0},
		{"Content-Encoding", "identity", "PUT", 0, 0},
		{"Content-Encoding", "gzip", "PUT", ERR_MEDIA_TYPE, ERR_MEDIA_TYPE},
		{"Content-Range", "bytes 0-1/2", "PUT", ERR_INVALID_REQUEST, ERR_INVALID_REQUEST},
		{"If-Match", "*", "GET", 0, 0},
		{"If-Match", "\"x\"", "GET", ERR_PRECONDITION, ERR_PRECONDITION},
		{"If-Match", "*", "PUT", ERR_PRECONDITION, ERR_PRECONDITION},
		{"If-None-Match", "*", "PUT", ERR_PRECONDITION, ERR_PRECONDITION},
		{"If-None-Match", "\"x\"", "PUT", 0, 0},
		{"If-None-Match", "*", "HEAD", 0, 0},
		{"If-Unmodified-Since", "Sat, 29 Oct 1994 19:43:31 GMT", "PUT", 0, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct line lines[] = {{"Host", "x"}, {"Content-Length", "5"}, {cases[i].name, cases[i].value}, {0}};
		struct head head;
		struct err err = {0};

		assert_int_equal(judge(lines, "HTTP/1.1", &head, &err), 0);
		if (head_check(&head, cases[i].method, "HTTP/1.1", true, &err) != cases[i].json ||
		    head_check(&head, cases[i].method, "HTTP/1.1", false, &err) != cases[i].other)
			fail_msg("case %zu: %s: %s", i, cases[i].name, cases[i].value);
		if (strcmp(cases[i].name, "Expect") == 0)
			assert_int_equal(head_check(&head, cases[i].method, "HTTP/1.0", true, &err), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good_heads_are_read),
		cmocka_unit_test(test_faults_are_refused),
		cmocka_unit_test(test_nul_in_a_value),
		cmocka_unit_test(test_only_one_authorization_counts),
		cmocka_unit_test(test_what_no_route_can_do),
	};

	return cmocka_run_group_tests(tests, make_arena, free_arena);
}
