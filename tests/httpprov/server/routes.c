/* SPDX-License-Identifier: Apache-2.0 */
/* The table of routes and their counters. Any thread. */
#include "server.h"

#include <stdlib.h>
#include <string.h>

const struct route routes[] = {
	{"GET", "/v1/check", "check", serve_check, 0},
	{"GET", "/v1/sessions", "look", serve_look, 0},
	{"POST", "/v1/sessions", "provision", serve_provision, 0},
	{"GET", "/v1/sessions/:ref", "inspect", serve_inspect, 0},
	{"DELETE", "/v1/sessions/:ref", "release", serve_release, 0},
	{"GET", "/v1/sessions/:ref/ready", "ready", serve_ready, 0},
	{"PUT", "/v1/sessions/:ref/task", "assign", serve_assign, 0},
	{"POST", "/v1/sessions/:ref/renew", "renew", serve_renew, 0},
	{"POST", "/v1/sessions/:ref/commands/:id", "execute", serve_execute, ROUTE_STREAM},
	{"GET", "/v1/sessions/:ref/commands/:id/stream", "stream", serve_stream, ROUTE_STREAM},
	{"POST", "/v1/sessions/:ref/commands/:id/signal", "signal", serve_signal, 0},
	{"DELETE", "/v1/sessions/:ref/commands/:id", "forget", serve_forget, 0},
	{"GET", "/v1/sessions/:ref/files/content", "file_read", serve_file_read, 0},
	{"PUT", "/v1/sessions/:ref/files/content", "file_write", serve_file_write, 0},
	{"DELETE", "/v1/sessions/:ref/files/content", "file_remove", serve_file_remove, 0},
	{"GET", "/v1/sessions/:ref/files/stat", "file_stat", serve_file_stat, 0},
	{"GET", "/v1/sessions/:ref/files/list", "file_list", serve_file_list, 0},
	{"POST", "/v1/sessions/:ref/files/move", "file_move", serve_file_move, 0},
	{"PUT", "/v1/sessions/:ref/archive", "import", serve_import, 0},
	{"POST", "/v1/sessions/:ref/archive/export", "export", serve_export, 0},
	{"POST", "/v1/sessions/:ref/marks", "mark", serve_mark, 0},
	{"GET", "/v1/sessions/:ref/changes", "changes", serve_changes, 0},
	{"GET", "/control/counters", "control_counters", control_counters, ROUTE_OPEN},
	{"GET", "/control/sessions", "control_sessions", control_sessions, ROUTE_OPEN},
	{0},
};
#define ROUTES (sizeof(routes) / sizeof(routes[0]) - 1)
_Atomic uint64_t route_calls[ROUTES + 1];
static _Atomic uint64_t started;

/* Takes ":ref" and ":id" out of the path. */
static bool fits(struct req *req, const char *pattern, const char *path)
{
	while (*pattern && *path) {
		size_t len;
		char **part;

		if (*pattern != ':') {
			if (*pattern++ != *path++)
				return false;
			continue;
		}
		part = pattern[1] == 'r' ? &req->ref : &req->id;
		len = strcspn(path, "/");
		if (!len)
			return false;
		free(*part);
		*part = strndup(path, len);
		path += len;
		pattern += strcspn(pattern, "/");
	}
	return !*pattern && !*path;
}

const struct route *route_find(struct req *req, const char *method, const char *path, bool *ret_allowed)
{
	for (size_t i = 0; i < ROUTES; i++) {
		if (!fits(req, routes[i].pattern, path))
			continue;
		*ret_allowed = true;
		if (strcmp(routes[i].method, method) != 0)
			continue;
		route_calls[i]++;
		return &routes[i];
	}
	return NULL;
}

void counter_started(void)
{
	started++;
}

void control_counters(struct req *req, void *inst)
{
	struct json_object *json = json_object_new_object(), *calls = json_object_new_object();
	uint64_t known, running;

	(void)inst;
	for (size_t i = 0; i < ROUTES; i++)
		wire_add_number(calls, routes[i].name, (int64_t)route_calls[i]);
	timer_counts(&known, &running);
	json_object_object_add(json, "calls", calls);
	wire_add_number(json, "started", (int64_t)started);
	wire_add_number(json, "timers", (int64_t)known);
	wire_add_number(json, "timers_running", (int64_t)running);
	req_reply(req, 200, json);
}

/* All pages of one deployment. */
void control_sessions(struct req *req, void *inst)
{
	struct berth_str cursor = {"", 0};
	struct hostcall hc;
	int32_t rc;

	hostcall_init(&hc, req);
	for (;;) {
		char after[256];

		rc = engine_ops()->list(inst, hostcall_abi(&hc), &cursor);
		if (rc || !*wire_text(hc.extra, "cursor"))
			break;
		strncpy(after, wire_text(hc.extra, "cursor"), sizeof(after) - 1);
		after[sizeof(after) - 1] = '\0';
		json_object_object_del(hc.extra, "cursor");
		cursor = wire_str(after);
	}
	hostcall_reply(&hc, rc, false);
	hostcall_fini(&hc);
}
