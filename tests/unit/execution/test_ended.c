/* SPDX-License-Identifier: Apache-2.0 */
/* Ended records in memory: only such, not for longer than they live, and no more than fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/limits.h"
#include "execution/ended.h"

static const struct execution_head done = {
	.ident = {.workspace = "w", .task = "t"}, .revision = 4, .terminal = true};

static bool has(struct ended *ended, const char *id, const char *text)
{
	struct execution_head head = {0};
	struct buf buf;
	bool found;

	buf_init(&buf, LIMIT_MIB);
	found = ended_get(ended, id, &head, &buf);
	if (found) {
		assert_string_equal(buf.ptr, text);
		assert_string_equal(head.ident.task, "t");
		assert_int_equal(head.revision, 4);
		assert_true(head.terminal);
	}
	buf_fini(&buf);
	return found;
}

static void put(struct ended *ended, const char *id, const char *text, int64_t lasts_ms)
{
	ended_put(ended, id, &done, lasts_ms, text, strlen(text));
}

static void test_put_get_drop(void **state)
{
	struct ended *ended = ended_new(LIMIT_MIB);
	struct execution_head head;

	(void)state;
	assert_false(has(ended, "a", ""));
	put(ended, "a", "one", 60000);
	put(ended, "b", "two", 60000);
	assert_true(has(ended, "a", "one"));
	assert_true(has(ended, "b", "two"));
	assert_true(ended_get(ended, "b", &head, NULL));
	put(ended, "a", "another", 60000); /* an ended record does not change */
	assert_true(has(ended, "a", "one"));
	ended_drop(ended, "a");
	ended_drop(ended, "a");
	assert_false(has(ended, "a", ""));
	assert_true(has(ended, "b", "two"));
	ended_free(ended);
}

static void test_what_is_not_kept(void **state)
{
	struct execution_head open = done;
	struct ended *ended = ended_new(LIMIT_MIB);
	char *large = calloc(1, 65 * LIMIT_KIB);

	(void)state;
	open.terminal = false;
	ended_put(ended, "open", &open, 60000, "x", 1);
	put(ended, "over", "x", 0);
	put(ended, "long over", "x", -1);
	put(ended, "empty", "", 60000);
	memset(large, 'x', 65 * LIMIT_KIB - 1);
	put(ended, "large", large, 60000);
	assert_false(has(ended, "open", ""));
	assert_false(has(ended, "over", ""));
	assert_false(has(ended, "long over", ""));
	assert_false(has(ended, "empty", ""));
	assert_false(has(ended, "large", ""));
	free(large);
	ended_free(ended);
}

static void test_the_end_of_its_life(void **state)
{
	struct ended *ended = ended_new(LIMIT_MIB);
	int64_t until_ns = clock_after_ms(20);

	(void)state;
	put(ended, "a", "x", 20);
	while (clock_boot_ns() < until_ns + CLOCK_NS_PER_MS)
		usleep(1000);
	assert_false(has(ended, "a", ""));
	put(ended, "a", "y", 60000);
	assert_true(has(ended, "a", "y"));
	ended_free(ended);
}

static void test_what_was_read_last_stays(void **state)
{
	struct ended *ended = ended_new(64 * LIMIT_KIB);
	char text[1024], id[16];
	int kept = 0;

	(void)state;
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	put(ended, "first", text, 60000);
	for (int i = 0; i < 500; i++) {
		snprintf(id, sizeof(id), "%d", i);
		put(ended, id, text, 60000);
		assert_true(has(ended, id, text));
		assert_true(has(ended, "first", text));
	}
	for (int i = 0; i < 500; i++) {
		snprintf(id, sizeof(id), "%d", i);
		kept += has(ended, id, text);
	}
	assert_in_range(kept, 30, 63);
	assert_false(has(ended, "400", text));
	assert_true(has(ended, "499", text));
	ended_free(ended);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_put_get_drop),
		cmocka_unit_test(test_what_is_not_kept),
		cmocka_unit_test(test_the_end_of_its_life),
		cmocka_unit_test(test_what_was_read_last_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
