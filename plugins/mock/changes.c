/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mark and changes, by the SDK's functions; the marks are kept in the session's directory, outside its workspace. Entered
 * by any thread.
 */
#include "mock.h"

#include "opcall.h"
#include "shim.h"
#include "text.h"

#include <berth/localfs.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* The two directories a call works on. */
struct places {
	struct berth_localfs fs;
	int marks_fd;
};

static void warn_unnamed(struct opcall *oc, size_t unnamed)
{
	char text[160];
	struct berth_str line = {.ptr = text};

	if (!unnamed)
		return;
	line.len = (size_t)snprintf(text, sizeof(text),
				    "%zu entries of the workspace of %s have paths over %u bytes or lie in closed"
				    " folders, and are left out of its changes",
				    unnamed, oc->ref, BERTH_PATH_MAX);
	shim_host.log(oc->m->target, oc->call, BERTH_LOG_WARN, &line, NULL, 0);
}

static int open_below(struct opcall *oc, const char *name)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", oc->ref, name);
	fd = openat(oc->m->store.sessions_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int open_marks(struct opcall *oc)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/marks", oc->ref);
	if (mkdirat(oc->m->store.sessions_fd, path, 0700) && errno != EEXIST)
		return -errno;
	return open_below(oc, "marks");
}

static int32_t places_open(struct opcall *oc, struct places *places)
{
	*places = (struct places){
		.fs = {.struct_size = sizeof(places->fs), .root_fd = open_below(oc, "work"), .uid = -1, .gid = -1},
		.marks_fd = -1};
	if (places->fs.root_fd < 0)
		return opcall_fail(oc, BERTH_SESSION_LOST, "deleted", "the session's directory is not there");
	places->marks_fd = open_marks(oc);
	return places->marks_fd < 0 ? opcall_fail_errno(oc, places->marks_fd, "marks") : BERTH_OK;
}

static void places_close(const struct places *places)
{
	if (places->fs.root_fd >= 0)
		close(places->fs.root_fd);
	if (places->marks_fd >= 0)
		close(places->marks_fd);
}

static int32_t begin(struct opcall *oc, struct mock *m, struct berth_call *call, enum op op,
		     const struct berth_session *session)
{
	int32_t rc = opcall_begin_session(oc, m, call, op, session);

	if (!rc && m->null)
		return opcall_fail(oc, BERTH_UNSUPPORTED, "runtime_null", "there are no files here");
	return rc ? rc : opcall_alive(oc);
}

/* token NULL: mark. */
static int32_t run(struct opcall *oc, const struct berth_str *token)
{
	size_t unnamed = 0;
	struct places places;
	int32_t rc = places_open(oc, &places);

	if (!rc && token)
		rc = berth_localfs_changes(&shim_host, oc->call, &places.fs, places.marks_fd, token, &unnamed);
	else if (!rc)
		rc = berth_localfs_mark(&shim_host, oc->call, &places.fs, places.marks_fd, &unnamed);
	warn_unnamed(oc, unnamed);
	places_close(&places);
	return rc;
}

int32_t mock_mark(void *inst, struct berth_call *call, const struct berth_session *session)
{
	struct opcall oc;
	int32_t rc = begin(&oc, inst, call, OP_MARK, session);

	return opcall_end(&oc, rc ? rc : run(&oc, NULL));
}

int32_t mock_changes(void *inst, struct berth_call *call, const struct berth_session *session,
		     const struct berth_str *token)
{
	struct opcall oc;
	int32_t rc = begin(&oc, inst, call, OP_CHANGES, session);

	return opcall_end(&oc, rc ? rc : run(&oc, token));
}
