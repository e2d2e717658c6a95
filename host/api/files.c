/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the file routes that answer JSON: inline read and write, list, remove, move. Entered from workers of the long
 * pool. The path rule is ident_path_check for every verb; what lies beneath the root is the provider's to resolve.
 */
#include <stdlib.h>
#include <string.h>

#include "api/body.h"
#include "api/filework.h"
#include "api/resources.h"
#include "core/clock.h"
#include "core/limits.h"
#include "core/secret.h"

#define MODE_DEFAULT 0600u
#define LISTING_MAX (2 * LIMIT_INLINE_FILE) /* of its answer */
#define HIDDEN ".agentarea" /* the reference's own folder in a workspace */

static int query_path(const struct req *req, const char *name, bool dot_ok, const char **ret, struct err *err)
{
	const char *path = req_query(req, name);

	if (!path)
		return err_set(err, ERR_INVALID_REQUEST, "query parameter \"%s\" is missing", name);
	*ret = path;
	return ident_path_check(name, path, strlen(path), dot_ok, err);
}

/* ---- write ---- */

struct put_body {
	const char *workspace, *task, *path, *content, *region;
};

#define FIELD(name_, struct_, member_, ...)                                                                            \
	{                                                                                                              \
		.name = name_, .type = JSON_STR, .off = offsetof(struct struct_, member_), __VA_ARGS__                 \
	}

static const struct json_field put_fields[] = {
	FIELD("workspace_id", put_body, workspace, .flags = JSON_REQUIRED),
	FIELD("task_id", put_body, task, .flags = JSON_REQUIRED),
	FIELD("path", put_body, path, .flags = JSON_REQUIRED),
	FIELD("content_base64", put_body, content, .flags = JSON_REQUIRED),
	FIELD("region", put_body, region, .flags = JSON_NULLABLE),
	{0},
};

struct bytes {
	const char *ptr;
	size_t len;
};

static int give_bytes(void *arg, void *buf, size_t cap, size_t *ret_len)
{
	struct bytes *bytes = arg;
	size_t len = cap < bytes->len ? cap : bytes->len;

	memcpy(buf, bytes->ptr, len);
	bytes->ptr += len;
	bytes->len -= len;
	*ret_len = len;
	return 0;
}

static int write_bytes(struct req *req, const struct file_place *place, const char *path, const char *ptr, size_t len,
		       struct err *err)
{
	struct bytes bytes = {.ptr = ptr, .len = len};
	struct call_sink sink = {.read = give_bytes, .arg = &bytes};
	struct filework work;
	char digest[65];

	secret_sha256_hex(ptr, len, digest);

	struct berth_file_write write = {
		.struct_size = sizeof(write),
		.mode = MODE_DEFAULT,
		.path = filework_str(path),
		.size = len,
		.sha256 = filework_str(digest),
	};
	int r = filework_begin(req, place, FILEWORK_SHORT_MS, &work, err);

	if (r == 0 && !filework_call(&work, &sink))
		r = err_set(err, ERR_NOMEM, "out of memory");
	else if (r == 0)
		r = filework_result(&work, call_file_write(work.call, work.session, &write, err), err);
	filework_end(req, &work, r);
	return r;
}

static void put_path_and_size(struct req *req, const char *path, size_t size)
{
	struct buf *body = &req->reply.body;

	buf_puts(body, "{\"path\":");
	json_put_string(body, path, strlen(path));
	buf_printf(body, ",\"size\":%zu}\n", size);
	req_json(req, 200);
}

int file_put(struct req *req, struct err *err)
{
	struct put_body in;
	struct file_place place;
	char *bytes = NULL;
	size_t len = 0;
	int r = body_decode(req->arena, put_fields, req->body.ptr, req->body.len, &in, sizeof(in), err);

	if (r == 0)
		r = filework_place_named(req, in.workspace, in.task, in.region, &place, err);
	if (r == 0)
		req_audit(req, NULL, NULL, in.path);
	if (r == 0)
		r = ident_path_check("path", in.path, strlen(in.path), false, err);
	if (r == 0 && json_base64_decode(in.content, strlen(in.content), &bytes, &len, err) != 0)
		r = err_prefix(err, "content_base64");
	if (r == 0 && len > LIMIT_INLINE_FILE)
		r = err_set(err, ERR_PAYLOAD_TOO_LARGE,
			    "the content is larger than %zu bytes; use /sandbox/file-content", LIMIT_INLINE_FILE);
	if (r == 0)
		r = write_bytes(req, &place, in.path, bytes, len, err);
	if (r == 0)
		put_path_and_size(req, in.path, len);
	free(bytes);
	return r;
}

/* ---- read ---- */

static int keep_bytes(void *arg, unsigned stream, const void *ptr, size_t len)
{
	(void)stream;
	return buf_append(arg, ptr, len);
}

static int read_bytes(struct req *req, const struct file_place *place, const char *path, struct buf *buf,
		      struct err *err)
{
	struct call_sink sink = {.write = keep_bytes, .arg = buf};
	struct filework work;
	int r = filework_begin(req, place, FILEWORK_SHORT_MS, &work, err);

	if (r == 0 && !filework_call(&work, &sink))
		r = err_set(err, ERR_NOMEM, "out of memory");
	else if (r == 0)
		r = filework_result(&work, call_file_read(work.call, work.session, path, 0, BERTH_SIZE_UNKNOWN, err),
				    err);
	if (buf->error == ERR_PAYLOAD_TOO_LARGE)
		r = err_set(err, ERR_PAYLOAD_TOO_LARGE, "the file is larger than %zu bytes; use /sandbox/file-content",
			    LIMIT_INLINE_FILE);
	filework_end(req, &work, r);
	return r;
}

static int get_inline(struct req *req, const struct file_place *place, struct err *err)
{
	const char *path;
	struct buf bytes;
	int r = query_path(req, "path", false, &path, err);

	if (r != 0)
		return r;
	buf_init(&bytes, LIMIT_INLINE_FILE);
	r = read_bytes(req, place, path, &bytes, err);
	if (r == 0) {
		buf_puts(&req->reply.body, "{\"content_base64\":\"");
		json_base64_encode(&req->reply.body, bytes.len ? bytes.ptr : "", bytes.len);
		buf_printf(&req->reply.body, "\",\"size\":%zu}\n", bytes.len);
		req_json(req, 200);
	}
	buf_fini(&bytes);
	return r;
}

struct listing {
	const char *prefix;
	bool details; /* every entry with what is known of it, not only the paths of regular files */
	bool recursive;
};

static const char *const kind_words[] = {
	[BERTH_FILE_REGULAR] = "file",
	[BERTH_FILE_DIRECTORY] = "folder",
	[BERTH_FILE_SYMLINK] = "link",
	[BERTH_FILE_OTHER] = "other",
};

static int by_path(const void *a, const void *b)
{
	const struct berth_str *one = &(*(const struct berth_file_info *const *)a)->path;
	const struct berth_str *two = &(*(const struct berth_file_info *const *)b)->path;
	int order = memcmp(one->ptr, two->ptr, one->len < two->len ? one->len : two->len);

	return order ? order : (one->len > two->len) - (one->len < two->len);
}

static bool hidden(const struct berth_file_info *file)
{
	size_t len = strlen(HIDDEN);

	return file->path.len >= len && memcmp(file->path.ptr, HIDDEN, len) == 0 &&
	       (file->path.len == len || file->path.ptr[len] == '/');
}

/* Times are the sandbox's to set: one that is not after 1970's first moment is left out. */
static void put_entry(struct buf *body, const struct berth_file_info *file)
{
	char time[32];

	buf_puts(body, "{\"path\":");
	json_put_string(body, file->path.ptr, file->path.len);
	buf_printf(body, ",\"kind\":\"%s\",\"size\":%llu,\"mode\":\"%04o\"", kind_words[file->kind],
		   (unsigned long long)file->size, (unsigned)file->mode & 07777u);
	if (file->mtime_ms > 0) {
		clock_format(file->mtime_ms, time);
		buf_printf(body, ",\"modified_at\":\"%s\"", time);
	}
	buf_puts(body, "}");
}

static int too_large(struct err *err)
{
	return err_set(err, ERR_PAYLOAD_TOO_LARGE,
		       "the list has more than %u entries or %zu MiB; list a folder in it, or let a command list it",
		       BERTH_RESULTS_MAX, LISTING_MAX / LIMIT_MIB);
}

static int put_listing(struct req *req, const struct call *call, const struct listing *listing, struct err *err)
{
	size_t count = 0;
	size_t shown = 0;
	const struct berth_file_info *files = call_files(call, &count);
	const struct berth_file_info **sorted = arena_alloc(req->arena, (count + 1) * sizeof(*sorted));
	struct buf *body = &req->reply.body;

	if (!sorted)
		return err_set(err, ERR_NOMEM, "out of memory");
	for (size_t i = 0; i < count; i++)
		if ((listing->details || files[i].kind == BERTH_FILE_REGULAR) && !hidden(&files[i]))
			sorted[shown++] = &files[i];
	qsort(sorted, shown, sizeof(*sorted), by_path);
	buf_puts(body, listing->details ? "{\"items\":[" : "{\"paths\":[");
	for (size_t i = 0; i < shown; i++) {
		buf_puts(body, i ? "," : "");
		if (listing->details)
			put_entry(body, sorted[i]);
		else
			json_put_string(body, sorted[i]->path.ptr, sorted[i]->path.len);
	}
	buf_puts(body, "]}\n");
	if (body->error == ERR_PAYLOAD_TOO_LARGE)
		return too_large(err);
	req_json(req, 200);
	return 0;
}

static int get_listing(struct req *req, const struct file_place *place, const struct listing *listing, struct err *err)
{
	struct filework work;
	const char *path = *listing->prefix ? listing->prefix : ".";
	int r = ident_path_check("list", path, strlen(path), true, err);

	if (r != 0)
		return r;
	r = filework_begin(req, place, FILEWORK_SHORT_MS, &work, err);
	if (r == 0 && !filework_call(&work, NULL))
		r = err_set(err, ERR_NOMEM, "out of memory");
	else if (r == 0)
		r = filework_result(&work,
				    call_file_list(work.call, work.session, path,
						   listing->recursive ? BERTH_LIST_RECURSIVE : 0, err),
				    err);
	if (r == ERR_PAYLOAD_TOO_LARGE)
		r = too_large(err);
	if (r == 0)
		r = put_listing(req, work.call, listing, err);
	filework_end(req, &work, r);
	return r;
}

static int take_listing(const struct req *req, struct listing *ret, struct err *err)
{
	int r = req_query_bool(req, "details", false, &ret->details, err);

	ret->prefix = req_query(req, "list");
	if (r == 0)
		r = req_query_bool(req, "recursive", true, &ret->recursive, err);
	if (r == 0 && ret->prefix && req_query(req, "path"))
		r = err_set(err, ERR_INVALID_REQUEST, "query parameters \"path\" and \"list\" exclude each other");
	if (r == 0 && !ret->prefix && (req_query(req, "details") || req_query(req, "recursive")))
		r = err_set(err, ERR_INVALID_REQUEST,
			    "query parameters \"details\" and \"recursive\" go with \"list\"");
	return r;
}

int file_get(struct req *req, struct err *err)
{
	struct file_place place;
	struct listing listing;
	int r = filework_place(req, &place, err);

	if (r == 0)
		r = take_listing(req, &listing, err);
	if (r != 0)
		return r;
	return listing.prefix ? get_listing(req, &place, &listing, err) : get_inline(req, &place, err);
}

/* ---- remove, move ---- */

int file_delete(struct req *req, struct err *err)
{
	struct file_place place;
	struct filework work;
	const char *path;
	bool recursive;
	int r = filework_place(req, &place, err);

	if (r == 0)
		r = query_path(req, "path", false, &path, err);
	if (r == 0)
		r = req_query_bool(req, "recursive", false, &recursive, err);
	if (r != 0)
		return r;
	r = filework_begin(req, &place, FILEWORK_SHORT_MS, &work, err);
	if (r == 0 && !filework_call(&work, NULL))
		r = err_set(err, ERR_NOMEM, "out of memory");
	else if (r == 0)
		r = filework_result(
			&work,
			call_file_remove(work.call, work.session, path, recursive ? BERTH_REMOVE_RECURSIVE : 0, err),
			err);
	filework_end(req, &work, r);
	if (r == 0)
		req_empty(req, 204);
	return r;
}

struct move_body {
	const char *workspace, *task, *from, *to, *region;
};

static const struct json_field move_fields[] = {
	FIELD("workspace_id", move_body, workspace, .flags = JSON_REQUIRED),
	FIELD("task_id", move_body, task, .flags = JSON_REQUIRED),
	FIELD("from", move_body, from, .flags = JSON_REQUIRED),
	FIELD("to", move_body, to, .flags = JSON_REQUIRED),
	FIELD("region", move_body, region, .flags = JSON_NULLABLE),
	{0},
};

static void put_moved(struct req *req, const struct move_body *in)
{
	struct buf *body = &req->reply.body;

	buf_puts(body, "{\"from\":");
	json_put_string(body, in->from, strlen(in->from));
	buf_puts(body, ",\"to\":");
	json_put_string(body, in->to, strlen(in->to));
	buf_puts(body, "}\n");
	req_json(req, 200);
}

int file_post_move(struct req *req, struct err *err)
{
	struct move_body in;
	struct file_place place;
	struct filework work;
	int r = body_decode(req->arena, move_fields, req->body.ptr, req->body.len, &in, sizeof(in), err);

	if (r == 0)
		r = filework_place_named(req, in.workspace, in.task, in.region, &place, err);
	if (r == 0)
		req_audit(req, NULL, NULL, in.from);
	if (r == 0)
		r = ident_path_check("from", in.from, strlen(in.from), false, err);
	if (r == 0)
		r = ident_path_check("to", in.to, strlen(in.to), false, err);
	if (r != 0)
		return r;
	r = filework_begin(req, &place, FILEWORK_SHORT_MS, &work, err);
	if (r == 0 && !filework_call(&work, NULL))
		r = err_set(err, ERR_NOMEM, "out of memory");
	else if (r == 0)
		r = filework_result(&work, call_file_move(work.call, work.session, in.from, in.to, err), err);
	filework_end(req, &work, r);
	if (r == 0)
		put_moved(req, &in);
	return r;
}
