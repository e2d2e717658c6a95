/* SPDX-License-Identifier: Apache-2.0 */
/*
 * put, get, ls, cat: files of a task's workspace. One thread. A local file appears only when it is complete.
 */
#include "ctl/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/json.h"

static void content_path(struct buf *path, const struct ctl *ctl, const char *task, const char *name)
{
	buf_init(path, 16384);
	buf_puts(path, "/sandbox/file-content");
	ctl_query(path, "workspace_id", ctl->workspace);
	ctl_query(path, "task_id", task);
	ctl_query(path, "path", name);
}

static long from_fd(void *arg, void *buf, size_t cap)
{
	ssize_t got;

	do
		got = read(*(int *)arg, buf, cap);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		ctl_fail(CTL_ERROR, "cannot read the local file: %m");
	return got;
}

static int to_fd(void *arg, const void *ptr, size_t len)
{
	const char *at = ptr;

	while (len) {
		ssize_t done = write(*(int *)arg, at, len);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return ctl_fail(CTL_ERROR, "cannot write: %m");
		at += done;
		len -= (size_t)done;
	}
	return 0;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static int open_local(const char *local, int *ret_fd, int64_t *ret_size, unsigned *ret_mode)
{
	struct stat st;

	*ret_fd = !strcmp(local, "-") ? STDIN_FILENO : open(local, O_RDONLY | O_CLOEXEC);
	if (*ret_fd < 0 || fstat(*ret_fd, &st))
		return ctl_fail(CTL_USAGE, "%s: %m", local);
	if (S_ISDIR(st.st_mode))
		return ctl_fail(CTL_USAGE, "%s is a folder; send it as an archive: tar c %s | berthctl put TASK - NAME.tar", local, local);
	*ret_size = S_ISREG(st.st_mode) ? st.st_size : -1;
	*ret_mode = S_ISREG(st.st_mode) ? st.st_mode & 0777 : 0644;
	return 0;
}

int ctl_put(struct ctl *ctl, const struct ctl_command *command, int argc, char **argv)
{
	char *mode_text = NULL;
	const struct ctl_option options[] = {
		{"mode", 'm', "OCTAL", &mode_text, "permissions, as in 0755 (default: those of the local file)"},
		{0},
	};
	int at = ctl_parse(ctl, command, options, argc, argv, 2, 3, false), fd = -1, rc;
	struct ctl_reply reply = {0};
	struct buf path;
	char mode[16];
	unsigned bits = 0;
	int64_t size = -1;
	const char *name;

	if (at < 0)
		return CTL_PARSED_EXIT(at);
	if (at + 2 >= argc && !strcmp(argv[at + 1], "-"))
		return ctl_fail(CTL_USAGE, "put: standard input needs a PATH to be stored under");
	name = at + 2 < argc ? argv[at + 2] : base_name(argv[at + 1]);
	rc = open_local(argv[at + 1], &fd, &size, &bits);
	if (rc)
		return rc;
	content_path(&path, ctl, argv[at], name);
	snprintf(mode, sizeof(mode), "%04o", bits ? bits : 0644);
	ctl_query(&path, "mode", mode_text ? mode_text : mode);
	rc = ctl_upload(ctl, path.ptr, from_fd, &fd, size, &reply);
	buf_fini(&path);
	if (!rc && reply.status / 100 != 2)
		rc = ctl_explain(ctl, &reply, name);
	else if (!rc && ctl->json)
		ctl_json(reply.json);
	ctl_reply_fini(&reply);
	if (fd > STDIN_FILENO)
		close(fd);
	return rc;
}

static int download(struct ctl *ctl, const char *task, const char *name, int fd)
{
	struct ctl_reply reply;
	struct buf path;
	int rc;

	content_path(&path, ctl, task, name);
	rc = ctl_download(ctl, path.ptr, to_fd, &fd, &reply);
	buf_fini(&path);
	if (!rc && reply.status / 100 != 2)
		rc = ctl_explain(ctl, &reply, name);
	ctl_reply_fini(&reply);
	return rc;
}

int ctl_get(struct ctl *ctl, const struct ctl_command *command, int argc, char **argv)
{
	int at = ctl_parse(ctl, command, NULL, argc, argv, 2, 3, false), fd, rc;
	char temporary[4200], local[4096];
	struct stat st;

	if (at < 0)
		return CTL_PARSED_EXIT(at);
	snprintf(local, sizeof(local), "%s", at + 2 < argc ? argv[at + 2] : base_name(argv[at + 1]));
	if (!strcmp(local, "-"))
		return download(ctl, argv[at], argv[at + 1], STDOUT_FILENO);
	if (!stat(local, &st) && S_ISDIR(st.st_mode))
		snprintf(local, sizeof(local), "%s/%s", argv[at + 2], base_name(argv[at + 1]));
	snprintf(temporary, sizeof(temporary), "%s.part-%d", local, (int)getpid());
	fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return ctl_fail(CTL_ERROR, "%s: %m", local);
	rc = download(ctl, argv[at], argv[at + 1], fd);
	if (!rc && (close(fd) || rename(temporary, local)))
		rc = ctl_fail(CTL_ERROR, "%s: %m", local);
	else if (rc)
		close(fd);
	if (rc)
		unlink(temporary);
	return rc;
}

int ctl_cat(struct ctl *ctl, const struct ctl_command *command, int argc, char **argv)
{
	int at = ctl_parse(ctl, command, NULL, argc, argv, 2, 2, false);

	return at < 0 ? CTL_PARSED_EXIT(at) : download(ctl, argv[at], argv[at + 1], STDOUT_FILENO);
}

int ctl_ls(struct ctl *ctl, const struct ctl_command *command, int argc, char **argv)
{
	int at = ctl_parse(ctl, command, NULL, argc, argv, 1, 2, false), rc;
	struct json_object *paths;
	struct ctl_reply reply;
	struct buf path;

	if (at < 0)
		return CTL_PARSED_EXIT(at);
	buf_init(&path, 16384);
	buf_puts(&path, "/sandbox/files");
	ctl_query(&path, "workspace_id", ctl->workspace);
	ctl_query(&path, "task_id", argv[at]);
	ctl_query(&path, "list", at + 1 < argc ? argv[at + 1] : ".");
	rc = ctl_call(ctl, "GET", path.ptr, NULL, &reply);
	buf_fini(&path);
	if (!rc && reply.status != 200)
		rc = ctl_explain(ctl, &reply, argv[at]);
	else if (!rc && ctl->json)
		ctl_json(reply.json);
	else if (!rc && (paths = ctl_at(reply.json, "paths")))
		for (size_t i = 0; i < json_object_array_length(paths); i++)
			puts(json_object_get_string(json_object_array_get_idx(paths, i)));
	ctl_reply_fini(&reply);
	return rc;
}
