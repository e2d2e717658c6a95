/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations on sessions. Any thread; nothing is kept between calls. Must never repeat a create, and never take an
 * answer that cannot be read for an empty one.
 */
#include "httpprov.h"

#include <string.h>

#define READY_SLICE_MS 10000

static const char *const phases[] = {
	[BERTH_PHASE_QUEUED] = "queued",   [BERTH_PHASE_UNSCHEDULABLE] = "unschedulable",
	[BERTH_PHASE_PULLING] = "pulling", [BERTH_PHASE_STARTING] = "starting",
	[BERTH_PHASE_READY] = "ready",	   [BERTH_PHASE_DEAD] = "dead",
};

static uint32_t phase_of(const char *word)
{
	for (uint32_t i = BERTH_PHASE_QUEUED; i <= BERTH_PHASE_DEAD; i++)
		if (!strcmp(phases[i], word))
			return i;
	return 0;
}

/* Borrows its texts from the JSON. False: not a session. */
static bool take_session(struct json_object *json, struct berth_session_info *ret)
{
	*ret = (struct berth_session_info){
		.struct_size = sizeof(*ret),
		.phase = phase_of(wire_text(json, "phase")),
		.ref = wire_str(wire_text(json, "ref")),
		.workspace_id = wire_str(wire_text(json, "workspace")),
		.task_id = wire_str(wire_text(json, "task")),
		.intent = wire_str(wire_text(json, "intent")),
		.boot_id = wire_str(wire_text(json, "boot")),
		.root = wire_str(wire_text(json, "root")),
		.dead_reason = wire_str(wire_text(json, "dead_reason")),
		.created_ms = wire_number(json, "created_ms"),
		.expires_ms = wire_number(json, "expires_ms"),
		.isolation = BERTH_ISOLATION_NONE,
		.memory_bytes = (uint64_t)wire_number(json, "memory_bytes"),
	};
	return ret->phase && ret->ref.len;
}

static int32_t fail_answer(struct ask *ask)
{
	return prov_fail(ask->call, ask->changes ? BERTH_UNKNOWN : BERTH_UNAVAILABLE, "foreign_answer",
			 "the answer is not what was asked for");
}

/* All sessions of an answer, which must be whole before the first is emitted. */
static int32_t emit_items(struct ask *ask)
{
	struct json_object *items;
	struct berth_session_info info;
	int32_t rc = BERTH_OK;

	if (!json_object_object_get_ex(ask->json, "items", &items) || !json_object_is_type(items, json_type_array))
		return fail_answer(ask);
	for (size_t i = 0; i < json_object_array_length(items); i++)
		if (!take_session(json_object_array_get_idx(items, i), &info))
			return fail_answer(ask);
	for (size_t i = 0; !rc && i < json_object_array_length(items); i++) {
		take_session(json_object_array_get_idx(items, i), &info);
		rc = prov_host->emit_session(ask->call, &info);
	}
	return rc;
}

static int32_t emit_only(struct ask *ask)
{
	struct berth_session_info info;

	return take_session(ask->json, &info) ? prov_host->emit_session(ask->call, &info) : fail_answer(ask);
}

int32_t prov_find(void *inst, struct berth_call *call, const struct berth_identity *identity)
{
	struct prov *p = inst;
	struct ask ask;
	int32_t rc;

	ask_init(&ask, p, call, "GET", "/v1/sessions");
	ask_query(&ask, "deployment", wire_str(p->deployment));
	ask_query(&ask, "workspace", identity->workspace_id);
	ask_query(&ask, "task", identity->task_id);
	rc = ask_json(&ask);
	if (!rc)
		rc = emit_items(&ask);
	ask_fini(&ask);
	return rc;
}

int32_t prov_list(void *inst, struct berth_call *call, const struct berth_str *cursor)
{
	struct prov *p = inst;
	struct berth_str next;
	struct ask ask;
	int32_t rc;

	ask_init(&ask, p, call, "GET", "/v1/sessions");
	ask_query(&ask, "deployment", wire_str(p->deployment));
	ask_query(&ask, "cursor", *cursor);
	rc = ask_json(&ask);
	if (!rc)
		rc = emit_items(&ask);
	next = wire_str(rc ? "" : wire_text(ask.json, "cursor"));
	if (!rc && next.len)
		rc = prov_host->emit_cursor(call, &next);
	ask_fini(&ask);
	return rc;
}

/* Values are bytes: percent-encoded. */
static void put_env(struct json_object *spec, const struct berth_pair *env, size_t count)
{
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; i < count; i++) {
		struct wire_buf text = {0};

		wire_percent(&text, env[i].name.ptr, env[i].name.len, "");
		wire_word(&text, "=");
		wire_percent(&text, env[i].value.ptr, env[i].value.len, "");
		json_object_array_add(list, json_object_new_string_len(text.ptr ? text.ptr : "", (int)text.len));
		wire_free(&text);
	}
	json_object_object_add(spec, "env", list);
}

static void set_body(struct ask *ask, struct json_object *json)
{
	wire_word(&ask->query_body, json_object_to_json_string_ext(json, JSON_C_TO_STRING_PLAIN));
	json_object_put(json);
	ask->body = (struct berth_str){ask->query_body.ptr, ask->query_body.len};
}

static struct json_object *spec_json(const struct berth_spec *spec)
{
	struct json_object *json = json_object_new_object();

	wire_add_text(json, "deployment", spec->deployment);
	wire_add_text(json, "workspace", spec->workspace_id);
	wire_add_text(json, "task", spec->task_id);
	wire_add_text(json, "intent", spec->intent);
	wire_add_text(json, "image", spec->image);
	wire_add_number(json, "memory_bytes", (int64_t)spec->memory_bytes);
	wire_add_number(json, "expires_ms", spec->expires_ms);
	put_env(json, spec->env, spec->env_count);
	return json;
}

int32_t prov_provision(void *inst, struct berth_call *call, const struct berth_spec *spec)
{
	struct berth_session_info info;
	struct ask ask;
	int32_t rc;

	if (spec->isolation > BERTH_ISOLATION_NONE)
		return prov_host->fail(call, BERTH_INVALID, "isolation", 0, 0, "the server isolates nothing");
	ask_init(&ask, inst, call, "POST", "/v1/sessions");
	set_body(&ask, spec_json(spec));
	ask.once = true;
	rc = ask_json(&ask);
	if (!rc)
		rc = take_session(ask.json, &info) ? prov_host->created(call, &info) : fail_answer(&ask);
	ask_fini(&ask);
	return rc;
}

int32_t prov_await_ready(void *inst, struct berth_call *call, const struct berth_session *session)
{
	for (;;) {
		struct ask ask;
		uint32_t phase;
		int32_t rc;

		ask_init(&ask, inst, call, "GET", "/v1/sessions");
		ask_session(&ask, session, "/ready");
		ask_query_number(&ask, "wait_ms", READY_SLICE_MS);
		ask.is_long = true;
		ask.idle_ms = 3 * READY_SLICE_MS;
		rc = ask_json(&ask);
		if (!rc && ask.status == 200)
			rc = emit_only(&ask);
		phase = rc ? 0 : phase_of(wire_text(ask.json, "phase"));
		if (rc || ask.status == 200) {
			ask_fini(&ask);
			return rc;
		}
		prov_host->progress(call, phase ? phase : BERTH_PHASE_STARTING, "the server says so");
		ask_fini(&ask);
	}
}

int32_t prov_assign(void *inst, struct berth_call *call, const struct berth_session *session,
		    const struct berth_identity *identity)
{
	struct json_object *json = json_object_new_object();
	struct ask ask;
	int32_t rc;

	ask_init(&ask, inst, call, "PUT", "/v1/sessions");
	ask_session(&ask, session, "/task");
	wire_add_text(json, "workspace", identity->workspace_id);
	wire_add_text(json, "task", identity->task_id);
	set_body(&ask, json);
	ask.again = true;
	rc = ask_json(&ask);
	if (!rc)
		rc = emit_only(&ask);
	ask_fini(&ask);
	return rc;
}

int32_t prov_inspect(void *inst, struct berth_call *call, const struct berth_session *session)
{
	struct ask ask;
	int32_t rc;

	ask_init(&ask, inst, call, "GET", "/v1/sessions");
	ask_session(&ask, session, "");
	rc = ask_json(&ask);
	if (!rc)
		rc = emit_only(&ask);
	ask_fini(&ask);
	return rc;
}

int32_t prov_renew(void *inst, struct berth_call *call, const struct berth_session *session, int64_t until_ms)
{
	struct json_object *json = json_object_new_object();
	struct ask ask;
	int32_t rc;

	ask_init(&ask, inst, call, "POST", "/v1/sessions");
	ask_session(&ask, session, "/renew");
	wire_add_number(json, "until_ms", until_ms);
	set_body(&ask, json);
	ask.again = true;
	rc = ask_json(&ask);
	if (!rc)
		rc = wire_has(ask.json, "expires_ms", json_type_int)
			     ? prov_host->emit_expiry(call, wire_number(ask.json, "expires_ms"))
			     : fail_answer(&ask);
	ask_fini(&ask);
	return rc;
}

/* A lost answer is asked for again: that the session is gone then is what was wanted. */
int32_t prov_release(void *inst, struct berth_call *call, const struct berth_session *session)
{
	struct ask ask;

	ask_init(&ask, inst, call, "DELETE", "/v1/sessions");
	ask_session(&ask, session, "");
	ask.again = true;
	return ask_simply(&ask);
}
