/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All targets of the configuration and the plugins behind them. Built and closed on the main thread, constant in
 * between. A target whose call or close does not come back stays as it is, with its plugin: freeing it would pull the
 * ground from under a running thread.
 */
#include "plugin/target.h"

#include "core/clock.h"
#include "core/log.h"
#include "net/net.h"
#include "plugin/private.h"

/* What plugins' HTTP leaves to the others beside clients' connections: store, spool files, loops, logs. */
#define DESCRIPTORS_OTHER 256
#define DIRECT 32 /* commands through HTTP that run without a loop; see net_config */

struct plugin_set {
	struct plugin_entry {
		char *name;
		struct plugin *plugin; /* NULL: refused */
		struct err err;
		bool kept; /* a target of it did not close */
	} * entries;
	size_t count;
	struct watchdog *watchdog;
	struct net *net; /* HTTP for the plugins */
#ifdef PLUGIN_GUARD_CALLS
	struct guard base; /* cwd is -1 until taken */
#endif
};

/* Loads each provider once; a refusal is remembered. */
static struct plugin_entry *get_plugin(struct plugin_set *set, const char *name, const struct conf *conf,
				       const char *probe)
{
	struct plugin_entry *entry;

	for (size_t i = 0; i < set->count; i++)
		if (!strcmp(set->entries[i].name, name))
			return &set->entries[i];
	entry = &set->entries[set->count];
	entry->name = strdup(name);
	if (!entry->name)
		return NULL;
	set->count++;
	loader_load(conf->plugin_dir, name, probe, &hostapi_table, &entry->plugin, &entry->err);
	return entry;
}

int refused_target(const struct err *why, struct err *err)
{
	int rc = why->code == ERR_PROVIDER ? ERR_CONFIG : why->code;

	if (err) {
		*err = *why;
		err->code = rc;
	}
	return rc;
}

static int open_target(struct registry *registry, const struct conf *conf, struct target *target, const char *probe,
		       struct err *err)
{
	struct plugin_entry *entry = get_plugin(registry->plugins, target->conf->provider, conf, probe);
	struct err why = {0};
	int rc;

	if (!entry)
		return err_set(err, ERR_NOMEM, "memory is out");
	if (entry->plugin)
		rc = target_open(target, entry->plugin, conf, PLUGIN_LIMIT_OPEN_MS, &why);
	else {
		why = entry->err;
		rc = why.code;
	}
	if (!rc)
		return 0;
	entry->kept = entry->kept || target->state->lost;
	if (target->conf->required)
		return refused_target(&why, err);
	log_warn("a target is degraded: its plugin was refused", KS("target", target->conf->name), KS("why", why.msg));
	target_refuse(target, why.msg);
	return 0;
}

static struct registry *make_registry(const struct conf *conf)
{
	struct registry *registry = calloc(1, sizeof(*registry));

	if (!registry)
		return NULL;
	registry->targets = calloc(conf->target_count + 1, sizeof(*registry->targets));
	registry->plugins = calloc(1, sizeof(*registry->plugins));
#ifdef PLUGIN_GUARD_CALLS
	if (registry->plugins)
		registry->plugins->base.cwd = -1;
#endif
	if (registry->plugins)
		registry->plugins->entries = calloc(conf->target_count + 1, sizeof(struct plugin_entry));
	if (registry->targets && registry->plugins && registry->plugins->entries)
		return registry;
	free(registry->targets);
	free(registry->plugins);
	free(registry);
	return NULL;
}

static int start_watch(struct registry *registry, struct err *err)
{
	struct plugin_set *set = registry->plugins;

#ifdef PLUGIN_GUARD_CALLS
	guard_take(&set->base);
#endif
	set->watchdog = watchdog_new(registry);
	if (!set->watchdog)
		return err_set(err, ERR_NOMEM, "no thread for watching the plugins' calls");
	for (size_t i = 0; i < registry->target_count; i++) {
		registry->targets[i]->state->watchdog = set->watchdog;
#ifdef PLUGIN_GUARD_CALLS
		registry->targets[i]->state->base = &set->base;
#endif
	}
	return 0;
}

int registry_open(const struct conf *conf, const char *probe, struct registry **ret, struct err *err)
{
	struct registry *registry = make_registry(conf);
	struct net_config net = {.reserved = (uint64_t)conf->http_connections + DESCRIPTORS_OTHER,
				 .direct = DIRECT};
	int rc;

	if (!registry)
		return err_set(err, ERR_NOMEM, "memory is out");
	rc = net_new(&net, &registry->plugins->net, err);
	for (size_t i = 0; !rc && i < conf->target_count; i++) {
		struct target *target = target_new(&conf->targets[i]);

		if (!target) {
			rc = err_set(err, ERR_NOMEM, "memory is out");
			break;
		}
		registry->targets[registry->target_count++] = target;
		target->state->net = registry->plugins->net;
		rc = open_target(registry, conf, target, probe, err);
	}
	if (!rc)
		rc = start_watch(registry, err);
	if (rc)
		registry_close(registry, clock_after_ms(0));
	else
		*ret = registry;
	return rc;
}

static bool drain(struct target *target, int64_t deadline_ns)
{
	struct target_state *ts = target->state;
	bool drained;

	lock_take(&ts->lock);
	ts->closing = true;
	cond_wake_all(&ts->cond);
	while (ts->running && cond_wait_until(&ts->cond, &ts->lock, deadline_ns))
		;
	drained = ts->running == 0;
	for (const struct call *call = ts->inside; call; call = call->next)
		log_error("a call did not end before the stop", KS("plugin", target->conf->provider),
			  KS("target", target->conf->name), KS("operation", call->op->name));
	lock_drop(&ts->lock);
	return drained;
}

/* False: it is left as it is. */
static bool close_one(struct target *target, int64_t deadline_ns)
{
	if (!drain(target, deadline_ns))
		return false;
	if (!target->state->opened)
		return true;
	if (target_close(target, deadline_ns))
		return true;
	log_error("a target's close did not come back", KS("plugin", target->conf->provider),
		  KS("target", target->conf->name));
	return false;
}

static void keep_plugin(struct plugin_set *set, struct target *target)
{
	target->state->lost = true;
	for (size_t i = 0; i < set->count; i++)
		if (!strcmp(set->entries[i].name, target->conf->provider))
			set->entries[i].kept = true;
}

static bool close_plugins(struct plugin_set *set)
{
	bool all = true;

	for (size_t i = 0; i < set->count; i++) {
		struct plugin_entry *entry = &set->entries[i];

		if (entry->kept) {
			all = false;
			continue;
		}
		if (entry->plugin)
			loader_fini(entry->plugin);
		loader_free(entry->plugin);
		free(entry->name);
		entry->name = NULL;
	}
	return all;
}

bool registry_close(struct registry *registry, int64_t deadline_ns)
{
	struct plugin_set *set;
	bool all;

	if (!registry)
		return true;
	set = registry->plugins;
	for (size_t i = 0; i < registry->target_count; i++)
		if (!close_one(registry->targets[i], deadline_ns))
			keep_plugin(set, registry->targets[i]);
	if (set->watchdog)
		watchdog_stop(set->watchdog);
	for (size_t i = 0; i < registry->target_count; i++)
		if (!registry->targets[i]->state->lost)
			target_free(registry->targets[i]);
	all = close_plugins(set);
	if (all) {
		if (set->watchdog)
			watchdog_free(set->watchdog);
#ifdef PLUGIN_GUARD_CALLS
		guard_drop(&set->base);
#endif
		net_free(set->net);
		free(set->entries);
		free(set);
	}
	free(registry->targets);
	free(registry);
	return all;
}

struct target *registry_find(const struct registry *registry, const char *name)
{
	for (size_t i = 0; i < registry->target_count; i++)
		if (!strcmp(registry->targets[i]->conf->name, name))
			return registry->targets[i];
	return NULL;
}
