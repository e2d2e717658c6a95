/* SPDX-License-Identifier: Apache-2.0 */
/* P7: what placement refuses at the start. Regions are compared exactly; the empty one counts. */
#include "conf_fixture.h"

static void two(const char *first, const char *second)
{
	fixture_write("providers.d/10-one.conf", first);
	fixture_write("providers.d/20-two.conf", second);
}

#define IN(name, region) "provider = \"mock\"; name = \"" name "\"; region = \"" region "\";"

static void p7_duplicate_region(void **state)
{
	(void)state;
	two(IN("a", "eu"), IN("b", "eu"));
	fixture_refuse("20-two.conf:1: region", "\"eu\"", "\"a\"", "10-one.conf; give each target a region", NULL);
	two(IN("a", ""), IN("b", ""));
	fixture_refuse("20-two.conf:1: region", "\"b\" has none, nor has \"a\"", "10-one.conf; give each target a region", NULL);
	two(IN("a", ""), "provider = \"mock\"; name = \"b\";");
	fixture_refuse("20-two.conf: region", NULL);
}

static void p7_pinned(void **state)
{
	struct conf *conf;

	(void)state;
	fixture_main("placement : { pin = true; };");
	two(IN("a", "eu"), IN("b", "eu"));
	conf = fixture_accept();
	assert_int_equal(conf->target_count, 2);
	conf_free(conf);
	two(IN("a", "eu"), IN("a", "us"));
	fixture_refuse("20-two.conf:1: name", "\"a\"", NULL);
}

static void p7_region_words(void **state)
{
	static const char *const bad[] = {IN("a", "EU"), IN("a", " eu "), IN("a", "eu "), IN("a", "e_u"),
					  IN("a", "\xc3\xa9")};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		fixture_write("providers.d/10-one.conf", bad[i]);
		fixture_refuse("10-one.conf:1: region: expected lower-case", NULL);
	}
	two(IN("a", "eu"), IN("b", "eu-1"));
	conf_free(fixture_accept());
}

static void duplicate_name(void **state)
{
	(void)state;
	two(IN("a", "eu"), IN("a", "us"));
	fixture_refuse("20-two.conf:1: name", "\"a\"", "10-one.conf:1", NULL);
}

static void no_target(void **state)
{
	char path[256];

	(void)state;
	fixture_path(path, sizeof(path), "providers.d/10-one.conf");
	assert_int_equal(unlink(path), 0);
	fixture_refuse("no target is configured", NULL);
}

static void bad_targets(void **state)
{
	static const struct {
		const char *text;
		const char *parts[2];
	} cases[] = {
	    {"name = \"a\";", {"provider: is required"}},
	    {"provider = \"mock\";", {"name: is required"}},
	    {"provider = \"mo/ck\"; name = \"a\";", {"provider: expected lower-case"}},
	    {"provider = \"../x\"; name = \"a\";", {"provider: expected lower-case"}},
	    {"provider = \"mock\"; name = \"../a\";", {"name: expected a letter"}},
	    {"provider = \"mock\"; name = \"a\"; max_operations = 0;", {"max_operations", "1 to 100000"}},
	    {"provider = \"mock\"; name = \"a\"; isolation = \"strong\";", {"10-one.conf:1: isolation: expected one of none, container, gvisor, microvm, or empty, got"}},
	    {"provider = \"mock\"; name = \"a\"; warm = 3; max_sessions = 2;", {"10-one.conf:1: warm: 3 is above max_sessions"}},
	    {"provider = \"mock\"; name = \"a\"; network = \"x\";", {"10-one.conf:1", "network: is not a known key"}},
	    {"provider = \"mock\"; name = \"a\"; config = 5;", {"config: expected a group"}},
	    {"provider = \"mock\"; name = \"a\"; config : { a = [1, 2]; };", {"config.a: expected a single value"}},
	    {"provider = \"mock\"; name = \"a\"; config : { a : { b = 1; }; };", {"config.a: expected a single value"}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		fixture_write("providers.d/10-one.conf", cases[i].text);
		fixture_refuse(cases[i].parts[0], cases[i].parts[1], NULL);
	}
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
	    CASE(p7_duplicate_region), CASE(p7_pinned), CASE(p7_region_words),
	    CASE(duplicate_name),      CASE(no_target), CASE(bad_targets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
