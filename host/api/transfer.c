/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the raw file routes: streaming upload and download with back-pressure through the request's window. Entered from
 * the loop thread for the checks before the body, else from workers of the long pool. Memory per transfer is the
 * window; a client that stalls ends it after the idle limit; an upload that does not come to its checked end leaves
 * nothing visible.
 */
#include <string.h>

#include "api/filework.h"
#include "api/resources.h"
#include "api/upload.h"

#define MODE_DEFAULT 0600u

/* ---- upload ---- */

struct put {
	struct file_place place;
	const char *path;
	const char *sha256; /* or NULL */
	uint32_t mode;
	uint64_t size;
};

static int take_mode(const struct req *req, uint32_t *ret, struct err *err)
{
	const char *text = req_query(req, "mode");
	uint32_t mode = 0;

	*ret = MODE_DEFAULT;
	if (!text)
		return 0;
	for (const char *c = text; *c; c++) {
		if (*c < '0' || *c > '7' || c - text >= 4)
			return err_set(err, ERR_INVALID_REQUEST, "mode is not octal, such as 0644");
		mode = mode * 8 + (uint32_t)(*c - '0');
	}
	if (mode == 0 || mode > 0777)
		return err_set(err, ERR_INVALID_REQUEST, "mode is not between 0001 and 0777");
	*ret = mode;
	return 0;
}

static int take_digest(const struct req *req, const char **ret, struct err *err)
{
	const char *text = req_query(req, "sha256");

	if (text && (strlen(text) != 64 || strspn(text, "0123456789abcdef") != 64))
		return err_set(err, ERR_INVALID_REQUEST, "sha256 is not 64 lower-case hexadecimal digits");
	*ret = text;
	return 0;
}

/* Content-Length, ?size and the limit have to agree before a byte is read. */
static int take_size(const struct req *req, uint64_t *ret, struct err *err)
{
	int64_t max = api_of(req)->config.conf->file_max_bytes;
	int64_t length = head_has_body(&req->head) ? req->head.length : 0; /* -1: chunked */
	int64_t size;
	int r = req_query_number(req, "size", 0, INT64_MAX, -1, &size, err);

	if (r != 0)
		return r;
	if (size >= 0 && length >= 0 && size != length)
		return err_set(err, ERR_INVALID_REQUEST, "size says %lld bytes, Content-Length %lld", (long long)size,
			       (long long)length);
	if (size < 0)
		size = length;
	if (size > max)
		return err_set(err, ERR_PAYLOAD_TOO_LARGE, "the file is larger than %lld bytes", (long long)max);
	*ret = size < 0 ? UPLOAD_SIZE_UNKNOWN : (uint64_t)size;
	return 0;
}

int transfer_check_put(struct req *req, struct err *err)
{
	struct put *put = arena_alloc(req->arena, sizeof(*put));

	if (!put)
		return err_set(err, ERR_NOMEM, "out of memory");

	int r = filework_place(req, &put->place, err);

	put->path = req_query(req, "path");
	if (r == 0)
		r = ident_path_check("path", put->path ? put->path : "", put->path ? strlen(put->path) : 0, false, err);
	if (r == 0)
		r = take_mode(req, &put->mode, err);
	if (r == 0)
		r = take_digest(req, &put->sha256, err);
	if (r == 0)
		r = take_size(req, &put->size, err);
	req->state = put;
	return r;
}

static int read_window(void *arg, void *buf, size_t cap, size_t *ret_len)
{
	return stream_read(arg, buf, cap, ret_len);
}

static int write_file(struct req *req, const struct put *put, struct upload *upload, struct err *err)
{
	struct call_sink sink = {.read = upload_read, .arg = upload};
	struct filework work;
	struct berth_file_write write = {
		.struct_size = sizeof(write),
		.mode = put->mode,
		.path = filework_str(put->path),
		.size = put->size, /* both have UINT64_MAX for "not known" */
		.sha256 = filework_str(put->sha256),
	};
	int r = filework_begin(req, &put->place, api_of(req)->config.conf->file_transfer_ms, &work, err);

	if (r == 0 && !filework_call(&work, &sink))
		r = err_set(err, ERR_NOMEM, "out of memory");
	else if (r == 0) {
		r = call_file_write(work.call, work.session, &write, err);
		/* Our own refusal of the bytes is what the caller must hear, not what the provider made of it. */
		if (upload->error.code) {
			*err = upload->error;
			r = err->code;
		} else if (r == 0 && !upload->checked) {
			r = err_set(err, ERR_PROVIDER, "the provider completed the file without its end");
		} else {
			r = filework_result(&work, r, err);
		}
	}
	filework_end(req, &work, r);
	return r;
}

int transfer_put(struct req *req, struct err *err)
{
	const struct put *put = req->state;
	struct upload upload = {
		.source = read_window,
		.arg = &req->stream,
		.size = put->size,
		.max = (uint64_t)api_of(req)->config.conf->file_max_bytes,
		.sha256 = put->sha256,
	};
	int r = upload_init(&upload, err);

	if (r == 0)
		r = write_file(req, put, &upload, err);
	upload_fini(&upload);
	if (r != 0)
		return r;
	/* Capital keys: the reference answers an untagged struct here. */
	buf_puts(&req->reply.body, "{\"Path\":");
	json_put_string(&req->reply.body, put->path, strlen(put->path));
	buf_printf(&req->reply.body, ",\"Size\":%llu}\n", (unsigned long long)upload.total);
	req_json(req, 200);
	return REQ_DONE;
}

/* ---- download ---- */

struct get {
	struct req *req;
	const char *path;
	const char *mode; /* for the header; NULL = not known */
	uint64_t size;	  /* of the answer; UINT64_MAX = not known */
	uint64_t left;	  /* bytes that may still come */
	bool answered;
};

static void answer(struct get *get)
{
	if (get->answered)
		return;
	get->answered = true;
	if (get->mode)
		req_header(get->req, "X-AgentArea-File-Mode", get->mode);
	req_answer_stream(get->req, 200, "application/octet-stream", get->size);
}

/* The head waits for the first byte, so that what fails at the opening of the file still has a status of its own. */
static int give_window(void *arg, unsigned stream, const void *ptr, size_t len)
{
	struct get *get = arg;

	(void)stream;
	if (len > get->left)
		return ERR_PROVIDER;
	get->left -= len;
	answer(get);
	return stream_write(&get->req->stream, ptr, len);
}

/* Size and mode of the answer. A symlink is read through by the provider, beneath the root; its size is known at the
 * end only. */
static int describe(struct get *get, const struct berth_file_info *info, uint64_t max, struct err *err)
{
	if (info->kind == BERTH_FILE_SYMLINK) {
		get->size = UINT64_MAX;
		get->left = max;
		return 0;
	}
	if (info->kind != BERTH_FILE_REGULAR)
		return err_set(err, ERR_INVALID_REQUEST, "the path is not a regular file");
	if (info->size > max)
		return err_set(err, ERR_PAYLOAD_TOO_LARGE, "the file is larger than %llu bytes",
			       (unsigned long long)max);
	get->size = get->left = info->size;
	get->mode = arena_printf(get->req->arena, "%03o", info->mode & 0777);
	return 0;
}

static int stat_file(struct get *get, struct filework *work, struct err *err)
{
	uint64_t max = (uint64_t)api_of(get->req)->config.conf->file_max_bytes;
	size_t count = 0;

	if (!filework_call(work, NULL))
		return err_set(err, ERR_NOMEM, "out of memory");
	call_set_patience(work->call, work->stall_ms);

	int r = filework_result(work, call_file_stat(work->call, work->session, get->path, err), err);

	if (r != 0)
		return r;

	const struct berth_file_info *info = call_files(work->call, &count);

	if (count != 1)
		return err_set(err, ERR_PROVIDER, "the provider described %zu files instead of one", count);
	return describe(get, info, max, err);
}

/* After the head is out an error can only cut the answer short. */
static int send_file(struct get *get, struct filework *work, struct err *err)
{
	struct call_sink sink = {.write = give_window, .arg = get};
	int r = 0;

	if (strcmp(get->req->method, "HEAD") == 0) {
		answer(get);
		stream_write_end(&get->req->stream, 0);
		return 0;
	}
	if (!filework_call(work, &sink))
		r = err_set(err, ERR_NOMEM, "out of memory");
	else if (get->size > 0)
		r = filework_result(work, call_file_read(work->call, work->session, get->path, 0, get->size, err), err);
	if (r == 0 && get->size != UINT64_MAX && get->left)
		r = err_set(err, ERR_PROVIDER, "the file ended early");
	if (r == 0)
		answer(get);
	if (get->answered)
		stream_write_end(&get->req->stream, r);
	return r;
}

int transfer_get(struct req *req, struct err *err)
{
	struct file_place place;
	struct filework work;
	struct get get = {.req = req, .path = req_query(req, "path")};
	int r = filework_place(req, &place, err);

	if (r == 0)
		r = ident_path_check("path", get.path ? get.path : "", get.path ? strlen(get.path) : 0, false, err);
	if (r != 0)
		return r;
	r = filework_begin(req, &place, api_of(req)->config.conf->file_transfer_ms, &work, err);
	if (r == 0)
		r = stat_file(&get, &work, err);
	if (r == 0)
		r = send_file(&get, &work, err);
	filework_end(req, &work, r);
	return get.answered ? REQ_STREAMED : r;
}
