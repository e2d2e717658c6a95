/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files, archives and changes. Any thread. Bodies of unknown end are sent in chunks, so that a source which is refused
 * at its end leaves the server with a request that never ended. Paths are bytes: percent-encoded.
 */
#include "httpprov.h"

#include <string.h>

static int32_t to_host(void *ctx, const void *ptr, size_t len)
{
	return prov_host->sink_write(ctx, BERTH_STREAM_DATA, ptr, len);
}

static int32_t from_host(void *ctx, void *buf, size_t cap, size_t *ret_len)
{
	return prov_host->source_read(ctx, buf, cap, ret_len);
}

static void begin(struct ask *ask, void *inst, struct berth_call *call, const char *method,
		  const struct berth_session *session, const char *rest)
{
	ask_init(ask, inst, call, method, "/v1/sessions");
	ask_session(ask, session, rest);
}

int32_t prov_file_read(void *inst, struct berth_call *call, const struct berth_session *session,
		       const struct berth_str *path, uint64_t offset, uint64_t length)
{
	struct ask ask;

	begin(&ask, inst, call, "GET", session, "/files/content");
	ask_query(&ask, "path", *path);
	ask_query_number(&ask, "offset", offset);
	if (length != BERTH_SIZE_UNKNOWN)
		ask_query_number(&ask, "length", length);
	ask.take = to_host;
	ask.sink = call;
	return ask_simply(&ask);
}

int32_t prov_file_write(void *inst, struct berth_call *call, const struct berth_session *session,
			const struct berth_file_write *write)
{
	struct ask ask;

	begin(&ask, inst, call, "PUT", session, "/files/content");
	ask_query(&ask, "path", write->path);
	ask_query_number(&ask, "mode", write->mode);
	if (write->size != BERTH_SIZE_UNKNOWN)
		ask_query_number(&ask, "size", write->size);
	ask_query(&ask, "sha256", write->sha256);
	ask.read = from_host;
	ask.source = call;
	return ask_simply(&ask);
}

/* Borrows the path from the JSON, which is decoded in place in `path`. */
static bool take_file(struct json_object *json, struct wire_buf *path, struct berth_file_info *ret)
{
	long len;

	path->len = 0;
	wire_word(path, wire_text(json, "path"));
	len = path->lost ? -1 : wire_unpercent(path->ptr);
	*ret = (struct berth_file_info){
		.struct_size = sizeof(*ret),
		.kind = (uint32_t)wire_number(json, "kind"),
		.path = {path->ptr, len > 0 ? (size_t)len : 0},
		.size = (uint64_t)wire_number(json, "size"),
		.mtime_ms = wire_number(json, "mtime_ms"),
		.mode = (uint32_t)wire_number(json, "mode"),
	};
	return len > 0;
}

static int32_t emit_file(struct berth_call *call, const struct berth_file_info *info)
{
	return prov_host->emit_file(call, info);
}

static int32_t emit_change(struct berth_call *call, const struct berth_file_info *info)
{
	struct berth_change change = {.struct_size = sizeof(change),
				      .kind = info->kind,
				      .path = info->path,
				      .size = info->size,
				      .mode = info->mode};

	return prov_host->emit_change(call, &change);
}

static int32_t emit_items(struct ask *ask, int32_t (*emit)(struct berth_call *call, const struct berth_file_info *info))
{
	struct json_object *items = NULL;
	struct wire_buf path = {0};
	struct berth_file_info info;
	int32_t rc = BERTH_OK;

	if (!json_object_object_get_ex(ask->json, "items", &items) || !json_object_is_type(items, json_type_array))
		rc = prov_fail(ask->call, BERTH_UNAVAILABLE, "foreign_answer", "the answer is no list");
	for (size_t i = 0; !rc && i < json_object_array_length(items); i++)
		rc = take_file(json_object_array_get_idx(items, i), &path, &info)
			     ? emit(ask->call, &info)
			     : prov_fail(ask->call, BERTH_UNAVAILABLE, "foreign_answer", "an entry is no file");
	wire_free(&path);
	return rc;
}

static int32_t ask_items(struct ask *ask, int32_t (*emit)(struct berth_call *call, const struct berth_file_info *info))
{
	int32_t rc = ask_json(ask);

	if (!rc)
		rc = emit_items(ask, emit);
	ask_fini(ask);
	return rc;
}

int32_t prov_file_stat(void *inst, struct berth_call *call, const struct berth_session *session,
		       const struct berth_str *path)
{
	struct ask ask;

	begin(&ask, inst, call, "GET", session, "/files/stat");
	ask_query(&ask, "path", *path);
	return ask_items(&ask, emit_file);
}

int32_t prov_file_list(void *inst, struct berth_call *call, const struct berth_session *session,
		       const struct berth_str *path, uint32_t flags)
{
	struct ask ask;

	if (flags & ~BERTH_LIST_RECURSIVE)
		return BERTH_UNSUPPORTED;
	begin(&ask, inst, call, "GET", session, "/files/list");
	ask_query(&ask, "path", *path);
	ask_query_number(&ask, "recursive", flags & BERTH_LIST_RECURSIVE ? 1 : 0);
	return ask_items(&ask, emit_file);
}

int32_t prov_file_remove(void *inst, struct berth_call *call, const struct berth_session *session,
			 const struct berth_str *path, uint32_t flags)
{
	struct ask ask;

	if (flags & ~BERTH_REMOVE_RECURSIVE)
		return BERTH_UNSUPPORTED;
	begin(&ask, inst, call, "DELETE", session, "/files/content");
	ask_query(&ask, "path", *path);
	ask_query_number(&ask, "recursive", flags & BERTH_REMOVE_RECURSIVE ? 1 : 0);
	return ask_simply(&ask);
}

int32_t prov_file_move(void *inst, struct berth_call *call, const struct berth_session *session,
		       const struct berth_str *from, const struct berth_str *to)
{
	struct ask ask;

	begin(&ask, inst, call, "POST", session, "/files/move");
	ask_query(&ask, "from", *from);
	ask_query(&ask, "to", *to);
	return ask_simply(&ask);
}

int32_t prov_import_tar(void *inst, struct berth_call *call, const struct berth_session *session,
			const struct berth_str *path)
{
	struct ask ask;

	begin(&ask, inst, call, "PUT", session, "/archive");
	ask_query(&ask, "path", *path);
	ask.read = from_host;
	ask.source = call;
	return ask_simply(&ask);
}

int32_t prov_export_tar(void *inst, struct berth_call *call, const struct berth_session *session,
			const struct berth_str *paths, size_t path_count)
{
	struct ask ask;

	begin(&ask, inst, call, "POST", session, "/archive/export");
	for (size_t i = 0; i < path_count; i++) {
		wire_percent(&ask.query_body, paths[i].ptr, paths[i].len, "/");
		wire_word(&ask.query_body, "\n");
	}
	ask.body = (struct berth_str){ask.query_body.ptr, ask.query_body.len};
	ask.changes = false;
	ask.again = true;
	ask.take = to_host;
	ask.sink = call;
	return ask_simply(&ask);
}

int32_t prov_mark(void *inst, struct berth_call *call, const struct berth_session *session)
{
	struct berth_str token;
	struct ask ask;
	int32_t rc;

	begin(&ask, inst, call, "POST", session, "/marks");
	/* A mark that nobody knows of does no harm. */
	ask.changes = false;
	ask.again = true;
	rc = ask_json(&ask);
	token = wire_str(rc ? "" : wire_text(ask.json, "token"));
	if (!rc)
		rc = token.len ? prov_host->emit_token(call, &token)
			       : prov_fail(call, BERTH_UNAVAILABLE, "foreign_answer", "the answer has no token");
	ask_fini(&ask);
	return rc;
}

int32_t prov_changes(void *inst, struct berth_call *call, const struct berth_session *session,
		     const struct berth_str *token)
{
	struct ask ask;

	begin(&ask, inst, call, "GET", session, "/changes");
	ask_query(&ask, "token", *token);
	return ask_items(&ask, emit_change);
}
