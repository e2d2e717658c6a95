/* SPDX-License-Identifier: Apache-2.0 */
/* host/api/upload.c: no reader of an upload ever gets the last byte of a wrong one. */
#include "api/upload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#define ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

struct body {
	const char *text;
	size_t len;
	size_t piece; /* most bytes given at once */
	int end;      /* 0, or the code in place of an end */
};

static int give(void *arg, void *buf, size_t cap, size_t *ret_len)
{
	struct body *body = arg;
	size_t len = body->piece < cap ? body->piece : cap;

	if (body->len == 0 && body->end)
		return body->end;
	len = len < body->len ? len : body->len;
	memcpy(buf, body->text, len);
	body->text += len;
	body->len -= len;
	*ret_len = len;
	return 0;
}

/* Reads as a provider would, `cap` bytes at a time; the number of bytes it got, and how it ended. */
static size_t drain(const char *text, size_t piece, int end, size_t cap, uint64_t size, uint64_t max,
		    const char *sha256, int *ret_code)
{
	struct body body = {.text = text, .len = strlen(text), .piece = piece, .end = end};
	struct upload upload = {.source = give, .arg = &body, .size = size, .max = max, .sha256 = sha256};
	char out[64];
	size_t got = 0;
	size_t len = 0;
	int r;

	assert_int_equal(upload_init(&upload, NULL), 0);
	while ((r = upload_read(&upload, out + got, cap, &len)) == 0 && len)
		got += len;
	if (r == 0)
		assert_memory_equal(out, text, got);
	assert_int_equal(r, upload.error.code);
	assert_true(upload.checked == (r == 0));
	upload_fini(&upload);
	*ret_code = r;
	return got;
}

static void test_right_bodies_pass_whatever_the_pieces(void **state)
{
	(void)state;
	for (size_t piece = 1; piece <= 4; piece++) {
		for (size_t cap = 1; cap <= 5; cap++) {
			int r;

			assert_int_equal(drain("abc", piece, 0, cap, 3, 3, ABC, &r), 3);
			assert_int_equal(r, 0);
			assert_int_equal(drain("abc", piece, 0, cap, UPLOAD_SIZE_UNKNOWN, 10, NULL, &r), 3);
			assert_int_equal(r, 0);
			assert_int_equal(drain("", piece, 0, cap, 0, 0, EMPTY, &r), 0);
			assert_int_equal(r, 0);
		}
	}
}

static void test_wrong_bodies_never_come_to_their_end(void **state)
{
	static const struct {
		const char *text;
		int end;
		uint64_t size, max;
		const char *sha256;
		int code;
	} cases[] = {
		{"abc", 0, 4, 10, NULL, ERR_INVALID_REQUEST},
		{"abc", 0, 2, 10, NULL, ERR_INVALID_REQUEST},
		{"abd", 0, 3, 10, ABC, ERR_INVALID_REQUEST},
		{"", 0, 0, 10, ABC, ERR_INVALID_REQUEST},
		{"abc", 0, UPLOAD_SIZE_UNKNOWN, 2, NULL, ERR_PAYLOAD_TOO_LARGE},
		{"abc", ERR_CANCELLED, UPLOAD_SIZE_UNKNOWN, 10, NULL, ERR_CANCELLED},
		{"abc", ERR_CANCELLED, 3, 10, ABC, ERR_CANCELLED},
		{"abc", ERR_INVALID_REQUEST, 3, 10, NULL, ERR_INVALID_REQUEST},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (size_t piece = 1; piece <= 4; piece++) {
			for (size_t cap = 1; cap <= 5; cap++) {
				int r;
				size_t got = drain(cases[i].text, piece, cases[i].end, cap, cases[i].size, cases[i].max,
						   cases[i].sha256, &r);

				assert_int_equal(r, cases[i].code);
				if (strlen(cases[i].text))
					assert_true(got < strlen(cases[i].text));
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_right_bodies_pass_whatever_the_pieces),
		cmocka_unit_test(test_wrong_bodies_never_come_to_their_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
