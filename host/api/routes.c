/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the one table of routes. Constant. A route that is not here does not exist (404); adding one is adding a row, here and in
 * docs/openapi.yaml, which a test compares.
 */
#include "api/resources.h"
#include "core/limits.h"

/* Base64 of the largest inline file, and the rest of its JSON. */
#define INLINE_BODY (LIMIT_INLINE_FILE / 3 * 4 + LIMIT_JSON_BODY)

static const struct route_reference create_reference = {
	.failed = "create_failed", .away = "sandbox_control_unavailable", .conflict = "execution_conflict"};
static const struct route_reference read_reference = {.failed = "get_failed", .away = "sandbox_control_unavailable"};
static const struct route_reference cancel_reference = {
	.failed = "cancel_failed", .away = "sandbox_control_unavailable", .conflict = "execution_conflict"};
static const struct route_reference file_put_reference = {.failed = "file_put_failed", .away = "sandbox_policy_unavailable"};
static const struct route_reference file_get_reference = {.failed = "file_get_failed",
							  .away = "sandbox_policy_unavailable",
							  .too_large = "workspace_file_quota_exceeded"};
static const struct route_reference sessions_reference = {.failed = "sandbox_inventory_failed",
							  .away = "sandbox_inventory_unavailable"};
static const struct route_reference teardown_reference = {.failed = "cleanup_failed", .away = "sandbox_policy_unavailable"};

#define IDENTITY "workspace_id task_id region"

const struct route api_routes[] = {
	{.method = "GET", .pattern = "/health", .scope = SCOPE_OPEN, .flags = ROUTE_INLINE | ROUTE_HEAD | ROUTE_ALWAYS,
	 .handler = health_get},
	{.method = "GET", .pattern = "/ready", .scope = SCOPE_METRICS, .handler = ready_get},

	{.method = "POST", .pattern = "/sandbox/executions", .scope = SCOPE_EXECUTION_CREATE, .body_max = LIMIT_CREATE_BODY,
	 .query = "wait", .reference = &create_reference, .handler = execution_post},
	{.method = "GET", .pattern = "/sandbox/executions", .scope = SCOPE_EXECUTION_READ,
	 .query = "workspace_id task_id status cursor limit", .reference = &read_reference, .handler = execution_get_list},
	{.method = "GET", .pattern = "/sandbox/executions/:id", .scope = SCOPE_EXECUTION_READ,
	 .query = "wait revision preview", .reference = &read_reference, .handler = execution_get},
	{.method = "DELETE", .pattern = "/sandbox/executions/:id", .scope = SCOPE_EXECUTION_CANCEL, .query = "wait",
	 .reference = &cancel_reference, .handler = execution_delete},
	{.method = "GET", .pattern = "/sandbox/executions/:id/stdout", .scope = SCOPE_EXECUTION_READ, .flags = ROUTE_HEAD,
	 .query = "follow offset", .reference = &read_reference, .handler = output_get_stdout},
	{.method = "GET", .pattern = "/sandbox/executions/:id/stderr", .scope = SCOPE_EXECUTION_READ, .flags = ROUTE_HEAD,
	 .query = "follow offset", .reference = &read_reference, .handler = output_get_stderr},

	{.method = "PUT", .pattern = "/sandbox/files", .scope = SCOPE_FILE_WRITE, .flags = ROUTE_LONG, .body_max = INLINE_BODY,
	 .reference = &file_put_reference, .handler = file_put},
	{.method = "GET", .pattern = "/sandbox/files", .scope = SCOPE_FILE_READ, .flags = ROUTE_LONG,
	 .query = IDENTITY " path list ensure", .reference = &file_get_reference, .handler = file_get},
	{.method = "DELETE", .pattern = "/sandbox/files", .scope = SCOPE_FILE_WRITE, .flags = ROUTE_LONG,
	 .query = IDENTITY " path ensure recursive", .reference = &file_put_reference, .handler = file_delete},
	{.method = "POST", .pattern = "/sandbox/files/move", .scope = SCOPE_FILE_WRITE, .flags = ROUTE_LONG,
	 .body_max = LIMIT_JSON_BODY, .reference = &file_put_reference, .handler = file_post_move},
	{.method = "PUT", .pattern = "/sandbox/file-content", .scope = SCOPE_FILE_WRITE, .flags = ROUTE_LONG | ROUTE_STREAM_IN,
	 .query = IDENTITY " path size mode sha256", .reference = &file_put_reference, .check = transfer_check_put,
	 .handler = transfer_put},
	{.method = "GET", .pattern = "/sandbox/file-content", .scope = SCOPE_FILE_READ, .flags = ROUTE_LONG,
	 .query = IDENTITY " path ensure", .reference = &file_get_reference, .handler = transfer_get},

	{.method = "GET", .pattern = "/sandbox/sessions", .scope = SCOPE_SESSION_READ, .query = "workspace_id cursor limit",
	 .reference = &sessions_reference, .handler = session_get_list},
	{.method = "GET", .pattern = "/sandbox/task/:id", .scope = SCOPE_SESSION_READ, .query = "workspace_id",
	 .reference = &sessions_reference, .handler = task_get},
	{.method = "DELETE", .pattern = "/sandbox/task/:id", .scope = SCOPE_SESSION_DELETE, .query = "workspace_id force wait",
	 .reference = &teardown_reference, .handler = task_delete},

	{.method = "POST", .pattern = "/admin/verify", .scope = SCOPE_ADMIN, .flags = ROUTE_LONG, .body_max = LIMIT_JSON_BODY,
	 .handler = admin_post_verify},
	{.method = "GET", .pattern = "/admin/targets", .scope = SCOPE_ADMIN, .handler = admin_get_targets},
	{0},
};
