/* SPDX-License-Identifier: Apache-2.0 */
/* host/conf/diff.c: what a reload is told of two readings. */
#include "conf_fixture.h"

struct seen {
	char text[1024];
};

static void note(const char *key, bool live, void *arg)
{
	struct seen *seen = arg;
	size_t used = strlen(seen->text);

	snprintf(seen->text + used, sizeof(seen->text) - used, "%s%s ", key, live ? "" : "!");
}

static void assert_diff(struct conf *before, const char *expected)
{
	struct conf *now = fixture_accept();
	struct seen seen = {.text = ""};

	conf_diff(before, now, note, &seen);
	assert_string_equal(seen.text, expected);
	conf_free(now);
}

static void each_change_is_named(void **state)
{
	struct conf *before = fixture_accept();

	(void)state;
	assert_diff(before, "");
	fixture_write("berth.conf", BASE "log: { level = \"warn\"; format = \"json\"; }; runner: { concurrency = 3; };\n"
					 "lease: { idle = \"1m\"; }; placement: { pin = true; };");
	assert_diff(before, "log.level log.format! lease.idle! placement.pin! runner.concurrency ");
	fixture_write("berth.conf", BASE);
	fixture_write("providers.d/10-one.conf", TARGET "max_sessions = 5;");
	assert_diff(before, "targets! ");
	fixture_write("providers.d/10-one.conf", TARGET "config: { a = \"b\"; };");
	assert_diff(before, "targets! ");
	fixture_write("providers.d/10-one.conf", TARGET);
	fixture_write("providers.d/20-two.conf", "provider = \"mock\"; name = \"two\"; region = \"eu\";");
	assert_diff(before, "targets! ");
	conf_free(before);
}

static void settings_count(void **state)
{
	struct conf *before;

	(void)state;
	fixture_write("providers.d/10-one.conf", TARGET "config: { a = \"b\"; };");
	before = fixture_accept();
	assert_diff(before, "");
	fixture_write("providers.d/10-one.conf", TARGET "config: { a = \"c\"; };");
	assert_diff(before, "targets! ");
	conf_free(before);
}

static void control_secret(void **state)
{
	struct conf *conf;

	(void)state;
	conf = fixture_accept();
	assert_null(conf->control);
	conf_free(conf);
	setenv("SANDBOX_CONTROL_AUTH_SECRET", SECRET_A, 1);
	conf = fixture_accept();
	assert_true(secret_equal(conf->control, SECRET_A, strlen(SECRET_A)));
	conf_free(conf);
	setenv("SANDBOX_FILE_AUTH_SECRET", SECRET_A, 1);
	fixture_refuse("SANDBOX_CONTROL_AUTH_SECRET", "reference-file", NULL);
	assert_null(strstr(fixture_err.msg, SECRET_A));
	unsetenv("SANDBOX_FILE_AUTH_SECRET");
	unsetenv("SANDBOX_CONTROL_AUTH_SECRET");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(each_change_is_named),
		CASE(settings_count),
		CASE(control_secret),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
