/* SPDX-License-Identifier: Apache-2.0 */
/*
 * get --recursive: a folder of a task's workspace to here. Main thread and the workers of copy.c. The list comes from a sandbox and
 * is not trusted: every name is made beneath the destination, folder by folder, and no link on the way is followed; links are made
 * when everything else is there. Each file gets its name only when it has come whole, with the digest that the list says.
 */
#include "ctl/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/ident.h"
#include "ctl/content.h"

/* ---- beneath the destination ---- */

/* The folder that path lies in, made where it is missing. -1 with errno. */
static int open_parent(const struct copy *copy, const char *path, const char **ret_name)
{
	int at = dup(copy->top_fd);
	const char *slash;

	while (at >= 0 && (slash = strchr(path, '/'))) {
		char part[IDENT_PATH_PART_MAX + 1];
		int next;

		snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
		if (mkdirat(at, part, 0777) && errno != EEXIST)
			next = -1;
		else
			next = openat(at, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (next < 0 && (errno == ELOOP || errno == ENOTDIR))
			errno = ENOTDIR;
		close(at);
		at = next;
		path = slash + 1;
	}
	*ret_name = path;
	return at;
}

static void failed_here(struct copy *copy, const char *path)
{
	if (errno == ENOTDIR)
		copy_failed(copy, path, CTL_ERROR, "a part of its path is here already and no folder, or a link, which is not followed");
	else
		copy_failed(copy, path, CTL_ERROR, strerrordesc_np(errno));
}

/* ---- one file ---- */

static bool is_same(int dir, const char *name, const struct entry *entry)
{
	int fd = *entry->sha256 ? openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK) : -1;
	char digest[65];
	struct stat st;
	int64_t size;
	bool same = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size == entry->size &&
		    !content_digest(fd, &size, digest) && !strcmp(digest, entry->sha256);

	if (same && (st.st_mode & 0777) != (entry->mode & 0777))
		same = !fchmod(fd, entry->mode & 0777);
	if (fd >= 0)
		close(fd);
	return same;
}

static int receive(struct copy *copy, struct content *c, const struct entry *entry)
{
	bool again = true;
	int rc = 0;

	for (int try = 0; again; try++) {
		struct ctl_reply reply;

		if (lseek(c->fd, 0, SEEK_SET) < 0 || ftruncate(c->fd, 0)) {
			failed_here(copy, entry->path);
			return CTL_ERROR;
		}
		rc = content_get(c, &reply);
		rc = copy_judge(copy, entry->path, rc, &reply, try, &again);
		if (again)
			copy_moved(copy, -c->moved);
		ctl_reply_fini(&reply);
	}
	if (!rc && *entry->sha256 && strcmp(c->digest, entry->sha256) != 0) {
		copy_failed(copy, entry->path, CTL_ERROR, "is not what it was when it was listed: it changes, or was damaged on the way");
		rc = CTL_ERROR;
	}
	return rc;
}

static int get_into(struct copy *copy, struct ctl *ctl, const struct entry *entry, int dir, const char *name)
{
	struct content c = {.ctl = ctl, .task = copy->task, .silent = true, .progress = copy_moved, .arg = copy};
	unsigned mode = entry->mode & 0777;
	char temporary[64];
	struct buf full;
	int fd, rc;

	content_temp_name("", temporary, sizeof(temporary));
	fd = openat(dir, temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0) {
		failed_here(copy, entry->path);
		return CTL_ERROR;
	}
	c.fd = fd;
	buf_init(&full, 65536);
	tree_join(copy->base, entry->path, &full);
	c.name = full.ptr;
	rc = receive(copy, &c, entry);
	if (!mode)
		mode = *entry->sha256 ? 0 : c.mode ? c.mode : 0644; /* a plain list has no modes, the answer has */
	if (!rc && (fchmod(fd, mode) || renameat(dir, temporary, dir, name))) {
		failed_here(copy, entry->path);
		rc = CTL_ERROR;
	}
	if (rc)
		unlinkat(dir, temporary, 0);
	close(fd);
	buf_fini(&full);
	return rc;
}

static int get_one(struct copy *copy, struct ctl *ctl, const struct entry *entry)
{
	const char *name;
	int dir = open_parent(copy, entry->path, &name), rc = 0;

	if (dir < 0) {
		failed_here(copy, entry->path);
		return CTL_ERROR;
	}
	if (is_same(dir, name, entry)) {
		pthread_mutex_lock(&copy->lock);
		copy->same++;
		copy->copied--; /* counted again by the worker */
		copy->bytes -= entry->size;
		copy->progress.total -= entry->size;
		pthread_mutex_unlock(&copy->lock);
	} else {
		rc = get_into(copy, ctl, entry, dir, name);
	}
	close(dir);
	return rc;
}

/* ---- folders and links ---- */

static void make_folder(struct copy *copy, const struct entry *entry)
{
	const char *name;
	int dir = open_parent(copy, entry->path, &name), fd = -1;

	if (dir >= 0 && (!mkdirat(dir, name, 0777) || errno == EEXIST))
		fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		failed_here(copy, entry->path);
	else
		copy->folders++;
	if (fd >= 0)
		close(fd);
	if (dir >= 0)
		close(dir);
}

static void set_mode(struct copy *copy, const struct entry *entry)
{
	const char *name;
	int dir = *entry->path ? open_parent(copy, entry->path, &name) : -1;
	int fd = *entry->path ? openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : dup(copy->top_fd);

	if (fd >= 0 && fchmod(fd, entry->mode & 0777))
		failed_here(copy, entry->path);
	if (fd >= 0)
		close(fd);
	if (dir >= 0)
		close(dir);
}

/* Takes the place of a link or file, never of a folder. */
static void make_link(struct copy *copy, const struct entry *entry)
{
	char temporary[64], old[4096];
	const char *name;
	int dir = open_parent(copy, entry->path, &name);
	ssize_t len = dir < 0 ? -1 : readlinkat(dir, name, old, sizeof(old) - 1);

	content_temp_name("", temporary, sizeof(temporary));
	if (len >= 0 && (size_t)len == strlen(entry->target) && !memcmp(old, entry->target, (size_t)len))
		copy->links++;
	else if (dir < 0 || symlinkat(entry->target, dir, temporary))
		failed_here(copy, entry->path);
	else if (renameat(dir, temporary, dir, name)) {
		failed_here(copy, entry->path);
		unlinkat(dir, temporary, 0);
	} else
		copy->links++;
	if (dir >= 0)
		close(dir);
}

static void finish(struct copy *copy)
{
	const struct tree *tree = &copy->source;

	for (size_t i = 0; i < tree->count; i++)
		if (!tree->entries[i].problem && tree->entries[i].kind == ENTRY_LINK)
			make_link(copy, &tree->entries[i]);
	for (size_t i = tree->count; i-- > 0;) /* what lies deeper first: its folder may become read-only */
		if (!tree->entries[i].problem && tree->entries[i].kind == ENTRY_FOLDER)
			set_mode(copy, &tree->entries[i]);
}

/* ---- the whole ---- */

static int open_top(struct copy *copy)
{
	if (mkdir(copy->local, 0777) && errno != EEXIST)
		return ctl_fail(CTL_ERROR, "%s: %m", copy->local);
	copy->top_fd = open(copy->local, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return copy->top_fd < 0 ? ctl_fail(CTL_ERROR, "%s: %m", copy->local) : 0;
}

static int sort_out(struct copy *copy, const struct get_options *o)
{
	struct tree *tree = &copy->source;

	copy->todo = calloc(tree->count + 1, sizeof(*copy->todo));
	if (!copy->todo)
		return ctl_fail(CTL_ERROR, "out of memory");
	for (size_t i = 0; i < tree->count; i++) {
		struct entry *entry = &tree->entries[i];

		if (tree_judge_link(entry, o->links))
			entry->problem = "";
		else if (entry->kind == ENTRY_LINK && !entry->target && !entry->problem)
			entry->problem = "is a symbolic link that cannot be read";
		if (entry->problem && *entry->problem)
			copy_failed(copy, entry->path, CTL_ERROR, entry->problem);
		else if (!entry->problem && entry->kind == ENTRY_FILE)
			copy->todo[copy->todo_count++] = i;
		else if (!entry->problem && entry->kind == ENTRY_FOLDER && *entry->path)
			make_folder(copy, entry);
	}
	return 0;
}

/* The route first: it makes no session for a task that has none, and says so. */
static int look(struct copy *copy, const struct get_options *o)
{
	struct err err = {0};
	int rc;

	if (ident_path_check("PATH", copy->base, strlen(copy->base), true, &err))
		return ctl_fail(CTL_USAGE, "get: '%s': %s", copy->base, err.msg);
	if (o->plain)
		rc = tree_remote_plain(copy->ctl, copy->task, copy->base, &copy->source);
	else if (!(rc = tree_remote_there(copy->ctl, copy->task, copy->base)))
		rc = tree_remote(copy->ctl, copy->task, copy->base, &copy->source);
	if (!rc && copy->source.top != ENTRY_FOLDER)
		rc = copy->source.top == ENTRY_OTHER
			     ? ctl_fail(CTL_NOT_FOUND, "%s: no such folder", copy->base)
			     : ctl_fail(CTL_USAGE, "%s: is not a folder; get it without --recursive", copy->base);
	if (!rc)
		rc = open_top(copy);
	return rc ? rc : sort_out(copy, o);
}

int tree_get(struct ctl *ctl, const char *task, const char *base, const char *local, const struct get_options *o)
{
	struct copy copy;
	int rc = copy_check_jobs(o->jobs);

	if (rc)
		return rc;
	rc = copy_init(&copy, ctl, task, base, local, base);

	copy.one = get_one;
	if (!rc)
		rc = look(&copy, o);
	if (!rc) {
		copy_run(&copy, o->jobs, base);
		if (!ctl_stopped())
			finish(&copy);
		rc = copy_report(&copy);
	}
	copy_fini(&copy);
	return rc;
}
