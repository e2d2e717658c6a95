/* SPDX-License-Identifier: Apache-2.0 */
/*
 * put, get, ls, cat, rm, mv: files of a task's workspace; whole folders are tree_put.c and tree_get.c. Main thread. A local file
 * appears only when it is complete.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/json.h"
#include "core/limits.h"
#include "ctl/commands.h"
#include "ctl/content.h"
#include "ctl/tree.h"

#define PUT(name_, letter_, type_, argument_, field_, ...)                                                             \
	{                                                                                                              \
		.name = name_, .letter = letter_, .type = type_, .argument = argument_,                                \
		.off = offsetof(struct put_options, field_), __VA_ARGS__                                               \
	}
#define GET(name_, letter_, type_, argument_, field_, ...)                                                             \
	{                                                                                                              \
		.name = name_, .letter = letter_, .type = type_, .argument = argument_,                                \
		.off = offsetof(struct get_options, field_), __VA_ARGS__                                               \
	}

const struct ctl_option put_options[] = {
	PUT("mode", 'm', CTL_TEXT, "OCTAL", mode, .doc = "permissions of the one file, as in 0755 (default: those of the local one)"),
	PUT("recursive", 'r', CTL_FLAG, NULL, recursive, .doc = "copy a folder; what is there already and equal is left alone"),
	PUT("links", 0, CTL_TEXT, "HOW", links, .words = "keep all skip follow",
	    .doc = "symbolic links: keep those that stay inside (default), all, skip, or follow them"),
	PUT("jobs", 'j', CTL_COUNT, "N", jobs, .doc = "so many files at once (default 4, at most 16)"),
	PUT("plain", 0, CTL_FLAG, NULL, plain, .doc = "run nothing in the sandbox: sends everything, makes no links or empty folders"),
	{0},
};

const struct ctl_option get_options[] = {
	GET("recursive", 'r', CTL_FLAG, NULL, recursive, .doc = "copy a folder; what is here already and equal is left alone"),
	GET("links", 0, CTL_TEXT, "HOW", links, .words = "keep all skip",
	    .doc = "symbolic links: keep those that stay inside (default), all, or skip them"),
	GET("jobs", 'j', CTL_COUNT, "N", jobs, .doc = "so many files at once (default 4, at most 16)"),
	GET("plain", 0, CTL_FLAG, NULL, plain, .doc = "run nothing in the sandbox: fetches every file, sees no links or empty folders"),
	{0},
};

const struct ctl_option ls_options[] = {
	{.name = "long", .letter = 'l', .type = CTL_FLAG, .off = offsetof(struct ls_options, one_level),
	 .doc = "one level only, folders and links too, with permissions, sizes and times (UTC)"},
	{0},
};

const struct ctl_option rm_options[] = {
	{.name = "recursive", .letter = 'r', .type = CTL_FLAG, .off = offsetof(struct rm_options, recursive),
	 .doc = "folders with everything in them"},
	{.name = "force", .letter = 'f', .type = CTL_FLAG, .off = offsetof(struct rm_options, force),
	 .doc = "what is not there is no error"},
	{0},
};

/* ---- put ---- */

static int open_local(const char *local, const char *mode_text, int *ret_fd, unsigned *ret_mode)
{
	struct stat st;
	char *end;

	*ret_fd = !strcmp(local, "-") ? STDIN_FILENO : open(local, O_RDONLY | O_CLOEXEC);
	if (*ret_fd < 0 || fstat(*ret_fd, &st))
		return ctl_fail(CTL_USAGE, "%s: %m", local);
	if (S_ISDIR(st.st_mode))
		return ctl_fail(CTL_USAGE, "%s is a folder; berthctl put -r copies it", local);
	*ret_mode = S_ISREG(st.st_mode) && st.st_mode & 0777 ? st.st_mode & 0777 : 0644;
	if (!mode_text)
		return 0;
	*ret_mode = (unsigned)strtoul(mode_text, &end, 8);
	if (*end || !*ret_mode || *ret_mode > 0777)
		return ctl_fail(CTL_USAGE, "--mode: '%s' is not an octal number between 0001 and 0777", mode_text);
	return 0;
}

static int put_file(struct ctl *ctl, const char *task, const char *local, const char *name, const char *mode_text)
{
	struct json_object *answer = NULL;
	unsigned mode = 0;
	int fd = -1, rc = open_local(local, mode_text, &fd, &mode);

	if (!rc)
		rc = ctl_send(ctl, task, name, fd, name, mode, &answer);
	if (!rc && ctl->json)
		ctl_json(answer);
	json_object_put(answer);
	if (fd > STDIN_FILENO)
		close(fd);
	return rc;
}

/* The last part of a path; of "." and "dir/.." there is none. */
static const char *name_of(const char *path, char *copy, size_t size)
{
	size_t len = strlen(path);

	while (len > 1 && path[len - 1] == '/')
		len--;
	snprintf(copy, size, "%.*s", (int)len, path);
	path = ctl_base_name(copy);
	return !*path || !strcmp(path, "..") ? "." : path;
}

static void strip_slashes(char *path)
{
	size_t len = strlen(path);

	while (len > 1 && path[len - 1] == '/')
		path[--len] = '\0';
}

int ctl_put(struct ctl *ctl, const struct ctl_args *args)
{
	const struct put_options *o = args->options;
	char *local = args->words[1], copy[4096];
	const char *name = args->count > 2 ? args->words[2] : NULL;
	bool pipe = !strcmp(local, "-");

	if (pipe && (!name || o->recursive))
		return ctl_fail(CTL_USAGE, o->recursive ? "put: --recursive takes a folder, not standard input"
							 : "put: standard input needs a PATH to be stored under");
	ctl_stop_on_signal(true);
	if (!o->recursive)
		return put_file(ctl, args->words[0], local, name ? name : name_of(local, copy, sizeof(copy)), o->mode);
	if (o->mode)
		return ctl_fail(CTL_USAGE, "put: --mode is for one file; a folder keeps its own permissions");
	if (name)
		strip_slashes(args->words[2]);
	strip_slashes(local);
	return tree_put(ctl, args->words[0], local, name ? name : name_of(local, copy, sizeof(copy)), o);
}

/* ---- get ---- */

static void set_total(void *arg, int64_t size)
{
	((struct ctl_progress *)arg)->total = size;
}

static void show_moved(void *arg, int64_t bytes)
{
	ctl_progress_add(arg, bytes);
}

/* Not about the path as such, which no other command would take either. */
static bool is_about_what_is_there(const struct ctl_reply *reply)
{
	const char *message = ctl_text(reply->json, "message");

	return message && strncmp(message, "path: ", 6) != 0;
}

static int fetch(struct ctl *ctl, const char *task, const char *name, int fd, bool show, unsigned *ret_mode)
{
	struct ctl_progress progress;
	struct content c = {.ctl = ctl, .task = task, .name = name, .fd = fd, .begun = set_total, .progress = show_moved,
			    .arg = &progress};
	struct ctl_reply reply;
	int rc;

	ctl_progress_begin(&progress, name, -1);
	progress.on = progress.on && show;
	rc = content_get(&c, &reply);
	ctl_progress_end(&progress);
	if (!rc && reply.status / 100 != 2) {
		rc = ctl_explain_file(ctl, &reply, task, name);
		if (reply.status == 400 && is_about_what_is_there(&reply))
			fputs("  berthctl get -r copies folders\n", stderr);
	}
	*ret_mode = c.mode;
	ctl_reply_fini(&reply);
	return rc;
}

static int get_file(struct ctl *ctl, const char *task, const char *name, const char *local)
{
	char temporary[4200];
	unsigned mode = 0;
	int fd, rc;

	content_temp_name(local, temporary, sizeof(temporary));
	fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return ctl_fail(CTL_ERROR, "%s: %m", local);
	rc = fetch(ctl, task, name, fd, !ctl->json, &mode);
	if (!rc && fchmod(fd, mode ? mode : 0644))
		rc = ctl_fail(CTL_ERROR, "%s: %m", local);
	if (close(fd) && !rc)
		rc = ctl_fail(CTL_ERROR, "%s: %m", local);
	if (!rc && rename(temporary, local))
		rc = ctl_fail(CTL_ERROR, "%s: %m", local);
	if (rc)
		unlink(temporary);
	return rc;
}

int ctl_get(struct ctl *ctl, const struct ctl_args *args)
{
	const struct get_options *o = args->options;
	const char *task = args->words[0], *given = args->count > 2 ? args->words[2] : NULL;
	char local[4096], copy[4096], *name = args->words[1];
	struct stat st;
	unsigned mode;
	int rc;

	strip_slashes(name);
	if (o->recursive && given && !strcmp(given, "-"))
		return ctl_fail(CTL_USAGE, "get: --recursive needs a folder to copy to, not '-'");
	if (ctl->json && given && !strcmp(given, "-"))
		return ctl_fail(CTL_USAGE, "get: --json and '-' exclude each other; berthctl cat --json prints the content as base64");
	ctl_stop_on_signal(true);
	if (o->recursive)
		return tree_get(ctl, task, name, given ? given : strcmp(name, ".") ? name_of(name, copy, sizeof(copy)) : task, o);
	if (given && !strcmp(given, "-"))
		return fetch(ctl, task, name, STDOUT_FILENO, !isatty(STDOUT_FILENO), &mode);
	snprintf(local, sizeof(local), "%s", given ? given : ctl_base_name(name));
	if (!stat(local, &st) && S_ISDIR(st.st_mode))
		snprintf(local, sizeof(local), "%s/%s", given ? given : ".", ctl_base_name(name));
	rc = get_file(ctl, task, name, local);
	if (!rc && ctl->json) {
		struct json_object *json = json_object_new_object();

		json_object_object_add(json, "path", json_object_new_string(name));
		json_object_object_add(json, "local", json_object_new_string(local));
		json_object_object_add(json, "size", json_object_new_int64(stat(local, &st) ? -1 : st.st_size));
		ctl_json(json);
		json_object_put(json);
	}
	return rc;
}

/* ---- cat, ls, rm, mv ---- */

/* One exchange about a file whose good answer is printed: JSON with --json, else by `show` (NULL: as JSON). */
static int show_file(struct ctl *ctl, const char *path, const char *task, const char *name, void (*show)(struct json_object *json))
{
	struct ctl_reply reply;
	int rc = ctl_call(ctl, "GET", path, NULL, &reply);

	if (!rc && reply.status / 100 != 2)
		rc = ctl_explain_file(ctl, &reply, task, name);
	else if (!rc && (ctl->json || !show))
		ctl_json(reply.json);
	else if (!rc)
		show(reply.json);
	if (rc && !strcmp(ctl_text(reply.json, "details.reason"), "not_directory"))
		fprintf(stderr, "  only folders are listed; berthctl ls %s lists all files\n", task);
	ctl_reply_fini(&reply);
	return rc;
}

int ctl_cat(struct ctl *ctl, const struct ctl_args *args)
{
	struct buf path;
	unsigned mode;
	int rc;

	if (!ctl->json)
		return fetch(ctl, args->words[0], args->words[1], STDOUT_FILENO, !isatty(STDOUT_FILENO), &mode);
	ctl_file_path(&path, ctl, "files", args->words[0], "path", args->words[1]);
	ctl_query(&path, "ensure", "false");
	rc = show_file(ctl, path.ptr, args->words[0], args->words[1], NULL);
	buf_fini(&path);
	return rc;
}

/* For people: the time to the second, and what is no file by a mark, as the size of such a one tells nothing. */
static void make_readable(struct json_object *item)
{
	static const struct {
		const char *kind, *mark;
	} marks[] = {{"folder", "/"}, {"link", "@"}, {"other", "="}};
	const char *time = ctl_text(item, "modified_at");
	char text[32];

	if (!json_object_is_type(item, json_type_object))
		return;
	snprintf(text, sizeof(text), "%.10s%s%.8s", time, *time ? " " : "", strlen(time) > 19 ? time + 11 : "");
	json_object_object_add(item, "modified_at", json_object_new_string(text));
	for (size_t i = 0; i < sizeof(marks) / sizeof(*marks); i++) {
		struct buf path;

		if (strcmp(ctl_text(item, "kind"), marks[i].kind) != 0)
			continue;
		buf_init(&path, 65536);
		buf_printf(&path, "%s%s", ctl_text(item, "path"), marks[i].mark);
		json_object_object_add(item, "path", json_object_new_string(path.ptr ? path.ptr : ""));
		json_object_object_del(item, "size");
		buf_fini(&path);
	}
}

static void print_entries(struct json_object *json)
{
	static const struct ctl_column columns[] = {
		{"MODE", "mode", false, CTL_PLAIN}, {"SIZE", "size", false, CTL_BYTES},
		{"CHANGED", "modified_at", false, CTL_PLAIN}, {"PATH", "path", true, CTL_PLAIN}, {0},
	};
	struct json_object *items = ctl_at(json, "items");

	for (size_t i = 0; i < ctl_length(items); i++)
		make_readable(json_object_array_get_idx(items, i));
	if (ctl_length(items))
		ctl_table(items, columns);
}

static void print_paths(struct json_object *json)
{
	struct json_object *paths = ctl_at(json, "paths");

	for (size_t i = 0; i < ctl_length(paths); i++) {
		struct buf line;

		buf_init(&line, LIMIT_MIB);
		ctl_clean(&line, ctl_text(json_object_array_get_idx(paths, i), ""));
		puts(line.ptr ? line.ptr : "");
		buf_fini(&line);
	}
}

int ctl_ls(struct ctl *ctl, const struct ctl_args *args)
{
	const struct ls_options *o = args->options;
	struct buf path;
	int rc;

	if (args->count > 1)
		strip_slashes(args->words[1]);
	ctl_file_path(&path, ctl, "files", args->words[0], "list", args->count > 1 ? args->words[1] : ".");
	ctl_query(&path, "ensure", "false");
	ctl_query(&path, "details", o->one_level || ctl->json ? "true" : NULL);
	ctl_query(&path, "recursive", o->one_level ? "false" : NULL);
	rc = show_file(ctl, path.ptr, args->words[0], args->count > 1 ? args->words[1] : args->words[0],
		       o->one_level ? print_entries : print_paths);
	buf_fini(&path);
	return rc;
}

static int remove_one(struct ctl *ctl, const char *task, const char *name, const struct rm_options *o, struct json_object *items)
{
	struct ctl_reply reply;
	struct buf path;
	int rc;

	ctl_file_path(&path, ctl, "files", task, "path", name);
	ctl_query(&path, "recursive", o->recursive ? "true" : NULL);
	ctl_query(&path, "ensure", "false");
	rc = ctl_call(ctl, "DELETE", path.ptr, NULL, &reply);
	if (!rc && reply.status / 100 != 2 && !(o->force && (reply.status == 404 || reply.status == 410)))
		rc = ctl_explain_file(ctl, &reply, task, name);
	if (rc && (reply.status == 400 || reply.status == 409) && !o->recursive)
		fputs("  berthctl rm -r removes folders\n", stderr);
	json_object_array_add(items, ctl_json_item("path", name, "removed", rc, &reply));
	ctl_reply_fini(&reply);
	buf_fini(&path);
	return rc;
}

int ctl_rm(struct ctl *ctl, const struct ctl_args *args)
{
	struct json_object *items = json_object_new_array();
	int first = 0;

	for (int i = 1; i < args->count; i++) {
		int rc;

		strip_slashes(args->words[i]);
		rc = remove_one(ctl, args->words[0], args->words[i], args->options, items);
		first = first ? first : rc;
		if (rc == CTL_DENIED || rc == CTL_UNAVAILABLE)
			break;
	}
	if (ctl->json)
		ctl_json_items(items);
	json_object_put(items);
	return first;
}

int ctl_mv(struct ctl *ctl, const struct ctl_args *args)
{
	const char *const keys[] = {"{\"workspace_id\":", ",\"task_id\":", ",\"from\":", ",\"to\":"};
	const char *const values[] = {ctl->workspace, args->words[0], args->words[1], args->words[2]};
	struct ctl_reply reply;
	struct buf body;
	int rc;

	buf_init(&body, LIMIT_JSON_BODY);
	for (size_t i = 0; i < 4; i++) {
		buf_puts(&body, keys[i]);
		json_put_string(&body, values[i], strlen(values[i]));
	}
	buf_puts(&body, "}");
	rc = body.error ? ctl_fail(CTL_USAGE, "mv: a path is too long")
			: ctl_call(ctl, "POST", "/sandbox/files/move", body.ptr, &reply);
	buf_fini(&body);
	if (rc)
		return rc;
	if (reply.status != 200)
		rc = ctl_explain_file(ctl, &reply, args->words[0], args->words[1]);
	else if (ctl->json)
		ctl_json(reply.json);
	ctl_reply_fini(&reply);
	return rc;
}
