/* SPDX-License-Identifier: Apache-2.0 */
/* The routes of files, archives and changes. The worker of the request; bytes go through its queues. */
#include "server.h"

#include <stdlib.h>
#include <string.h>

#define PATHS_MAX 4096
#define PATHS_BYTES ((size_t)8 << 20)

struct work {
	struct hostcall hc;
	struct berth_session session;
	struct berth_str path;
};

static struct berth_call *begin(struct work *work, struct req *req)
{
	hostcall_init(&work->hc, req);
	work->session = session_of(req);
	work->path = req_query(req, "path");
	return hostcall_abi(&work->hc);
}

static void end(struct work *work, int32_t rc)
{
	hostcall_reply(&work->hc, rc, false);
	hostcall_fini(&work->hc);
}

/* Bytes were the answer; without a byte it is empty. */
static void end_bytes(struct work *work, int32_t rc)
{
	if (rc) {
		end(work, rc);
		return;
	}
	req_head(work->hc.req, 200, "application/octet-stream");
	req_end(work->hc.req);
	hostcall_fini(&work->hc);
}

void serve_file_read(struct req *req, void *inst)
{
	struct work work;
	struct berth_call *call = begin(&work, req);
	uint64_t offset = (uint64_t)req_query_number(req, "offset", 0);
	int64_t length = req_query_number(req, "length", -1);

	end_bytes(&work, engine_ops()->file_read(inst, call, &work.session, &work.path, offset,
						 length < 0 ? BERTH_SIZE_UNKNOWN : (uint64_t)length));
}

void serve_file_write(struct req *req, void *inst)
{
	struct work work;
	struct berth_call *call = begin(&work, req);
	int64_t size = req_query_number(req, "size", -1);
	struct berth_file_write write = {.struct_size = sizeof(write),
					 .mode = (uint32_t)req_query_number(req, "mode", 0644),
					 .path = work.path,
					 .size = size < 0 ? BERTH_SIZE_UNKNOWN : (uint64_t)size,
					 .sha256 = req_query(req, "sha256")};

	end(&work, engine_ops()->file_write(inst, call, &work.session, &write));
}

void serve_file_stat(struct req *req, void *inst)
{
	struct work work;
	struct berth_call *call = begin(&work, req);

	end(&work, engine_ops()->file_stat(inst, call, &work.session, &work.path));
}

void serve_file_list(struct req *req, void *inst)
{
	struct work work;
	struct berth_call *call = begin(&work, req);
	uint32_t flags = req_query_number(req, "recursive", 0) ? BERTH_LIST_RECURSIVE : 0;

	end(&work, engine_ops()->file_list(inst, call, &work.session, &work.path, flags));
}

void serve_file_remove(struct req *req, void *inst)
{
	struct work work;
	struct berth_call *call = begin(&work, req);
	uint32_t flags = req_query_number(req, "recursive", 0) ? BERTH_REMOVE_RECURSIVE : 0;

	end(&work, engine_ops()->file_remove(inst, call, &work.session, &work.path, flags));
}

void serve_file_move(struct req *req, void *inst)
{
	struct work work;
	struct berth_call *call = begin(&work, req);
	struct berth_str from = req_query(req, "from"), to = req_query(req, "to");

	end(&work, engine_ops()->file_move(inst, call, &work.session, &from, &to));
}

void serve_import(struct req *req, void *inst)
{
	struct work work;
	struct berth_call *call = begin(&work, req);

	end(&work, engine_ops()->import_tar(inst, call, &work.session, &work.path));
}

/* One percent-encoded path a line. */
static size_t take_paths(char *text, struct berth_str *paths)
{
	size_t count = 0;
	char *line, *rest = text;

	while (count < PATHS_MAX && (line = strtok_r(rest, "\n", &rest))) {
		long len = wire_unpercent(line);

		if (len > 0)
			paths[count++] = (struct berth_str){line, (size_t)len};
	}
	return count;
}

void serve_export(struct req *req, void *inst)
{
	struct wire_buf text = {0};
	struct berth_str *paths = calloc(PATHS_MAX, sizeof(*paths));
	struct work work;
	struct berth_call *call = begin(&work, req);

	if (!paths || !req_read_all(req, &text, PATHS_BYTES) || !text.len) {
		reply_error(req, BERTH_INVALID, "body", "the body must be a list of paths");
		hostcall_fini(&work.hc);
	} else {
		size_t count = take_paths(text.ptr, paths);

		end_bytes(&work, engine_ops()->export_tar(inst, call, &work.session, paths, count));
	}
	free(paths);
	wire_free(&text);
}

void serve_mark(struct req *req, void *inst)
{
	struct work work;
	struct berth_call *call = begin(&work, req);

	end(&work, engine_ops()->mark(inst, call, &work.session));
}

void serve_changes(struct req *req, void *inst)
{
	struct work work;
	struct berth_call *call = begin(&work, req);
	struct berth_str token = req_query(req, "token");

	end(&work, engine_ops()->changes(inst, call, &work.session, &token));
}
