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
#include "store/store.h"

#define VERIFY_MS 60000

static void put_text(struct buf *out, const char *name, const char *text)
{
	buf_printf(out, ",\"%s\":", name);
	json_put_string(out, text, strlen(text));
}

static void put_target(const struct target *target, bool full, bool drained, struct buf *out)
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
			   drained ? "true" : "false", health.running, health.stuck,
			   (unsigned long long)health.calls, (unsigned long long)health.failures);
	}
	buf_puts(out, "}");
}

void report_targets(const struct registry *registry, bool full, const bool *drained, struct buf *out)
{
	buf_puts(out, "[");
	for (size_t i = 0; i < registry->target_count; i++) {
		buf_puts(out, i ? "," : "");
		put_target(registry->targets[i], full, drained && drained[i], out);
	}
	buf_puts(out, "]");
}

/* ---- drain ---- */

/* The mark of one target's row. */
struct drain {
	bool drained;
};

static const struct json_field drain_fields[] = {
	{.name = "drained", .type = JSON_BOOL, .off = offsetof(struct drain, drained)},
	{0},
};

struct drains {
	const struct registry *registry;
	bool *drained;
};

static int read_drains(struct txn *txn, void *arg, struct err *err)
{
	struct drains *drains = arg;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < drains->registry->target_count; i++) {
		const struct conf_target *conf = drains->registry->targets[i]->conf;
		struct drain drain = {0};
		struct store_row row;

		rc = txn_get(txn, STORE_TARGET, conf->name, &row, err);
		if (rc == 0 && row.doc)
			rc = json_decode_text(txn_arena(txn), drain_fields, row.doc, row.doc_len, &drain, sizeof(drain),
					      err);
		drains->drained[i] = conf->drained || drain.drained;
	}
	return rc;
}

int admin_get_targets(struct req *req, struct err *err)
{
	const struct registry *registry = api_of(req)->config.registry;
	struct drains drains = {.registry = registry};
	int r;

	drains.drained = arena_alloc(req->arena, registry->target_count + 1);
	if (!drains.drained)
		return err_set(err, ERR_NOMEM, "out of memory");
	r = store_view(api_of(req)->config.store, read_drains, &drains, err);
	if (r != 0)
		return r;
	buf_puts(&req->reply.body, "{\"items\":");
	report_targets(registry, true, drains.drained, &req->reply.body);
	buf_printf(&req->reply.body, ",\"total\":%zu}\n", registry->target_count);
	req_json(req, 200);
	return REQ_DONE;
}

struct mark {
	const char *name;
	bool drained;
};

static int mark_step(struct txn *txn, void *arg, struct err *err)
{
	static const char doc[] = "{\"drained\":true}";
	const struct mark *mark = arg;
	struct store_row row = {.key = mark->name, .group = "", .doc = doc, .doc_len = sizeof(doc) - 1};

	return mark->drained ? txn_put(txn, STORE_TARGET, &row, err) : txn_delete(txn, STORE_TARGET, mark->name, err);
}

static int set_drain(struct req *req, bool drained, struct err *err)
{
	struct mark mark = {.name = req_param(req, "name"), .drained = drained};
	const struct target *target = registry_find(api_of(req)->config.registry, mark.name);
	int r;

	req_audit(req, NULL, NULL, mark.name);
	if (!target)
		return err_set(err, ERR_NOT_FOUND, "no such target");
	if (!drained && target->conf->drained)
		return err_set(err, ERR_CONFLICT, "the target is drained by its configuration");
	r = store_update(api_of(req)->config.store, mark_step, &mark, err);
	if (r != 0)
		return r;
	buf_puts(&req->reply.body, "{\"name\":");
	json_put_string(&req->reply.body, mark.name, strlen(mark.name));
	buf_printf(&req->reply.body, ",\"drained\":%s}\n", drained ? "true" : "false");
	req_json(req, 200);
	return REQ_DONE;
}

int admin_post_drain(struct req *req, struct err *err)
{
	return set_drain(req, true, err);
}

int admin_post_undrain(struct req *req, struct err *err)
{
	return set_drain(req, false, err);
}

/* ---- verify ---- */

int admin_post_verify(struct req *req, struct err *err)
{
	bool ok = false;
	int r = session_verify(api_of(req)->config.sessions, clock_after_ms(VERIFY_MS), &req->reply.body, &ok, err);

	if (r == 0)
		req_json(req, 200);
	return r;
}
