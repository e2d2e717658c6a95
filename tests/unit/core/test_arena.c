/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas: zeroed, aligned, capped, reusable after a reset. */
#include "unit.h"

#include "core/arena.h"

static void test_blocks_are_zeroed_aligned_and_apart(void **state)
{
	struct arena *arena = arena_new(1 << 20);
	unsigned char *blocks[200];

	(void)state;
	for (size_t i = 0; i < COUNT_OF(blocks); i++) {
		size_t size = i * 7 % 900 + 1;

		blocks[i] = arena_alloc(arena, size);
		assert_non_null(blocks[i]);
		assert_int_equal((uintptr_t)blocks[i] % _Alignof(max_align_t), 0);
		for (size_t k = 0; k < size; k++)
			assert_int_equal(blocks[i][k], 0);
		memset(blocks[i], (int)i, size);
	}
	for (size_t i = 0; i < COUNT_OF(blocks); i++) {
		assert_int_equal(blocks[i][0], (unsigned char)i);
		assert_int_equal(blocks[i][i * 7 % 900], (unsigned char)i);
	}
	arena_free(arena);
}

static void test_the_cap_holds_to_the_byte(void **state)
{
	struct arena *arena = arena_new(100);

	(void)state;
	assert_null(arena_alloc(arena, 101));
	assert_non_null(arena_alloc(arena, 100));
	assert_null(arena_alloc(arena, 1));
	assert_null(arena_alloc(arena, 0));
	assert_int_equal(arena_used(arena), 100);
	arena_reset(arena);
	assert_int_equal(arena_used(arena), 0);
	assert_non_null(arena_alloc(arena, 50));
	assert_null(arena_alloc(arena, SIZE_MAX));
	assert_null(arena_alloc(arena, SIZE_MAX - 8));
	arena_free(arena);
	arena_free(NULL);
}

static void test_many_small_blocks_stop_at_the_cap(void **state)
{
	struct arena *arena = arena_new(100000);
	size_t count = 0;

	(void)state;
	while (arena_alloc(arena, 16))
		count++;
	assert_int_equal(count, 100000 / 16);
	arena_free(arena);
}

static void test_strings(void **state)
{
	struct arena *arena = arena_new(1000);
	const char *nul = arena_strndup(arena, "a\0bc", 3);

	(void)state;
	assert_memory_equal(nul, "a\0b", 4);
	assert_string_equal(arena_strdup(arena, "hello"), "hello");
	assert_string_equal(arena_strndup(arena, NULL, 0), "");
	assert_string_equal(arena_printf(arena, "%s-%d", "x", 5), "x-5");
	assert_null(arena_printf(arena, "%2000d", 1));
	assert_null(arena_strndup(arena, "x", SIZE_MAX));
	arena_free(arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blocks_are_zeroed_aligned_and_apart),
		cmocka_unit_test(test_the_cap_holds_to_the_byte),
		cmocka_unit_test(test_many_small_blocks_stop_at_the_cap),
		cmocka_unit_test(test_strings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
