/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File operations beneath a local root: stat, list, move, remove, and how all of them find directories and place files.
 * Entered by any thread with a small stack; keeps no state. Must never open a path but beneath the root.
 */
#include "localfs_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <berth/provider.h>

#include "supervised_files.h"

#define TEMP_PREFIX ".berth-"
#define TEMP_SUFFIX ".tmp"

int32_t localfs_ask(const struct localfs_op *op)
{
	struct berth_call_info info = {.struct_size = sizeof(info)};

	if (op->host->cancel_state(op->call) != BERTH_CANCEL_NONE)
		return localfs_fail(op->host, op->call, BERTH_CANCELLED, "cancelled", "cancelled before it was done");
	op->host->info(op->call, &info);
	if (info.deadline_ns <= 0 || sup_now_ns() < info.deadline_ns)
		return BERTH_OK;
	return op->host->fail(op->call, BERTH_TIMEOUT, "deadline", 1, 0,
			      "the call's deadline passed before it was done");
}

int localfs_path_copy(const struct berth_str *path, char out[BERTH_PATH_MAX + 1])
{
	int rc = localfs_path_check(path);

	if (rc < 0)
		return rc;
	memcpy(out, path->ptr, path->len);
	out[path->len] = '\0';
	return 0;
}

static int set_owner(const struct localfs_op *op, int fd)
{
	const struct berth_localfs *fs = op->fs;

	if (fs->uid < 0 && fs->gid < 0)
		return 0;
	/* -1 is what fchown takes for "keep", too. */
	return fchown(fd, (uid_t)fs->uid, (gid_t)fs->gid) < 0 ? -errno : 0;
}

int localfs_finish(const struct localfs_op *op, int fd, mode_t mode)
{
	int rc = set_owner(op, fd);

	/* After the owner, whose change may clear bits. */
	if (rc == 0 && fchmod(fd, mode & 0777) < 0)
		rc = -errno;
	return rc;
}

/* The process umask is not ours to change: what it took away is given back on the new directory itself. */
static int make_directory(const struct localfs_op *op, int parent, const char *name)
{
	int fd, rc;

	if (mkdirat(parent, name, 0755) < 0)
		return errno == EEXIST ? 0 : -errno;
	fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	/* Swapped already: what opens it next judges what is there now. */
	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : -errno;
	rc = localfs_finish(op, fd, 0755);
	close(fd);
	return rc;
}

/* Opens the directory that the first len bytes of path name; none = the root. */
static int open_prefix(const struct localfs_op *op, const char *path, size_t len)
{
	char prefix[BERTH_PATH_MAX + 1];

	memcpy(prefix, path, len);
	prefix[len] = '\0';
	return beneath_open(op->fs->root_fd, len ? prefix : ".", O_PATH | O_DIRECTORY, 0, 0);
}

static int make_prefix(const struct localfs_op *op, const char *path, size_t len)
{
	int dir = open_prefix(op, path, 0);

	for (size_t start = 0, end; dir >= 0 && start < len; start = end + 1) {
		char name[256];
		int rc;

		end = start + strcspn(path + start, "/");
		snprintf(name, sizeof(name), "%.*s", (int)(end - start), path + start);
		rc = make_directory(op, dir, name);
		close(dir);
		dir = rc < 0 ? rc : open_prefix(op, path, end);
	}
	return dir;
}

int localfs_dir_open(const struct localfs_op *op, const char *path, size_t len, bool make)
{
	int dir = open_prefix(op, path, len);

	return dir == -ENOENT && make ? make_prefix(op, path, len) : dir;
}

int localfs_at_open(const struct localfs_op *op, struct localfs_at *at, const struct berth_str *path, bool make)
{
	const char *slash;
	size_t len;
	int rc;

	at->dir = -1;
	rc = localfs_path_copy(path, at->path);
	if (rc < 0)
		return rc;
	slash = strrchr(at->path, '/');
	at->name = slash ? slash + 1 : at->path;
	len = slash ? (size_t)(slash - at->path) : 0;
	at->dir = localfs_dir_open(op, at->path, len, make);
	if (at->dir < 0) {
		rc = at->dir;
		at->dir = -1;
	}
	return rc;
}

void localfs_at_close(struct localfs_at *at)
{
	if (at->dir >= 0)
		close(at->dir);
	at->dir = -1;
}

bool localfs_temp_is(const char *name)
{
	size_t len = strlen(name);

	return len > strlen(TEMP_PREFIX TEMP_SUFFIX) && strncmp(name, TEMP_PREFIX, strlen(TEMP_PREFIX)) == 0 &&
	       strcmp(name + len - strlen(TEMP_SUFFIX), TEMP_SUFFIX) == 0;
}

int localfs_temp_make(const struct localfs_op *op, int dir, char name[LOCALFS_TEMP_MAX], bool directory)
{
	for (int i = 0; i < 8; i++) {
		uint64_t word[2];
		int fd;

		op->host->random(word, sizeof(word));
		snprintf(name, LOCALFS_TEMP_MAX, TEMP_PREFIX "%016" PRIx64 "%016" PRIx64 TEMP_SUFFIX, word[0], word[1]);
		if (directory && mkdirat(dir, name, 0700) < 0)
			fd = -1;
		else if (directory)
			fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		else
			fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd >= 0)
			return fd;
		if (errno != EEXIST)
			return -errno;
	}
	return -EEXIST;
}

int localfs_place(int from_dir, const char *from, int to_dir, const char *name)
{
	struct stat st;

	if (renameat(from_dir, from, to_dir, name) == 0)
		return 0;
	if (errno == EISDIR || errno == ENOTEMPTY || errno == EEXIST)
		return -EISDIR;
	/* From rename this means another mount, which is no escape. */
	if (errno == EXDEV)
		return -EOPNOTSUPP;
	/* Some file systems say ENOTDIR or EPERM for a file over a directory. */
	if ((errno == ENOTDIR || errno == EPERM) && fstatat(to_dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    S_ISDIR(st.st_mode))
		return -EISDIR;
	return -errno;
}

static uint32_t kind_of(const struct stat *st)
{
	if (S_ISREG(st->st_mode))
		return BERTH_FILE_REGULAR;
	if (S_ISDIR(st->st_mode))
		return BERTH_FILE_DIRECTORY;
	return S_ISLNK(st->st_mode) ? BERTH_FILE_SYMLINK : BERTH_FILE_OTHER;
}

static int32_t emit(const struct localfs_op *op, const char *path, const struct stat *st)
{
	struct berth_file_info info = {
		.struct_size = sizeof(info),
		.kind = kind_of(st),
		.path = {path, strlen(path)},
		.size = S_ISDIR(st->st_mode) ? 0 : (uint64_t)st->st_size,
		.mtime_ms = (int64_t)st->st_mtim.tv_sec * 1000 + st->st_mtim.tv_nsec / 1000000,
		.mode = st->st_mode & 07777,
	};

	return op->host->emit_file(op->call, &info);
}

/* The link itself, unless it leads outside: then it is refused like every other way there. */
int32_t berth_localfs_stat(const struct berth_host *host, struct berth_call *call, const struct berth_localfs *fs,
			   const struct berth_str *path)
{
	struct localfs_op op = {host, call, fs};
	char name[BERTH_PATH_MAX + 1];
	struct stat st;
	int target = -1;
	int fd = localfs_path_copy(path, name);

	if (fd == 0)
		fd = beneath_open(fs->root_fd, name, O_PATH | O_NOFOLLOW, 0, 0);
	if (fd < 0)
		return localfs_fail_errno(host, call, fd == -ENOTDIR ? ENOENT : fd, "look at the path");
	if (fstatat(fd, "", &st, AT_EMPTY_PATH) < 0)
		target = -errno;
	else if (S_ISLNK(st.st_mode))
		target = beneath_open(fs->root_fd, name, O_PATH, 0, 0);
	else
		target = 0;
	close(fd);
	if (target > 0)
		close(target);
	if (target < 0 && target != -ENOENT && target != -ENOTDIR && target != -EACCES)
		return localfs_fail_errno(host, call, target, "look at the path");
	return emit(&op, name, &st);
}

int32_t berth_localfs_move(const struct berth_host *host, struct berth_call *call, const struct berth_localfs *fs,
			   const struct berth_str *from, const struct berth_str *to)
{
	struct localfs_op op = {host, call, fs};
	struct localfs_at source = {.dir = -1}, target = {.dir = -1};
	int rc = localfs_path_check(to);

	if (rc == 0)
		rc = localfs_at_open(&op, &source, from, false);
	if (rc == -ENOTDIR)
		rc = -ENOENT;
	/* Looked for first, so that a missing source makes no directories for the target. */
	if (rc == 0 && faccessat(source.dir, source.name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		rc = -errno;
	if (rc == 0)
		rc = localfs_at_open(&op, &target, to, true);
	if (rc == 0 && (strcmp(source.name, ".") == 0 || strcmp(target.name, ".") == 0))
		rc = -EINVAL;
	if (rc == 0 && renameat(source.dir, source.name, target.dir, target.name) < 0)
		rc = errno == EXDEV ? -EOPNOTSUPP : -errno;
	localfs_at_close(&source);
	localfs_at_close(&target);
	return rc < 0 ? localfs_fail_errno(host, call, rc, "move the file") : BERTH_OK;
}

static int32_t list_entry(struct localfs_walk *walk, const char *below, const char *path, const struct stat *st)
{
	(void)below;
	return emit(walk->op, path, st);
}

static void tell_left_out(const struct localfs_op *op, size_t left_out)
{
	char text[160];
	struct berth_str line = {.ptr = text};

	if (!left_out || !op->host->log)
		return;
	line.len = (size_t)snprintf(text, sizeof(text),
				    "%zu entries have paths over %u bytes, or lie in closed folders or too many wide ones, and are left out",
				    left_out, BERTH_PATH_MAX);
	op->host->log(NULL, op->call, BERTH_LOG_WARN, &line, NULL, 0);
}

int32_t berth_localfs_list(const struct berth_host *host, struct berth_call *call, const struct berth_localfs *fs,
			   const struct berth_str *path, uint32_t flags)
{
	struct localfs_op op = {host, call, fs};
	struct localfs_walk walk = {
		.op = &op, .recursive = flags & BERTH_LIST_RECURSIVE, .lenient = true, .entry = list_entry};
	char name[BERTH_PATH_MAX + 1];
	int32_t code;
	int rc = localfs_path_copy(path, name);

	if (flags & ~BERTH_LIST_RECURSIVE)
		return BERTH_UNSUPPORTED;
	if (rc == 0)
		rc = beneath_open(fs->root_fd, name, O_RDONLY | O_DIRECTORY, 0, 0);
	if (rc < 0)
		return localfs_fail_errno(host, call, rc, "open the directory");
	walk.base = rc;
	walk.prefix = strcmp(name, ".") == 0 ? "" : name;
	code = localfs_walk_run(&walk);
	if (code == BERTH_OK)
		tell_left_out(&op, walk.left_out);
	close(walk.base);
	return code;
}

int32_t berth_localfs_remove(const struct berth_host *host, struct berth_call *call, const struct berth_localfs *fs,
			     const struct berth_str *path, uint32_t flags)
{
	struct localfs_op op = {host, call, fs};
	struct localfs_at at;
	int rc;

	if (flags & ~BERTH_REMOVE_RECURSIVE)
		return BERTH_UNSUPPORTED;
	rc = localfs_at_open(&op, &at, path, false);
	if (rc == -ENOTDIR)
		rc = -ENOENT;
	if (rc == 0 && strcmp(at.name, ".") == 0)
		rc = -EINVAL;
	if (rc == 0 && unlinkat(at.dir, at.name, 0) < 0)
		rc = -errno;
	/* EPERM is what POSIX says for a directory; Linux says EISDIR. */
	if (rc == -EISDIR || rc == -EPERM) {
		rc = unlinkat(at.dir, at.name, AT_REMOVEDIR) < 0 ? -errno : 0;
		if (rc == -ENOTDIR)
			rc = -EPERM;
	}
	if ((rc == -ENOTEMPTY || rc == -EEXIST) && (flags & BERTH_REMOVE_RECURSIVE))
		rc = localfs_remove_tree(&op, at.dir, at.name);
	else if (rc == -EEXIST)
		rc = -ENOTEMPTY;
	localfs_at_close(&at);
	return rc < 0 ? localfs_fail_errno(host, call, rc, "remove") : rc;
}
