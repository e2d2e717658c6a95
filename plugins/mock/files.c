/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations on files, all of them the SDK's on the session's work directory. Entered by any thread; holds one
 * descriptor per call. Path rules, atomicity and digests are the library's.
 */
#include "mock.h"

#include "opcall.h"
#include "shim.h"

#include <berth/localfs.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

struct files {
	struct opcall oc;
	struct berth_localfs fs;
};

static int32_t open_root(struct files *f)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/work", f->oc.ref);
	f->fs.root_fd = openat(f->oc.m->store.sessions_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (f->fs.root_fd >= 0)
		return BERTH_OK;
	if (errno == ENOENT)
		return opcall_fail(&f->oc, BERTH_SESSION_LOST, "deleted", "the session's directory is not there");
	return opcall_fail_errno(&f->oc, -errno, path);
}

static int32_t begin(struct files *f, struct mock *m, struct berth_call *call, enum op op,
		     const struct berth_session *session)
{
	int32_t rc;

	f->fs = (struct berth_localfs){.struct_size = sizeof(f->fs), .root_fd = -1, .uid = -1, .gid = -1};
	rc = opcall_begin_session(&f->oc, m, call, op, session);
	if (!rc && m->null)
		return opcall_fail(&f->oc, BERTH_UNSUPPORTED, "runtime_null", "there are no files here");
	if (!rc)
		rc = opcall_alive(&f->oc);
	return rc ? rc : open_root(f);
}

static int32_t end(struct files *f, int32_t rc)
{
	if (f->fs.root_fd >= 0)
		close(f->fs.root_fd);
	return opcall_end(&f->oc, rc);
}

int32_t mock_file_read(void *inst, struct berth_call *call, const struct berth_session *session,
		       const struct berth_str *path, uint64_t offset, uint64_t length)
{
	struct files f;
	int32_t rc = begin(&f, inst, call, OP_FILE_READ, session);

	return end(&f, rc ? rc : berth_localfs_read(&shim_host, call, &f.fs, path, offset, length));
}

int32_t mock_file_write(void *inst, struct berth_call *call, const struct berth_session *session,
			const struct berth_file_write *write)
{
	struct files f;
	int32_t rc = begin(&f, inst, call, OP_FILE_WRITE, session);

	return end(&f, rc ? rc : berth_localfs_write(&shim_host, call, &f.fs, write));
}

int32_t mock_file_stat(void *inst, struct berth_call *call, const struct berth_session *session,
		       const struct berth_str *path)
{
	struct files f;
	int32_t rc = begin(&f, inst, call, OP_FILE_STAT, session);

	return end(&f, rc ? rc : berth_localfs_stat(&shim_host, call, &f.fs, path));
}

int32_t mock_file_list(void *inst, struct berth_call *call, const struct berth_session *session,
		       const struct berth_str *path, uint32_t flags)
{
	struct files f;
	int32_t rc = begin(&f, inst, call, OP_FILE_LIST, session);

	return end(&f, rc ? rc : berth_localfs_list(&shim_host, call, &f.fs, path, flags));
}

int32_t mock_file_remove(void *inst, struct berth_call *call, const struct berth_session *session,
			 const struct berth_str *path, uint32_t flags)
{
	struct files f;
	int32_t rc = begin(&f, inst, call, OP_FILE_REMOVE, session);

	return end(&f, rc ? rc : berth_localfs_remove(&shim_host, call, &f.fs, path, flags));
}

int32_t mock_file_move(void *inst, struct berth_call *call, const struct berth_session *session,
		       const struct berth_str *from, const struct berth_str *to)
{
	struct files f;
	int32_t rc = begin(&f, inst, call, OP_FILE_MOVE, session);

	return end(&f, rc ? rc : berth_localfs_move(&shim_host, call, &f.fs, from, to));
}

int32_t mock_import_tar(void *inst, struct berth_call *call, const struct berth_session *session,
			const struct berth_str *path)
{
	struct files f;
	int32_t rc = begin(&f, inst, call, OP_IMPORT_TAR, session);

	return end(&f, rc ? rc : berth_localfs_import(&shim_host, call, &f.fs, path));
}

int32_t mock_export_tar(void *inst, struct berth_call *call, const struct berth_session *session,
			const struct berth_str *paths, size_t path_count)
{
	struct files f;
	int32_t rc = begin(&f, inst, call, OP_EXPORT_TAR, session);

	return end(&f, rc ? rc : berth_localfs_export(&shim_host, call, &f.fs, paths, path_count));
}
