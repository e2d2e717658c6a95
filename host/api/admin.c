/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the operators' routes and the report on targets. Entered from workers. Only a token with the admin scope gets to
 * a provider's own sentence.
 */
#include <string.h>

#include "api/report.h"
#include "api/resources.h"
#include "core/clock.h"
#include "core/json.h"
#include "session/session.h"

#define VERIFY_MS 60000

static void put_text(struct buf *out, const char *name, const char *text)
{
	buf_printf(out, ",\"%s\":", name);
	json_put_string(out, text, strlen(text));
}

static void put_target(const struct target *target, bool full, struct buf *out)
{
	struct target_health health;

	target_health(target, &health);
	buf_puts(out, "{\"name\":");
	json_put_string(out, target->conf->name, strlen(target->conf->name));
	put_text(out, "status", health.degraded ? "degraded" : "ok");
	if (full) {
		put_text(out, "provider", target->conf->provider);
		put_text(out, "region", target->conf->region);
		put_text(out, "why", health.why);
		buf_printf(out, ",\"drained\":%s,\"running\":%u,\"stuck\":%u,\"calls\":%llu,\"failures\":%llu",
			   target->conf->drained ? "true" : "false", health.running, health.stuck,
			   (unsigned long long)health.calls, (unsigned long long)health.failures);
	}
	buf_puts(out, "}");
}

void report_targets(const struct registry *registry, bool full, struct buf *out)
{
	buf_puts(out, "[");
	for (size_t i = 0; i < registry->target_count; i++) {
		buf_puts(out, i ? "," : "");
		put_target(registry->targets[i], full, out);
	}
	buf_puts(out, "]");
}

int admin_get_targets(struct req *req, struct err *err)
{
	const struct registry *registry = api_of(req)->config.registry;

	(void)err;
	buf_puts(&req->reply.body, "{\"items\":");
	report_targets(registry, true, &req->reply.body);
	buf_printf(&req->reply.body, ",\"total\":%zu}\n", registry->target_count);
	req_json(req, 200);
	return REQ_DONE;
}

int admin_post_verify(struct req *req, struct err *err)
{
	bool ok = false;
	int r = session_verify(api_of(req)->config.sessions, clock_after_ms(VERIFY_MS), &req->reply.body, &ok, err);

	if (r == 0)
		req_json(req, 200);
	return r;
}
