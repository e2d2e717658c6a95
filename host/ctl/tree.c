/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of what a folder holds, and the rule which links may be copied. Main thread; pure but for tree_walk, which reads. */
#include "ctl/tree.h"

#include <errno.h>
#include <fts.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/ident.h"

struct entry *tree_add(struct tree *tree, const char *path, size_t len, enum entry_kind kind)
{
	char *copy = strndup(path, len);
	struct entry *entry;

	if (copy && tree->count == tree->cap) {
		size_t cap = tree->cap ? 2 * tree->cap : 256;
		struct entry *more = realloc(tree->entries, cap * sizeof(*more));

		if (!more) {
			free(copy);
			copy = NULL;
		} else {
			tree->entries = more;
			tree->cap = cap;
		}
	}
	if (!copy) {
		tree->nomem = true;
		return NULL;
	}
	entry = &tree->entries[tree->count++];
	*entry = (struct entry){.path = copy, .kind = kind};
	return entry;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct entry *)a)->path, ((const struct entry *)b)->path);
}

static void drop(struct entry *entry)
{
	free(entry->path);
	free(entry->target);
}

void tree_sort(struct tree *tree)
{
	size_t kept = 0;

	if (tree->count)
		qsort(tree->entries, tree->count, sizeof(*tree->entries), by_path);
	for (size_t i = 0; i < tree->count; i++) {
		if (kept && !strcmp(tree->entries[kept - 1].path, tree->entries[i].path))
			drop(&tree->entries[i]);
		else
			tree->entries[kept++] = tree->entries[i];
	}
	tree->count = kept;
}

struct entry *tree_find(const struct tree *tree, const char *path)
{
	size_t low = 0, high = tree->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = strcmp(path, tree->entries[middle].path);

		if (!order)
			return &tree->entries[middle];
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

void tree_fini(struct tree *tree)
{
	for (size_t i = 0; i < tree->count; i++)
		drop(&tree->entries[i]);
	free(tree->entries);
	*tree = (struct tree){0};
}

void tree_join(const char *base, const char *path, struct buf *ret)
{
	if (!strcmp(base, "."))
		buf_puts(ret, *path ? path : ".");
	else
		buf_printf(ret, "%s%s%s", base, *path ? "/" : "", path);
}

/* ---- links ---- */

/* ".." counts at the start of a target only: behind a name, which may be a link itself, it leads nobody knows where. With folders
 * that are real on the way to the link, and every other link held to the same rule, no chain of them leaves the top. */
bool tree_link_inside(const char *path, const char *target)
{
	size_t up = 0, depth = 0;

	if (*target == '/' || !*target)
		return false;
	for (const char *c = path; *c; c++)
		depth += *c == '/';
	while (!strncmp(target, "../", 3) || !strcmp(target, "..")) {
		up++;
		target += strlen(target) > 2 ? 3 : 2;
		target += strspn(target, "/");
	}
	if (up > depth)
		return false;
	for (; *target; target += strspn(target, "/")) {
		size_t len = strcspn(target, "/");

		if (len == 2 && !strncmp(target, "..", 2))
			return false;
		target += len;
	}
	return true;
}

bool tree_judge_link(struct entry *entry, const char *how)
{
	if (entry->kind != ENTRY_LINK || entry->problem)
		return false;
	if (how && !strcmp(how, "skip"))
		return true;
	if ((!how || strcmp(how, "all") != 0) && !tree_link_inside(entry->path, entry->target ? entry->target : ""))
		entry->problem = "is a symbolic link that leads out of the folder; --links all copies it as it is";
	return false;
}

/* ---- here ---- */

static void walk_one(struct tree *tree, const FTSENT *at, const char *path, bool follow)
{
	char target[PATH_MAX + 1];
	struct entry *entry;
	ssize_t len;

	entry = tree_add(tree, path, strlen(path), ENTRY_OTHER);
	if (!entry)
		return;
	entry->mode = at->fts_statp->st_mode & 07777;
	entry->size = at->fts_statp->st_size;
	switch (at->fts_info) {
	case FTS_D:
		entry->kind = ENTRY_FOLDER;
		break;
	case FTS_F:
		entry->kind = ENTRY_FILE;
		break;
	case FTS_SL:
	case FTS_SLNONE:
		len = readlink(at->fts_accpath, target, sizeof(target) - 1);
		entry->kind = ENTRY_LINK;
		entry->target = len < 0 ? NULL : strndup(target, (size_t)len);
		if (follow || !entry->target)
			entry->problem = follow ? "is a symbolic link to nothing" : "cannot be read";
		break;
	case FTS_DC:
		entry->problem = "is a symbolic link to a folder that it lies in";
		break;
	case FTS_DNR:
	case FTS_ERR:
	case FTS_NS:
		entry->problem = strerrordesc_np(at->fts_errno);
		break;
	default:
		entry->problem = "is neither a file nor a folder nor a link";
	}
}

int tree_walk(const char *local, bool follow, struct tree *ret)
{
	char *roots[] = {strdup(local), NULL};
	/* No change of folder: paths stay as they are, and other threads with them. */
	FTS *fts = fts_open(roots, (follow ? FTS_LOGICAL : FTS_PHYSICAL | FTS_COMFOLLOW) | FTS_NOCHDIR, NULL);
	size_t skip = strlen(local);
	FTSENT *at;
	int rc = 0;

	free(roots[0]);
	if (!fts)
		return ctl_fail(CTL_ERROR, "%s: %m", local);
	while (!ctl_stopped() && (at = fts_read(fts))) {
		const char *path = at->fts_path + skip;

		if (at->fts_info != FTS_DP)
			walk_one(ret, at, path + strspn(path, "/"), follow);
	}
	fts_close(fts);
	tree_sort(ret);
	if (ret->nomem)
		rc = ctl_fail(CTL_ERROR, "out of memory");
	else if (!ret->count || ret->entries[0].kind != ENTRY_FOLDER)
		rc = ctl_fail(CTL_USAGE, "%s: %s", local, ret->count && ret->entries[0].problem && ret->entries[0].kind == ENTRY_OTHER
								  ? ret->entries[0].problem : "is not a folder; put it without --recursive");
	else
		ret->top = ENTRY_FOLDER;
	return rc;
}
