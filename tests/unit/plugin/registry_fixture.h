/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration made by hand and the registry over it. */
#ifndef REGISTRY_FIXTURE_H
#define REGISTRY_FIXTURE_H

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <time.h>

#include "plugin_fixture.h"

#define TARGETS_MAX 4

struct fixture {
	struct conf conf;
	struct conf_target targets[TARGETS_MAX];
	struct conf_pair pairs[TARGETS_MAX][4];
	char gate_text[32];
	sem_t gate[2]; /* arrived, go */
	struct registry *registry;
	struct err err;
};
static struct fixture fix;

static inline struct conf_target *add_target(const char *provider, const char *name)
{
	struct conf_target *target = &fix.targets[fix.conf.target_count];

	target->file = (char *)(uintptr_t) "providers.d/x.conf";
	target->provider = (char *)(uintptr_t)provider;
	target->name = (char *)(uintptr_t)name;
	target->region = target->isolation = target->image = (char *)(uintptr_t) "";
	target->required = true;
	target->max_operations = 8;
	target->settings = fix.pairs[fix.conf.target_count++];
	return target;
}

static inline void add_setting(struct conf_target *target, const char *key, const char *value)
{
	target->settings[target->setting_count++] = (struct conf_pair){
	    .key = (char *)(uintptr_t)key,
	    .value = (char *)(uintptr_t)value,
	    .where = (char *)(uintptr_t) "x.conf:7",
	};
}

static inline void add_gate(struct conf_target *target)
{
	snprintf(fix.gate_text, sizeof(fix.gate_text), "%lld", (long long)(uintptr_t)fix.gate);
	add_setting(target, "gate", fix.gate_text);
}

static inline int registry_setup(void **state)
{
	memset(&fix, 0, sizeof(fix));
	sem_init(&fix.gate[0], 0, 0);
	sem_init(&fix.gate[1], 0, 0);
	if (fixture_setup(state))
		return -1;
	fix.conf.deployment = (char *)(uintptr_t) "test";
	fix.conf.state_dir = fixture_dir;
	fix.conf.helper_dir = (char *)(uintptr_t) "/nonexistent";
	fix.conf.plugin_dir = (char *)(uintptr_t)BERTH_TEST_ZOO_DIR;
	fix.conf.targets = fix.targets;
	setenv("ZOO_KEY", "zoo-secret-zoo-secret-zoo-secret", 1);
	return 0;
}

static inline int registry_teardown(void **state)
{
	registry_close(fix.registry, clock_after_ms(5000));
	sem_destroy(&fix.gate[0]);
	sem_destroy(&fix.gate[1]);
	return fixture_teardown(state);
}

static inline void open_registry(void)
{
	memset(&fix.err, 0, sizeof(fix.err));
	if (registry_open(&fix.conf, NULL, &fix.registry, &fix.err))
		fail_msg("%s", fix.err.msg);
}

static inline void refuse_registry(const char *part)
{
	memset(&fix.err, 0, sizeof(fix.err));
	assert_int_not_equal(registry_open(&fix.conf, NULL, &fix.registry, &fix.err), 0);
	assert_null(fix.registry);
	EXPECT_ERR(fix.err, part);
}

static inline struct berth_str str(const char *text)
{
	return (struct berth_str){.ptr = text, .len = strlen(text)};
}

static inline struct berth_session session(const char *ref)
{
	return (struct berth_session){.struct_size = sizeof(struct berth_session), .ref = str(ref)};
}

/* Waits until health says so. */
static inline struct target_health wait_health(const struct target *target, unsigned stuck, unsigned running)
{
	const struct timespec tick = {.tv_nsec = 5000000};
	int64_t deadline = clock_after_ms(20000);
	struct target_health health;

	do {
		target_health(target, &health);
		if (health.stuck == stuck && health.running == running)
			return health;
		nanosleep(&tick, NULL);
	} while (clock_boot_ns() < deadline);
	fail_msg("stuck %u, running %u; expected %u, %u", health.stuck, health.running, stuck, running);
	return health;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, registry_setup, registry_teardown)

#endif
