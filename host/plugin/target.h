/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Targets: configured provider instances. The registry is built at start and constant until stop; a target's counters and
 * state are its own. Nothing here knows bindings or HTTP.
 */
#ifndef PLUGIN_TARGET_H
#define PLUGIN_TARGET_H

#include <berth/provider.h>
#include <stdbool.h>

#include "conf/conf.h"
#include "core/err.h"

struct target { /* plugins see it only as a struct berth_target pointer */
	unsigned magic;
	const struct conf_target *conf;
	const struct plugin *plugin; /* NULL when it was refused and required = false */
	void *inst;
	uint64_t capabilities; /* effective */
	int64_t create_settle_ms;
	uint32_t isolation;        /* its sessions have at least this */
	uint32_t isolation_wanted; /* from the target's file */
	struct target_state *state; /* counters, bulkhead, health; private to plugin/ */
};

/* Of a BERTH_ISOLATION_* level, as configuration and rows have it; NULL: this host knows no such level. */
const char *isolation_word(uint32_t level);
uint32_t isolation_level(const char *word); /* UNSET for a word that is none */

struct registry {
	struct target **targets;
	size_t target_count;
	struct plugin_set *plugins;
};

/* Loads each plugin once, opens each target. A refused plugin stops the start unless all its targets say required = false
 * (then they are degraded, with the sentence kept). `probe` = path of berthd for the child probe, NULL = no probe (tests). */
int registry_open(const struct conf *conf, const char *probe, struct registry **ret, struct err *err);
/* Asks every open target whether its provider takes its configuration (tryout.c), each for limit_ms at most. One that does not
 * stops the start, or is degraded, as above. */
int registry_try(struct registry *registry, int64_t limit_ms, struct err *err);
/* Waits for running calls until deadline_ns, closes every target, runs fini. False: a stuck call left its target open, named in
 * the log; that plugin may still read its configuration, which must stay then. */
bool registry_close(struct registry *registry, int64_t deadline_ns);
struct target *registry_find(const struct registry *registry, const char *name);

/* Health of one target, for /ready, admin and placement. */
struct target_health {
	bool degraded;
	char why[256];
	unsigned running; /* calls now */
	unsigned stuck;   /* calls past their deadline that have not returned */
	uint64_t calls, failures;
};
void target_health(const struct target *target, struct target_health *ret);
/* Too many of its calls are stuck: it is given no new work until some came back. Takes no lock. */
bool target_is_stuck(const struct target *target);
/* How often the plugin said that sessions changed; the GC sweeps a target with a pool when it moved. */
uint64_t target_changes(const struct target *target);

/* The metrics that its plugin declared. Name without prefix. Counters: count. Histograms: count, sum and the cumulative buckets. */
#define TARGET_BUCKETS 12
extern const double target_bucket_bounds[TARGET_BUCKETS]; /* upper bounds; what is above the last is in count only */
struct target_metric {
	const char *name, *unit, *doc;
	bool histogram;
	uint64_t count;
	double sum;
	uint64_t buckets[TARGET_BUCKETS];
};
void target_metrics(const struct target *target, void (*fn)(const struct target_metric *metric, void *arg), void *arg);
static inline bool target_can(const struct target *target, uint64_t capability)
{
	return (target->capabilities & capability) == capability;
}

#endif
