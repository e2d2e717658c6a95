/* SPDX-License-Identifier: Apache-2.0 */
/* Files: what is taken, what is refused, and that each refusal names file, line and key. */
#include "conf_fixture.h"

static void defaults(void **state)
{
	struct conf *conf = fixture_accept();

	(void)state;
	assert_string_equal(conf->deployment, "test");
	assert_string_equal(conf->state_dir, "/var/lib/berth");
	assert_string_equal(conf->listen, "127.0.0.1");
	assert_int_equal(conf->port, 8000);
	assert_int_equal(conf->lease_active_ms, 2 * 3600 * 1000);
	assert_int_equal(conf->lease_idle_ms, 15 * 60 * 1000);
	assert_int_equal(conf->gc_interval_ms, 30000);
	assert_int_equal(conf->operation_ttl_ms, 30000);
	assert_int_equal(conf->claim_ttl_ms, 30000);
	assert_int_equal(conf->owner_ttl_ms, 30000);
	assert_int_equal(conf->session_max_age_ms, 24 * 3600 * 1000);
	assert_int_equal(conf->scheduling_ms, 300000);
	assert_int_equal(conf->starting_ms, 120000);
	assert_int_equal(conf->begin_wait_ms, 30000);
	assert_int_equal(conf->teardown_wait_ms, 30000);
	assert_int_equal(conf->task_concurrency, 16);
	assert_int_equal(conf->exec_timeout_ms, 120000);
	assert_int_equal(conf->exec_timeout_max_ms, 1800000);
	assert_int_equal(conf->exec_queue_ms, 300000);
	assert_int_equal(conf->exec_retention_ms, 24 * 3600 * 1000);
	assert_int_equal(conf->completion_grace_ms, 120000);
	assert_int_equal(conf->output_max_bytes, INT64_C(1) << 30);
	assert_int_equal(conf->spool_max_bytes, INT64_C(4) << 30);
	assert_int_equal(conf->file_max_bytes, INT64_C(2) << 30);
	assert_int_equal(conf->max_deliveries, 5);
	assert_int_equal(conf->runner_concurrency, 512);
	assert_int_equal(conf->queue_max, 10000);
	assert_int_equal(conf->workspace_concurrency, 0);
	assert_int_equal(conf->workspace_queue_max, 0);
	assert_int_equal(conf->http_connections, 4096);
	assert_int_equal(conf->http_workers, 64);
	assert_int_equal(conf->stop_grace_ms, 10000);
	assert_false(conf->placement_pin);
	assert_int_equal(conf->token_count, 0);
	assert_int_equal(conf->target_count, 1);
	assert_true(conf->targets[0].required);
	assert_int_equal(conf->targets[0].max_operations, 256);
	assert_string_equal(conf->targets[0].region, "");
	conf_free(conf);
}

static void files_in_order(void **state)
{
	struct conf *conf;

	(void)state;
	fixture_write("providers.d/9-b.conf", "provider = \"mock\"; name = \"nine\"; region = \"nine\";");
	fixture_write("providers.d/05-a.conf", "provider = \"mock\"; name = \"five\"; region = \"five\";\n"
					       "config : { a = 5; b = \"x\"; c = true; d = 0.5; e = 5000000000L; };");
	fixture_write("providers.d/old.conf.bak", "nonsense");
	fixture_write("providers.d/.hidden.conf", "nonsense");
	conf = fixture_accept();
	assert_int_equal(conf->target_count, 3);
	assert_string_equal(conf->targets[0].name, "five");
	assert_string_equal(conf->targets[1].name, "one");
	assert_string_equal(conf->targets[2].name, "nine");
	assert_non_null(strstr(conf->targets[0].file, "/providers.d/05-a.conf"));
	assert_int_equal(conf->targets[0].setting_count, 5);
	assert_string_equal(conf->targets[0].settings[0].key, "a");
	assert_string_equal(conf->targets[0].settings[0].value, "5");
	assert_non_null(strstr(conf->targets[0].settings[0].where, "05-a.conf:2"));
	assert_string_equal(conf->targets[0].settings[2].value, "true");
	assert_int_equal(conf->targets[0].settings[0].kind, OPTION_INTEGER);
	assert_int_equal(conf->targets[0].settings[2].kind, OPTION_BOOLEAN);
	assert_string_equal(conf->targets[0].settings[3].value, "0.5");
	assert_string_equal(conf->targets[0].settings[4].value, "5000000000");
	conf_free(conf);
}

/* Line 1 is BASE; the text begins on line 2. */
static const struct {
	const char *text;
	const char *parts[4];
} refusals[] = {
    {"nosuch = 1;", {"berth.conf:2", "nosuch", "not a known key"}},
    {"lease : {\n nosuch = 1; };", {"berth.conf:3", "lease.nosuch", "not a known key"}},
    {"lease : { idel = \"5m\"; };", {"lease.idel: is not a known key; did you mean lease.idle?"}},
    {"lease_idle = \"5m\";", {"lease_idle: is not a known key; did you mean lease.idle?"}},
    {"plugin_dirs = \"/x\";", {"did you mean plugin_dir?"}},
    {"behind_proxy = true;", {"did you mean http.behind_proxy?"}},
    {"leese : { idle = \"5m\"; };", {"leese: is not a known key; did you mean lease?"}},
    {"lease = 5;", {"berth.conf:2", "lease", "expected a group, got an integer"}},
    {"lease : { active = 5; };", {"berth.conf:2", "lease.active", "expected a duration in quotes", "got an integer"}},
    {"http : { port = \"80\"; };", {"berth.conf:2", "http.port", "expected an integer, got a text"}},
    {"http : { port = 65536; };", {"http.port", "0 to 65535", "65536"}},
    {"http : { port = -1; };", {"http.port", "0 to 65535"}},
    {"http : { behind_proxy = 1; };", {"http.behind_proxy", "expected true or false"}},
    {"execution : { spool_max = 5; };", {"execution.spool_max", "expected a size in quotes"}},
    {"execution : { spool_max = \"5\"; };", {"execution.spool_max", "expected a size with a unit"}},
    {"log : { level = \"loud\"; };", {"log.level", "one of debug, info, warn, error,", "loud"}},
    {"state_dir = \"/a\";\nstate_dir = \"/b\";", {"berth.conf:3", "state_dir", "set twice"}},
    {"lease : { idle = \"1s\"; idle = \"2s\"; };", {"berth.conf:2", "lease.idle", "set twice"}},
    {"lease : { idle = \"1s\"; };\nlease : { active = \"2s\"; };", {"berth.conf:3", "lease", "set twice"}},
    {"runner : { queue_max = 5000000000; };", {"berth.conf:2", "runner.queue_max", "suffix L"}},
    {"runner : { queue_max = 0x7fffffff0; };", {"runner.queue_max", "suffix L"}},
    {"runner : { queue_max = 99999999999999999999L; };", {"runner.queue_max", "outside 64 bits"}},
    {"runner : { queue_max = 5000000000L; };", {"runner.queue_max", "1 to 10000000"}},
    {"runner : { workspace_concurrency = -1; };", {"runner.workspace_concurrency", "0 to 1000000"}},
    {"runner : { workspace_queue_max = 10000001; };", {"runner.workspace_queue_max", "0 to 10000000"}},
    {"state_dir = \"/a\\x00b\";", {"berth.conf:2", "state_dir", "NUL"}},
    {"state_dir = \"/a", {"berth.conf", "not closed"}},
    {"state_dir = ;", {"berth.conf:2", "syntax error"}},
    {"state_dir = \"relative\";", {"berth.conf:2: state_dir", "absolute path"}},
    {"@include \"/etc/passwd\"", {"berth.conf:2", "@include", "not an absolute"}},
    {"@include \"nosuch.conf\"", {"nosuch.conf", "cannot be opened"}},
    {"@include \"berth.conf\"", {"too deeply"}},
    {"store : { type = \"redis\"; };", {"redis.url", "is missing"}},
    {"roles = \"api gc\";", {"roles", "SQLite has one process only"}},
    {"roles = \"api,runner\";", {"roles", "\"api,runner\" is none"}},
    {"roles = \" \";", {"berth.conf:2: roles", "is empty"}},
    {"roles = \"api\"; store : { type = \"sqlite\"; };", {"roles", "store.type = \"redis\""}},
    {"store : { type = \"etcd\"; };", {"store.type", "sqlite"}},
    {"redis : { url = \"redis://u:sesame@h\"; };", {"berth.conf:2: redis.url", "redis.password"}},
    {"store : { type = \"redis\"; }; redis : { url = \"redis://h\"; user = \"u\"; };", {"redis.user", "needs redis.password"}},
    {"store : { type = \"redis\"; };\nredis : { url = \"redis://h\"; min_acks = 1; ack_wait = \"31s\"; };",
     {"berth.conf:3: redis.ack_wait", "31s is above lease.operation_ttl, 30s"}},
    {"redis : { prefix = \"a{b}\"; };", {"redis.prefix", "none of them"}},
    {"redis : { password = \"sesame\"; };", {"redis.password", "file:/path"}},
    {"redis : { password = \"file:/nonexistent/berth\"; };", {"redis.password", "nonexistent"}},
    {"objects : { type = \"s3\"; };", {"objects.type", "folder only"}},
    {"http : { listen = \"0.0.0.0\"; };", {"http.listen", "0.0.0.0", "tls_cert", "behind_proxy"}},
    {"http : { listen = \"::\"; };", {"http.listen", "tls_cert"}},
    {"http : { listen = \"localhost\"; };", {"berth.conf:2: http.listen", "IPv4 or IPv6 address"}},
    {"session : { max_age = \"30m\"; };", {"session.max_age", "does not exceed", "30m"}},
    {"session : { max_age = \"32m\"; };", {"session.max_age", "does not exceed"}},
    {"execution : { timeout = \"31m\"; };", {"berth.conf:2: execution.timeout", "above execution.timeout_max"}},
    {"tokens = 5;", {"tokens", "list of groups"}},
    {"targets = { };", {"targets", "list of groups"}},
};

static void refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(refusals) / sizeof(*refusals); i++) {
		const char *const *parts = refusals[i].parts;

		fixture_main(refusals[i].text);
		fixture_refuse(parts[0], parts[1], parts[2], parts[3], NULL);
	}
}

static void accepted(void **state)
{
	static const char *const texts[] = {
	    "http : { listen = \"0.0.0.0\"; behind_proxy = true; };",
	    "http : { listen = \"127.8.0.1\"; };",
	    "http : { listen = \"::1\"; };",
	    "http : { listen = \"::ffff:127.0.0.1\"; };",
	    "session : { max_age = \"32m1s\"; };",
	    "# 5000000000\n// 5000000000\n/* 5000000000 \n */ state_dir = \"/5000000000/a b\";",
	    "runner : { queue_max = 10000000L; };",
	    "http = { port = 0x1f90; };",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		fixture_main(texts[i]);
		conf_free(fixture_accept());
	}
}

/* T4: TTL values 0, negative, null, 1 s, 1e9, "24h", 2^63 — the effective value, or a refusal that says which key. */
static void t4_lifetimes(void **state)
{
	static const struct {
		const char *group, *key;
		size_t off;
		bool zero;
	} rows[] = {
	    {"lease", "active", offsetof(struct conf, lease_active_ms), false},
	    {"lease", "idle", offsetof(struct conf, lease_idle_ms), true},
	    {"gc", "interval", offsetof(struct conf, gc_interval_ms), false},
	    {"lease", "operation_ttl", offsetof(struct conf, operation_ttl_ms), false},
	    {"execution", "claim_ttl", offsetof(struct conf, claim_ttl_ms), false},
	    {"execution", "queue_timeout", offsetof(struct conf, exec_queue_ms), false},
	    {"session", "begin_wait", offsetof(struct conf, begin_wait_ms), false},
	};
	static const struct {
		const char *text;
		int64_t ms; /* -1: refused; 0: where zero may be */
	} values[] = {
	    {"\"0\"", 0},
	    {"\"0s\"", 0},
	    {"\"-1s\"", -1},
	    {"\"\"", -1},
	    {"\"null\"", -1},
	    {"\"1s\"", 1000},
	    {"1e9", -1},
	    {"\"1e9\"", -1},
	    {"\"24h\"", 86400000},
	    {"\"9223372036854775808ms\"", -1},
	    {"\"9223372036854775807ms\"", -1},
	    {"\"367d\"", -1},
	    {"9223372036854775807L", -1},
	    {"\"1000000000s\"", -1},
	};
	char text[128], key[64];

	(void)state;
	for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++) {
		for (size_t v = 0; v < sizeof(values) / sizeof(*values); v++) {
			struct conf *conf;
			int64_t ms;

			snprintf(text, sizeof(text), "%s : { %s = %s; };", rows[r].group, rows[r].key, values[v].text);
			snprintf(key, sizeof(key), "berth.conf:2: %s.%s: ", rows[r].group, rows[r].key);
			fixture_main(text);
			if (values[v].ms < 0 || (values[v].ms == 0 && !rows[r].zero)) {
				fixture_refuse(key, NULL);
				continue;
			}
			conf = fixture_accept();
			memcpy(&ms, (char *)conf + rows[r].off, sizeof(ms));
			assert_int_equal(ms, values[v].ms);
			conf_free(conf);
		}
	}
}

static void includes(void **state)
{
	struct conf *conf;

	(void)state;
	fixture_write("more.conf", "lease : {\n idle = \"7s\"; };\n");
	fixture_main("@include \"more.conf\"\n");
	conf = fixture_accept();
	assert_int_equal(conf->lease_idle_ms, 7000);
	conf_free(conf);
	fixture_write("more.conf", "lease : {\n idle = \"x\"; };\n");
	fixture_refuse("/more.conf:2: lease.idle: ", fixture_dir, NULL);
	fixture_write("more.conf", "runner : {\n queue_max = 5000000000; };\n");
	fixture_refuse("/more.conf:2: runner.queue_max: ", "suffix L", NULL);
}

static void deployment(void **state)
{
	static const char *const bad[] = {"", " a", "a/b", ".a", "a b", "\xc3\xa9"};
	char text[512];

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		snprintf(text, sizeof(text), "deployment = \"%s\";", bad[i]);
		fixture_write("berth.conf", text);
		fixture_refuse("berth.conf:1: deployment: ", NULL);
	}
	fixture_write("berth.conf", "");
	fixture_refuse("berth.conf: deployment: is required", NULL);
}

static void missing_files(void **state)
{
	struct conf *conf = NULL;
	struct err err = {0};

	(void)state;
	assert_int_equal(conf_load("/nonexistent/berth.conf", false, &conf, &err), ERR_CONFIG);
	assert_non_null(strstr(err.msg, "/nonexistent/berth.conf: cannot be opened"));
	memset(&err, 0, sizeof(err));
	assert_int_equal(conf_load(fixture_dir, false, &conf, &err), ERR_CONFIG);
	assert_non_null(strstr(err.msg, "not a regular file"));
}

/* The shipped example is what the quick start uses: it must load as it is. */
static void shipped_example(void **state)
{
	struct conf *conf = NULL;
	struct err err = {0};

	(void)state;
	setenv("BERTH_TOKEN", SECRET_A, 1);
	if (conf_load(BERTH_TEST_SOURCE_DIR "/etc/berth.conf", false, &conf, &err))
		fail_msg("%s", err.msg);
	assert_string_equal(conf->deployment, "local");
	assert_int_equal(conf->token_count, 1);
	assert_int_equal(conf->tokens[0].scopes, (1u << SCOPE_COUNT) - 1);
	assert_null(conf->tokens[0].workspaces);
	assert_int_equal(conf->target_count, 1);
	assert_string_equal(conf->targets[0].provider, "mock");
	conf_free(conf);
	unsetenv("BERTH_TOKEN");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
	    CASE(defaults), CASE(files_in_order), CASE(refused),       CASE(accepted),        CASE(t4_lifetimes),
	    CASE(includes), CASE(deployment),     CASE(missing_files), CASE(shipped_example),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
