/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instances of the mock provider, one per deployment, on one root: what really keeps sessions and runs commands. Made
 * on demand under a lock; constant afterwards.
 */
#include "server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INSTANCES_MAX 64

const struct berth_provider *mock_provider_entry(void); /* the mock's own entry, by another name */

static struct {
	pthread_mutex_t lock;
	struct {
		char *deployment;
		void *inst;
	} all[INSTANCES_MAX];
	unsigned count;
} engine = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool engine_init(void)
{
	return mock_provider_entry()->init(&hostcall_host) == BERTH_OK;
}

const struct berth_ops *engine_ops(void)
{
	return mock_provider_entry()->ops;
}

/* Numbers with units, as in a configuration file; the host's own reader is not here. */
static int64_t number_of(const char *text)
{
	static const struct {
		const char *word;
		int64_t factor;
	} units[] = {{"", 1},	       {"ms", 1},	 {"s", 1000},	  {"m", 60000},
		     {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};
	char *end;
	long long number = strtoll(text, &end, 10);

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (!strcmp(units[i].word, end))
			return number * units[i].factor;
	return -1; /* which the engine refuses */
}

static void *open_instance(const char *deployment)
{
	const struct berth_option_value values[] = {
		{.struct_size = sizeof(values[0]), .key = "runtime", .is_set = 1, .string = wire_str(options.runtime)},
		{.key = "kill_grace", .is_set = 1, .integer = number_of(options.kill_grace)},
		{.key = "memory_max", .is_set = 1, .integer = number_of(options.memory_max)},
		{.key = "ready_delay", .is_set = 1, .integer = number_of(options.ready_delay)},
	};
	const struct berth_option_value *given[] = {&values[0], &values[1], &values[2], &values[3]};
	const struct berth_open_args args = {
		.struct_size = sizeof(args),
		.name = wire_str("httpprov-server"),
		.deployment = wire_str(deployment),
		.data_dir = wire_str(options.root),
		.helper_dir = wire_str(options.helpers),
		.options = given,
		.option_count = sizeof(given) / sizeof(given[0]),
	};
	struct berth_instance_info info = {.struct_size = sizeof(info)};
	struct hostcall hc = {0};
	void *inst = NULL;

	if (engine_ops()->open(&args, hostcall_abi(&hc), &inst, &info) == BERTH_OK)
		return inst;
	fprintf(stderr, "httpprov-server: %s: %s\n", options.root, hc.text);
	return NULL;
}

void *engine_of(const char *deployment)
{
	void *inst = NULL;
	unsigned i = 0;

	pthread_mutex_lock(&engine.lock);
	while (i < engine.count && strcmp(engine.all[i].deployment, deployment) != 0)
		i++;
	if (i < engine.count) {
		inst = engine.all[i].inst;
	} else if (i < INSTANCES_MAX) {
		char *name = strdup(deployment);

		inst = name ? open_instance(deployment) : NULL;
		if (inst) {
			engine.all[i].deployment = name;
			engine.all[i].inst = inst;
			engine.count++;
		} else {
			free(name);
		}
	}
	pthread_mutex_unlock(&engine.lock);
	return inst;
}

void engine_fini(void)
{
	for (unsigned i = 0; i < engine.count; i++) {
		engine_ops()->close(engine.all[i].inst);
		free(engine.all[i].deployment);
	}
	engine.count = 0;
	if (mock_provider_entry()->fini)
		mock_provider_entry()->fini();
}
