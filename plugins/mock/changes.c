/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mark and changes: a mark is a snapshot kept in the session's directory, outside its workspace; changes compares the
 * workspace as it is now with one. Entered by any thread. Past MARKS_MAX the oldest marks go, and asking for one is
 * NOT_FOUND, never "nothing changed".
 */
#include "mock.h"

#include "opcall.h"
#include "shim.h"
#include "snapshot.h"
#include "text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MARKS_MAX 16
/* 16 hex digits of the time, so that names order by age, and 8 of chance. */
#define TOKEN_LEN 24

static int ask(void *arg)
{
	return opcall_stopped(arg);
}

static int32_t fail_walk(struct opcall *oc, int err)
{
	if (err > 0)
		return err; /* a code, from ask */
	if (err == -E2BIG)
		return opcall_fail(oc, BERTH_QUOTA, "too_many_files", "more than %u entries in the workspace",
				   SNAPSHOT_ENTRIES_MAX);
	return opcall_fail_errno(oc, err, "workspace");
}

static int32_t take(struct opcall *oc, struct snapshot *ret)
{
	struct snapshot_stop stop = {ask, oc};
	char path[64];
	int fd, err;

	snprintf(path, sizeof(path), "%s/work", oc->ref);
	fd = openat(oc->m->store.sessions_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return opcall_fail(oc, BERTH_SESSION_LOST, "deleted", "the session's directory is not there");
	err = snapshot_take(fd, &stop, ret);
	close(fd);
	return err ? fail_walk(oc, err) : BERTH_OK;
}

static void warn_unnamed(struct opcall *oc, const struct snapshot *snap)
{
	char text[160];
	struct berth_str line = {.ptr = text};

	if (!snap->unnamed)
		return;
	line.len = (size_t)snprintf(text, sizeof(text),
				    "%zu entries of the workspace of %s have paths over %u bytes and are left"
				    " out of its changes",
				    snap->unnamed, oc->ref, BERTH_PATH_MAX);
	shim_host.log(oc->m->target, oc->call, BERTH_LOG_WARN, &line, NULL, 0);
}

static int open_marks(struct opcall *oc)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "%s/marks", oc->ref);
	if (mkdirat(oc->m->store.sessions_fd, path, 0700) && errno != EEXIST)
		return -errno;
	fd = openat(oc->m->store.sessions_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static bool token_valid(struct berth_str token)
{
	if (token.len != TOKEN_LEN)
		return false;
	for (size_t i = 0; i < TOKEN_LEN; i++)
		if (!memchr("0123456789abcdef", token.ptr[i], 16))
			return false;
	return true;
}

static int is_mark(const struct dirent *entry)
{
	return token_valid(text_str(entry->d_name));
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static void drop_old(int marks_fd)
{
	struct dirent **names = NULL;
	int count = scandirat(marks_fd, ".", &names, is_mark, by_name);

	for (int i = 0; i < count; i++) {
		if (i < count - MARKS_MAX)
			unlinkat(marks_fd, names[i]->d_name, 0);
		free(names[i]);
	}
	free(names);
}

static int keep(struct opcall *oc, const struct snapshot *snap, char token[TOKEN_LEN + 1])
{
	int fd = open_marks(oc);
	uint32_t chance;
	int rc;

	if (fd < 0)
		return fd;
	shim_host.random(&chance, sizeof(chance));
	snprintf(token, TOKEN_LEN + 1, "%016" PRIx64 "%08" PRIx32, (uint64_t)text_boot_ns(), chance);
	rc = snapshot_save(fd, token, snap);
	if (!rc)
		drop_old(fd);
	close(fd);
	return rc;
}

static int32_t begin(struct opcall *oc, struct mock *m, struct berth_call *call, enum op op,
		     const struct berth_session *session)
{
	int32_t rc = opcall_begin_session(oc, m, call, op, session);

	if (!rc && m->null)
		return opcall_fail(oc, BERTH_UNSUPPORTED, "runtime_null", "there are no files here");
	return rc ? rc : opcall_alive(oc);
}

static int32_t mark(struct opcall *oc)
{
	char token[TOKEN_LEN + 1];
	struct snapshot snap;
	struct berth_str text;
	int32_t rc = take(oc, &snap);
	int err;

	if (rc)
		return rc;
	warn_unnamed(oc, &snap);
	err = keep(oc, &snap, token);
	snapshot_fini(&snap);
	if (err)
		return opcall_fail_errno(oc, err, "marks");
	text = text_str(token);
	return shim_host.emit_token(oc->call, &text);
}

int32_t mock_mark(void *inst, struct berth_call *call, const struct berth_session *session)
{
	struct opcall oc;
	int32_t rc = begin(&oc, inst, call, OP_MARK, session);

	return opcall_end(&oc, rc ? rc : mark(&oc));
}

static bool same(const struct snapshot_entry *a, const struct snapshot_entry *b)
{
	return a->inode && a->inode == b->inode && a->ctime_ns == b->ctime_ns && a->size == b->size &&
	       a->mode == b->mode && a->kind == b->kind;
}

static int32_t emit(struct opcall *oc, const struct snapshot_entry *entry, bool deleted)
{
	struct berth_change change = {.struct_size = sizeof(change), .path = text_str(entry->path)};

	if (!deleted) {
		change.kind = entry->kind;
		change.size = entry->size;
		change.mode = entry->mode;
	}
	return shim_host.emit_change(oc->call, &change);
}

/* Both are in order of path. */
static int32_t compare(struct opcall *oc, const struct snapshot *old, const struct snapshot *new)
{
	size_t i = 0, j = 0;
	int32_t rc = BERTH_OK;

	while (!rc && (i < old->count || j < new->count)) {
		int order = i == old->count   ? 1
			    : j == new->count ? -1
					      : strcmp(old->entries[i].path, new->entries[j].path);

		if (order < 0)
			rc = emit(oc, &old->entries[i], true);
		else if (order > 0 || !same(&old->entries[i], &new->entries[j]))
			rc = emit(oc, &new->entries[j], false);
		i += order <= 0;
		j += order >= 0;
	}
	return rc;
}

static int32_t load(struct opcall *oc, const struct berth_str *token, struct snapshot *ret)
{
	char name[TOKEN_LEN + 1];
	int fd, err;

	if (!token_valid(*token))
		return opcall_fail(oc, BERTH_NOT_FOUND, "mark", "not a mark of this provider");
	text_copy(name, sizeof(name), *token);
	fd = open_marks(oc);
	err = fd < 0 ? fd : snapshot_load(fd, name, ret);
	if (fd >= 0)
		close(fd);
	if (err == -ENOENT)
		return opcall_fail(oc, BERTH_NOT_FOUND, "mark", "the mark is not kept any more");
	return err ? opcall_fail_errno(oc, err, "marks") : BERTH_OK;
}

static int32_t changes(struct opcall *oc, const struct berth_str *token)
{
	struct snapshot old, new;
	int32_t rc = load(oc, token, &old);

	if (rc)
		return rc;
	rc = take(oc, &new);
	if (!rc) {
		warn_unnamed(oc, &new);
		rc = compare(oc, &old, &new);
		snapshot_fini(&new);
	}
	snapshot_fini(&old);
	return rc;
}

int32_t mock_changes(void *inst, struct berth_call *call, const struct berth_session *session,
		     const struct berth_str *token)
{
	struct opcall oc;
	int32_t rc = begin(&oc, inst, call, OP_CHANGES, session);

	return opcall_end(&oc, rc ? rc : changes(&oc, token));
}
