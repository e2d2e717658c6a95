/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a folder of a task's workspace holds. The file routes tell regular files only; modes, links, empty folders and digests
 * come from a script in the sandbox, which needs sh, find, stat, readlink and sha256sum there. Main thread. Nothing in its output is
 * trusted: it was written by whatever runs in the sandbox.
 */
#include <sys/stat.h>

#include "core/ident.h"
#include "core/limits.h"
#include "ctl/tree.h"

/* Names with control bytes are no paths of the API: they are told apart, and never get into the lines. The daemon's own folder and
 * unfinished files are as little listed as its routes list them. "%s" is the folder, quoted. */
static const char script[] =
	"export LC_ALL=C\n"
	"base=%s\n"
	"if [ -d \"$base\" ]; then :\n"
	"elif [ -L \"$base\" ]; then echo =link; exit\n"
	"elif [ -e \"$base\" ]; then echo =file; exit\n"
	"else echo =none; exit; fi\n"
	"cd \"$base\" || exit\n"
	"[ \"$base\" = . ] && hidden=./.agentarea || hidden=\n"
	"odd='*[[:cntrl:]]*'\n"
	"walk() { find . \\( -path \"$hidden\" -o -name '.berth-*.tmp' -o -name \"$odd\" \\) -prune -o \"$@\"; }\n"
	"set -e\n"
	"echo =list\n"
	"walk -exec stat -c '%%f %%s %%n' {} +\n"
	"walk -type f -exec sha256sum {} +\n"
	"echo =odd\n"
	"find . -name \"$odd\" -prune -exec sh -c 'for p; do printf \"%%s\\0\" \"$p\"; done' sh {} +\n"
	"echo =links\n"
	"walk -type l -exec sh -c 'for p; do printf \"%%s\\0%%s\\0\" \"$p\" \"$(readlink \"$p\"; echo .)\"; done' sh {} +\n"
	"echo =end\n";

/* ---- reading it ---- */

struct reader {
	const char *base;
	const char *at, *end;
	struct tree *tree;
};

static const char *take_until(struct reader *r, char mark, size_t *ret_len)
{
	const char *start = r->at, *found = memchr(r->at, mark, (size_t)(r->end - r->at));

	if (!found)
		return NULL;
	r->at = found + 1;
	*ret_len = (size_t)(found - start);
	return start;
}

/* "./a/b" as "a/b", "." as "". */
static bool relative(const char **path, size_t *len)
{
	if (*len == 1 && **path == '.') {
		*len = 0;
		return true;
	}
	if (*len < 3 || strncmp(*path, "./", 2) != 0)
		return false;
	*path += 2;
	*len -= 2;
	return true;
}

static const char *judge_path(const char *base, const char *path, size_t len)
{
	struct err err = {0};
	struct buf full;
	const char *problem = NULL;
	char *copy = strndup(path, len);

	buf_init(&full, 65536);
	tree_join(base, copy ? copy : "", &full);
	if (!copy || full.error || ident_path_check("path", full.ptr, full.len, true, &err))
		problem = "has a name that the file routes do not take: a backslash, control bytes, no UTF-8, or too long";
	buf_fini(&full);
	free(copy);
	return problem;
}

static bool take_stat(struct reader *r, const char *line, size_t len)
{
	char head[64], *at;
	unsigned long mode;
	unsigned long long size;
	const char *path = memmem(line, len, " .", 2);
	size_t path_len;
	struct entry *entry;

	if (!path || path - line >= (ptrdiff_t)sizeof(head))
		return false;
	snprintf(head, sizeof(head), "%.*s", (int)(path - line), line);
	mode = strtoul(head, &at, 16);
	if (*at != ' ')
		return false;
	size = strtoull(at + 1, &at, 10);
	path++;
	path_len = len - (size_t)(path - line);
	if (*at || size > INT64_MAX || !relative(&path, &path_len))
		return false;
	entry = tree_add(r->tree, path, path_len, S_ISREG(mode) ? ENTRY_FILE : S_ISDIR(mode) ? ENTRY_FOLDER
						  : S_ISLNK(mode)		 ? ENTRY_LINK
										 : ENTRY_OTHER);
	if (!entry)
		return false;
	entry->mode = (unsigned)mode & 07777;
	entry->size = (int64_t)size;
	entry->problem = judge_path(r->base, path, path_len);
	if (!entry->problem && entry->kind == ENTRY_OTHER)
		entry->problem = "is neither a file nor a folder nor a link";
	return true;
}

static bool take_sum(struct reader *r, const char *line, size_t len)
{
	const char *path = line + 66;
	size_t path_len = len > 66 ? len - 66 : 0;
	struct entry *entry;
	char *copy;

	if (*line == '\\')
		return true; /* a name with a backslash, which is refused anyway */
	if (len < 67 || strspn(line, "0123456789abcdef") != 64 || !relative(&path, &path_len))
		return false;
	copy = strndup(path, path_len);
	entry = copy ? tree_find(r->tree, copy) : NULL;
	free(copy);
	if (entry && entry->kind == ENTRY_FILE)
		memcpy(entry->sha256, line, 64);
	return true;
}

/* Lines up to the next mark. Sums come after all lines of stat. */
static bool take_list(struct reader *r)
{
	bool sums = false;
	const char *line;
	size_t len;

	while (r->at < r->end && *r->at != '=') {
		line = take_until(r, '\n', &len);
		if (!line)
			return false;
		if (!sums && (*line == '\\' || strspn(line, "0123456789abcdef") == 64)) {
			sums = true;
			tree_sort(r->tree);
		}
		if (!(sums ? take_sum(r, line, len) : take_stat(r, line, len)))
			return false;
	}
	tree_sort(r->tree);
	return true;
}

static bool take_odd(struct reader *r)
{
	while (r->at < r->end && *r->at != '=') {
		size_t len;
		const char *path = take_until(r, '\0', &len);
		struct entry *entry;

		if (!path || !relative(&path, &len))
			return false;
		entry = tree_add(r->tree, path, len, ENTRY_OTHER);
		if (!entry)
			return false;
		entry->problem = "has a name with control bytes, which no path may have";
	}
	tree_sort(r->tree);
	return true;
}

static bool take_links(struct reader *r)
{
	while (r->at < r->end && *r->at != '=') {
		size_t len, target_len;
		const char *path = take_until(r, '\0', &len), *target = path ? take_until(r, '\0', &target_len) : NULL;
		struct entry *entry;
		char *copy;

		if (!target || target_len < 2 || strcmp(target + target_len - 2, "\n.") != 0 || !relative(&path, &len))
			return false;
		copy = strndup(path, len);
		entry = copy ? tree_find(r->tree, copy) : NULL;
		free(copy);
		if (!entry || entry->kind != ENTRY_LINK)
			continue;
		free(entry->target);
		entry->target = strndup(target, target_len - 2);
	}
	return true;
}

static bool take_mark(struct reader *r, const char *mark)
{
	size_t len = strlen(mark);

	if ((size_t)(r->end - r->at) < len || memcmp(r->at, mark, len) != 0)
		return false;
	r->at += len;
	return true;
}

bool tree_parse(const char *base, const char *ptr, size_t len, struct tree *ret)
{
	struct reader r = {.base = base, .at = ptr, .end = ptr + len, .tree = ret};

	ret->top = ENTRY_OTHER;
	if (take_mark(&r, "=none\n"))
		return r.at == r.end;
	ret->top = ENTRY_LINK;
	if (take_mark(&r, "=link\n"))
		return r.at == r.end;
	ret->top = ENTRY_FILE;
	if (take_mark(&r, "=file\n"))
		return r.at == r.end;
	ret->top = ENTRY_FOLDER;
	return take_mark(&r, "=list\n") && take_list(&r) && take_mark(&r, "=odd\n") && take_odd(&r) &&
	       take_mark(&r, "=links\n") && take_links(&r) && take_mark(&r, "=end\n") && r.at == r.end && !ret->nomem;
}

/* ---- asking for it ---- */

int tree_remote(struct ctl *ctl, const char *task, const char *base, struct tree *ret)
{
	struct buf text, quoted, out;
	int rc;

	buf_init(&text, LIMIT_COMMAND_BODY);
	buf_init(&quoted, LIMIT_COMMAND_BODY);
	buf_init(&out, 64 * LIMIT_MIB);
	buf_puts(&quoted, strcmp(base, ".") ? "./" : "");
	ctl_quote(&quoted, base);
	buf_printf(&text, script, quoted.ptr);
	rc = ctl_run_script(ctl, task, text.ptr, &out);
	if (!rc && !tree_parse(base, out.ptr ? out.ptr : "", out.len, ret))
		rc = ctl_fail(CTL_ERROR, "the sandbox's list of its files cannot be read");
	if (rc && rc != CTL_UNAVAILABLE && !ctl_stopped())
		fputs("  comparing folders runs a script with find, stat and sha256sum in the sandbox; --plain does without\n", stderr);
	buf_fini(&text);
	buf_fini(&quoted);
	buf_fini(&out);
	return rc;
}

static int add_paths(const char *base, struct json_object *paths, struct tree *ret)
{
	size_t skip = strcmp(base, ".") ? strlen(base) + 1 : 0;

	for (size_t i = 0; i < ctl_length(paths); i++) {
		const char *path = ctl_text(json_object_array_get_idx(paths, i), "");
		struct entry *entry;

		if (strlen(path) <= skip || (skip && (strncmp(path, base, skip - 1) != 0 || path[skip - 1] != '/')))
			return ctl_fail(CTL_ERROR, "the daemon's list holds '%s', which is not below %s", path, base);
		entry = tree_add(ret, path + skip, strlen(path + skip), ENTRY_FILE);
		if (entry)
			entry->problem = judge_path(base, path + skip, strlen(path + skip));
	}
	tree_sort(ret);
	return ret->nomem ? ctl_fail(CTL_ERROR, "out of memory") : 0;
}

static int ask_list(struct ctl *ctl, const char *task, const char *base, const char *recursive, struct ctl_reply *reply)
{
	struct buf path;
	int rc;

	ctl_file_path(&path, ctl, "files", task, "list", base);
	ctl_query(&path, "ensure", "false");
	ctl_query(&path, "recursive", recursive);
	rc = ctl_call(ctl, "GET", path.ptr, NULL, reply);
	buf_fini(&path);
	return rc;
}

static int explain_list(struct ctl *ctl, const char *task, const char *base, const struct ctl_reply *reply)
{
	int rc = ctl_explain_file(ctl, reply, task, base);

	if (reply->status == 400)
		fputs("  a file is got without --recursive\n", stderr);
	return rc;
}

int tree_remote_there(struct ctl *ctl, const char *task, const char *base)
{
	struct ctl_reply reply;
	int rc = ask_list(ctl, task, base, "false", &reply);

	/* Too much for one list is enough to know; the script's has no such end. */
	if (!rc && reply.status != 200 && reply.status != 413)
		rc = explain_list(ctl, task, base, &reply);
	ctl_reply_fini(&reply);
	return rc;
}

int tree_remote_plain(struct ctl *ctl, const char *task, const char *base, struct tree *ret)
{
	struct ctl_reply reply;
	int rc = ask_list(ctl, task, base, "true", &reply);

	if (!rc && reply.status != 200)
		rc = explain_list(ctl, task, base, &reply);
	if (rc && reply.status == 413)
		fputs("  without --plain a script in the sandbox lists it\n", stderr);
	if (!rc)
		rc = add_paths(base, ctl_at(reply.json, "paths"), ret);
	ret->top = ENTRY_FOLDER;
	ctl_reply_fini(&reply);
	return rc;
}
