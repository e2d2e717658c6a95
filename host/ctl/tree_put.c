/* SPDX-License-Identifier: Apache-2.0 */
/*
 * put --recursive: a local folder into a task's workspace. Files over the file route, each checked by its digest there; folders'
 * permissions and links by a script in the sandbox, when all files have arrived. Main thread and the workers of copy.c.
 */
#include "ctl/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "core/ident.h"
#include "core/limits.h"
#include "ctl/content.h"

#define BATCH_MAX (192 * LIMIT_KIB)

/* ---- files ---- */

/* Opened as it was seen: a link that has come into its place meanwhile is not followed. */
static int open_source(const struct copy *copy, const struct entry *entry, bool follow, int *ret_fd)
{
	struct buf path;

	buf_init(&path, 65536);
	buf_printf(&path, "%s/%s", copy->local, entry->path);
	*ret_fd = path.error ? -1 : open(path.ptr, O_RDONLY | O_CLOEXEC | O_NONBLOCK | (follow ? 0 : O_NOFOLLOW));
	buf_fini(&path);
	return *ret_fd < 0 ? -1 : 0;
}

static bool is_there(const struct copy *copy, const struct entry *entry, const char *digest, int64_t size)
{
	const struct entry *there = tree_find(&copy->there, entry->path);

	return there && there->kind == ENTRY_FILE && there->size == size && (there->mode & 0777) == (entry->mode & 0777) &&
	       !strcmp(there->sha256, digest);
}

static int send(struct copy *copy, struct content *c, const struct entry *entry)
{
	bool again = true;
	int rc = 0;

	for (int try = 0; again; try++) {
		struct ctl_reply reply = {0};

		if (lseek(c->fd, 0, SEEK_SET) < 0) {
			copy_failed(copy, entry->path, CTL_ERROR, strerrordesc_np(errno));
			return CTL_ERROR;
		}
		rc = content_put(c, &reply);
		rc = copy_judge(copy, entry->path, rc, &reply, try, &again);
		if (again)
			copy_moved(copy, -c->moved);
		ctl_reply_fini(&reply);
	}
	return rc;
}

static int put_one(struct copy *copy, struct ctl *ctl, const struct entry *entry, bool follow)
{
	struct content c = {.ctl = ctl, .task = copy->task, .mode = entry->mode & 0777 ? entry->mode & 0777 : 0400, .silent = true,
			    .progress = copy_moved, .arg = copy};
	char digest[65];
	struct buf name;
	int rc = 0;

	if (open_source(copy, entry, follow, &c.fd) || content_digest(c.fd, &c.size, digest)) {
		if (!ctl_stopped())
			copy_failed(copy, entry->path, CTL_ERROR, strerrordesc_np(errno));
		rc = CTL_ERROR;
	} else if (is_there(copy, entry, digest, c.size)) {
		pthread_mutex_lock(&copy->lock);
		copy->same++;
		copy->copied--; /* counted again by the worker */
		copy->bytes -= entry->size;
		copy->progress.total -= entry->size;
		pthread_mutex_unlock(&copy->lock);
	} else {
		buf_init(&name, 65536);
		tree_join(copy->base, entry->path, &name);
		c.name = name.ptr;
		c.sha256 = digest;
		rc = send(copy, &c, entry);
		buf_fini(&name);
	}
	if (c.fd >= 0)
		close(c.fd);
	return rc;
}

static int put_physical(struct copy *copy, struct ctl *ctl, const struct entry *entry)
{
	return put_one(copy, ctl, entry, false);
}

static int put_followed(struct copy *copy, struct ctl *ctl, const struct entry *entry)
{
	return put_one(copy, ctl, entry, true);
}

/* ---- folders and links ---- */

static const char prelude[] =
	"bad=0\n"
	"m() { [ -d \"./$1\" ] || mkdir -p \"./$1\" || bad=1; }\n"
	"l() { if [ -L \"./$1\" ] || ! [ -e \"./$1\" ]; then ln -sfn -- \"$2\" \"./$1\" || bad=1\n"
	"else echo \"$1: something else is in the place of the link\" >&2; bad=1; fi; }\n"
	"c() { chmod \"$2\" \"./$1\" || bad=1; }\n";

struct script {
	struct copy *copy;
	struct buf text;
	size_t lines;
	int rc;
};

static void script_run(struct script *s)
{
	if (!s->lines || s->rc)
		return;
	buf_puts(&s->text, "exit $bad\n");
	s->rc = ctl_run_script(s->copy->ctl, s->copy->task, s->text.ptr, NULL);
	s->lines = 0;
}

/* line: a function of the prelude, a path and perhaps one word more. */
static void script_add(struct script *s, char function, const char *path, const char *word)
{
	if (s->text.len > BATCH_MAX)
		script_run(s);
	if (!s->lines) {
		buf_clear(&s->text);
		buf_puts(&s->text, prelude);
	}
	s->lines++;
	buf_printf(&s->text, "%c ", function);
	ctl_quote(&s->text, path);
	if (word) {
		buf_puts(&s->text, " ");
		ctl_quote(&s->text, word);
	}
	buf_puts(&s->text, "\n");
}

/* It is there, with the same permissions or the same target. */
static bool is_settled(const struct copy *copy, const struct entry *entry)
{
	const struct entry *there = tree_find(&copy->there, entry->path);

	if (!there || there->kind != entry->kind)
		return false;
	if (entry->kind == ENTRY_FOLDER)
		return (there->mode & 0777) == (entry->mode & 0777);
	return there->target && !strcmp(there->target, entry->target);
}

static void script_entry(struct script *s, const struct entry *entry, char function)
{
	struct buf name;
	char mode[16];

	if (entry->problem || is_settled(s->copy, entry))
		return;
	buf_init(&name, 65536);
	tree_join(s->copy->base, entry->path, &name);
	snprintf(mode, sizeof(mode), "%04o", entry->mode & 0777);
	if (entry->kind == ENTRY_LINK && function == 'l')
		script_add(s, 'l', name.ptr, entry->target);
	else if (entry->kind == ENTRY_FOLDER && function == 'm')
		script_add(s, 'm', name.ptr, NULL);
	/* The workspace itself keeps its permissions: it is not a part of the copy. */
	else if (entry->kind == ENTRY_FOLDER && function == 'c' && strcmp(name.ptr, ".") != 0)
		script_add(s, 'c', name.ptr, mode);
	buf_fini(&name);
}

static void finish(struct copy *copy)
{
	struct script s = {.copy = copy};
	const struct tree *tree = &copy->source;

	buf_init(&s.text, LIMIT_COMMAND_BODY);
	for (size_t i = 0; i < tree->count; i++)
		script_entry(&s, &tree->entries[i], 'm');
	for (size_t i = 0; i < tree->count; i++)
		script_entry(&s, &tree->entries[i], 'l');
	for (size_t i = tree->count; i-- > 0;) /* what lies deeper first: its folder may become read-only */
		script_entry(&s, &tree->entries[i], 'c');
	script_run(&s);
	buf_fini(&s.text);
	if (s.rc)
		copy_failed(copy, "", s.rc, "folders' permissions and links were not all made");
	for (size_t i = 0; !s.rc && i < tree->count; i++) {
		copy->links += !tree->entries[i].problem && tree->entries[i].kind == ENTRY_LINK;
		copy->folders += !tree->entries[i].problem && tree->entries[i].kind == ENTRY_FOLDER;
	}
}

/* ---- the whole ---- */

/* Files make the folders that they lie in; no other can be made without a script. */
static void mark_used(struct tree *tree)
{
	for (size_t i = 0; i < tree->count; i++) {
		char *path = tree->entries[i].kind == ENTRY_FILE ? strdup(tree->entries[i].path) : NULL, *slash;
		struct entry *top = tree_find(tree, "");

		if (path && top)
			top->used = true;
		while (path && (slash = strrchr(path, '/'))) {
			struct entry *folder;

			*slash = '\0';
			folder = tree_find(tree, path);
			if (folder)
				folder->used = true;
		}
		free(path);
	}
}

/* What cannot be copied is named; what is to be left out goes; the rest is to do. */
static int sort_out(struct copy *copy, const struct put_options *o)
{
	struct tree *tree = &copy->source;

	copy->todo = calloc(tree->count + 1, sizeof(*copy->todo));
	mark_used(tree);
	for (size_t i = 0; copy->todo && i < tree->count; i++) {
		struct entry *entry = &tree->entries[i];
		struct err err = {0};
		struct buf name;

		buf_init(&name, 65536);
		tree_join(copy->base, entry->path, &name);
		if (tree_judge_link(entry, o->links))
			entry->problem = "";
		else if (!entry->problem && (name.error || ident_path_check("path", name.ptr, name.len, true, &err)))
			entry->problem = "has a name that no path of a workspace may have: a backslash, control bytes, no UTF-8, or too long";
		else if (!entry->problem && entry->kind == ENTRY_LINK && o->plain)
			entry->problem = "is a symbolic link, which --plain cannot make";
		else if (!entry->problem && entry->kind == ENTRY_FOLDER && !entry->used && o->plain)
			entry->problem = "is a folder without a file, which --plain cannot make";
		buf_fini(&name);
		if (entry->problem && *entry->problem)
			copy_failed(copy, entry->path, CTL_ERROR, entry->problem);
		else if (!entry->problem && entry->kind == ENTRY_FILE)
			copy->todo[copy->todo_count++] = i;
	}
	return copy->todo ? 0 : ctl_fail(CTL_ERROR, "out of memory");
}

static int look(struct copy *copy, const struct put_options *o)
{
	bool follow = o->links && !strcmp(o->links, "follow");
	struct err err = {0};
	int rc;

	if (ident_path_check("PATH", copy->base, strlen(copy->base), true, &err))
		return ctl_fail(CTL_USAGE, "put: '%s': %s", copy->base, err.msg);
	rc = tree_walk(copy->local, follow, &copy->source);
	copy->one = follow ? put_followed : put_physical;
	if (!rc && !o->plain)
		rc = tree_remote(copy->ctl, copy->task, copy->base, &copy->there);
	if (!rc && !o->plain && (copy->there.top == ENTRY_FILE || copy->there.top == ENTRY_LINK))
		rc = ctl_fail(CTL_REFUSED, "%s: something that is no folder is there; berthctl rm %s %s takes it away", copy->base,
			      copy->task, copy->base);
	return rc ? rc : sort_out(copy, o);
}

int tree_put(struct ctl *ctl, const char *task, const char *local, const char *base, const struct put_options *o)
{
	struct copy copy;
	int rc = copy_check_jobs(o->jobs);

	if (rc)
		return rc;
	rc = copy_init(&copy, ctl, task, base, local, local);

	if (!rc)
		rc = look(&copy, o);
	if (!rc) {
		copy_run(&copy, o->jobs, base);
		if (!o->plain && !copy.stop && !ctl_stopped())
			finish(&copy);
		rc = copy_report(&copy);
	}
	copy_fini(&copy);
	return rc;
}
