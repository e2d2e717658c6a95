/* SPDX-License-Identifier: Apache-2.0 */
/* Maps: compared with a plain array under many random steps. */
#include "unit.h"

#include "core/map.h"

#define KEYS 500

static bool count_until_three(const char *key, void *value, void *arg)
{
	(void)key;
	(void)value;
	return ++*(int *)arg < 3;
}

static bool check_order(const char *key, void *value, void *arg)
{
	char *last = arg;

	(void)value;
	if (strcmp(last, key) >= 0)
		return false;
	snprintf(last, 16, "%s", key);
	return true;
}

static void test_agrees_with_an_array(void **state)
{
	static int values[KEYS];
	void *want[KEYS] = {0};
	struct map *map = map_new();
	size_t count = 0;
	unsigned seed = 1;
	char key[16];

	(void)state;
	for (int step = 0; step < 20000; step++) {
		seed = seed * 1103515245 + 12345;
		unsigned i = (seed >> 16) % KEYS;

		snprintf(key, sizeof(key), "k%u", i);
		assert_ptr_equal(map_get(map, key), want[i]);
		if ((seed >> 8) % 3) {
			count += !want[i];
			want[i] = &values[(seed >> 10) % KEYS];
			assert_int_equal(map_put(map, key, want[i]), 0);
		} else {
			count -= want[i] != NULL;
			assert_ptr_equal(map_remove(map, key), want[i]);
			want[i] = NULL;
		}
		assert_int_equal(map_count(map), count);
	}
	map_free(map);
}

static void test_each_visits_in_order_and_stops(void **state)
{
	struct map *map = map_new();
	char last[16] = "";
	int visited = 0;

	(void)state;
	map_each(map, count_until_three, &visited);
	assert_int_equal(visited, 0);
	for (int i = 0; i < 10; i++) {
		char key[16];

		snprintf(key, sizeof(key), "%c", 'j' - i);
		map_put(map, key, map);
		memset(key, 'z', sizeof(key)); /* the map has its own copy */
	}
	map_each(map, count_until_three, &visited);
	assert_int_equal(visited, 3);
	map_each(map, check_order, last);
	assert_string_equal(last, "j");
	map_free(map);
	map_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_agrees_with_an_array),
		cmocka_unit_test(test_each_visits_in_order_and_stops),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
