/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns what operators look at beside targets: plugins, this host, dead letters; the runtime manifest; and the answer of
 * routes that are in the contract before they do anything. Entered from workers.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/body.h"
#include "api/resources.h"
#include "api/server.h"
#include "core/clock.h"
#include "core/json.h"
#include "core/limits.h"
#include "execution/execution.h"
#include "plugin/describe.h"
#include "plugin/loader.h"
#include "session/session.h"

#define MANIFEST_MAX LIMIT_MIB

static void put_text(struct buf *out, const char *name, const char *text)
{
	buf_printf(out, "\"%s\":", name);
	json_put_string(out, text ? text : "", text ? strlen(text) : 0);
}

/* ---- providers ---- */

/* Whether work is given to its targets, and how many of its calls do not come back. */
static void put_health(struct buf *out, const struct registry *registry, const struct plugin *plugin)
{
	bool degraded = false;
	unsigned stuck = 0;

	for (size_t i = 0; i < registry->target_count; i++) {
		struct target_health health;

		if (registry->targets[i]->plugin != plugin)
			continue;
		target_health(registry->targets[i], &health);
		degraded |= health.degraded;
		stuck += health.stuck;
	}
	buf_printf(out, ",\"status\":\"%s\",\"stuck\":%u", degraded ? "degraded" : "ok", stuck);
}

static void put_provider(struct buf *out, const struct registry *registry, const struct plugin *plugin)
{
	const char *comma = "";

	buf_puts(out, "{");
	put_text(out, "name", plugin->name);
	buf_puts(out, ",");
	put_text(out, "version", plugin->desc.version);
	buf_puts(out, ",");
	put_text(out, "build_id", plugin->desc.build_id);
	buf_printf(out, ",\"abi\":\"%u.%u\",", plugin->desc.abi_major, plugin->desc.abi_minor);
	put_text(out, "path", plugin->path);
	plugin_put_capabilities(out, plugin->desc.capabilities);
	put_health(out, registry, plugin);
	buf_puts(out, ",\"targets\":[");
	for (size_t i = 0; i < registry->target_count; i++) {
		if (registry->targets[i]->plugin != plugin)
			continue;
		buf_puts(out, comma);
		json_put_string(out, registry->targets[i]->conf->name, strlen(registry->targets[i]->conf->name));
		comma = ",";
	}
	buf_puts(out, "]}");
}

static bool is_first_of_plugin(const struct registry *registry, size_t at)
{
	for (size_t i = 0; i < at; i++) {
		if (registry->targets[i]->plugin == registry->targets[at]->plugin)
			return false;
	}
	return registry->targets[at]->plugin != NULL;
}

int admin_get_providers(struct req *req, struct err *err)
{
	const struct registry *registry = api_of(req)->config.registry;
	struct buf *out = &req->reply.body;
	size_t count = 0;

	(void)err;
	buf_puts(out, "{\"items\":[");
	for (size_t i = 0; i < registry->target_count; i++) {
		if (!is_first_of_plugin(registry, i))
			continue;
		buf_puts(out, count++ ? "," : "");
		put_provider(out, registry, registry->targets[i]->plugin);
	}
	buf_printf(out, "],\"total\":%zu}\n", count);
	req_json(req, 200);
	return REQ_DONE;
}

/* ---- hosts ---- */

static void put_host(struct buf *out, const char *id, const char *version, unsigned roles)
{
	char text[CONF_ROLES_MAX];

	buf_puts(out, "{");
	put_text(out, "id", id);
	buf_puts(out, ",");
	put_text(out, "version", version);
	buf_puts(out, ",");
	put_text(out, "roles", conf_roles_text(roles, text));
}

/* This one tells more of itself than the others do in the store. */
static void put_this_host(struct req *req, struct buf *out)
{
	struct api *api = api_of(req);
	struct server_stat stat;
	char started[32];

	server_stat(req->server, &stat);
	clock_format(api->started_ms, started);
	put_host(out, api->config.host_id, BERTH_VERSION, conf_roles(api->config.conf));
	buf_printf(out, ",\"pid\":%d,\"started_at\":\"%s\",\"connections\":%u,\"requests\":%u}", (int)getpid(),
		   started, stat.connections, stat.requests);
}

int admin_get_hosts(struct req *req, struct err *err)
{
	struct buf *out = &req->reply.body;
	struct session_host *hosts;
	size_t count;
	int rc = session_hosts(api_of(req)->config.sessions, req->arena, &hosts, &count, err);

	if (rc)
		return rc;
	buf_puts(out, "{\"items\":[");
	put_this_host(req, out);
	for (size_t i = 0; i < count; i++) {
		buf_puts(out, ",");
		put_host(out, hosts[i].id, hosts[i].version, hosts[i].roles);
		buf_puts(out, "}");
	}
	buf_printf(out, "],\"total\":%zu}\n", count + 1);
	req_json(req, 200);
	return REQ_DONE;
}

/* ---- dead letters ---- */

static int take_number(const char *text, const char *name, uint64_t *ret, struct err *err)
{
	if (!req_place(text, ret))
		return err_set(err, ERR_INVALID_REQUEST, "%s is not the id of a dead letter", name);
	return *ret ? 0 : err_set(err, ERR_NOT_FOUND, "no such dead letter");
}

static int take_letter(struct req *req, uint64_t *ret, struct err *err)
{
	req_audit(req, NULL, NULL, req_param(req, "id"));
	return take_number(req_param(req, "id"), "id", ret, err);
}

int admin_get_deadletters(struct req *req, struct err *err)
{
	struct executions *executions = api_of(req)->config.executions;
	const char *cursor = req_query(req, "cursor");
	uint64_t after = 0, last = 0;
	int64_t limit;
	size_t count = 0;
	char next[24];
	struct buf items;
	int r = req_query_number(req, "limit", 1, LIMIT_PAGE, LIMIT_PAGE_DEFAULT, &limit, err);

	if (r == 0 && cursor && *cursor)
		r = take_number(cursor, "cursor", &after, err);
	if (r != 0)
		return r;
	buf_init(&items, LIMIT_INLINE_FILE);
	r = execution_dead_list(executions, after, 0, (size_t)limit, &items, &count, &last, err);
	snprintf(next, sizeof(next), "%llu", (unsigned long long)last);
	if (r == 0) {
		body_put_list(&req->reply.body, &items, count, last ? next : NULL);
		req_json(req, 200);
	}
	buf_fini(&items);
	return r;
}

int admin_get_deadletter(struct req *req, struct err *err)
{
	uint64_t seq, last;
	size_t count;
	int r = take_letter(req, &seq, err);

	if (r == 0)
		r = execution_dead_list(api_of(req)->config.executions, 0, seq, 1, &req->reply.body, &count, &last, err);
	if (r == 0)
		req_json(req, 200);
	return r;
}

static int end_letter(struct req *req, int (*how)(struct executions *e, uint64_t seq, struct err *err), struct err *err)
{
	uint64_t seq;
	int r = take_letter(req, &seq, err);

	if (r == 0)
		r = how(api_of(req)->config.executions, seq, err);
	if (r == 0)
		req_empty(req, 204);
	return r;
}

int admin_post_deadletter(struct req *req, struct err *err)
{
	return end_letter(req, execution_dead_requeue, err);
}

int admin_delete_deadletter(struct req *req, struct err *err)
{
	return end_letter(req, execution_dead_drop, err);
}

/* ---- the manifest ---- */

static int read_whole(const char *path, struct buf *out, struct err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	ssize_t n = -1;

	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size <= MANIFEST_MAX) {
		char piece[8192];

		while ((n = read(fd, piece, sizeof(piece))) > 0 && !out->error)
			buf_append(out, piece, (size_t)n);
	}
	if (fd >= 0)
		close(fd);
	/* Its place is nothing for a caller. */
	return n == 0 && !out->error ? 0 : err_set(err, ERR_NO_MANIFEST, "the runtime manifest cannot be read");
}

int manifest_get(struct req *req, struct err *err)
{
	const struct conf *conf = api_of(req)->config.conf;
	int r = 0;

	if (*conf->manifest_json)
		buf_puts(&req->reply.body, conf->manifest_json);
	else if (*conf->manifest)
		r = read_whole(conf->manifest, &req->reply.body, err);
	else
		r = err_set(err, ERR_NO_MANIFEST, "no runtime manifest is configured");
	if (r == 0)
		req_json(req, 200);
	return r;
}

/* ---- recovery ---- */

int admin_recover(struct req *req, struct err *err)
{
	int r = session_recover(api_of(req)->config.sessions, err);

	if (r == 0)
		req_empty(req, 204);
	return r;
}

/* ---- not yet ---- */

int unsupported_any(struct req *req, struct err *err)
{
	(void)req;
	return err_set(err, ERR_UNSUPPORTED, "durable workspaces and artifacts are not served by this version");
}
