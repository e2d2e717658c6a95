/* SPDX-License-Identifier: Apache-2.0 */
/* The routes of sessions: JSON to the engine and back. The worker of the request. */
#include "server.h"

#include <stdlib.h>
#include <string.h>

#define BODY_MAX ((size_t)4 << 20)
#define ENV_MAX 1024

struct berth_session session_of(const struct req *req)
{
	return (struct berth_session){.struct_size = sizeof(struct berth_session), .ref = wire_str(req->ref)};
}

/* The body as a JSON object; NULL: answered. */
static struct json_object *body_of(struct req *req)
{
	struct wire_buf text = {0};
	struct json_object *json = req_read_all(req, &text, BODY_MAX) ? wire_parse(text.ptr, text.len) : NULL;

	wire_free(&text);
	if (json_object_is_type(json, json_type_object))
		return json;
	json_object_put(json);
	reply_error(req, BERTH_INVALID, "body", "the body must be a JSON object");
	return NULL;
}

void serve_check(struct req *req, void *inst)
{
	struct json_object *json;
	struct hostcall hc;
	int32_t rc;

	hostcall_init(&hc, req);
	rc = engine_ops()->check(inst, hostcall_abi(&hc));
	if (rc) {
		hostcall_reply(&hc, rc, false);
	} else {
		json = json_object_new_object();
		wire_add_number(json, "version", 1);
		req_reply(req, 200, json);
	}
	hostcall_fini(&hc);
}

void serve_look(struct req *req, void *inst)
{
	struct berth_identity identity = {.struct_size = sizeof(identity),
					  .workspace_id = req_query(req, "workspace"),
					  .task_id = req_query(req, "task")};
	struct berth_str cursor = req_query(req, "cursor");
	struct hostcall hc;
	int32_t rc;

	hostcall_init(&hc, req);
	if (identity.workspace_id.len || identity.task_id.len)
		rc = engine_ops()->find(inst, hostcall_abi(&hc), &identity);
	else
		rc = engine_ops()->list(inst, hostcall_abi(&hc), &cursor);
	hostcall_reply(&hc, rc, false);
	hostcall_fini(&hc);
}

/* "NAME=value", percent-encoded; decoded in place in `texts`. */
static size_t take_env(struct json_object *list, struct berth_pair *env, char **texts)
{
	size_t count = 0;

	for (size_t i = 0; list && i < json_object_array_length(list) && count < ENV_MAX; i++) {
		struct json_object *row = json_object_array_get_idx(list, i);
		char *text = json_object_is_type(row, json_type_string) ? strdup(json_object_get_string(row)) : NULL;
		char *value = text ? strchr(text, '=') : NULL;
		long name_len, len;

		if (value)
			*value++ = '\0';
		name_len = value ? wire_unpercent(text) : -1;
		len = name_len > 0 ? wire_unpercent(value) : -1;
		if (len < 0) {
			free(text);
			continue;
		}
		texts[count] = text;
		env[count++] = (struct berth_pair){{text, (size_t)name_len}, {value, (size_t)len}};
	}
	return count;
}

static struct berth_str field(struct json_object *json, const char *key)
{
	return wire_str(wire_text(json, key));
}

void serve_provision(struct req *req, void *inst)
{
	struct json_object *json = body_of(req), *list = NULL;
	struct berth_pair *env = calloc(ENV_MAX, sizeof(*env));
	char **texts = calloc(ENV_MAX, sizeof(*texts));
	struct berth_spec spec = {.struct_size = sizeof(spec), .env = env};
	struct hostcall hc;

	if (json && env && texts) {
		if (wire_has(json, "env", json_type_array))
			json_object_object_get_ex(json, "env", &list);
		spec.env_count = take_env(list, env, texts);
		spec.deployment = field(json, "deployment");
		spec.workspace_id = field(json, "workspace");
		spec.task_id = field(json, "task");
		spec.intent = field(json, "intent");
		spec.expires_ms = wire_number(json, "expires_ms");
		inst = engine_of(spec.deployment.ptr);
		hostcall_init(&hc, req);
		if (inst)
			hostcall_reply(&hc, engine_ops()->provision(inst, hostcall_abi(&hc), &spec), true);
		else
			reply_error(req, BERTH_UNAVAILABLE, "engine", "the deployment cannot be served");
		hostcall_fini(&hc);
	}
	for (size_t i = 0; texts && i < spec.env_count; i++)
		free(texts[i]);
	free(texts);
	free(env);
	json_object_put(json);
}

static void with_session(struct req *req, void *inst,
			 int32_t (*op)(void *inst, struct berth_call *call, const struct berth_session *session))
{
	struct berth_session session = session_of(req);
	struct hostcall hc;

	hostcall_init(&hc, req);
	hostcall_reply(&hc, op(inst, hostcall_abi(&hc), &session), true);
	hostcall_fini(&hc);
}

void serve_inspect(struct req *req, void *inst)
{
	with_session(req, inst, engine_ops()->inspect);
}

void serve_release(struct req *req, void *inst)
{
	timer_release(req->ref);
	with_session(req, inst, engine_ops()->release);
}

/* Waits for as long as asked at most; then the phase, as 202. */
void serve_ready(struct req *req, void *inst)
{
	int64_t until_ns = now_ns() + req_query_number(req, "wait_ms", 0) * 1000000;
	struct berth_session session = session_of(req);
	struct hostcall hc;
	int32_t rc;

	hostcall_init(&hc, req);
	if (until_ns < hc.deadline_ns)
		hc.deadline_ns = until_ns;
	rc = engine_ops()->await_ready(inst, hostcall_abi(&hc), &session);
	if (rc == BERTH_TIMEOUT)
		req_reply(req, 202, json_object_get(hc.extra));
	else
		hostcall_reply(&hc, rc, true);
	hostcall_fini(&hc);
}

void serve_assign(struct req *req, void *inst)
{
	struct json_object *json = body_of(req);
	struct berth_session session = session_of(req);
	struct berth_identity identity = {.struct_size = sizeof(identity)};
	struct hostcall hc;

	if (!json)
		return;
	identity.workspace_id = field(json, "workspace");
	identity.task_id = field(json, "task");
	hostcall_init(&hc, req);
	hostcall_reply(&hc, engine_ops()->assign(inst, hostcall_abi(&hc), &session, &identity), true);
	hostcall_fini(&hc);
	json_object_put(json);
}

void serve_renew(struct req *req, void *inst)
{
	struct json_object *json = body_of(req);
	struct berth_session session = session_of(req);
	struct hostcall hc;

	if (!json)
		return;
	hostcall_init(&hc, req);
	hostcall_reply(&hc, engine_ops()->renew(inst, hostcall_abi(&hc), &session, wire_number(json, "until_ms")),
		       true);
	hostcall_fini(&hc);
	json_object_put(json);
}
