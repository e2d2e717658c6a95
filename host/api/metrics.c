/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns GET /metrics: the counters of obs/, what has to be asked for at the moment of the scrape, and the metrics that
 * plugins declared. Entered from workers, one scrape at a time or many. Must never call a provider.
 */
#include <stdlib.h>
#include <string.h>

#include "api/resources.h"
#include "api/server.h"
#include "core/clock.h"
#include "execution/execution.h"
#include "obs/metrics.h"
#include "plugin/call.h"
#include "store/store.h"

/* ---- the words of the label "route" ---- */

static char route_texts[64][96];
static const char *route_words[64];

void metrics_start(void)
{
	unsigned count = 1;

	route_words[0] = "none"; /* refused before a route was found */
	for (const struct route *route = api_routes; route->method; route++, count++) {
		snprintf(route_texts[count], sizeof(route_texts[0]), "%s %s", route->method, route->pattern);
		route_words[count] = route_texts[count];
	}
	metric_set_routes(route_words, count);
}

/* ---- gauges ---- */

static void put_server(const struct req *req, struct buf *out)
{
	struct server_stat stat;

	server_stat(req->server, &stat);
	metric_put(out, METRIC_HTTP_CONNECTIONS, NULL, true, stat.connections);
	metric_put(out, METRIC_HTTP_UNDER_WAY, NULL, true, stat.requests);
	metric_put(out, METRIC_HTTP_BUSY, NULL, true, stat.busy);
	metric_put(out, METRIC_HTTP_QUEUED, NULL, true, stat.queued);
	metric_put(out, METRIC_UPTIME, NULL, true, (double)(clock_boot_ns() - api_of(req)->started_ns) / CLOCK_NS_PER_S);
}

static void put_executions(struct api *api, struct buf *out)
{
	struct executions_stat stat;

	executions_stat(api->config.executions, &stat);
	metric_put(out, METRIC_EXEC_RUNNING, NULL, true, stat.running);
	metric_put(out, METRIC_EXEC_QUEUED, NULL, true, stat.queued);
	metric_put(out, METRIC_EXEC_PARKED, NULL, true, stat.parked);
	metric_put(out, METRIC_EXEC_DEFECTS, NULL, true, (double)stat.defects);
}

struct counts {
	const struct registry *registry;
	int64_t *sessions;
};

static int count_step(struct txn *txn, void *arg, struct err *err)
{
	struct counts *counts = arg;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < counts->registry->target_count; i++) {
		char name[IDENT_PART_MAX + 16];

		snprintf(name, sizeof(name), "sessions:%s", counts->registry->targets[i]->conf->name);
		rc = txn_count_get(txn, name, &counts->sessions[i], err);
	}
	return rc;
}

/* While the store is away the numbers are left out: a zero would say something else. */
static void put_sessions(struct api *api, struct buf *out)
{
	const struct registry *registry = api->config.registry;
	struct counts counts = {.registry = registry, .sessions = calloc(registry->target_count + 1, sizeof(int64_t))};
	struct err err = {0};
	bool known = counts.sessions && store_view(api->config.store, count_step, &counts, &err) == 0;

	metric_put(out, METRIC_STORE_HEALTHY, NULL, true, store_healthy(api->config.store, &err));
	for (size_t i = 0; known && i < registry->target_count; i++)
		metric_put(out, METRIC_SESSIONS, registry->targets[i]->conf->name, i == 0, (double)counts.sessions[i]);
	free(counts.sessions);
}

static double get_degraded(const struct target_health *health)
{
	return health->degraded;
}

static double get_running(const struct target_health *health)
{
	return health->running;
}

static double get_stuck(const struct target_health *health)
{
	return health->stuck;
}

static double get_calls(const struct target_health *health)
{
	return (double)health->calls;
}

static double get_failures(const struct target_health *health)
{
	return (double)health->failures;
}

static const struct {
	enum metric metric;
	double (*get)(const struct target_health *health);
} target_rows[] = {
	{METRIC_TARGET_DEGRADED, get_degraded}, {METRIC_TARGET_RUNNING, get_running},
	{METRIC_TARGET_STUCK, get_stuck},	{METRIC_TARGET_CALLS, get_calls},
	{METRIC_TARGET_FAILURES, get_failures},
};

/* Lines of one metric stand together, so the targets are gone through once for each. */
static void put_targets(const struct registry *registry, struct buf *out)
{
	for (size_t row = 0; row < sizeof(target_rows) / sizeof(target_rows[0]); row++) {
		for (size_t i = 0; i < registry->target_count; i++) {
			struct target_health health;

			target_health(registry->targets[i], &health);
			metric_put(out, target_rows[row].metric, registry->targets[i]->conf->name, i == 0,
				   target_rows[row].get(&health));
		}
	}
}

/* ---- what plugins declared ---- */

/* One metric of one plugin, over the targets of that plugin. */
struct plugin_metric {
	struct buf *out;
	const struct target *target;
	char name[160];
	size_t want, at; /* the want-th that the plugin declared */
	bool headed, found;
};

static void put_value(const struct plugin_metric *in, const char *suffix, const char *le, double value)
{
	buf_printf(in->out, "%s%s{", in->name, suffix);
	metric_put_label(in->out, "target", in->target->conf->name);
	buf_printf(in->out, "%s} %.17g\n", le, value);
}

static void put_buckets(const struct plugin_metric *in, const struct target_metric *metric)
{
	char le[48];

	for (unsigned i = 0; i < TARGET_BUCKETS; i++) {
		snprintf(le, sizeof(le), ",le=\"%g\"", target_bucket_bounds[i]);
		put_value(in, "_bucket", le, (double)metric->buckets[i]);
	}
	put_value(in, "_bucket", ",le=\"+Inf\"", (double)metric->count);
	put_value(in, "_sum", "", metric->sum);
	put_value(in, "_count", "", (double)metric->count);
}

static void put_plugin_metric(const struct target_metric *metric, void *arg)
{
	struct plugin_metric *in = arg;

	if (in->at++ != in->want)
		return;
	in->found = true;
	snprintf(in->name, sizeof(in->name), "berth_%s_%s", in->target->conf->provider, metric->name);
	for (char *c = in->name; *c; c++)
		*c = *c == '-' ? '_' : *c; /* a provider may have one, a metric's name may not */
	if (!in->headed)
		metric_put_head(in->out, in->name, metric->histogram ? "histogram" : "counter",
				metric->doc ? metric->doc : "");
	in->headed = true;
	if (metric->histogram)
		put_buckets(in, metric);
	else
		put_value(in, "", "", (double)metric->count);
}

static bool is_first_of_provider(const struct registry *registry, size_t at)
{
	for (size_t i = 0; i < at; i++) {
		if (strcmp(registry->targets[i]->conf->provider, registry->targets[at]->conf->provider) == 0)
			return false;
	}
	return true;
}

static void put_plugin(const struct registry *registry, const char *provider, struct buf *out)
{
	struct plugin_metric in = {.out = out, .found = true};

	for (in.want = 0; in.found; in.want++) {
		in.found = in.headed = false;
		for (size_t i = 0; i < registry->target_count; i++) {
			in.target = registry->targets[i];
			in.at = 0;
			if (in.target->plugin && strcmp(in.target->conf->provider, provider) == 0)
				target_metrics(in.target, put_plugin_metric, &in);
		}
	}
}

/* ---- the route ---- */

int metrics_get(struct req *req, struct err *err)
{
	struct api *api = api_of(req);
	const struct registry *registry = api->config.registry;
	struct buf *out = &req->reply.body;

	(void)err;
	metrics_render(out);
	metrics_render_process(out);
	metric_put(out, METRIC_PLUGIN_BYTES, NULL, true, (double)hostapi_allocated());
	put_server(req, out);
	put_executions(api, out);
	put_sessions(api, out);
	put_targets(registry, out);
	for (size_t i = 0; i < registry->target_count; i++) {
		if (is_first_of_provider(registry, i))
			put_plugin(registry, registry->targets[i]->conf->provider, out);
	}
	req_json(req, 200);
	if (req->reply.status == 200)
		req->reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
	return REQ_DONE;
}
