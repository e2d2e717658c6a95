/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the shape of a create request: one field table per object and the list of keys that are refused whatever their
 * value. Entered from workers; pure. Must never drop, repair or guess a field.
 */
#include "api/create.h"

#include <string.h>

#include "api/body.h"
#include "core/limits.h"
#include "core/secret.h"

struct create_runtime {
	const char *region;
};

struct create_command {
	const char *body, *cwd, *env_ref, *stdin_ref, *path;
	const char **artifacts;
	size_t artifact_count;
	int64_t timeout, stdout_max, stderr_max;
	bool keep_descendants;
};

struct create_body {
	const char *workspace, *task, *session, *workflow, *manifest;
	struct create_runtime runtime;
	struct create_command command;
};

#define FIELD(name_, type_, struct_, member_, ...)                                                                     \
	{                                                                                                              \
		.name = name_, .type = type_, .off = offsetof(struct struct_, member_), __VA_ARGS__                    \
	}

static const struct json_field runtime_fields[] = {
	FIELD("region", JSON_STR, create_runtime, region, .max = LIMIT_LABEL),
	{0},
};

static const struct json_field command_fields[] = {
	FIELD("command_body", JSON_STR, create_command, body, .flags = JSON_REQUIRED),
	FIELD("cwd", JSON_STR, create_command, cwd),
	FIELD("env_ref", JSON_STR, create_command, env_ref),
	FIELD("stdin_ref", JSON_STR, create_command, stdin_ref),
	FIELD("command_path", JSON_STR, create_command, path),
	FIELD("artifact_paths", JSON_STRV, create_command, artifacts,
	      .count_off = offsetof(struct create_command, artifact_count)),
	FIELD("timeout_seconds", JSON_I64, create_command, timeout, .min = 1, .max = INT64_MAX / 1000),
	FIELD("stdout_max_bytes", JSON_I64, create_command, stdout_max, .min = 0, .max = INT64_MAX),
	FIELD("stderr_max_bytes", JSON_I64, create_command, stderr_max, .min = 0, .max = INT64_MAX),
	FIELD("keep_descendants", JSON_BOOL, create_command, keep_descendants),
	{0},
};

static const struct json_field body_fields[] = {
	FIELD("workspace_id", JSON_STR, create_body, workspace, .flags = JSON_REQUIRED),
	FIELD("task_id", JSON_STR, create_body, task, .flags = JSON_REQUIRED),
	FIELD("session_id", JSON_STR, create_body, session, .flags = JSON_NULLABLE, .max = LIMIT_LABEL),
	FIELD("workflow_id", JSON_STR, create_body, workflow, .flags = JSON_NULLABLE, .max = LIMIT_LABEL),
	FIELD("workspace_manifest_ref", JSON_STR, create_body, manifest, .flags = JSON_NULLABLE),
	FIELD("runtime", JSON_OBJ, create_body, runtime, .flags = JSON_NULLABLE, .sub = runtime_fields,
	      .sub_size = sizeof(struct create_runtime)),
	FIELD("command", JSON_OBJ, create_body, command, .flags = JSON_REQUIRED, .sub = command_fields,
	      .sub_size = sizeof(struct create_command)),
	{0},
};

/* Content that older contracts carried inline. */
static const char *const inline_keys[] = {"args",	    "env",	   "script", "input_files", "content_base64",
					  "script_content", "script_name", NULL};
static const char *const top_keys[] = {"metadata", NULL};
static const char *const runtime_keys[] = {"labels", NULL};
/* Named by the outer object only; the reference sets them when it hands a command to a sandbox. */
static const char *const outer_keys[] = {"workspace_id", "task_id", "workspace_manifest_ref", "workspace_hydration",
					 NULL};

static int refuse_keys(struct json_object *json, const char *where, const char *const *keys, struct err *err)
{
	for (; *keys; keys++) {
		if (json_object_is_type(json, json_type_object) && json_object_object_get_ex(json, *keys, NULL))
			return err_set(
				err, ERR_UNSUPPORTED_CONTRACT,
				"unsupported_contract_version: %s%s is not accepted; large input is named by reference",
				where, *keys);
	}
	return 0;
}

static int refuse_outer_keys(struct json_object *command, struct err *err)
{
	for (const char *const *key = outer_keys; *key; key++) {
		if (json_object_is_type(command, json_type_object) && json_object_object_get_ex(command, *key, NULL))
			return err_set(err, ERR_INVALID_REQUEST,
				       "command.%s is not accepted; it belongs beside command", *key);
	}
	return 0;
}

static int refuse_by_presence(struct json_object *json, struct err *err)
{
	struct json_object *command = NULL;
	struct json_object *runtime = NULL;
	struct json_object *manifest = NULL;

	if (!json_object_is_type(json, json_type_object))
		return err_set(err, ERR_INVALID_REQUEST, "the body must be a JSON object");
	json_object_object_get_ex(json, "command", &command);
	json_object_object_get_ex(json, "runtime", &runtime);

	int r = refuse_keys(json, "", inline_keys, err);

	if (r == 0)
		r = refuse_keys(json, "", top_keys, err);
	if (r == 0)
		r = refuse_keys(command, "command.", inline_keys, err);
	if (r == 0)
		r = refuse_keys(runtime, "runtime.", runtime_keys, err);
	if (r == 0)
		r = refuse_outer_keys(command, err);
	/* Ignoring it would run the command without the files it stands for. */
	if (r == 0 && json_object_object_get_ex(json, "workspace_manifest_ref", &manifest) && manifest)
		r = err_set(err, ERR_UNSUPPORTED,
			    "workspace_manifest_ref: durable workspaces are not served by this version");
	return r;
}

static int decode(struct arena *arena, const char *body, size_t len, struct create_body *ret, struct err *err)
{
	struct json_object *json = NULL;
	int r = body_parse(body, len, &json, err);

	if (r == 0)
		r = refuse_by_presence(json, err);
	if (r == 0)
		r = json_decode(arena, body_fields, json, "", JSON_STRICT_KEYS, ret, sizeof(*ret), err);
	json_object_put(json);
	return r;
}

static int check(const struct create_body *in, struct err *err)
{
	if (strlen(in->command.body) > LIMIT_COMMAND_BODY)
		return err_set(err, ERR_PAYLOAD_TOO_LARGE, "command.command_body is longer than %zu bytes",
			       LIMIT_COMMAND_BODY);
	return 0;
}

int create_parse(struct arena *arena, const char *body, size_t len, struct execution_create *ret, struct err *err)
{
	struct create_body in;
	struct execution_create out = {0};
	int r = decode(arena, body, len, &in, err);

	if (r == 0)
		r = ident_make(&out.ident, in.workspace, in.task, err);
	if (r == 0)
		r = check(&in, err);
	if (r != 0)
		return r;
	out.session_id = in.session;
	out.workflow_id = in.workflow;
	out.region = in.runtime.region;
	out.command_body = in.command.body;
	out.command_len = strlen(in.command.body);
	out.cwd = in.command.cwd;
	out.env_ref = in.command.env_ref;
	out.stdin_ref = in.command.stdin_ref;
	out.command_path = in.command.path;
	out.artifact_paths = in.command.artifacts;
	out.artifact_count = in.command.artifact_count;
	out.timeout_seconds = in.command.timeout;
	/* As in the reference, 0 and absent mean the operator's limit. */
	out.stdout_max = in.command.stdout_max > 0 ? in.command.stdout_max : -1;
	out.stderr_max = in.command.stderr_max > 0 ? in.command.stderr_max : -1;
	out.keep_descendants = in.command.keep_descendants;
	secret_sha256_hex(body, len, out.body_sha256);
	*ret = out;
	return 0;
}
