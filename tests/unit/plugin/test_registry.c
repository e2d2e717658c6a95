/* SPDX-License-Identifier: Apache-2.0 */
/* Targets: settings against the plugin's table, open, refusals that degrade, private folders, stop. */
#include "registry_fixture.h"

static void opens_and_finds(void **state)
{
	struct target *target;
	char path[256];
	struct stat st;

	(void)state;
	add_target("good", "one");
	add_target("good", "two");
	open_registry();
	assert_int_equal(fix.registry->target_count, 2);
	target = registry_find(fix.registry, "two");
	assert_ptr_equal(target, fix.registry->targets[1]);
	assert_ptr_equal(target->plugin, fix.registry->targets[0]->plugin);
	assert_null(registry_find(fix.registry, "three"));
	assert_int_equal(target->capabilities, BERTH_CAP_THREADSAFE);
	assert_int_equal(target->isolation, BERTH_ISOLATION_NONE);
	fixture_path(path, sizeof(path), "targets/two");
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
}

static void settings(void **state)
{
	static const struct {
		const char *key, *value, *part;
	} cases[] = {
	    {"nosuch", "1", "x.conf:7: config.nosuch: is not an option of provider rude"},
	    {"wait", "soon", "x.conf:7: wait: expected a duration"},
	    {"room", "5", "x.conf:7: room: expected a size"},
	    {"loud", "maybe", "x.conf:7: loud: expected true or false"},
	    {"gate", "1.5", "x.conf:7: gate: expected a whole number"},
	    {"api_key", "plain-secret", "x.conf:7: api_key: expected a source"},
	    {"api_key", "env:NOSUCH", "x.conf:7: config.api_key: its source holds nothing"},
	    {"api_key", "file:/nonexistent", "/nonexistent"},
	};
	struct conf_target *target = add_target("rude", "one");

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		target->setting_count = 0;
		add_setting(target, cases[i].key, cases[i].value);
		refuse_registry(cases[i].part);
		assert_null(strstr(fix.err.msg, "plain-secret"));
	}
	target->setting_count = 0;
	add_setting(target, "wait", "1m30s");
	add_setting(target, "api_key", "env:ZOO_KEY");
	open_registry();
}

static void refused_is_degraded(void **state)
{
	struct target_health health;
	struct target *target;
	struct err err = {0};
	struct call *call;

	(void)state;
	add_target("good", "one");
	add_target("bad-magic", "two");
	refuse_registry("magic word");
	fix.targets[1].required = false;
	open_registry();
	target = registry_find(fix.registry, "two");
	assert_null(target->plugin);
	target_health(target, &health);
	assert_true(health.degraded);
	assert_non_null(strstr(health.why, "magic word"));
	call = call_new(target, clock_after_ms(1000), NULL);
	assert_int_equal(call_find(call, "w", "t", &err), ERR_PROVIDER_UNAVAILABLE);
	assert_string_equal(err.reason, "target_degraded");
	call_free(call);
	target_health(fix.registry->targets[0], &health);
	assert_false(health.degraded);
}

static void open_refuses(void **state)
{
	(void)state;
	add_target("open-fails", "one");
	refuse_registry("there is no cluster of this name");
	assert_int_equal(fix.err.code, ERR_CONFIG);
	fix.targets[0].required = false;
	open_registry();
	assert_null(fix.registry->targets[0]->plugin);
}

static void isolation(void **state)
{
	struct conf_target *target = add_target("good", "one");

	(void)state;
	target->isolation = (char *)(uintptr_t) "gvisor";
	refuse_registry("expected isolation gvisor, its provider gives none");
	target->isolation = (char *)(uintptr_t) "none";
	open_registry();
	assert_int_equal(fix.registry->targets[0]->isolation_wanted, BERTH_ISOLATION_NONE);
}

static void settle_time(void **state)
{
	struct conf_target *target = add_target("rude", "one");

	(void)state;
	add_setting(target, "settle", "9223372036854775807ms");
	refuse_registry("target one: expected a settle time of at most a year, got 9223372036854775807 ms from open");
	target->setting_count = 0;
	add_setting(target, "settle", "8760h");
	open_registry();
	assert_int_equal(fix.registry->targets[0]->create_settle_ms, INT64_C(8760) * 3600 * 1000);
}

static void folder_of_another(void **state)
{
	char path[256];

	(void)state;
	add_target("good", "one");
	fixture_path(path, sizeof(path), "targets");
	assert_int_equal(mkdir(path, 0700), 0);
	fixture_path(path, sizeof(path), "targets/one");
	assert_int_equal(mkdir(path, 0755), 0);
	refuse_registry("targets/one: expected a folder");
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(symlink("/tmp", path), 0);
	refuse_registry("another kind of file");
	assert_int_equal(unlink(path), 0);
	open_registry();
}

struct runner {
	struct call *call;
	int rc;
};

static void *run_execute(void *arg)
{
	struct runner *runner = arg;
	struct berth_session gate = session("gate");
	struct berth_command command = {.struct_size = sizeof(command)};

	runner->rc = call_execute(runner->call, &gate, &command, NULL);
	return NULL;
}

static void *run_close(void *arg)
{
	registry_close(arg, clock_after_ms(20000));
	return NULL;
}

/* A stop waits for the calls that run, and lets none begin. */
static void stop_waits(void **state)
{
	struct runner runner;
	struct call *late;
	struct err err = {0};
	pthread_t worker, closer;
	struct target *target;
	const struct timespec tick = {.tv_nsec = 2000000};

	(void)state;
	add_gate(add_target("rude", "one"));
	open_registry();
	target = fix.registry->targets[0];
	runner.call = call_new(target, clock_after_ms(30000), NULL);
	late = call_new(target, clock_after_ms(30000), NULL);
	pthread_create(&worker, NULL, run_execute, &runner);
	sem_wait(&fix.gate[0]);
	pthread_create(&closer, NULL, run_close, fix.registry);
	for (int rc = 0; rc != ERR_SHUTTING_DOWN; nanosleep(&tick, NULL))
		rc = call_find(late, "w", "t", &err);
	call_free(late);
	sem_post(&fix.gate[1]);
	pthread_join(worker, NULL);
	pthread_join(closer, NULL);
	fix.registry = NULL;
	assert_int_equal(runner.rc, 0);
	call_free(runner.call);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    CASE(opens_and_finds), CASE(settings),          CASE(refused_is_degraded), CASE(open_refuses),
	    CASE(isolation), CASE(settle_time),       CASE(folder_of_another), CASE(stop_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
