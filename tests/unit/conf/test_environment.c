/* SPDX-License-Identifier: Apache-2.0 */
/* Environment names override; what cannot be honoured refuses. */
#include "conf_fixture.h"
#include "core/limits.h"

extern char **environ;

static int setup(void **state)
{
	clearenv();
	return fixture_setup(state);
}

static int teardown(void **state)
{
	clearenv();
	return fixture_teardown(state);
}

static void reference_names(void **state)
{
	struct conf *conf;

	(void)state;
	fixture_main("lease : { active = \"3h\"; };");
	setenv("SANDBOX_TASK_LEASE_TTL", "1h30m", 1);
	setenv("SANDBOX_TASK_IDLE_TTL", "0", 1);
	setenv("SANDBOX_TASK_GC_INTERVAL", "", 1); /* empty counts as unset */
	setenv("SANDBOX_DEFAULT_EXECUTION_TIMEOUT_SECONDS", "60", 1);
	setenv("SANDBOX_MAX_EXECUTION_TIMEOUT_SECONDS", "600", 1);
	setenv("SANDBOX_EXECUTION_QUEUE_TIMEOUT", "90s", 1);
	setenv("SANDBOX_EXECUTION_RECORD_TTL", "48h", 1);
	setenv("BERTH_STATE_DIR", "/tmp/x", 1);
	setenv("BERTH_PORT", "9000", 1);
	setenv("BERTH_LISTEN", "::1", 1);
	setenv("BERTH_DEPLOYMENT", "other", 1);
	conf = fixture_accept();
	assert_int_equal(conf->lease_active_ms, 5400000);
	assert_int_equal(conf->lease_idle_ms, 0);
	assert_int_equal(conf->gc_interval_ms, 30000);
	assert_int_equal(conf->exec_timeout_ms, 60000);
	assert_int_equal(conf->exec_timeout_max_ms, 600000);
	assert_int_equal(conf->exec_queue_ms, 90000);
	assert_int_equal(conf->exec_retention_ms, 48 * 3600 * 1000);
	assert_string_equal(conf->state_dir, "/tmp/x");
	assert_int_equal(conf->port, 9000);
	assert_string_equal(conf->listen, "::1");
	assert_string_equal(conf->deployment, "other");
	conf_free(conf);
}

static void provisioning_is_split(void **state)
{
	struct conf *conf;

	(void)state;
	setenv("SANDBOX_PROVIDER_PROVISIONING_TIMEOUT", "30s", 1);
	conf = fixture_accept();
	assert_int_equal(conf->scheduling_ms, 15000);
	assert_int_equal(conf->starting_ms, 15000);
	conf_free(conf);
	setenv("SANDBOX_PROVIDER_PROVISIONING_TIMEOUT", "10m", 1);
	conf = fixture_accept();
	assert_int_equal(conf->starting_ms, 120000);
	assert_int_equal(conf->scheduling_ms, 480000);
	conf_free(conf);
}

static void bad_values(void **state)
{
	static const struct {
		const char *name, *value, *part;
	} cases[] = {
	    {"SANDBOX_TASK_LEASE_TTL", "0", "lease.active"},
	    {"SANDBOX_TASK_LEASE_TTL", "-1h", "lease.active"},
	    {"SANDBOX_TASK_IDLE_TTL", "15", "lease.idle"},
	    {"SANDBOX_TASK_GC_INTERVAL", "0s", "gc.interval"},
	    {"SANDBOX_DEFAULT_EXECUTION_TIMEOUT_SECONDS", "2m", "whole seconds"},
	    {"SANDBOX_DEFAULT_EXECUTION_TIMEOUT_SECONDS", "1e3", "whole seconds"},
	    {"SANDBOX_MAX_EXECUTION_TIMEOUT_SECONDS", "99999999999999999999", "whole seconds"},
	    {"SANDBOX_PROVIDER_PROVISIONING_TIMEOUT", "soon", "session.scheduling"},
	    {"SANDBOX_ALLOW_INTERNET", "maybe", "allow_internet"},
	    {"SANDBOX_PROVIDER_CPU", "a lot", "500m"},
	    {"SANDBOX_PROVIDER_MEMORY", "lots", "512Mi"},
	    {"SANDBOX_REGION", "EU", "region"},
	    {"BERTH_PORT", "http", "http.port"},
	    {"SANDBOX_CONTROL_AUTH_SECRET", "short", "SANDBOX_CONTROL_AUTH_SECRET"},
	    {"SANDBOX_WORKSPACE_PROVIDER", "s3", "not supported yet"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		setenv(cases[i].name, cases[i].value, 1);
		fixture_refuse(cases[i].part, strcmp(cases[i].name, "SANDBOX_REGION") ? cases[i].name : NULL, NULL);
		assert_null(strstr(fixture_err.msg, SECRET_A));
		unsetenv(cases[i].name);
	}
}

/* The login is used, and never shown. */
static void redis_url(void **state)
{
	struct conf *conf;
	struct buf dump;
	size_t len;

	(void)state;
	setenv("REDIS_URL", "redis://berth:sesame@redis:7000/2", 1);
	setenv("SANDBOX_CONTROL_REDIS_PREFIX", "mine", 1);
	setenv("SANDBOX_EXECUTION_EVENT_STREAM", "mine.events", 1);
	setenv("SANDBOX_RUNNER_CONSUMER_GROUP", "mine-runners", 1);
	conf = fixture_accept();
	assert_string_equal(conf->store_type, "redis");
	assert_string_equal(conf->redis_url, "redis://redis:7000/2");
	assert_string_equal(secret_ptr(conf->redis_login_url, &len), "redis://berth:sesame@redis:7000/2");
	assert_string_equal(conf->redis_prefix, "mine");
	assert_string_equal(conf->redis_event_stream, "mine.events");
	assert_string_equal(conf->redis_request_stream, "agentarea.sandbox.execution.requests");
	assert_string_equal(conf->redis_group, "mine-runners");
	buf_init(&dump, LIMIT_MIB);
	conf_dump(conf, true, &dump);
	assert_non_null(strstr(dump.ptr, "redis://redis:7000/2"));
	assert_null(strstr(dump.ptr, "sesame"));
	assert_non_null(strstr(dump.ptr, "url = \"redis://redis:7000/2\"; # environment REDIS_URL\n"));
	assert_non_null(strstr(dump.ptr, "prefix = \"mine\"; # environment SANDBOX_CONTROL_REDIS_PREFIX\n"));
	assert_non_null(strstr(dump.ptr, "level = \"info\"; # default\n"));
	assert_non_null(strstr(dump.ptr, "/berth.conf:1\n"));
	assert_non_null(strstr(dump.ptr, "/10-one.conf:1\n"));
	buf_fini(&dump);
	conf_free(conf);
	setenv("REDIS_URL", "unix:///run/redis@1.sock", 1);
	conf = fixture_accept();
	assert_string_equal(conf->redis_url, "unix:///run/redis@1.sock");
	assert_null(conf->redis_login_url);
	conf_free(conf);
}

static void one_target(void **state)
{
	struct conf *conf;

	(void)state;
	setenv("SANDBOX_REGION", "eu", 1);
	setenv("SANDBOX_ALLOW_INTERNET", "true", 1);
	setenv("SANDBOX_PROVIDER_CPU", "500m", 1);
	setenv("SANDBOX_PROVIDER_MEMORY", "512Mi", 1);
	conf = fixture_accept();
	assert_string_equal(conf->targets[0].name, "one");
	assert_string_equal(conf->targets[0].region, "eu");
	assert_true(conf->targets[0].allow_internet);
	assert_int_equal(conf->targets[0].cpu_millis, 500);
	assert_int_equal(conf->targets[0].memory, 512 << 20);
	conf_free(conf);
}

static void provider_makes_a_target(void **state)
{
	struct conf *conf;
	char path[256];

	(void)state;
	fixture_path(path, sizeof(path), "providers.d/10-one.conf");
	unlink(path);
	setenv("SANDBOX_REGION", "eu", 1);
	fixture_refuse("no target is configured", NULL);
	setenv("SANDBOX_PROVIDER", "kubernetes", 1);
	conf = fixture_accept();
	assert_int_equal(conf->target_count, 1);
	assert_string_equal(conf->targets[0].provider, "kubernetes");
	assert_string_equal(conf->targets[0].name, "kubernetes");
	assert_string_equal(conf->targets[0].region, "eu");
	conf_free(conf);
}

static void several_targets(void **state)
{
	(void)state;
	fixture_write("providers.d/20-two.conf", "provider = \"mock\"; name = \"two\"; region = \"us\";");
	setenv("SANDBOX_REGION", "eu", 1);
	fixture_refuse("SANDBOX_REGION", "10-one.conf", "20-two.conf", NULL);
	unsetenv("SANDBOX_REGION");
	setenv("SANDBOX_PROVIDER", "mock", 1);
	fixture_refuse("SANDBOX_PROVIDER", "10-one.conf", NULL);
	unsetenv("SANDBOX_PROVIDER");
	conf_free(fixture_accept());
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
	    CASE(reference_names), CASE(provisioning_is_split),   CASE(bad_values),
	    CASE(redis_url),	       CASE(one_target),      CASE(provider_makes_a_target), CASE(several_targets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
