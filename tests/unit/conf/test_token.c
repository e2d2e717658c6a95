/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens: scopes, sources, refusals (Q8), and that no secret is ever shown. Also the dump. */
#include "conf_fixture.h"

static int setup(void **state)
{
	clearenv();
	setenv("A", SECRET_A, 1);
	setenv("B", SECRET_B, 1);
	return fixture_setup(state);
}

#define TOKEN(name, secret, more) "{ name = \"" name "\"; secret = \"" secret "\"; " more " }"
#define REST "scopes = [\"file.read\", \"admin\"]; workspaces = [\"*\"];"

static void tokens_main(const char *elements)
{
	char text[2048];

	snprintf(text, sizeof(text), "tokens = ( %s );", elements);
	fixture_main(text);
}

static void good(void **state)
{
	struct conf *conf;

	(void)state;
	fixture_write("secret", SECRET_B "\n");
	char text[1024];

	snprintf(
	    text, sizeof(text),
	    TOKEN("a", "env:A", REST) ", { name = \"b\"; secret = \"file:%s/secret\"; scopes = [\"session.delete\"]; "
				      "workspaces = [\"w1\", \"w2\"]; not_after = \"2027-01-01T00:00:00Z\"; }, " TOKEN(
					  "unset", "env:NOSUCH", REST),
	    fixture_dir);
	tokens_main(text);
	conf = fixture_accept();
	assert_int_equal(conf->token_count, 2);
	assert_string_equal(conf->tokens[0].name, "a");
	assert_int_equal(conf->tokens[0].scopes, SCOPE_FILE_READ | SCOPE_ADMIN);
	assert_null(conf->tokens[0].workspaces);
	assert_true(secret_equal(conf->tokens[0].secret, SECRET_A, strlen(SECRET_A)));
	assert_true(secret_equal(conf->tokens[1].secret, SECRET_B, strlen(SECRET_B)));
	assert_int_equal(conf->tokens[1].scopes, SCOPE_SESSION_DELETE);
	assert_int_equal(conf->tokens[1].workspace_count, 2);
	assert_string_equal(conf->tokens[1].workspaces[1], "w2");
	assert_int_equal(conf->tokens[1].not_after_ms, INT64_C(1798761600000));
	conf_free(conf);
}

static void q8_refused(void **state)
{
	static const struct {
		const char *text;
		const char *parts[3];
	} cases[] = {
	    {TOKEN("a", "env:A", "scopes = [\"all\"]; workspaces = [\"*\"];"),
	     {"berth.conf:2", "tokens.scopes", "\"all\""}},
	    {TOKEN("a", "env:A", "scopes = []; workspaces = [\"*\"];"), {"tokens.scopes", "names no scope"}},
	    {TOKEN("a", "env:A", "workspaces = [\"*\"];"), {"tokens.scopes", "is required"}},
	    {TOKEN("a", "env:A", "scopes = [\"admin\"];"), {"tokens.workspaces", "is required"}},
	    {TOKEN("a", "env:A", "scopes = [\"admin\"]; workspaces = [\"*\", \"w\"];"),
	     {"tokens.workspaces", "beside others"}},
	    {TOKEN("a", "env:A", "scopes = [\"file.read\", \"admin\"]; workspaces = [\"w\"];"),
	     {"berth.conf:2", "tokens.scopes", "reaches all workspaces"}},
	    {TOKEN("a", "env:A", "scopes = [\"admin\"]; workspaces = [\"a/b\"];"),
	     {"tokens.workspaces", "no workspace id"}},
	    {TOKEN("a", "env:A", "scopes = \"admin\"; workspaces = [\"*\"];"), {"tokens.scopes", "list of texts"}},
	    {TOKEN("a", "env:A", REST " colour = 5;"), {"tokens.colour", "not a known key"}},
	    {TOKEN("a", "env:A", REST " not_after = \"tomorrow\";"), {"tokens.not_after", "2027-01-01"}},
	    {TOKEN("a b", "env:A", REST), {"tokens.name"}},
	    {TOKEN("a", SECRET_A, REST), {"tokens.secret", "expected a source"}},
	    {TOKEN("a", "(secret)", REST), {"tokens.secret", "expected a source"}},
	    {TOKEN("a", "file:/nonexistent", REST), {"tokens.secret of \"a\"", "/nonexistent"}},
	    {TOKEN("a", "env:SHORT", REST), {"a", "shorter than 32"}},
	    {TOKEN("a", "env:DEFAULT", REST), {"a", "published default"}},
	    {TOKEN("a", "env:A", REST) ", " TOKEN("a", "env:B", REST), {"tokens.name", "\"a\" is used twice"}},
	    {TOKEN("a", "env:A", REST) ", " TOKEN("b", "env:A", REST), {"tokens.secret", "same secret"}},
	};

	(void)state;
	setenv("SHORT", "0123456789abcdefghijklmnopqrstu", 1);
	setenv("DEFAULT", "changeme-changeme-changeme-changeme", 1);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		tokens_main(cases[i].text);
		fixture_refuse(cases[i].parts[0], cases[i].parts[1], cases[i].parts[2], NULL);
		assert_null(strstr(fixture_err.msg, SECRET_A));
		assert_null(strstr(fixture_err.msg, "abcdefgh"));
	}
}

static void world_readable(void **state)
{
	char text[512], path[256];

	(void)state;
	fixture_write("secret", SECRET_A);
	fixture_path(path, sizeof(path), "secret");
	assert_int_equal(chmod(path, 0604), 0);
	snprintf(text, sizeof(text), "{ name = \"a\"; secret = \"file:%s\"; " REST " }", path);
	tokens_main(text);
	fixture_refuse("berth.conf:2", "secret", "every user", NULL);
}

static void from_environment(void **state)
{
	struct conf *conf;

	(void)state;
	setenv("SANDBOX_CLEANUP_AUTH_SECRET", SECRET_A, 1);
	setenv("SANDBOX_FILE_AUTH_SECRET", SECRET_B, 1);
	setenv("SANDBOX_INSPECTION_AUTH_SECRET", "", 1);
	conf = fixture_accept();
	assert_int_equal(conf->token_count, 2);
	assert_int_equal(conf->tokens[0].scopes, SCOPE_SESSION_DELETE);
	assert_null(conf->tokens[0].workspaces);
	assert_int_equal(conf->tokens[1].scopes,
			 SCOPE_FILE_READ | SCOPE_FILE_WRITE | SCOPE_ARTIFACT_READ | SCOPE_ARTIFACT_WRITE);
	conf_free(conf);
	setenv("SANDBOX_INSPECTION_AUTH_SECRET", "short", 1);
	fixture_refuse("SANDBOX_INSPECTION_AUTH_SECRET", "shorter than 32", NULL);
	setenv("SANDBOX_INSPECTION_AUTH_SECRET", SECRET_A, 1);
	fixture_refuse("SANDBOX_INSPECTION_AUTH_SECRET", "same secret", NULL);
}

static void dev_token(void **state)
{
	struct conf *conf = NULL;
	struct err err = {0};
	char path[256];
	size_t len;

	(void)state;
	fixture_path(path, sizeof(path), "berth.conf");
	if (conf_load(path, true, &conf, &err))
		fail_msg("%s", err.msg);
	assert_int_equal(conf->token_count, 1);
	assert_string_equal(conf->tokens[0].name, "dev");
	assert_int_equal(conf->tokens[0].scopes, (1u << SCOPE_COUNT) - 1);
	assert_non_null(secret_ptr(conf->tokens[0].secret, &len));
	assert_int_equal(len, 64);
	conf_free(conf);
	conf = NULL;
	fixture_main("http : { listen = \"0.0.0.0\"; behind_proxy = true; };");
	assert_int_equal(conf_load(path, true, &conf, &err), ERR_CONFIG);
	assert_non_null(strstr(err.msg, "--dev"));
}

static char *dump(void)
{
	struct conf *conf = fixture_accept();
	struct buf buf;

	buf_init(&buf, 1 << 20);
	conf_dump(conf, false, &buf);
	conf_free(conf);
	assert_int_equal(buf.error, 0);
	return buf_take(&buf);
}

static void dump_round_trip(void **state)
{
	char *first, *second, path[256];

	(void)state;
	fixture_main(
	    "lease : { idle = \"90s\"; };\nexecution : { spool_max = \"1500MB\"; };\nlog : { level = \"warn\"; };");
	fixture_write("providers.d/10-one.conf",
		      "provider = \"mock\"; name = \"one\"; region = \"eu\"; warm = 3;\n"
		      "config : { a = 5; b = \"q\\\"uo\\\\te\"; api_key = \"env:KEY\"; c = true; };");
	fixture_write("providers.d/20-two.conf", "provider = \"mock\"; name = \"two\"; required = false;");
	first = dump();
	assert_non_null(strstr(first, "idle = \"1m30s\""));
	assert_non_null(strstr(first, "api_key = \"env:KEY\""));
	fixture_path(path, sizeof(path), "providers.d");
	fixture_empty(path);
	fixture_write("berth.conf", first);
	second = dump();
	assert_string_equal(first, second);
	free(first);
	free(second);
}

static void dump_hides_secrets(void **state)
{
	char *text;

	(void)state;
	tokens_main(TOKEN("a", "env:A", REST));
	fixture_write("providers.d/10-one.conf",
		      "provider = \"mock\"; name = \"one\"; config : { password = \"" SECRET_B "\"; };");
	text = dump();
	assert_non_null(strstr(text, "\"file.read\", \"admin\""));
	assert_non_null(strstr(text, "secret = \"(secret)\""));
	assert_null(strstr(text, SECRET_A));
	assert_null(strstr(text, SECRET_B));
	free(text);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, fixture_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
	    CASE(good),      CASE(q8_refused),      CASE(world_readable),     CASE(from_environment),
	    CASE(dev_token), CASE(dump_round_trip), CASE(dump_hides_secrets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
