/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files through a session's executor, which resolves every path beneath the root itself. Three shapes: asked, fetched,
 * stored. Bytes pass through in pieces; nothing becomes visible unless the signature at their end was right. Any
 * thread.
 */
#include "files.h"

#include <string.h>

#include "api.h"
#include "fate.h"
#include "peer.h"

struct transfer {
	struct berth_call *call;
	uint64_t offset; /* of the next byte fetched, once one came */
	bool began;
};

static const struct {
	const char *word;
	uint32_t kind;
} kinds[] = {{"regular", BERTH_FILE_REGULAR},
	     {"directory", BERTH_FILE_DIRECTORY},
	     {"symlink", BERTH_FILE_SYMLINK},
	     {"other", BERTH_FILE_OTHER},
	     {"deleted", 0}};

static uint32_t kind_of(struct json_object *tree)
{
	const char *word = api_text(tree, "kind");

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(word, kinds[i].word))
			return kinds[i].kind;
	return BERTH_FILE_OTHER;
}

static struct berth_str text_at(struct json_object *tree, const char *key)
{
	struct json_object *value = api_at(tree, key);

	if (!json_object_is_type(value, json_type_string))
		return str_of("");
	return (struct berth_str){json_object_get_string(value), (size_t)json_object_get_string_len(value)};
}

static uint64_t count_at(struct json_object *tree, const char *key)
{
	int64_t value = api_number(tree, key);

	return value > 0 ? (uint64_t)value : 0;
}

static int32_t take_file(struct transfer *t, struct json_object *tree)
{
	const struct berth_file_info info = {
		.struct_size = sizeof(info),
		.kind = kind_of(tree),
		.path = text_at(tree, "path"),
		.size = count_at(tree, "size"),
		.mtime_ms = api_number(tree, "mtime_ms"),
		.mode = (uint32_t)count_at(tree, "mode"),
	};

	return kube_host->emit_file(t->call, &info);
}

static int32_t take_change(struct transfer *t, struct json_object *tree)
{
	const struct berth_change change = {
		.struct_size = sizeof(change),
		.kind = kind_of(tree),
		.path = text_at(tree, "path"),
		.size = count_at(tree, "size"),
		.mode = (uint32_t)count_at(tree, "mode"),
	};

	return kube_host->emit_change(t->call, &change);
}

static int32_t take_token(struct transfer *t, struct json_object *tree)
{
	const struct berth_str token = text_at(tree, "token");

	return kube_host->emit_token(t->call, &token);
}

static int32_t take_bytes(struct transfer *t, const struct frame *frame, struct kerr *err)
{
	uint64_t offset = 0;

	for (unsigned i = 0; i < 8 && i < frame->len; i++)
		offset = offset << 8 | frame->ptr[i];
	/* Where counting begins is the executor's; that nothing is missing in between is not. */
	if (frame->len < 8 || (t->began && offset != t->offset))
		return kerr_set(err, BERTH_UNKNOWN, "bad_reply", "bytes at an offset that was not expected");
	t->began = true;
	t->offset = offset + frame->len - 8;
	return frame->len > 8 ? kube_host->sink_write(t->call, BERTH_STREAM_DATA, frame->ptr + 8, frame->len - 8)
			      : BERTH_OK;
}

static int32_t take_frame(void *arg, const struct frame *frame, struct kerr *err)
{
	struct json_tokener *tokener;
	struct json_object *tree;
	int32_t rc = BERTH_OK;

	if (frame->type == 'D')
		return take_bytes(arg, frame, err);
	if (!strchr("FKT", frame->type))
		return BERTH_OK;
	tokener = json_tokener_new_ex(8);
	tree = tokener ? json_tokener_parse_ex(tokener, (const char *)frame->ptr, (int)frame->len) : NULL;
	if (tokener)
		json_tokener_free(tokener);
	if (!tree)
		return kerr_set(err, BERTH_UNKNOWN, "bad_reply", "the executor's entry is none");
	rc = frame->type == 'F'	  ? take_file(arg, tree)
	     : frame->type == 'K' ? take_change(arg, tree)
				  : take_token(arg, tree);
	json_object_put(tree);
	return rc;
}

static int32_t read_source(void *arg, void *buf, size_t cap, size_t *ret_len, struct kerr *err)
{
	struct transfer *t = arg;

	(void)err; /* what the host refuses it explains itself */
	return kube_host->source_read(t->call, buf, cap, ret_len);
}

static int32_t send(struct kube *k, struct session *session, struct peer_request *request, struct transfer *t,
		    struct kerr *err)
{
	bool touched;
	int32_t rc;

	request->frame = take_frame;
	request->arg = t;
	rc = peer_send(k, t->call, session, request, &touched, err);
	json_object_put(request->arguments);
	return fate_after(k, t->call, session, rc, err);
}

static bool is_look(const char *path)
{
	return !strcmp(path, "/v1/file/stat") || !strcmp(path, "/v1/file/list") || !strcmp(path, "/v1/changes");
}

int32_t files_ask(struct kube *k, struct berth_call *call, struct session *session,
		  const struct files_request *asked, struct kerr *err)
{
	struct transfer t = {.call = call};
	struct peer_request request = {.path = asked->path, .arguments = asked->arguments, .safe = is_look(asked->path)};

	return send(k, session, &request, &t, err);
}

int32_t files_fetch(struct kube *k, struct berth_call *call, struct session *session,
		    const struct files_request *asked, struct kerr *err)
{
	struct transfer t = {.call = call};
	struct buf list = {.max = (size_t)8 * 1024 * 1024}, frames = {.max = (size_t)9 * 1024 * 1024};
	struct peer_request request = {.path = asked->path, .arguments = asked->arguments, .safe = true};
	int32_t rc;

	for (size_t i = 0; i < asked->path_count; i++) {
		buf_put(&list, asked->paths[i].ptr, asked->paths[i].len);
		buf_put(&list, "", 1);
	}
	if (list.len) {
		peer_put(&frames, 'P', list.ptr, list.len);
		request.more = &frames;
	}
	if (list.bad || frames.bad) {
		json_object_put(asked->arguments);
		rc = kerr_set(err, BERTH_INVALID, "limit", "the paths are too long together");
	} else {
		rc = send(k, session, &request, &t, err);
	}
	buf_wipe(&list);
	buf_wipe(&frames);
	return rc;
}

int32_t files_store(struct kube *k, struct berth_call *call, struct session *session,
		    const struct files_request *asked, struct kerr *err)
{
	struct transfer t = {.call = call};
	struct peer_request request = {.path = asked->path, .arguments = asked->arguments, .source = read_source};

	return send(k, session, &request, &t, err);
}
