/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the JSON of events, messages and dead letters. Pure functions, any thread. Never puts a body, an output or a
 * private part into one.
 */
#include "execution/event.h"

#include <stdio.h>
#include <string.h>


struct event_data {
	const char *execution_id, *status, *workspace_id, *task_id, *reason;
	int64_t revision, attempt;
	const char **output_refs;
	size_t output_ref_count;
	int64_t output_refs_shown;
};

struct event {
	const char *specversion, *type, *source, *id, *datacontenttype, *subject, *correlationid;
	int64_t time_ms;
	struct event_data data;
};

#define FIELD(owner, member, key, kind, bits)                                                                          \
	{                                                                                                              \
		.name = (key), .type = (kind), .flags = (bits), .off = offsetof(struct owner, member)                  \
	}

static const struct json_field data_fields[] = {
	FIELD(event_data, execution_id, "execution_id", JSON_STR, 0),
	FIELD(event_data, status, "status", JSON_STR, 0),
	FIELD(event_data, workspace_id, "workspace_id", JSON_STR, 0),
	FIELD(event_data, task_id, "task_id", JSON_STR, 0),
	FIELD(event_data, revision, "revision", JSON_I64, JSON_OMIT),
	FIELD(event_data, attempt, "attempt", JSON_I64, JSON_OMIT),
	FIELD(event_data, reason, "reason", JSON_STR, JSON_OMIT),
	{.name = "output_refs",
	 .type = JSON_STRV,
	 .flags = JSON_OMIT,
	 .off = offsetof(struct event_data, output_refs),
	 .count_off = offsetof(struct event_data, output_ref_count)},
	FIELD(event_data, output_refs_shown, "output_ref_count", JSON_I64, JSON_OMIT),
	{0},
};

static const struct json_field event_fields[] = {
	FIELD(event, specversion, "specversion", JSON_STR, 0),
	FIELD(event, type, "type", JSON_STR, 0),
	FIELD(event, source, "source", JSON_STR, 0),
	FIELD(event, id, "id", JSON_STR, 0),
	FIELD(event, time_ms, "time", JSON_TIME, 0),
	FIELD(event, datacontenttype, "datacontenttype", JSON_STR, 0),
	FIELD(event, subject, "subject", JSON_STR, 0),
	FIELD(event, correlationid, "correlationid", JSON_STR, 0),
	{.name = "data",
	 .type = JSON_OBJ,
	 .off = offsetof(struct event, data),
	 .sub = data_fields,
	 .sub_size = sizeof(struct event_data)},
	{0},
};

int event_render(const struct record *r, enum record_event event, const char *event_id, int64_t now_ms, struct buf *buf)
{
	char type[64];
	struct event e = {
		.specversion = "1.0",
		.type = type,
		.source = EVENT_SOURCE,
		.id = event_id,
		.time_ms = now_ms,
		.datacontenttype = "application/json",
		.subject = r->id,
		.correlationid = r->id,
		.data =
			{
				.execution_id = r->id,
				.status = record_status_word(r->status),
				.workspace_id = r->workspace_id,
				.task_id = r->task_id,
				.reason = r->reason,
				.revision = r->revision,
				.attempt = r->attempt,
				.output_refs = r->output_refs,
				.output_ref_count = r->output_ref_count,
				.output_refs_shown = (int64_t)r->output_ref_count,
			},
	};

	snprintf(type, sizeof(type), EVENT_TYPE_PREFIX "%s", record_event_word(event));
	return json_encode(buf, event_fields, &e, 0);
}

/* A text member, or NULL when it is absent or not text. */
static const char *text_of(struct json_object *object, const char *key)
{
	struct json_object *value = NULL;

	if (!json_object_is_type(object, json_type_object) || !json_object_object_get_ex(object, key, &value))
		return NULL;
	return json_object_is_type(value, json_type_string) ? json_object_get_string(value) : NULL;
}

static const char *read_message(struct json_object *json, char ret_id[IDENT_ID_MAX + 1])
{
	struct json_object *data = NULL;
	const char *version = text_of(json, "specversion");
	const char *type = text_of(json, "type");
	const char *id;

	if (!version || strcmp(version, "1.0") != 0)
		return "unknown_version";
	if (!type || strcmp(type, EVENT_TYPE_PREFIX "requested") != 0)
		return "wrong_type";
	json_object_object_get_ex(json, "data", &data);
	id = text_of(data, "execution_id");
	if (!record_id_valid(id))
		return "no_id";
	snprintf(ret_id, IDENT_ID_MAX + 1, "%s", id);
	return NULL;
}

bool event_parse_message(const char *doc, size_t len, char ret_id[IDENT_ID_MAX + 1], const char **ret_why)
{
	struct json_object *json = NULL;

	if (len > EVENT_MESSAGE_MAX)
		*ret_why = "too_large";
	else if (json_parse(doc, len, &json, NULL) != 0)
		*ret_why = "bad_json";
	else
		*ret_why = read_message(json, ret_id);
	json_object_put(json);
	return *ret_why == NULL;
}

struct dead_letter {
	const char *reason, *subject, *event;
	int64_t seq, size;
};

static const struct json_field dead_fields[] = {
	FIELD(dead_letter, reason, "reason", JSON_STR, 0), FIELD(dead_letter, subject, "subject", JSON_STR, 0),
	FIELD(dead_letter, seq, "seq", JSON_I64, 0),	   FIELD(dead_letter, size, "size", JSON_I64, 0),
	FIELD(dead_letter, event, "event", JSON_STR, 0),   {0},
};

int event_render_dead(const char *reason, const char *subject, uint64_t seq, const char *doc, size_t len,
		      struct buf *buf)
{
	bool text = len <= EVENT_MESSAGE_MAX && ident_utf8_valid(doc, len) && !memchr(doc, '\0', len);
	struct dead_letter dead = {
		.reason = reason,
		.subject = subject,
		.event = text ? doc : NULL, /* a NUL follows whatever a stream hands out */
		.seq = (int64_t)seq,
		.size = (int64_t)len,
	};

	return json_encode(buf, dead_fields, &dead, 0);
}

int event_parse_dead(struct arena *arena, const char *doc, size_t len, const char **ret_text, struct err *err)
{
	struct dead_letter dead;
	int rc = json_decode_text(arena, dead_fields, doc, len, &dead, sizeof(dead), err);

	if (rc == 0)
		*ret_text = dead.event;
	return rc;
}
