/* SPDX-License-Identifier: Apache-2.0 */
/* A list of any length is followed to its end; a ring of any length, however far away, is left soon. */
#include "plugin/cursors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char *cursor_of(size_t page)
{
	static char text[BERTH_CURSOR_MAX + 1];

	/* As long as may be, and different at the end alone. */
	memset(text, 'x', BERTH_CURSOR_MAX);
	snprintf(text + BERTH_CURSOR_MAX - 20, 21, "%020zu", page);
	return text;
}

/* Pages until it is left, 0: not within most. */
static size_t pages_of(size_t way, size_t ring, size_t most)
{
	struct cursors cursors = {.count = 0};
	struct err err = {0};

	for (size_t page = 0; page < most; page++) {
		size_t at = page < way ? page : way + (page - way) % ring;

		if (cursors_take(&cursors, cursor_of(at), &err) == 0)
			continue;
		assert_int_equal(err.code, ERR_PROVIDER);
		return page + 1;
	}
	return 0;
}

static void a_ring_is_left(void **state)
{
	(void)state;
	for (size_t way = 0; way < 40; way++)
		for (size_t ring = 1; ring < 40; ring++)
			assert_in_range(pages_of(way, ring, 1000), way + ring + 1, 4 * (way + ring));
}

static void a_list_is_followed_to_its_end(void **state)
{
	struct cursors cursors = {.count = 0};
	struct err err = {0};

	(void)state;
	assert_int_equal(pages_of(5000, 1, 5000), 0);
	assert_int_equal(cursors_take(&cursors, NULL, &err), 0);
}

static void a_list_without_end_is_left_too(void **state)
{
	struct cursors cursors = {.count = 0};
	struct err err = {0};
	char text[24];
	size_t page = 0;

	(void)state;
	do
		snprintf(text, sizeof(text), "%zu", page++);
	while (page < 10000000 && cursors_take(&cursors, text, &err) == 0);
	assert_int_equal(err.code, ERR_PROVIDER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_ring_is_left),
		cmocka_unit_test(a_list_is_followed_to_its_end),
		cmocka_unit_test(a_list_without_end_is_left_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
