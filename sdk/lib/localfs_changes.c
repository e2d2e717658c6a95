/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mark and changes: a mark is a snapshot kept outside the root; changes compares the root as it is now with one.
 * Entered by any thread; keeps no state but the marks. Past MARKS_MAX the oldest marks go, and asking for one is
 * NOT_FOUND, never "nothing changed".
 */
#include "localfs_internal.h"
#include "localfs_snapshot.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "supervised_files.h"

#define MARKS_MAX 16
/* 16 hex digits of the time, so that names order by age, and 8 of chance. */
#define TOKEN_LEN 24

static int ask(void *arg)
{
	return localfs_ask(arg);
}

static int32_t fail_walk(const struct localfs_op *op, int err)
{
	char text[80];

	if (err > 0)
		return err; /* a code, from ask */
	if (err != -E2BIG)
		return localfs_fail_errno(op->host, op->call, err, "look through the workspace");
	snprintf(text, sizeof(text), "more than %u entries in the workspace", SNAPSHOT_ENTRIES_MAX);
	return localfs_fail(op->host, op->call, BERTH_QUOTA, "too_many_files", text);
}

static int32_t take(const struct localfs_op *op, struct snapshot *ret)
{
	struct snapshot_stop stop = {ask, (void *)(uintptr_t)op};
	int err = snapshot_take(op->fs->root_fd, &stop, ret);

	return err ? fail_walk(op, err) : BERTH_OK;
}

static bool token_valid(const char *token, size_t len)
{
	return len == TOKEN_LEN && strspn(token, "0123456789abcdef") == TOKEN_LEN;
}

static int is_mark(const struct dirent *entry)
{
	return token_valid(entry->d_name, strlen(entry->d_name));
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

int32_t berth_localfs_mark(const struct berth_host *host, struct berth_call *call, const struct berth_localfs *fs,
			   int marks_fd, size_t *ret_unnamed)
{
	struct localfs_op op = {host, call, fs};
	char token[TOKEN_LEN + 1];
	struct snapshot snap;
	struct berth_str text = {token, TOKEN_LEN};
	int32_t rc = take(&op, &snap);
	uint32_t chance;
	int err;

	if (rc)
		return rc;
	host->random(&chance, sizeof(chance));
	snprintf(token, sizeof(token), "%016" PRIx64 "%08" PRIx32, (uint64_t)sup_now_ns(), chance);
	err = snapshot_save(marks_fd, token, &snap);
	*ret_unnamed = snap.unnamed + snap.closed;
	snapshot_fini(&snap);
	if (err)
		return localfs_fail_errno(host, call, err, "keep the mark");
	drop_old(marks_fd);
	return host->emit_token(call, &text);
}

static bool same(const struct snapshot_entry *a, const struct snapshot_entry *b)
{
	return a->inode && a->inode == b->inode && a->ctime_ns == b->ctime_ns && a->size == b->size &&
	       a->mode == b->mode && a->kind == b->kind;
}

static int32_t emit(const struct localfs_op *op, const struct snapshot_entry *entry, bool deleted)
{
	struct berth_change change = {.struct_size = sizeof(change), .path = {entry->path, strlen(entry->path)}};

	if (!deleted) {
		change.kind = entry->kind;
		change.size = entry->size;
		change.mode = entry->mode;
	}
	return op->host->emit_change(op->call, &change);
}

/* Both are in order of path. */
static int32_t compare(const struct localfs_op *op, const struct snapshot *old, const struct snapshot *new)
{
	size_t i = 0, j = 0;
	int32_t rc = BERTH_OK;

	while (!rc && (i < old->count || j < new->count)) {
		int order = i == old->count   ? 1
			    : j == new->count ? -1
					      : strcmp(old->entries[i].path, new->entries[j].path);

		if (order < 0)
			rc = snapshot_hides(new, old->entries[i].path) ? BERTH_OK : emit(op, &old->entries[i], true);
		else if (order > 0 || !same(&old->entries[i], &new->entries[j]))
			rc = emit(op, &new->entries[j], false);
		i += order <= 0;
		j += order >= 0;
	}
	return rc;
}

static int32_t load(const struct localfs_op *op, int marks_fd, const struct berth_str *token, struct snapshot *ret)
{
	char name[TOKEN_LEN + 1];
	int err;

	if (token->len == TOKEN_LEN)
		memcpy(name, token->ptr, TOKEN_LEN);
	name[token->len == TOKEN_LEN ? TOKEN_LEN : 0] = '\0';
	if (!token_valid(name, strlen(name)))
		return localfs_fail(op->host, op->call, BERTH_NOT_FOUND, "mark", "not a mark of this session");
	err = snapshot_load(marks_fd, name, ret);
	if (err == -ENOENT)
		return localfs_fail(op->host, op->call, BERTH_NOT_FOUND, "mark", "the mark is not kept any more");
	return err ? localfs_fail_errno(op->host, op->call, err, "read the mark") : BERTH_OK;
}

int32_t berth_localfs_changes(const struct berth_host *host, struct berth_call *call, const struct berth_localfs *fs,
			      int marks_fd, const struct berth_str *token, size_t *ret_unnamed)
{
	struct localfs_op op = {host, call, fs};
	struct snapshot old, new;
	int32_t rc = load(&op, marks_fd, token, &old);

	if (rc)
		return rc;
	rc = take(&op, &new);
	if (!rc) {
		*ret_unnamed = new.unnamed + new.closed;
		rc = compare(&op, &old, &new);
		snapshot_fini(&new);
	}
	snapshot_fini(&old);
	return rc;
}
