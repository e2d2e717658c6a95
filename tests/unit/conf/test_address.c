/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses, networks and lists of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "conf/address.h"

static void test_what_is_an_address(void **state)
{
	static const char *const good[] = {"127.0.0.1", "::1",	    "10.0.0.0/8",
					   "0.0.0.0/0", "fd00::/8", "::ffff:10.0.0.1"};
	static const char *const bad[] = {
		"",
		" ",
		"localhost",
		"10.0.0",
		"10.0.0.1 ",
		"10.0.0.1/8",
		"10.0.0.0/33",
		"10.0.0.0/",
		"10.0.0.0/-1",
		"10.0.0.0/+8",
		"::/129",
		"1.2.3.4:80",
		"[::1]",
		"fe80::1%lo",
		"00000000000000000000000000000000000000000000000000000000000000000000000000000001"};
	struct address address;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_int_equal(address_parse(good[i], &address), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_not_equal(address_parse(bad[i], &address), 0);
}

static void test_loopback(void **state)
{
	static const struct {
		const char *text;
		bool is;
	} cases[] = {{"127.0.0.1", true},   {"127.255.255.254", true}, {"::1", true}, {"::ffff:127.0.0.1", true},
		     {"128.0.0.1", false},  {"0.0.0.0", false},	       {"::", false}, {"::2", false},
		     {"10.0.0.127", false}, {"::ffff:10.0.0.1", false}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct address address;

		assert_int_equal(address_parse(cases[i].text, &address), 0);
		assert_int_equal(address_is_loopback(&address), cases[i].is);
	}
}

static bool listed(const char *list, const char *text)
{
	struct address_list parsed;
	struct address address;
	struct err err = {0};

	assert_int_equal(address_list_parse(list, &parsed, &err), 0);
	assert_int_equal(address_parse(text, &address), 0);
	return address_listed(&parsed, &address);
}

static void test_lists(void **state)
{
	struct address_list list;
	struct err err = {0};

	(void)state;
	assert_false(listed("", "10.0.0.1"));
	assert_true(listed("10.0.0.1", "10.0.0.1"));
	assert_true(listed("10.0.0.1", "::ffff:10.0.0.1"));
	assert_false(listed("10.0.0.1", "10.0.0.2"));
	assert_true(listed(" fd00::/8  10.1.0.0/16 ", "10.1.255.255"));
	assert_false(listed("fd00::/8 10.1.0.0/16", "10.2.0.0"));
	assert_true(listed("fd00::/8 10.1.0.0/16", "fdff::1"));
	assert_true(listed("0.0.0.0/0", "1.2.3.4"));
	assert_false(listed("0.0.0.0/0", "::1"));
	assert_int_equal(address_list_parse("10.0.0.1 proxy.example", &list, &err), ERR_CONFIG);
	assert_non_null(strstr(err.msg, "proxy.example"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_an_address),
		cmocka_unit_test(test_loopback),
		cmocka_unit_test(test_lists),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
