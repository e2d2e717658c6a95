/* SPDX-License-Identifier: Apache-2.0 */
/* Whom X-Forwarded-For is believed about. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/forwarded.h"
#include "api/head.h"
#include "core/limits.h"

static const struct {
	const char *peer, *header, *client;
} cases[] = {
	{"9.9.9.9", "1.1.1.1", "9.9.9.9"}, /* a peer that is no proxy of ours */
	{"10.0.0.1", NULL, "10.0.0.1"},
	{"10.0.0.1", "", "10.0.0.1"},
	{"10.0.0.1", "1.1.1.1", "1.1.1.1"},
	{"::ffff:10.0.0.1", "1.1.1.1", "1.1.1.1"},
	{"10.0.0.1", "6.6.6.6, 1.1.1.1", "1.1.1.1"}, /* what the client claims itself */
	{"10.0.0.1", "6.6.6.6,\t1.1.1.1 , 10.0.0.2", "1.1.1.1"},
	{"10.0.0.1", "10.0.0.2, 10.0.0.3", "10.0.0.2"}, /* nothing but proxies: the farthest */
	{"10.0.0.1", "1.1.1.1, nonsense", "10.0.0.1"},
	{"10.0.0.1", "1.1.1.1, 10.0.0.0/8", "10.0.0.1"},
	{"10.0.0.1", "1.1.1.1,", "10.0.0.1"},
	{"10.0.0.1", ",,,", "10.0.0.1"},
	{"10.0.0.1", "2001:db8::1", "2001:db8::1"},
	{"", "1.1.1.1", ""},
};

static void test_clients(void **state)
{
	struct address_list proxies;
	struct err err = {0};

	(void)state;
	assert_int_equal(address_list_parse("10.0.0.0/8", &proxies, &err), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct arena *arena = arena_new(LIMIT_MIB);

		assert_string_equal(forwarded_client(arena, &proxies, cases[i].peer, cases[i].header), cases[i].client);
		arena_free(arena);
	}
}

static void test_several_lines_are_one_list(void **state)
{
	struct arena *arena = arena_new(LIMIT_MIB);
	struct head head;

	(void)state;
	head_init(&head);
	head_add(&head, arena, "X-Forwarded-For", 15, "6.6.6.6", 7);
	head_add(&head, arena, "x-forwarded-for", 15, "1.1.1.1, 10.0.0.2", 17);
	assert_string_equal(head.forwarded_for, "6.6.6.6,1.1.1.1, 10.0.0.2");
	arena_free(arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_clients),
		cmocka_unit_test(test_several_lines_are_one_list),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
