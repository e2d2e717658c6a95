/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns /health and /ready. /health is answered on the loop thread and looks at nothing; /ready is entered from workers.
 * Must never renew a lease or call a provider.
 */
#include <string.h>

#include "api/report.h"
#include "api/resources.h"
#include "blob/blob.h"
#include "core/json.h"
#include "core/limits.h"
#include "execution/execution.h"
#include "plugin/target.h"
#include "store/store.h"

int health_get(struct req *req, struct err *err)
{
	(void)err;
	buf_puts(&req->reply.body, "{\"status\":\"ok\"}\n");
	req_json(req, 200);
	return REQ_DONE;
}

struct readiness {
	struct err store, objects;
	struct executions_stat queue;
	int64_t queue_max;
	size_t targets, degraded;
};

static void look(struct api *api, struct readiness *ret)
{
	const struct registry *registry = api->config.registry;

	if (!store_healthy(api->config.store, &ret->store) && ret->store.code == 0)
		err_set(&ret->store, ERR_STORE, "the store does not answer");
	if (ret->store.code == 0 && execution_is_closed(api->config.executions))
		err_set(&ret->store, ERR_STORE, "the state was lost; hosts tell a new store what they run");
	blob_check(api->config.blobs, &ret->objects);
	executions_stat(api->config.executions, &ret->queue);
	ret->queue_max = ret->queue.queue_max;
	ret->targets = registry->target_count;
	for (size_t i = 0; i < registry->target_count; i++) {
		struct target_health health;

		target_health(registry->targets[i], &health);
		ret->degraded += health.degraded;
	}
}

/* Members of an object, without its braces. */
static void put_report(struct api *api, const struct readiness *found, struct buf *out)
{
	buf_printf(out,
		   "\"store\":\"%s\",\"objects\":\"%s\","
		   "\"queue\":{\"running\":%u,\"queued\":%u,\"parked\":%u,\"max\":%lld},\"targets\":",
		   found->store.code ? "unavailable" : "ok", found->objects.code ? "unavailable" : "ok", found->queue.running, found->queue.queued,
		   found->queue.parked, (long long)found->queue_max);
	report_targets(api->config.registry, false, NULL, out);
}

static int problem(const struct readiness *found, struct err *err)
{
	if (found->store.code)
		return err_set(err, ERR_STORE, "%s", found->store.msg);
	if (found->objects.code) {
		*err = found->objects;
		return err->code;
	}
	if ((int64_t)found->queue.queued + found->queue.parked >= found->queue_max)
		return err_set(err, ERR_QUEUE_FULL, "the queue of executions is full");
	if (found->degraded == found->targets)
		return err_set(err, ERR_PROVIDER_UNAVAILABLE, "every target is degraded");
	return 0;
}

int ready_get(struct req *req, struct err *err)
{
	struct readiness found = {0};
	struct buf report;

	look(api_of(req), &found);
	buf_init(&report, LIMIT_MIB);
	put_report(api_of(req), &found, &report);

	int r = problem(&found, err);

	if (r == 0) {
		buf_printf(&req->reply.body, "{\"status\":\"ready\",%s}\n", report.ptr);
		req_json(req, 200);
	} else {
		req->details = arena_strdup(req->arena, report.ptr ? report.ptr : "");
	}
	buf_fini(&report);
	return r;
}
