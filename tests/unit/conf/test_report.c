/* SPDX-License-Identifier: Apache-2.0 */
/* Every refusal of one reading is told once, with its place, and none that only follows from another. */
#include "conf_fixture.h"

#define TOLD_MAX 32

struct told {
	char sentences[TOLD_MAX][256];
	size_t count;
};

static void tell(const char *sentence, void *arg)
{
	struct told *told = arg;

	assert_true(told->count < TOLD_MAX);
	snprintf(told->sentences[told->count++], sizeof(told->sentences[0]), "%s", sentence);
}

/* parts: of each sentence, in their order; NULL ends. */
static void expect(bool dev, const char *const *parts)
{
	struct told told = {.count = 0};
	struct conf *conf = NULL;
	struct err err = {0};
	char path[256];
	size_t i;

	fixture_path(path, sizeof(path), "berth.conf");
	assert_int_equal(conf_load_telling(path, dev, tell, &told, &conf, &err), ERR_CONFIG);
	assert_null(conf);
	for (i = 0; parts[i]; i++) {
		if (i >= told.count)
			fail_msg("\"%s\" was not told", parts[i]);
		if (!strstr(told.sentences[i], parts[i]))
			fail_msg("told \"%s\", not \"%s\"", told.sentences[i], parts[i]);
	}
	if (told.count != i)
		fail_msg("told \"%s\", too", told.sentences[i]);
	assert_string_equal(err.msg, told.sentences[0]);
}

static void all_are_told(void **state)
{
	static const char *const parts[] = {
		"berth.conf:1: http.port: expected an integer, got a text",
		"berth.conf:1: http.nonsense: is not a known key",
		"berth.conf:2: lease.idle: ",
		"berth.conf:4: tokens.name: ",
		"berth.conf:5: tokens.scopes: \"fly\"",
		"10-one.conf:3: warm: expected an integer",
		"10-one.conf:4: config.b: expected a single value",
		"20-broken.conf:1: syntax error",
		"30-less.conf: provider: is required",
		"environment SANDBOX_WORKSPACE_PROVIDER: durable workspaces",
		"berth.conf: deployment: is required",
		"berth.conf:3: execution.timeout: 3h is above",
		NULL,
	};

	(void)state;
	fixture_write("berth.conf",
		      "http : { port = \"x\"; nonsense = 1; };\n"
		      "lease : { idle = \"soon\"; };\n"
		      "execution : { timeout = \"3h\"; timeout_max = \"1h\"; };\n"
		      "tokens = ( { name = 3; },\n"
		      "{ name = \"a\"; secret = \"env:X\"; scopes = [ \"fly\" ]; workspaces = [ \"*\" ]; } );\n");
	fixture_write("providers.d/10-one.conf", TARGET "\nwarm = \"x\";\nconfig : { a = 1; b = [ 1 ]; };\n");
	fixture_write("providers.d/20-broken.conf", "provider = ;\n");
	fixture_write("providers.d/30-less.conf", "name = \"less\"; region = \"r\";\n");
	setenv("SANDBOX_WORKSPACE_PROVIDER", "s3", 1);
	expect(false, parts);
	unsetenv("SANDBOX_WORKSPACE_PROVIDER");
}

/* A refused value leaves its default in place, and what does not go with that is no fault of the file's. */
static void what_follows_is_not(void **state)
{
	static const char *const parts[] = {
		"berth.conf:1: deployment: expected a text in quotes, got an integer",
		"berth.conf:2: http.tls_cert: expected a text in quotes, got an integer",
		"berth.conf:3: session.max_age: ",
		"10-one.conf:1: syntax error",
		NULL,
	};

	(void)state;
	fixture_write("berth.conf", "deployment = 5;\n"
				    "http : { tls_cert = 7; tls_key = \"/k\"; };\n"
				    "session : { max_age = \"long\"; }; execution : { timeout_max = \"80h\"; };\n");
	fixture_write("providers.d/10-one.conf", "provider = ;\n");
	expect(false, parts);
}

static void names_of_targets(void **state)
{
	static const char *const parts[] = {
		"10-one.conf:1: name: expected a text in quotes, got an integer",
		"20-two.conf:1: name: expected a letter or digit",
		NULL,
	};

	(void)state;
	fixture_write("providers.d/10-one.conf", "provider = \"mock\"; name = 1;\n");
	fixture_write("providers.d/20-two.conf", "provider = \"mock\"; name = \"-\"; region = \"r\";\n");
	expect(false, parts);
}

static void one_that_cannot_be_parsed(void **state)
{
	static const char *const parts[] = {"berth.conf:2: syntax error", NULL};

	(void)state;
	fixture_write("berth.conf", BASE "x = ;\n");
	fixture_write("providers.d/10-one.conf", "provider = ;\n");
	expect(true, parts);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(all_are_told),
		CASE(what_follows_is_not),
		CASE(names_of_targets),
		CASE(one_that_cannot_be_parsed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
