/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks and removes directory trees without recursion: directories still to do are paths on a heap stack, so depth is
 * bounded by the length of a path. Few are kept, however many there are: a walk leaves a wide directory open and reads
 * it on when those before are done, a removal reads it again. Else one directory is open at a time.
 * Must never follow a symlink below the base, not even one that replaces a directory while it is walked.
 */
#include "localfs_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* How often a tree that somebody else keeps filling is emptied again. */
#define REMOVE_AGAIN 64
/* So many of its directories are kept before those are emptied and it is read again: of each, and where all are more. */
#define REMOVE_KEPT 64
#define REMOVE_KEPT_ALL 1024
/* The same of a walk, and how many directories are left open: those that are nested in one another and wide, all. */
#define WALK_KEPT 64
#define WALK_KEPT_ALL 4096
#define WALK_OPEN 64

struct pending {
	char *path;
	DIR *dir; /* of a walk: read up to here; NULL: not begun */
};

struct stack {
	struct pending *items;
	size_t count;
	size_t cap;
	size_t open; /* items with a dir */
};

static int stack_push(struct stack *stack, const char *path)
{
	if (stack->count == stack->cap) {
		size_t cap = stack->cap ? stack->cap * 2 : 16;
		struct pending *grown = realloc(stack->items, cap * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		stack->items = grown;
		stack->cap = cap;
	}
	stack->items[stack->count] = (struct pending){.path = strdup(path)};
	if (!stack->items[stack->count].path)
		return -ENOMEM;
	stack->count++;
	return 0;
}

/* The one at i, from below those that came after it. */
static void stack_remove(struct stack *stack, size_t i)
{
	free(stack->items[i].path);
	stack->count--;
	memmove(&stack->items[i], &stack->items[i + 1], (stack->count - i) * sizeof(*stack->items));
}

static void stack_leave_open(struct stack *stack, size_t i, DIR *dir)
{
	stack->items[i].dir = dir;
	stack->open++;
}

/* NULL: it has not been begun. */
static DIR *stack_take_open(struct stack *stack, size_t i)
{
	DIR *dir = stack->items[i].dir;

	stack->items[i].dir = NULL;
	stack->open -= dir != NULL;
	return dir;
}

static void stack_fini(struct stack *stack)
{
	while (stack->count) {
		DIR *dir = stack_take_open(stack, stack->count - 1);

		if (dir)
			closedir(dir);
		stack_remove(stack, stack->count - 1);
	}
	free(stack->items);
}

/* Opens a directory below base; "" is base itself. */
static DIR *open_below(int base, const char *below, int *ret_err)
{
	int fd = beneath_open(base, *below ? below : ".", O_RDONLY | O_DIRECTORY, 0, BENEATH_NO_SYMLINKS);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir)
		*ret_err = fd < 0 ? fd : -errno;
	if (!dir && fd >= 0)
		close(fd);
	return dir;
}

/* Joins with a slash; -ENAMETOOLONG. */
static int join(char *out, size_t cap, const char *dir, const char *name)
{
	int n = snprintf(out, cap, "%s%s%s", dir, *dir ? "/" : "", name);

	return n < 0 || (size_t)n >= cap ? -ENAMETOOLONG : 0;
}

static int32_t fail(const struct localfs_walk *walk, int err)
{
	if (err == -E2BIG)
		return localfs_fail(walk->op->host, walk->op->call, BERTH_INVALID, "tree_too_wide",
				    "too many directories with many directories each lie in one another");
	return localfs_fail_errno(walk->op->host, walk->op->call, err, "list the directory");
}

/* Such paths, closed folders and wide ones are made by who works in the session, who must not be able to break a list. */
static int32_t leave_out(struct localfs_walk *walk, int err)
{
	if (!walk->lenient || (err != -ENAMETOOLONG && err != -EACCES && err != -E2BIG))
		return fail(walk, err);
	walk->left_out++;
	return BERTH_OK;
}

/* Whether the directory at `mine` has put as many above itself as are kept. */
static bool is_full(const struct stack *stack, size_t mine)
{
	return stack->count - mine > (mine < WALK_KEPT_ALL ? WALK_KEPT : 1);
}

static int32_t walk_entry(struct localfs_walk *walk, DIR *dir, const char *at, const char *name, struct stack *stack,
			  size_t mine)
{
	char below[BERTH_PATH_MAX + 1], path[BERTH_PATH_MAX + 1];
	struct stat st;
	int32_t code;
	int rc;

	if (fstatat(dirfd(dir), name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? BERTH_OK : leave_out(walk, -errno); /* removed meanwhile */
	rc = join(below, sizeof(below), at, name);
	if (rc == 0)
		rc = join(path, sizeof(path), walk->prefix, below);
	if (rc < 0)
		return leave_out(walk, rc);
	code = walk->entry(walk, below, path, &st);
	if (code || !walk->recursive || !S_ISDIR(st.st_mode))
		return code;
	if (is_full(stack, mine))
		return leave_out(walk, -E2BIG);
	rc = stack_push(stack, below);
	return rc < 0 ? fail(walk, rc) : BERTH_OK;
}

/* Until its end, or until as many of its directories are kept as may be. */
static int32_t read_directory(struct localfs_walk *walk, DIR *dir, const char *at, struct stack *stack, size_t mine,
			      bool *ret_end)
{
	struct dirent *entry;
	int32_t code = BERTH_OK;

	while (code == BERTH_OK && (!is_full(stack, mine) || stack->open == WALK_OPEN)) {
		errno = 0;
		entry = readdir(dir);
		if (!entry) {
			*ret_end = true;
			return errno ? fail(walk, errno) : BERTH_OK;
		}
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
		    localfs_temp_is(entry->d_name))
			continue;
		code = walk->seen++ % LOCALFS_ASK_EVERY ? BERTH_OK : localfs_ask(walk->op);
		if (code == BERTH_OK)
			code = walk_entry(walk, dir, at, entry->d_name, stack, mine);
	}
	return code;
}

/* Begins the directory on top, or reads it on. */
static int32_t walk_top(struct localfs_walk *walk, struct stack *stack)
{
	size_t mine = stack->count - 1;
	DIR *dir = stack_take_open(stack, mine);
	char at[BERTH_PATH_MAX + 1];
	bool end = false;
	int32_t code;
	int err = 0;

	snprintf(at, sizeof(at), "%s", stack->items[mine].path);
	if (!dir)
		dir = open_below(walk->base, at, &err);
	if (!dir) {
		stack_remove(stack, mine);
		/* Removed or replaced since its parent was read: it is not a directory of this tree any more. */
		if (*at && (err == -ENOENT || err == -ENOTDIR || err == -ELOOP))
			return BERTH_OK;
		return *at ? leave_out(walk, err) : fail(walk, err);
	}
	code = read_directory(walk, dir, at, stack, mine, &end);
	if (code == BERTH_OK && !end) {
		stack_leave_open(stack, mine, dir);
		return BERTH_OK;
	}
	closedir(dir);
	stack_remove(stack, mine);
	return code;
}

int32_t localfs_walk_run(struct localfs_walk *walk)
{
	struct stack stack = {0};
	int rc = stack_push(&stack, "");
	int32_t code = rc < 0 ? fail(walk, rc) : BERTH_OK;

	while (code == BERTH_OK && stack.count)
		code = walk_top(walk, &stack);
	stack_fini(&stack);
	return code;
}

struct removal {
	const struct localfs_op *op; /* NULL: nobody is asked */
	int base;
	struct stack stack;
	size_t seen;
	int32_t code; /* of who was asked */
};

/* -ECANCELED: r->code tells why. */
static int removal_ask(struct removal *r)
{
	if (r->op && r->seen++ % LOCALFS_ASK_EVERY == 0)
		r->code = localfs_ask(r->op);
	return r->code ? -ECANCELED : 0;
}

/* Unlinks what is not a directory, pushes what is. */
static int remove_entry(struct removal *r, DIR *dir, const char *at, const char *name)
{
	char below[PATH_MAX];
	int rc = removal_ask(r);

	if (rc < 0 || unlinkat(dirfd(dir), name, 0) == 0 || errno == ENOENT)
		return rc;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	if (unlinkat(dirfd(dir), name, AT_REMOVEDIR) == 0)
		return 0;
	if (errno != ENOTEMPTY && errno != EEXIST)
		return -errno;
	rc = join(below, sizeof(below), at, name);
	return rc < 0 ? rc : stack_push(&r->stack, below);
}

/* Until it is empty, or holds as many directories as are kept. */
static int empty_directory(struct removal *r, const char *at)
{
	size_t most = r->stack.count + (r->stack.count < REMOVE_KEPT_ALL ? REMOVE_KEPT : 1);
	struct dirent *entry;
	int rc = 0;
	DIR *dir = open_below(r->base, at, &rc);

	if (!dir)
		return rc;
	while (rc == 0 && r->stack.count < most && (entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			rc = remove_entry(r, dir, at, entry->d_name);
	closedir(dir);
	return rc;
}

/* Removes the directory at a path below base, through its parent, so that no symlink on the way is followed. */
static int remove_directory(int base, const char *at)
{
	char parent[PATH_MAX];
	const char *slash = strrchr(at, '/');
	int fd, rc;

	snprintf(parent, sizeof(parent), "%.*s", slash ? (int)(slash - at) : 1, slash ? at : ".");
	fd = beneath_open(base, parent, O_PATH | O_DIRECTORY, 0, BENEATH_NO_SYMLINKS);
	if (fd < 0)
		return fd;
	rc = unlinkat(fd, slash ? slash + 1 : at, AT_REMOVEDIR) < 0 ? -errno : 0;
	close(fd);
	return rc;
}

/* One directory: 0 = done or directories of its own were pushed, 1 = somebody added to it. */
static int remove_top(struct removal *r)
{
	struct stack *stack = &r->stack;
	size_t mine = stack->count;
	int rc = empty_directory(r, stack->items[mine - 1].path);

	if (rc == -ENOTDIR || rc == -ELOOP)
		return -EBUSY; /* replaced while we walk */
	if (rc < 0 && rc != -ENOENT)
		return rc;
	/* Those come first; then it is looked at once more. */
	if (stack->count > mine)
		return 0;
	rc = remove_directory(r->base, stack->items[mine - 1].path);
	if (rc == -ENOTEMPTY || rc == -EEXIST)
		return 1;
	if (rc < 0 && rc != -ENOENT)
		return rc;
	stack_remove(stack, mine - 1);
	return 0;
}

int localfs_remove_tree(const struct localfs_op *op, int dir, const char *name)
{
	struct removal r = {.op = op, .base = dir};
	int rc = stack_push(&r.stack, name);
	int again = 0;

	while (rc == 0 && r.stack.count) {
		rc = remove_top(&r);
		if (rc == 1)
			rc = ++again < REMOVE_AGAIN ? 0 : -ENOTEMPTY;
	}
	stack_fini(&r.stack);
	return r.code ? r.code : rc;
}
