/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes what requests share, before any thread exists, and says how it is. Must never let a name of its own through to
 * commands.
 */
#include "executor.h"

#include <json-c/json.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../sdk/lib/supervised_files.h"
#include "call.h"

#define MS INT64_C(1000000)
#define PAIR_MAX (128u * 1024u)
#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static bool is_private(const char *pair)
{
	return strncmp(pair, "BERTH_EXECUTOR_", 15) == 0 || strncmp(pair, "BERTH_POD_UID=", 14) == 0;
}

/* What the SDK would refuse of a command must not come with the image either. */
static size_t name_len(const char *pair)
{
	size_t len = strspn(pair, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");

	if (pair[len] != '=' || (*pair >= '0' && *pair <= '9') || strlen(pair) + 1 > PAIR_MAX)
		return 0;
	return len;
}

static struct berth_pair pair_of(const char *name, const char *value)
{
	return (struct berth_pair){{name, strlen(name)}, {value, strlen(value)}};
}

static bool has(const struct executor *executor, const char *name)
{
	for (size_t i = 0; i < executor->sup.env_count; i++)
		if (executor->env[i].name.len == strlen(name) &&
		    memcmp(executor->env[i].name.ptr, name, strlen(name)) == 0)
			return true;
	return false;
}

static int take_env(struct executor *executor, char *const env[])
{
	size_t count = 0;

	while (env[count])
		count++;
	executor->env = calloc(count + 2, sizeof(*executor->env));
	if (!executor->env)
		return -1;
	for (size_t i = 0; i < count; i++) {
		const char *pair = env[i];
		size_t len = name_len(pair);

		if (len == 0 || is_private(pair))
			continue;
		executor->env[executor->sup.env_count++] =
			(struct berth_pair){{pair, len}, {pair + len + 1, strlen(pair + len + 1)}};
	}
	if (!has(executor, "PATH"))
		executor->env[executor->sup.env_count++] = pair_of("PATH", DEFAULT_PATH);
	if (!has(executor, "HOME"))
		executor->env[executor->sup.env_count++] = pair_of("HOME", executor->state.root);
	executor->sup.env = executor->env;
	return 0;
}

static int64_t wall_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / MS;
}

int executor_init(struct executor *executor, const struct options *options, char *const env[], char *text, size_t cap)
{
	const struct state *state = &executor->state;

	memset(executor, 0, sizeof(*executor));
	executor->options = *options;
	if (sodium_init() < 0) {
		snprintf(text, cap, "no random numbers can be had");
		return -1;
	}
	if (keys_init(&executor->keys, options->keys, options->keys_file, text, cap) < 0 ||
	    state_open(&executor->state, options->root, options->state, options->uid >= 0, text, cap) < 0)
		return -1;
	replay_init(&executor->replay, REPLAY_MAX);
	executor->launcher = (struct launcher){.helper = options->helper, .socket = -1};
	pthread_mutex_init(&executor->launcher.lock, NULL);
	executor->clock_ms = wall_ms() - sup_now_ns() / MS;
	executor->sup = (struct berth_sup){.struct_size = sizeof(executor->sup),
					   .helper = options->helper,
					   .run_dir = state->run_dir,
					   .root = state->root,
					   .uid = options->uid,
					   .gid = options->gid,
					   .launch = launcher_launch,
					   .launch_ctx = &executor->launcher,
					   .waits = call_waits};
	executor->fs = (struct berth_localfs){.struct_size = sizeof(executor->fs),
					      .root_fd = state->root_fd,
					      .uid = options->uid,
					      .gid = options->gid};
	if (take_env(executor, env) == 0)
		return 0;
	snprintf(text, cap, "no memory for the environment");
	return -1;
}

int64_t executor_now_ms(const struct executor *executor)
{
	return executor->clock_ms + sup_now_ns() / MS;
}

static const char *why_not(struct executor *executor)
{
	const char *lost = state_lost(&executor->state);

	if (lost)
		return lost;
	return atomic_load(&executor->draining) ? "draining" : "";
}

char *executor_health(struct executor *executor, bool *ret_ready)
{
	struct json_object *json = json_object_new_object();
	const char *reason = why_not(executor);
	char *text;

	*ret_ready = *reason == '\0';
	json_object_object_add(json, "protocol", json_object_new_int(EXECUTOR_PROTOCOL));
	json_object_object_add(json, "version", json_object_new_string(BERTH_VERSION));
	json_object_object_add(json, "pod_uid", json_object_new_string(executor->options.pod_uid));
	json_object_object_add(json, "instance", json_object_new_string(executor->state.instance));
	json_object_object_add(json, "boot_id", json_object_new_string(executor->state.boot_id));
	json_object_object_add(json, "root", json_object_new_string(executor->state.root));
	json_object_object_add(json, "now_ms", json_object_new_int64(executor_now_ms(executor)));
	json_object_object_add(json, "pinned", json_object_new_boolean(state_pinned(&executor->state)));
	json_object_object_add(json, "ready", json_object_new_boolean(*ret_ready));
	json_object_object_add(json, "reason", json_object_new_string(reason));
	json_object_object_add(json, "operations", json_object_new_int64(atomic_load(&executor->operations)));
	text = strdup(json_object_to_json_string_ext(json, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(json);
	return text;
}
